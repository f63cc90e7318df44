#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Rows of the server whose sentence is about a moment, or about two servers: when tokens arrive, when a slot is free,
what fingerprints say of answers."""
import json
import subprocess
import sys
import threading
import time
import unittest

from server_support import FOLDER, HERE, MODEL, NO_EOG, Server, chat


class Rows(unittest.TestCase):
    def test_v3_tokens_arrive_before_later_ones_are_made(self):  # [V3]
        """One event for each token, and each is here while the server has made no more than the next one or two: a
        server that keeps any of them back is found out. Prompts of others make every round last long enough to look.
        A busy machine may hold up the one who looks, so nine of ten have to be in time, in one of some streams"""
        n, ended = 13, threading.Event()
        with Server("--parallel", 3, "-c", 8192, "--isa", "reference", "--max-batch-tokens", 48) as server:
            def others(seed):
                while not ended.is_set():
                    server.post("/v1/completions", {"prompt": [270 + (seed + i) % 9 for i in range(2500)],
                                                    "max_tokens": 1, "cache_prompt": False, **NO_EOG})
            pool = [threading.Thread(target=others, args=(seed,)) for seed in range(2)]
            for thread in pool:
                thread.start()
            try:
                in_time = []
                while len(in_time) < 6 and max(in_time, default=0) < 0.9:
                    in_time.append(self.tokens_in_time(server, n))
            finally:
                ended.set()
                for thread in pool:
                    thread.join()
        self.assertGreaterEqual(max(in_time), 0.9, in_time)

    def tokens_in_time(self, server, n):
        """Reads a stream of n tokens; the part of them that was here before the server had made three more."""
        connection, tokens, in_time = server.connect(), 0, 0
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(
                chat("Stream", max_tokens=n, stream=True, logprobs=True)).encode())
            response = connection.getresponse()
            while (line := response.readline()) != b"data: [DONE]\n":
                self.assertTrue(line, "the stream has no end")
                if not line.startswith(b"data: {"):
                    continue
                said = len((json.loads(line[6:])["choices"][0].get("logprobs") or {}).get("content") or [])
                self.assertLessEqual(said, 1, "two tokens in one event")
                if not said:
                    continue
                tokens += 1
                made = [slot["generated_tokens"] for slot in server.get("/slots") if slot["generated_tokens"] > 0]
                in_time += tokens <= n - 3 and max(made, default=n) <= tokens + 2  # where it ends nothing can be said
        finally:
            connection.close()
        self.assertEqual(tokens, n)
        return in_time / (n - 3)

    def test_v11_a_slot_is_free_in_50_ms(self):  # [V11]
        """From a client's going to its slot's release: in the prompt and in the answer, of a stream and of a whole
        answer. The machine may be busy: of a dozen times the shortest decides"""
        with Server("--parallel", 2, "-c", 32768, "--isa", "reference") as server:
            for in_prompt, streams in [(True, False), (True, True), (False, False), (False, True)]:
                body = json.dumps({"prompt": [300] * (20000 if in_prompt else 4), "max_tokens": 8000, "stream": streams,
                                   "cache_prompt": False, "temperature": 0, **NO_EOG}).encode()
                times = []
                for _ in range(12):
                    gone = server.socket()
                    gone.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                                 b"%d\r\n\r\n" % len(body) + body)
                    slots = []
                    while not slots or slots[0]["state"] != ("reading" if in_prompt else "generating"):
                        slots = server.get("/slots")
                    begin = time.monotonic()
                    gone.close()
                    while slots := server.get("/slots"):
                        pass
                    times.append(time.monotonic() - begin)
                    if times[-1] <= 0.05:
                        break
                self.assertLessEqual(min(times), 0.05, (in_prompt, streams, times))

    def test_v9_fingerprint(self):  # [V9]
        """Servers with one fingerprint give equal answers to a request that leaves all it can to the server; those
        that differ only in what changes no bit have one. Whatever else a server is told is not looked up in a list
        here: where answers differ, fingerprints have to"""
        other = FOLDER / "other-weights.gguf"
        subprocess.run([sys.executable, HERE.parent / "support/tiny_model.py", other, "2"], check=True)
        lora = FOLDER / "fingerprint-lora.gguf"
        subprocess.run([sys.executable, HERE.parent / "support/tiny_model.py", lora, "3", "lora"], check=True)
        same = [[], ["-t", 2, "--isa", "reference"], ["-t", 2, "--no-mmap"], ["--max-batch-tokens", 8, "--no-share"]]
        template = FOLDER / "other-template.jinja"
        template.write_text("{% for m in messages %}[{{ m.role }}] {{ m.content }} {% endfor %}")
        different = [["--temp", 0.3], ["--temp", 0], ["--top-k", 2], ["--top-p", 0.2], ["--min-p", 0.4],
                     ["--penalty-repeat", 1.8], ["--samplers", "top_k(3)"], ["--logit-bias", "300=8"],
                     ["--chat-template-file", template], ["--chat-template-file", "chatml"], ["--lora", lora],
                     ["--override", "llama.rope.freq_base=float:3"], ["--override",
                     "llama.attention.layer_norm_rms_epsilon=float:0.1"], ["--kv-type-k", "f32", "--kv-type-v", "f32"]]
        asked = {"messages": [{"role": "user", "content": "the same to all"}], "seed": 3, "max_tokens": 40}
        answers = {}
        for args, model in [*((args, MODEL) for args in same + different), ([], other)]:
            with Server(*args, "-c", 512, model=model) as server:
                answer = server.post("/v1/chat/completions", asked)
                answers[" ".join(map(str, args)) if model == MODEL else "other weights"] = (
                    answer["system_fingerprint"], json.dumps(answer["choices"]))
        base = answers[""]
        for args in same:
            self.assertEqual(answers[" ".join(map(str, args))], base, args)
        self.assertGreater(len({text for _, text in answers.values()}), len(different) - 3, "hardly one of them counts")
        by_fingerprint = {}
        for name, (fingerprint, text) in answers.items():
            first, expected = by_fingerprint.setdefault(fingerprint, (name, text))
            self.assertEqual(text, expected, f"'{first}' and '{name}' have one fingerprint")


if __name__ == "__main__":
    unittest.main()
