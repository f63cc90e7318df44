#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Log-probabilities of completions: of prompts and answers, whole and as streams, with their places in the text."""
import json
import subprocess
import unittest

from server_support import MODEL, NO_EOG, TINFER, Server


class Scores(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--parallel", 4, "-c", 2048)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def test_v7_scores(self):  # [V7]
        """echo with logprobs: a log-probability for each token but the first, from one call"""
        answer = self.server.post("/v1/completions", {"prompt": "the one", "max_tokens": 0, "echo": True,
                                                      "logprobs": 2})
        logprobs = answer["choices"][0]["logprobs"]
        self.assertIsNone(logprobs["token_logprobs"][0])
        self.assertGreater(len(logprobs["tokens"]), 2)
        self.assertTrue(all(x < 0 for x in logprobs["token_logprobs"][1:]))
        self.assertTrue(all(1 <= len(top) <= 2 for top in logprobs["top_logprobs"][1:]))  # two tokens may have one text
        self.assertEqual(answer["choices"][0]["text"], "the one")

    def test_v7_scores_are_those_of_the_program(self):  # [V7]
        """What evaluation harnesses ask for (context and continuation as ids, echo, one token) has the log-likelihoods
        of `tinfer score`, which are those of `tinfer perplexity`, to the last digit"""
        ids = lambda text: self.server.post("/tokenize", {"text": text, "add_special": True})["tokens"]
        plain = lambda text: self.server.post("/tokenize", {"text": text})["tokens"]
        pairs = [(ids("once the"), plain(" other one")), (ids("a"), plain("nd the tree on the one")),
                 (ids("the hero in the other one " * 9), plain("the"))]
        answer = self.server.post("/v1/completions", {
            "prompt": [context + more for context, more in pairs], "max_tokens": 1, "echo": True, "logprobs": 1,
            "temperature": 0, "seed": 1234})
        lines = "".join(json.dumps({"prompt": context, "text": more}) + "\n" for context, more in pairs)
        done = subprocess.run([TINFER, "score", MODEL, "-f", "-"], input=lines.encode(),
                              capture_output=True, check=True)
        said = [json.loads(line) for line in done.stdout.splitlines()]
        for (context, more), choice, score in zip(pairs, answer["choices"], said, strict=True):
            found = choice["logprobs"]["token_logprobs"]
            self.assertEqual(len(found), len(context) + len(more) + 1)
            self.assertEqual(found[len(context):-1], score["logprobs"])

    def test_v7_stream_of_scores(self):  # [V7]
        """a stream of echo with logprobs has the tokens, values and places of the whole answer, the prompt's, too"""
        for prompt, n in [("the one é and the other", 6), ("the " * 90, 3), ("a", 0)]:
            body = {"prompt": prompt, "max_tokens": n, "echo": True, "logprobs": 2, "temperature": 0, **NO_EOG}
            whole = self.server.post("/v1/completions", body)["choices"][0]
            text, sums = "", {name: [] for name in whole["logprobs"]}
            for event in self.server.events("/v1/completions", body):
                choice = event["choices"][0]
                text += choice["text"]
                for name, values in (choice["logprobs"] or {}).items():
                    sums[name] += values
            self.assertEqual((text, sums), (whole["text"], whole["logprobs"]))
            self.assertIsNone(sums["token_logprobs"][0])
            self.assertGreater(len(sums["tokens"]), n + 1)

    def test_text_offsets(self):
        """places of tokens are characters of the text that the client got"""
        for prompt in ["é😀 a", "the one other", " the", "ß", [300, 301, 260]]:
            for echo in [True, False]:
                body = {"prompt": prompt, "max_tokens": 8, "echo": echo, "logprobs": 0, "temperature": 0, **NO_EOG}
                choice = self.server.post("/v1/completions", body)["choices"][0]
                tokens, places = choice["logprobs"]["tokens"], choice["logprobs"]["text_offset"]
                self.assertEqual(len(tokens), len(places))
                self.assertEqual(places, sorted(places))
                self.assertEqual(places[0], 0)
                self.assertLessEqual(places[-1], len(choice["text"]))
                for token, place in zip(tokens, places):
                    if place > 0 and "\N{REPLACEMENT CHARACTER}" not in token:  # a space may be the tokenizer's own
                        self.assertTrue(choice["text"][place:].startswith((token, token.removeprefix(" "))),
                                        (prompt, token, place))
        logprobs = self.server.post("/v1/completions", {"prompt": "é😀 a", "echo": True, "logprobs": 0,
                                                        "max_tokens": 0})["choices"][0]["logprobs"]
        self.assertEqual(set(logprobs["text_offset"]), {0, 1, 2, 3} if logprobs["tokens"][-1] == "a" else {0, 1, 2})


if __name__ == "__main__":
    unittest.main()
