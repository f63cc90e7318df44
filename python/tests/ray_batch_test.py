# SPDX-License-Identifier: MIT
"""[P2] Batches over actors of Ray: the bytes of one process, in order, whatever is lost on the way.

usage: ray_batch_test.py [--rows N]      everything with so many prompts; without it a sample
"""
import argparse
import os
import pathlib
import random
import signal
import sys
import tempfile
import threading
import time
import unittest

import numpy as np
import pandas
import pyarrow
import pyarrow.parquet

import ray_support
import ray
from support import TINY

import tinfer
from tinfer import SamplingParams
from tinfer.ray import Predictor

OPTIONS = {"n_ctx": 1024, "n_parallel": 8}
SAMPLING = SamplingParams(max_tokens=6, seed=7, temperature=1.2, logit_bias={2: -100.0})
WORDS = "the one once upon a time there was king and his sea sky".split()
KILLS = 3


def rows_of(n):
    pick = random.Random(1)
    return [{"id": i, "prompt": " ".join(pick.choices(WORDS, k=pick.randint(1, 9))), "note": f"row {i}"}
            for i in range(n)]


class Named(Predictor):
    """Writes its process's id where the test finds it."""

    def __init__(self, *args, folder, **options):
        super().__init__(*args, **options)
        self._file = pathlib.Path(folder) / str(os.getpid())
        self._file.write_text("loaded")

    def __call__(self, batch):
        self._file.write_text("works")
        time.sleep(0.05)
        return super().__call__(batch)


def kill_at_random(folder, kills, stop):
    """Kills actors while they work, one after another, by the ids that they wrote."""
    pick = random.Random(3)
    while len(kills) < KILLS and not stop.is_set():
        time.sleep(pick.uniform(0.2, 0.6))
        at_work = [int(file.name) for file in pathlib.Path(folder).iterdir()
                   if file.read_text() == "works" and int(file.name) not in kills]
        if at_work:
            kills.append(pick.choice(at_work))
            os.kill(kills[-1], signal.SIGKILL)


class Batches(unittest.TestCase):
    n_rows, is_large = 240, False

    @staticmethod
    def nodes():
        return ray_support.local_ray(n_cpus=4)

    @classmethod
    def setUpClass(cls):
        nodes = cls.nodes()
        cls.cluster = nodes.__enter__()
        cls.addClassCleanup(nodes.__exit__, None, None, None)
        context = ray.data.DataContext.get_current()
        context.execution_options.preserve_order = True
        cls.rows = rows_of(cls.n_rows)
        with tinfer.LLM(TINY, **OPTIONS) as llm:
            outputs = llm.generate([row["prompt"] for row in cls.rows], SAMPLING)
        cls.expected = [{**row, "text": output.text, "token_ids": output.token_ids,
                         "finish_reason": output.finish_reason} for row, output in zip(cls.rows, outputs)]

    def data(self, blocks=16):
        return ray.data.from_items(self.rows, override_num_blocks=blocks)

    def predict(self, data, n_actors=2, batch_size=16, cls=Predictor, **options):
        return data.map_batches(cls, fn_constructor_args=[TINY],
                                fn_constructor_kwargs={"sampling": SAMPLING, **OPTIONS, **options}, num_cpus=1,
                                compute=ray.data.ActorPoolStrategy(size=n_actors), batch_size=batch_size)

    def test_p2_equal_bytes(self):  # [P2]
        """1, 2 and 4 actors, batches and blocks of several sizes: each row as one process gives it, in order"""
        cases = [(1, 64, 3), (2, 7, 16), (4, 16, 16)]
        for n_actors, batch_size, blocks in cases if self.is_large else cases[1:2]:
            with self.subTest(actors=n_actors, batch_size=batch_size, blocks=blocks):
                got = self.predict(self.data(blocks), n_actors, batch_size).take_all()
                self.assertEqual(got, self.expected)

    def test_p2_killed(self):  # [P2]
        """actors killed while they work: nothing lost, nothing twice, the same bytes"""
        with tempfile.TemporaryDirectory() as folder:
            kills, stop = [], threading.Event()
            killer = threading.Thread(target=kill_at_random, args=(folder, kills, stop))
            killer.start()
            try:
                got = self.predict(self.data(32), 2, 4, Named, folder=folder).take_all()
            finally:
                stop.set()
                killer.join()
        print(f"killed {len(kills)} actors over {len(got)} rows", flush=True)
        self.assertGreater(len(kills), 0)
        self.assertEqual(got, self.expected)

    def test_parquet(self):
        """results of several blocks in Parquet, read by who knows nothing of Ray"""
        if not self.is_large:
            self.skipTest("with --rows")
        with tempfile.TemporaryDirectory() as folder:
            self.predict(self.data(), 2).write_parquet(folder)
            table = pyarrow.concat_tables(
                [pyarrow.parquet.read_table(file) for file in pathlib.Path(folder).glob("*.parquet")])
        self.assertEqual(table.schema.field("token_ids").type, pyarrow.list_(pyarrow.int64()))
        self.assertEqual(sorted(table.to_pylist(), key=lambda row: row["id"]), self.expected)

    def test_vectors_and_scores(self):
        """embeddings and scores are those of one process to the bit"""
        if not self.is_large:
            self.skipTest("with --rows")
        texts = ray.data.from_items([{"id": row["id"], "text": row["prompt"]} for row in self.rows[:60]],
                                    override_num_blocks=7)
        with tinfer.LLM(TINY, **OPTIONS) as llm:
            vectors = llm.embed([row["prompt"] for row in self.rows[:60]])
            scores = [one.log_prob for one in llm.score([row["prompt"] for row in self.rows[:60]])]
        got = self.predict(texts, 2, 8, task="embed").take_all()
        self.assertEqual(np.stack([row["embedding"] for row in got]).tobytes(), vectors.tobytes())
        self.assertEqual([row["id"] for row in got], list(range(60)))
        got = self.predict(texts, 2, 8, task="score").take_all()
        self.assertEqual([row["log_prob"] for row in got], scores)


class SeveralNodes(Batches):
    """All of it over three nodes, one of which is lost while it works."""

    @staticmethod
    def nodes():
        return ray_support.several_nodes(3)

    @classmethod
    def setUpClass(cls):
        if not cls.is_large:
            raise unittest.SkipTest("with --rows")
        super().setUpClass()

    def test_p2_node_lost(self):  # [P2]
        """a whole node ends: its blocks are made again by the others, the same bytes in order"""
        lost = self.cluster.add_node(num_cpus=2, object_store_memory=ray_support.STORE)
        self.cluster.wait_for_nodes()
        with tempfile.TemporaryDirectory() as folder:
            worked = lambda: [file for file in pathlib.Path(folder).iterdir() if file.read_text() == "works"]

            def lose():
                while len(worked()) < 6:
                    time.sleep(0.05)
                self.cluster.remove_node(lost, allow_graceful=False)
            loser = threading.Thread(target=lose)
            loser.start()
            got = self.predict(self.data(64), 7, 4, Named, folder=folder).take_all()   # 7 of 8 processors: all nodes
            loser.join()
        self.assertEqual(sum(node["Alive"] for node in ray.nodes()), 3)
        self.assertEqual(got, self.expected)


class OneProcess(unittest.TestCase):
    """What an actor does with a batch, without Ray."""

    def test_formats(self):
        """a batch comes back in its own format, with what it had"""
        rows = rows_of(5)
        predictor = Predictor(TINY, SAMPLING, **OPTIONS)
        arrays = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        got = predictor(arrays)
        expected = {name: list(values) for name, values in got.items()}
        self.assertEqual(list(expected), ["id", "prompt", "note", "text", "token_ids", "finish_reason"])
        self.assertEqual(predictor(pandas.DataFrame(rows)).to_dict("list"), expected)
        self.assertEqual(predictor(pyarrow.Table.from_pylist(rows)).to_pydict(), expected)
        again = predictor(predictor(pyarrow.Table.from_pylist(rows)))   # columns that were there are replaced
        self.assertEqual(again.to_pydict(), expected)

    def test_seeds(self):
        """a row's own seed, that of the parameters, or one by the row's content: never by its place"""
        prompts = ["the one", "the sea", "the one"]
        predictor = Predictor(TINY, SAMPLING, **OPTIONS)
        with tinfer.LLM(TINY, **OPTIONS) as llm:
            own = [llm.generate(prompt, SAMPLING, seed=seed).text for prompt, seed in zip(prompts, [5, 7, 6])]
        self.assertEqual(list(predictor({"prompt": np.array(prompts), "seed": np.array([5, np.nan, 6])})["text"]), own)
        self.assertEqual(predictor(pyarrow.table({"prompt": prompts, "seed": [5, None, 6]}))["text"].to_pylist(), own)
        free = Predictor(TINY, SamplingParams(max_tokens=12, logit_bias={2: -100.0}), **OPTIONS)
        whole = list(free({"prompt": np.array(prompts)})["text"])
        self.assertEqual(whole[0], whole[2])
        self.assertEqual([free({"prompt": np.array([prompt])})["text"][0] for prompt in prompts], whole)
        with self.assertRaises(ValueError):
            predictor({"prompt": np.array(["a"]), "seed": np.array([2**32 - 1])})

    def test_vectors_and_scores(self):
        """those of an LLM, in each format of a batch"""
        texts = [row["prompt"] for row in rows_of(3)]
        with tinfer.LLM(TINY, **OPTIONS) as llm:
            vectors, scores = llm.embed(texts), [one.log_prob for one in llm.score(texts)]
        embed, score = (Predictor(TINY, task=task, **OPTIONS) for task in ("embed", "score"))
        for batch in {"text": np.array(texts)}, pandas.DataFrame({"text": texts}), pyarrow.table({"text": texts}):
            got = [model(batch)[name] for model, name in ((embed, "embedding"), (score, "log_prob"))]
            rows, numbers = (one.to_pylist() if hasattr(one, "to_pylist") else list(one) for one in got)
            self.assertEqual(np.array(rows, np.float32).tobytes(), vectors.tobytes())
            self.assertEqual(numbers, scores)

    def test_token_ids_as_prompts(self):
        predictor = Predictor(TINY, SAMPLING, **OPTIONS)
        ids = predictor.llm.tokenize("the one")
        self.assertEqual(predictor(pyarrow.table({"prompt": [ids]}))["text"].to_pylist(),
                         list(predictor({"prompt": np.array(["the one"])})["text"]))

    def test_what_is_wrong_is_said(self):
        with self.assertRaisesRegex(ValueError, "rank"):
            Predictor(TINY, task="rank")
        with self.assertRaisesRegex(KeyError, "prompt.*there are: text"):
            Predictor(TINY, **OPTIONS)({"text": np.array(["a"])})
        with self.assertRaises(tinfer.Error):
            Predictor("nowhere.gguf")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int)
    given, rest = parser.parse_known_args()
    if given.rows:
        Batches.n_rows, Batches.is_large = given.rows, True   # for all nodes, too
    unittest.main(argv=[sys.argv[0], *rest])
