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

MODEL = FOLDER / "talks.gguf"
SCHEMA = {"type": "object", "properties": {"sunny": {"type": "boolean"}, "n": {"type": "integer", "minimum": 0,
                                                                             "maximum": 99}},
          "required": ["sunny", "n"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {
    "type": "object", "properties": {"at": {"enum": ["sky", "sea"]}}, "required": ["at"],
    "additionalProperties": False}}}
WORDS = ["once", "the", "other", "one", "and", "then", "inner", "hero", "on", "a", "tree"]
# What is of one request alone, of the moment, or of the server's options (its fingerprint), in all protocols.
OF_THE_MOMENT = {"id", "call_id", "created", "created_at", "system_fingerprint", "timings", "cached_tokens",
                 "input_tokens", "cache_read_input_tokens", "prompt_tokens_details", "input_tokens_details"}


def bytes_of(document):
    """The document without what a clock, a random name or the cache decides."""
    if isinstance(document, dict):
        return {k: bytes_of(v) for k, v in document.items() if k not in OF_THE_MOMENT}
    return [bytes_of(v) for v in document] if isinstance(document, list) else document


def request(i):
    """(path, body): the i-th of the mixed requests."""
    chance = random.Random(i)
    beginning = "".join(f"{w} " for w in (WORDS * 12)[i % 3:i % 3 + 40 * (i % 4)])  # shared by some of them
    say = lambda n: beginning + " ".join(chance.choice(WORDS) for _ in range(n))
    sampling = {"seed": i, "temperature": chance.choice([0, 0.7, 1.3]), "top_p": chance.choice([1, 0.9]), **NO_EOG,
                "speculate": chance.choice(["off", "ngram", None]),
                "lora": chance.choice([None, None, "red", [{"name": "red", "scale": 0.4}, "blue"]]),
                "cache_prompt": chance.random() < 0.9}
    talk = {"messages": [{"role": "system", "content": beginning or "short"},
                         {"role": "user", "content": say(chance.randrange(1, 20))}], **sampling}
    kind = i % 8
    if kind in (0, 1):
        return "/v1/chat/completions", {**talk, "max_tokens": chance.randrange(4, 40), "n": 1 + kind}
    if kind == 2:
        return "/v1/chat/completions", {**talk, "max_tokens": 300, "tools": [TOOL], "tool_choice": "required",
                                        "parallel_tool_calls": False}
    if kind == 3:
        return "/v1/chat/completions", {**talk, "max_tokens": 300, "response_format": {
            "type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}
    if kind == 4:
        return "/v1/completions", {"prompt": say(9), "max_tokens": 12, "echo": True, "logprobs": 3, **sampling}
    if kind == 5:
        return "/v1/messages", {"messages": [{"role": "user", "content": say(5)}], "max_tokens": 20, **sampling}
    if kind == 6:
        return "/v1/responses", {"input": say(5), "max_output_tokens": 20, **sampling}
    return "/v1/embeddings", {"input": [say(chance.randrange(1, 9)) for _ in range(3)], "lora": sampling["lora"]}


class Promise(unittest.TestCase):
    def ask(self, servers, i):
        path, body = request(i)
        server = servers[path == "/v1/embeddings"]
        if i % 8 == 1:  # as a stream
            events = server.events(path, {**body, "stream_options": {"include_usage": True}})
            texts = {}
            for event in events:
                for choice in event["choices"]:
                    texts[choice["index"]] = texts.get(choice["index"], "") + (choice["delta"].get("content") or "")
            return texts, bytes_of(events[-1]["usage"])
        return bytes_of(server.post(path, body))

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
        kinds = {i % 8 for i in order}
        self.assertEqual(len(set(expected.values())), N, "every request has an answer of its own")
        self.assertEqual(len(kinds), min(8, N))
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
        ask = lambda server, body: server.post("/v1/completions", body)["choices"][0]["text"]
        with Server("-c", 4096, "--parallel", 1) as server:
            expected = [ask(server, body) for body in bodies]
        with Server("-c", 1536, "--parallel", 6) as server:
            with concurrent.futures.ThreadPoolExecutor(6) as pool:
                self.assertEqual(list(pool.map(lambda body: ask(server, body), bodies)), expected)
            self.assertGreater(self.counter(server, "tinfer_pushed_back_total"), 0)


if __name__ == "__main__":
    unittest.main()
