#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The answer does not depend on the load: mixed requests (chat, tools, schemas, scores, other protocols, vectors,
adapters, guesses) have the same bytes alone, all at once, in another order, with a cold store of prompts and a warm
one, and after a restart. Requests: --requests N (default 48)."""
import concurrent.futures
import json
import random
import subprocess
import sys
import tempfile
import unittest

N = 48
if "--requests" in sys.argv:
    at = sys.argv.index("--requests")
    N = int(sys.argv[at + 1])
    del sys.argv[at:at + 2]

from server_support import FOLDER, HERE, NO_EOG, Server  # noqa: E402  takes the program's path out of the arguments
from mixed_requests import N_KINDS, VECTORS, ask, request  # noqa: E402

MODEL = FOLDER / "talks.gguf"
class Promise(unittest.TestCase):
    def ask(self, servers, i):
        return ask(servers[i % N_KINDS == VECTORS], i)

    def all_of(self, servers, order, at_once):
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            got = list(pool.map(lambda i: self.ask(servers, i), order))
        return {i: json.dumps(answer, sort_keys=True) for i, answer in zip(order, got)}

    def counter(self, server, name):
        lines = server.ask("GET", "/metrics")[2].decode().splitlines()
        return float(next(line for line in lines if line.startswith(name + "{")).rsplit(" ", 1)[1])

    def same(self, expected, got, where):
        for i, answer in expected.items():
            self.assertEqual(got[i], answer, f"{where}: request {i}: {request(i)}")

    def test_v2_answers_do_not_depend_on_the_load(self):  # [V2]
        subprocess.run([sys.executable, HERE.parent / "support/tiny_model.py", MODEL, "1", "talks"], check=True)
        loras = []
        for name, seed in [("red", 3), ("blue", 4)]:
            path = FOLDER / f"{name}.gguf"
            subprocess.run([sys.executable, HERE.parent / "support/tiny_model.py", path, str(seed), "lora"], check=True)
            loras += ["--lora", f"{name}={path}"]
        order = list(range(N))
        shuffled = order[:]
        random.Random(7).shuffle(shuffled)
        vectors = (*loras, "--pooling", "mean", "--parallel", 6, "-c", 4096)

        def serve(*args, n_ctx=8192):
            return Server(*loras, "-c", n_ctx, "--max-queue", 2 * N + 8, *args, model=MODEL)
        with serve("--parallel", 1, "--no-share") as text, Server(*vectors, model=MODEL) as other:
            expected = self.all_of((text, other), order, 1)
        kinds = {i % N_KINDS for i in order}
        self.assertEqual(len(set(expected.values())), N, "every request has an answer of its own")
        self.assertEqual(len(kinds), min(N_KINDS, N))
        with tempfile.TemporaryDirectory() as store, Server(*vectors, "--max-queue", 3 * N + 8, model=MODEL) as other:
            args = ("--prompt-store", store, "--keep-sequences", 3)
            with serve("--parallel", 12, *args) as text:
                self.same(expected, self.all_of((text, other), order, N), "all at once")
                self.same(expected, self.all_of((text, other), shuffled, N), "in another order")
            with serve("--parallel", 5, *args, "--max-batch-tokens", 40) as text:
                self.same(expected, self.all_of((text, other), shuffled[::-1], N), "after a restart")
                self.assertGreater(self.counter(text, "tinfer_store_restored_tokens_total"), 0)
            with serve("--parallel", 12, "--keep-sequences", 0, n_ctx=1536) as text:
                got = self.all_of((text, other), order, N)
                self.same(expected, got, "in a narrow cache")

    def test_pages_run_out(self):
        """Answers that outgrow the cache go back into the queue and on from there; no client notices"""
        bodies = [{"prompt": f"{i} once", "max_tokens": 700, "seed": i, "temperature": 0.9, **NO_EOG} for i in range(6)]
        text = lambda server, body: server.post("/v1/completions", body)["choices"][0]["text"]
        with Server("-c", 4096, "--parallel", 1) as server:
            expected = [text(server, body) for body in bodies]
        with Server("-c", 1536, "--parallel", 6) as server:
            with concurrent.futures.ThreadPoolExecutor(6) as pool:
                self.assertEqual(list(pool.map(lambda body: text(server, body), bodies)), expected)
            self.assertGreater(self.counter(server, "tinfer_pushed_back_total"), 0)


if __name__ == "__main__":
    unittest.main()
