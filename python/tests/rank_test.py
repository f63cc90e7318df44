# SPDX-License-Identifier: MIT
"""[P1] LLM.rank with a reranker: a checkpoint of the published layout with its pooler and a classifier of seeded
random numbers, converted by the program, beside double precision written down here. Skipped without golden data."""
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import numpy as np

import tinfer
from support import PROGRAM, PROJECT
from wheel import SKIPPED

GOLDEN = pathlib.Path(os.environ.get("TINFER_GOLDEN") or PROJECT.parent / "shared/golden") / "convert/bert"
CLS, SEP = 2, 3   # of its vocabulary
EXACT = {"type_k": "f32", "type_v": "f32"}   # a cache that rounds nothing


def checkpoint(folder, n_class):
    """A copy of the golden encoder as BertForSequenceClassification."""
    shutil.copytree(GOLDEN, folder, copy_function=shutil.copy, ignore=shutil.ignore_patterns("*.f32", "case.json"))
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["BertForSequenceClassification"]
    config["id2label"] = {str(i): f"LABEL_{i}" for i in range(n_class)}
    config["label2id"] = {f"LABEL_{i}": i for i in range(n_class)}
    (folder / "config.json").write_text(json.dumps(config))
    data = (folder / "model.safetensors").read_bytes()
    [length] = struct.unpack_from("<Q", data)
    header, values = json.loads(data[8:8 + length]), data[8 + length:]
    header = {name if name.startswith(("bert.", "__")) else "bert." + name: entry for name, entry in header.items()}
    chance = np.random.default_rng(7)
    for name, shape in (("classifier.weight", (n_class, config["hidden_size"])), ("classifier.bias", (n_class,))):
        array = chance.uniform(-1, 1, shape).astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(values), len(values) + len(array)]}
        values += array
    packed = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(packed)) + packed + values)


def scores(model, ids):
    """arXiv:1810.04805 in double precision, with the tanh form of GELU: the classifier's outputs for one row of ids."""
    def weight(name):
        return model.dequantize(name).astype(np.float64)

    def linear(x, name):
        return x @ weight(name + ".weight").T + weight(name + ".bias")

    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight(name + ".weight") + weight(name + ".bias")
    keys = model.metadata()
    eps, n_head = float(keys["bert.attention.layer_norm_epsilon"]), int(keys["bert.attention.head_count"])
    x = weight("token_embd.weight")[ids] + weight("token_types.weight")[0] + weight("position_embd.weight")[:len(ids)]
    x = norm(x, "token_embd_norm")
    for i in range(model.n_layer):
        q, k, v = (linear(x, f"blk.{i}.attn_{one}").reshape(len(ids), n_head, -1) for one in "qkv")
        seen = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(q.shape[-1])
        seen = np.exp(seen - seen.max(-1, keepdims=True))
        seen = np.einsum("hij,jhd->ihd", seen / seen.sum(-1, keepdims=True), v).reshape(x.shape)
        x = norm(x + linear(seen, f"blk.{i}.attn_output"), f"blk.{i}.attn_output_norm")
        up = linear(x, f"blk.{i}.ffn_up")
        up = 0.5 * up * (1 + np.tanh(np.sqrt(2 / np.pi) * (up + 0.044715 * up**3)))
        x = norm(x + linear(up, f"blk.{i}.ffn_down"), f"blk.{i}.layer_output_norm")
    return linear(np.tanh(linear(x[0], "cls")), "cls.output")


class Reranker(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.paths = {}
        for n_class in (1, 3):
            source = pathlib.Path(cls.folder.name) / f"ranks-{n_class}"
            checkpoint(source, n_class)
            cls.paths[n_class] = str(source) + ".gguf"
            subprocess.run([PROGRAM, "convert", source, "-o", cls.paths[n_class], "--type", "f32"], check=True,
                           stdout=subprocess.DEVNULL)
        texts = [row for row in json.loads((GOLDEN / "case.json").read_text())["texts"] if 0 < len(row["ids"]) < 28]
        assert len(texts) >= 3
        cls.query, *cls.documents = texts   # with ids of the source's own tokenizer
        cls.given = [row["text"] for row in cls.documents]

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def pair(self, document):
        return [CLS, *self.query["ids"], SEP, *document["ids"], SEP]

    def test_scores_are_those_of_double_precision(self):
        for n_class, path in self.paths.items():
            with tinfer.LLM(path, **EXACT) as llm:
                self.assertEqual((llm.model.pooling, llm.model.n_class), ("rank", n_class))
                expected = np.array([scores(llm.model, self.pair(document))[0] for document in self.documents])
                got = llm.rank(self.query["text"], self.given)
                self.assertEqual((got.shape, got.dtype), ((len(self.documents),), np.float32))
                self.assertGreater(np.ptp(expected), 0.3)
                self.assertLess(np.abs(got - expected).max(), 1e-3)
                self.assertEqual(np.argsort(got).tolist(), np.argsort(expected).tolist())

    def test_a_text_alone_has_the_bits_that_it_has_among_others(self):
        with tinfer.LLM(self.paths[1]) as llm:
            together = llm.rank(self.query["text"], self.given)
            alone = [llm.rank(self.query["text"], [text])[0] for text in self.given]
            self.assertTrue(np.array_equal(together, np.array(alone, np.float32)))
            self.assertEqual(llm.rank("once", []).shape, (0,))
            self.assertRaises(TypeError, llm.rank, "once", "upon")
            self.assertRaises(tinfer.Error, llm.rank, "once", ["upon a time " * 500])

    def test_the_server_gives_the_same(self):
        with tinfer.LLM(self.paths[1]) as llm:
            expected = llm.rank(self.query["text"], self.given)
        process = subprocess.Popen([PROGRAM, "serve", "-m", self.paths[1], "--port", "0"], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
        try:
            address = re.search(r"http://[\d.:]+", next(line for line in process.stdout if "http://" in line))[0]
            body = json.dumps({"query": self.query["text"], "documents": self.given}).encode()
            results = None
            while results is None:   # as long as it loads it says 503
                try:
                    request = urllib.request.Request(address + "/v1/rerank", body, {"Content-Type": "application/json"})
                    with urllib.request.urlopen(request, timeout=60) as answer:
                        results = json.load(answer)["results"]
                except urllib.error.HTTPError as error:
                    self.assertEqual(error.code, 503)
                    time.sleep(0.05)
        finally:
            process.terminate()
            process.communicate()
        self.assertEqual([one["index"] for one in results], np.argsort(-expected, kind="stable").tolist())
        self.assertEqual([np.float32(one["relevance_score"]) for one in results],
                         [expected[one["index"]] for one in results])


if __name__ == "__main__":
    if not GOLDEN.exists() or not PROGRAM or not os.path.exists(PROGRAM):
        print("skipped: no golden data (see TINFER_GOLDEN), or no program tinfer, which converts")
        sys.exit(SKIPPED)
    unittest.main()
