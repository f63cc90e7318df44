#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Token ids in and out, and log-probabilities of prompts, as research asks for them."""
import ast
import base64
import json
import math
import struct
import subprocess
import sys
import unittest

from server_support import FOLDER, HERE, MODEL, NO_EOG, TINFER, Server

ASK = {"messages": [{"role": "user", "content": "once the"}], "max_tokens": 8, "temperature": 0, **NO_EOG}
TEXT = {"prompt": "once the", "max_tokens": 8, "temperature": 0, **NO_EOG}
EOS = 2


class Ids(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("-c", 4096, "--parallel", 4)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def encoded(self, text, **how):
        return self.server.post("/tokenize", {"text": text, **how})["tokens"]

    def test_v20_ids(self):  # [V20]
        """ids of prompt and answer: the text's, whole and as a stream, and the same answer behind the ids"""
        whole = self.server.post("/v1/completions", {**TEXT, "return_token_ids": True})["choices"][0]
        self.assertEqual(whole["prompt_token_ids"], self.encoded("once the", add_special=True))
        self.assertEqual(len(whole["token_ids"]), 8)
        self.assertEqual(self.server.post("/detokenize", {"tokens": whole["token_ids"]})["text"].strip(),
                         whole["text"].strip())
        again = self.server.post("/v1/completions", {**TEXT, "prompt": whole["prompt_token_ids"],
                                                     "return_token_ids": True})["choices"][0]
        self.assertEqual(again["token_ids"], whole["token_ids"])
        parts = [p["choices"][0] for p in self.server.events("/v1/completions", {**TEXT, "return_token_ids": True})]
        self.assertEqual([p["prompt_token_ids"] for p in parts if "prompt_token_ids" in p],
                         [whole["prompt_token_ids"]])
        self.assertEqual([i for p in parts for i in p.get("token_ids", [])], whole["token_ids"])
        self.assertNotIn("token_ids", self.server.post("/v1/completions", TEXT)["choices"][0])

    def test_chat_ids(self):
        whole = self.server.post("/v1/chat/completions", {**ASK, "return_token_ids": True})
        behind = self.server.post("/v1/completions", {**TEXT, "prompt": whole["prompt_token_ids"],
                                                      "return_token_ids": True})
        self.assertEqual(behind["choices"][0]["token_ids"], whole["choices"][0]["token_ids"])
        parts = self.server.events("/v1/chat/completions", {**ASK, "return_token_ids": True})
        self.assertEqual([p["prompt_token_ids"] for p in parts if "prompt_token_ids" in p],
                         [whole["prompt_token_ids"]])
        self.assertEqual([i for p in parts for c in p["choices"] for i in c.get("token_ids", [])],
                         whole["choices"][0]["token_ids"])

    def test_the_token_that_ends(self):
        """it is among the ids, and not in the text"""
        ends = {**TEXT, "logit_bias": {str(EOS): 100}, "return_token_ids": True}
        whole = self.server.post("/v1/completions", ends)["choices"][0]
        self.assertEqual((whole["finish_reason"], whole["token_ids"], whole["text"]), ("stop", [EOS], ""))
        parts = [p["choices"][0] for p in self.server.events("/v1/completions", ends)]
        self.assertEqual([i for p in parts for i in p.get("token_ids", [])], [EOS])

    def test_names_by_ids(self):
        ask = {**ASK, "logprobs": True, "top_logprobs": 2, "return_token_ids": True,
               "return_tokens_as_token_ids": True}
        choice = self.server.post("/v1/chat/completions", ask)["choices"][0]
        self.assertEqual([one["token"] for one in choice["logprobs"]["content"]],
                         [f"token_id:{i}" for i in choice["token_ids"]])
        top = choice["logprobs"]["content"][0]["top_logprobs"]
        self.assertTrue(all(one["token"].startswith("token_id:") for one in top))
        text = self.server.post("/v1/completions", {**TEXT, "logprobs": 2, "return_token_ids": True,
                                                    "return_tokens_as_token_ids": True})["choices"][0]
        self.assertEqual(text["logprobs"]["tokens"], [f"token_id:{i}" for i in text["token_ids"]])

    def test_v20_prompt_logprobs(self):  # [V20]
        """those that echo with logprobs gives, with ranks; what is asked for the answer stays as it is"""
        echo = self.server.post("/v1/completions", {**TEXT, "echo": True, "logprobs": 3, "max_tokens": 0})["choices"][0]
        got = self.server.post("/v1/completions", {**TEXT, "prompt_logprobs": 3, "logprobs": 1,
                                                   "return_token_ids": True})["choices"][0]
        scores, ids = got["prompt_logprobs"], got["prompt_token_ids"]
        self.assertIsNone(scores[0])
        self.assertEqual([s[str(i)]["logprob"] for s, i in zip(scores[1:], ids[1:])],
                         echo["logprobs"]["token_logprobs"][1:])
        for score, token in zip(scores[1:], ids[1:]):
            ranks = {one["rank"]: one["logprob"] for one in score.values()}
            self.assertTrue({1, 2, 3} <= set(ranks))
            self.assertEqual(sorted(ranks.values(), reverse=True), [ranks[r] for r in sorted(ranks)])
            self.assertEqual(len(score), 3 if score[str(token)]["rank"] <= 3 else 4)
        self.assertTrue(all(len(top) == 1 for top in got["logprobs"]["top_logprobs"]))
        alone = self.server.post("/v1/completions", {**TEXT, "prompt_logprobs": 0})["choices"][0]
        self.assertEqual(([len(s) for s in alone["prompt_logprobs"][1:]], alone["logprobs"], alone["text"]),
                         ([1] * (len(ids) - 1), None, got["text"]))
        chat = self.server.post("/v1/chat/completions", {**ASK, "prompt_logprobs": 1})
        self.assertEqual(len(chat["prompt_logprobs"]), chat["usage"]["prompt_tokens"])
        for field in [{"stream": True, "prompt_logprobs": 1}, {"prompt_logprobs": 21}]:
            self.assertEqual(self.server.post("/v1/completions", {**TEXT, **field}, 400)["error"]["param"],
                             "prompt_logprobs")


def array_of(text):
    """Shape and numbers of a NumPy file in base64, by the format's own page (NEP 1)."""
    data = base64.b64decode(text, validate=True)
    assert data[:8] == b"\x93NUMPY\x01\x00"
    (size,) = struct.unpack("<H", data[8:10])
    head = ast.literal_eval(data[10:10 + size].decode("latin1"))
    assert (10 + size) % 64 == 0 and data[9 + size:10 + size] == b"\n" and not head["fortran_order"]
    kind = {"|u1": "B", "<u2": "H", "<f4": "f"}[head["descr"]]
    return head["shape"], list(struct.unpack(f"<{math.prod(head['shape'])}{kind}", data[10 + size:]))


class Scored(unittest.TestCase):
    def test_v20_prompt_logprob_token_ids(self):  # [V20]
        """scores of chosen tokens along the prompt: those that `tinfer score` gives each of them there"""
        with Server("-c", 1024) as server:
            chosen = [7, 300, 261, 7]
            ask = {**TEXT, "prompt": "once the other one", "prompt_logprob_token_ids": chosen, "return_token_ids": True}
            choice = server.post("/v1/completions", ask)["choices"][0]
            ids = choice["prompt_token_ids"]
            shape, values = array_of(choice["prompt_token_id_logprobs"])
            self.assertEqual(shape, (len(ids) - 1, len(chosen)))
            pairs = [(ids[:i + 1], [token]) for i in range(len(ids) - 1) for token in chosen]
            lines = "".join(json.dumps({"prompt": a, "text": b}) + "\n" for a, b in pairs)
            said = subprocess.run([TINFER, "score", MODEL, "-f", "-"], input=lines.encode(), capture_output=True,
                                  check=True)
            expected = [json.loads(line)["logprobs"][0] for line in said.stdout.splitlines()]
            self.assertEqual(values, [struct.unpack("<f", struct.pack("<f", x))[0] for x in expected])
            later = server.post("/v1/completions", {**ask, "prompt_logprob_start": 2, "prompt_logprobs": 0})
            later = later["choices"][0]
            self.assertEqual(array_of(later["prompt_token_id_logprobs"]),
                             ((len(ids) - 3, len(chosen)), values[2 * len(chosen):]))
            self.assertEqual(len(later["prompt_logprobs"]), len(ids))
            past = server.post("/v1/completions", {**ask, "prompt_logprob_start": 999})["choices"][0]
            self.assertEqual(array_of(past["prompt_token_id_logprobs"]), ((0, len(chosen)), []))
            chat = server.post("/v1/chat/completions", {**ASK, "prompt_logprob_token_ids": [9]})
            self.assertEqual(array_of(chat["prompt_token_id_logprobs"])[0], (chat["usage"]["prompt_tokens"] - 1, 1))
            for more in [{"prompt_logprob_token_ids": [306]}, {"prompt_logprob_token_ids": []}, {"stream": True}]:
                error = server.post("/v1/completions", {**ask, **more}, 400)["error"]
                self.assertEqual(error["param"], "prompt_logprob_token_ids")


class Experts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = FOLDER / "experts.gguf"
        subprocess.run([sys.executable, HERE.parent / "support/tiny_model.py", cls.model, "3", "moe"], check=True)

    def test_v20_routed_experts(self):  # [V20]
        """experts of prompt and answer: whole, as a stream, flat, cut, cached, drafted: one answer"""
        ask = {**TEXT, "prompt": "once the other one " * 12, "return_routed_experts": True, "return_token_ids": True}
        with Server("-c", 4096, "--parallel", 4, "--routed-experts", model=self.model) as server:
            choice = server.post("/v1/completions", ask)["choices"][0]
            meta = server.get("/v1/models")["data"][0]["meta"]
            self.assertEqual((meta["n_expert"], meta["n_expert_used"]), (8, 2))
            shape, experts = array_of(choice["routed_experts"])
            n, width = len(choice["prompt_token_ids"]) + len(choice["token_ids"]) - 1, meta["moe_layers"] * 2
            self.assertEqual(shape, (n, meta["moe_layers"], 2))
            self.assertGreater(len(set(experts)), 2)
            self.assertLess(max(experts), 8)
            again = server.post("/v1/completions", ask)
            self.assertGreater(again["usage"]["prompt_tokens_details"]["cached_tokens"], 32)
            self.assertEqual(again["choices"][0]["routed_experts"], choice["routed_experts"])
            drafted = server.post("/v1/completions", {**ask, "speculate": "ngram", "cache_prompt": False, "n": 2})
            self.assertEqual({one["routed_experts"] for one in drafted["choices"]}, {choice["routed_experts"]})
            parts = server.events("/v1/completions", {**ask, "stream_options": {"include_usage": True}})
            self.assertEqual([c.get("routed_experts") for p in parts[-2:] for c in p["choices"]],
                             [choice["routed_experts"]])
            self.assertFalse(any("routed_experts" in c for p in parts[:-2] for c in p["choices"]))
            for name in ["routed_experts_start_len", "routed_experts_prompt_start"]:
                cut = server.post("/v1/completions", {**ask, name: 5})["choices"][0]
                self.assertEqual(array_of(cut["routed_experts"]), ((n - 5, meta["moe_layers"], 2), experts[5 * width:]))
            flat = server.post("/v1/completions", {**ask, "routed_experts_format": "int32"})
            data = base64.b64decode(flat["sglext"]["routed_experts"])
            self.assertEqual(list(struct.unpack(f"<{len(experts)}i", data)), experts)
            self.assertNotIn("routed_experts", flat["choices"][0])
            ids = {**ask, "prompt": choice["prompt_token_ids"] + choice["token_ids"][:-1], "max_tokens": 1}
            behind = server.post("/v1/completions", ids)["choices"][0]
            self.assertEqual(array_of(behind["routed_experts"]), (shape, experts))
            chat = server.post("/v1/chat/completions", {**ASK, "return_routed_experts": True, "return_token_ids": True})
            rows = len(chat["prompt_token_ids"]) + len(chat["choices"][0]["token_ids"]) - 1
            self.assertEqual(array_of(chat["choices"][0]["routed_experts"])[0][0], rows)
            none = server.post("/v1/completions", {**ask, "max_tokens": 0})["choices"][0]
            self.assertEqual(array_of(none["routed_experts"])[0][0], len(choice["prompt_token_ids"]) - 1)
            for more in [{"n": 2}, {"prompt": ["a", "b"]}]:
                error = server.post("/v1/completions", {**ask, "routed_experts_format": "int32", **more}, 400)["error"]
                self.assertEqual(error["param"], "routed_experts_format")
            self.assertEqual(server.post("/v1/completions", {**ask, "routed_experts_start_len": 1,
                                                             "routed_experts_prompt_start": 2}, 400)["error"]["param"],
                             "routed_experts_prompt_start")

    def test_v20_experts_are_those_of_a_trace(self):  # [V20]
        """what a trace of the prompt counts of its experts"""
        prompt = "once the other one and then the inner hero"
        with Server("-c", 1024, "--routed-experts", model=self.model) as server:
            choice = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 1, "return_routed_experts": True})
            (n, layers, k), ids = array_of(choice["choices"][0]["routed_experts"])
        trace = FOLDER / "experts.tntrace"
        subprocess.run([TINFER, "trace", "record", self.model, "-p", prompt, "-n", "1", "--extras", "router",
                        "-o", trace], capture_output=True, check=True)
        said = subprocess.run([TINFER, "trace", "experts", trace, "--json"], capture_output=True, check=True)
        first = json.loads(said.stdout)["layers"][0]   # of the last layer a run computes what its outputs need
        of_first = [one for i in range(n) for one in ids[i * layers * k:i * layers * k + k]]
        self.assertEqual((first["tokens"], first["touched"], first["picks"]), (n, len(set(of_first)), len(of_first)))
        self.assertEqual(of_first.count(first["hottest"]), max(map(of_first.count, of_first)))

    def test_experts_that_nobody_keeps(self):
        for model, args in [(self.model, []), (MODEL, ["--routed-experts"])]:
            with self.subTest(args=args), Server("-c", 512, *args, model=model) as server:
                error = server.post("/v1/completions", {**TEXT, "return_routed_experts": True}, 400)["error"]
                self.assertEqual(error["param"], "return_routed_experts")


# What a text model cannot take is refused by its name on every interface, and what is not known is named.
PICTURE = "data:image/png;base64,aGVsbG8="
REFUSED = [
    ("/v1/chat/completions", "messages[0].content[0].type", {"messages": [{"role": "user", "content": [
        {"type": kind, kind: {"url": PICTURE}}]}]}) for kind in ("image_url", "input_audio", "file", "video_url")
] + [
    ("/v1/responses", "input[0].content[0].type", {"input": [{"role": "user", "content": [
        {"type": kind, "image_url": PICTURE}]}]}) for kind in ("input_image", "input_file", "input_audio")
] + [
    ("/v1/messages", "messages[0].content[0].type", {"max_tokens": 4, "messages": [{"role": "user", "content": [
        {"type": kind, "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}}]}]})
    for kind in ("image", "document", "search_result")
] + [
    ("/api/chat", "messages[0].images", {"messages": [{"role": "user", "content": "a", "images": ["aGVsbG8="]}]}),
    ("/api/generate", "images", {"prompt": "a", "images": ["aGVsbG8="]}),
    ("/api/generate", "template", {"prompt": "a", "template": "{{ .Prompt }}"}),
    ("/api/generate", "width", {"prompt": "a", "width": 512}),
]


class Refused(unittest.TestCase):
    def test_other_kinds_of_content(self):
        with Server("-c", 1024) as server:
            for path, field, body in REFUSED:
                with self.subTest(path=path, field=field):
                    status, _, data = server.ask("POST", path, body)
                    self.assertEqual(status, 400)
                    error = json.loads(data)["error"]
                    message = error if isinstance(error, str) else error["message"]
                    self.assertTrue(message.startswith(field + ":"), message)

    def test_unknown_fields(self):
        bodies = {"/v1/chat/completions": ASK, "/v1/completions": TEXT, "/v1/responses": {"input": "a"},
                  "/v1/messages": {**ASK}, "/api/chat": {"messages": ASK["messages"], "stream": False},
                  "/api/generate": {"prompt": "a", "stream": False, "options": {"num_predict": 4}}}
        with Server("-c", 1024) as loose, Server("-c", 1024, "--strict") as strict:
            for path, body in bodies.items():
                with self.subTest(path=path):
                    body = {**body, "mmproj": 1}
                    if path == "/v1/responses":
                        body["max_output_tokens"] = 4
                    self.assertIn("'mmproj'", str(loose.post(path, body)["warnings"]))
                    error = strict.post(path, body, 400)["error"]
                    self.assertIn("mmproj", error if isinstance(error, str) else error["message"])


if __name__ == "__main__":
    unittest.main()
