#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Token ids in and out, and log-probabilities of prompts, as research asks for them."""
import json
import unittest

from server_support import NO_EOG, Server

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
