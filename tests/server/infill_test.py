#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Filling in for editors: /infill with what the plugins for vim and VS Code send, /props, /tokenize with pieces."""
import unittest

from server_support import NO_EOG, Server

# Bytes that no text here has stand for the tokens of filling in.
PRE, SUF, MID, REP, SEP = 4, 5, 6, 7, 8
NAMES = {"fim_pre": PRE, "fim_suf": SUF, "fim_mid": MID}
FILES = {"fim_rep": REP, "fim_sep": SEP}


def overrides(names):
    return [part for name, token in names.items()
            for part in ("--override", f"tokenizer.ggml.{name}_token_id=int:{token}")]


def ask(**fields):
    return {"input_prefix": "once ", "input_suffix": " the", "n_predict": 8, "temperature": 0, **NO_EOG, **fields}


class Infill(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("-c", 4096, "--infill-window", 64, "--expose-text", "--strict-model", "--parallel", 4,
                            *overrides(NAMES | FILES))

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def ids(self, text, server=None):
        return (server or self.server).post("/tokenize", {"content": text})["tokens"]

    def behind(self, tokens, server=None, **fields):
        """What stands behind these tokens, by another route."""
        choice = (server or self.server).post("/v1/completions", {
            "prompt": tokens, "max_tokens": 8, "temperature": 0, **NO_EOG, **fields})["choices"][0]
        return choice["text"]

    def test_v18_tokens(self):  # [V18]
        """the answer is that behind the tokens of the model's own form, with files in front in the client's order"""
        ids = self.ids
        head = [1, REP, *ids("myproject\n")]
        gap = [SEP, *ids("filename\n"), PRE, *ids("once "), SUF, *ids(" the"), MID]
        got = self.server.post("/infill", ask())
        self.assertEqual(got["content"], self.behind([*head, *gap]))
        self.assertEqual((got["tokens_evaluated"], got["tokens_predicted"]), (len(head) + len(gap), 8))
        extra = [{"filename": "a.c", "text": "in on", "time": 3}, {"filename": "b.c", "text": "he an"}]
        files = [t for e in extra for t in [SEP, *ids(e["filename"] + "\n"), *ids(e["text"])]]
        got = self.server.post("/infill", ask(input_extra=extra, prompt="and"))
        self.assertEqual(got["content"], self.behind([*head, *files, *gap, *ids("and")]))
        named = [SEP, *ids("my.c\n"), *gap[1 + len(ids("filename\n")):]]
        self.assertEqual(self.server.post("/infill", ask(filename="my.c"))["content"], self.behind([*head, *named]))

    def test_other_forms(self):
        with Server("-c", 2048, "--spm-infill", *overrides(NAMES)) as server:
            ids = lambda text: self.ids(text, server)
            gap = [SUF, *ids(" the"), PRE, *ids("once "), MID]
            self.assertEqual(server.post("/infill", ask())["content"], self.behind([1, *gap], server))
            extra = [{"filename": "a.c", "text": "in on"}]
            self.assertEqual(server.post("/infill", ask(input_extra=extra))["content"],
                             self.behind([1, *ids("in on"), *gap], server))
            same = server.post("/v1/completions", {"prompt": "once ", "suffix": " the", "max_tokens": 8,
                                                   "temperature": 0, **NO_EOG})
            self.assertEqual(same["choices"][0]["text"], self.behind([1, *gap], server))
        with Server("-c", 512) as server:
            server.post("/infill", ask(), 501)

    def test_window(self):
        """the end of the prefix, the begin of the suffix, and whole files from the front go; what went is counted"""
        prefix, suffix = "a b c d " * 40, "e f g h " * 40
        got = self.server.post("/infill", ask(input_prefix=prefix, input_suffix=suffix))
        head = [1, REP, *self.ids("myproject\n"), SEP, *self.ids("filename\n")]
        kept = [PRE, *self.ids(prefix)[-48:], SUF, *self.ids(suffix)[:16], MID]
        self.assertEqual(got["content"], self.behind([*head, *kept]))
        self.assertTrue(got["truncated"])
        self.assertEqual(got["truncated_tokens"], len(self.ids(prefix)) + len(self.ids(suffix)) - 64)
        extra = [{"filename": f"{i}.c", "text": "x y " * 400} for i in range(8)]
        n = self.server.get("/props")["default_generation_settings"]["n_ctx"]
        got = self.server.post("/infill", ask(input_extra=extra))
        self.assertLessEqual(got["tokens_evaluated"] + 8, n)
        fewer = next(k for k in range(9) if not self.server.post("/infill", ask(input_extra=extra[k:]))["truncated"])
        self.assertEqual(self.server.post("/infill", ask(input_extra=extra[fewer:]))["content"], got["content"])
        self.assertEqual(self.server.post("/infill", ask(prompt="x y " * 4000), 400)["error"]["param"], "prompt")
        with Server("-c", 512, *overrides(NAMES)) as server:  # /v1/completions cuts nothing
            error = server.post("/v1/completions", {"prompt": prefix * 20, "suffix": suffix, "max_tokens": 1}, 400)
            self.assertEqual(error["error"]["code"], "context_length_exceeded")

    def test_reuse(self):
        """files that stand in front are read once, and reading ahead is possible"""
        extra = [{"filename": "a.c", "text": "in on he an " * 60}]
        read = self.server.post("/infill", ask(input_extra=extra, n_predict=0))
        self.assertEqual((read["content"], read["tokens_predicted"]), ("", 0))
        moved = self.server.post("/infill", ask(input_extra=extra, input_prefix="there "))
        self.assertGreater(moved["tokens_cached"], len(self.ids(extra[0]["text"])) * 3 // 4)

    def test_form(self):
        status, _, body = self.server.ask("POST", "/infill", ask())
        self.assertEqual(status, 200)
        self.assertRegex(body.decode(errors="replace"), r'^\{.*"content":"')
        some = self.server.post("/infill", ask(response_fields=["content", "timings/prompt_n", "none", ""]))
        self.assertEqual(sorted(some), ["content", "timings/prompt_n"])
        several = self.server.post("/infill", ask(n_cmpl=3, temperature=1, seed=3))
        self.assertEqual([one["index"] for one in several], [0, 1, 2])
        whole = self.server.post("/infill", ask())
        self.assertEqual((whole["stop"], whole["stop_type"], len(whole["tokens"])), (True, "limit", 8))
        word = next(c for c in whole["content"][1:] if c.isascii() and c.isprintable())
        cut = self.server.post("/infill", ask(stop=[word]))
        self.assertEqual((cut["stop_type"], cut["stopping_word"]), ("word", word))
        self.assertEqual(cut["content"], whole["content"][:whole["content"].index(word)])
        _, headers, data = self.server.ask("POST", "/infill", ask(stream=True))
        self.assertTrue(headers["Content-Type"].startswith("text/event-stream"))
        self.assertIn(b'"stop":true', data.split(b"data: ")[-1])

    def test_limits_are_beginnings(self):
        """an answer that ends for its time or its indentation is a beginning of the one without limits"""
        feeds = {"logit_bias": {"2": -100, str(3 + 10): 8, str(3 + 32): 6}, "seed": 5, "temperature": 1.5}
        whole = self.server.post("/infill", {**ask(n_predict=400), **feeds})
        self.assertIn("\n", whole["content"])
        timed = self.server.post("/infill", {**ask(n_predict=400), **feeds, "t_max_predict_ms": 1})
        self.assertTrue(timed["time_limit"])
        self.assertTrue(whole["content"].startswith(timed["content"]))
        self.assertLess(len(timed["content"]), len(whole["content"]))
        for indent in [1, 2, 100]:
            got = self.server.post("/infill", {**ask(n_predict=400), **feeds, "n_indent": indent})["content"]
            first, *lines = whole["content"].split("\n")
            kept = [first]
            for line in lines:
                spaces = len(line.replace("\r", "")) - len(line.replace("\r", "").lstrip(" \t"))
                if line.strip(" \t\r") and spaces < indent:
                    break
                kept.append(line)
            self.assertEqual(got, "\n".join(kept))

    def test_what_editors_ask_before(self):
        props = self.server.get("/props?model=&autoload=false")
        self.assertEqual(props["model_path"], "tiny.gguf")
        self.assertFalse(props["is_sleeping"])
        self.assertIsInstance(self.server.get("/v1/models")["data"][0]["meta"], dict)
        pieces = self.server.post("/tokenize", {"content": "the ä", "with_pieces": True})["tokens"]
        self.assertEqual([one["id"] for one in pieces], self.ids("the ä"))
        self.assertIn([0xC3], [one["piece"] for one in pieces])

    def test_refusals(self):
        self.assertEqual(self.server.post("/infill", ask(input_extra=[{"filename": "a"}]), 400)["error"]["param"],
                         "input_extra[0].text")
        self.assertEqual(self.server.post("/infill", ask(lora=[{"id": 0, "scale": 1}]), 400)["error"]["param"],
                         "lora[0].id")
        self.assertEqual(self.server.post("/infill", ask(model="another"), 404)["error"]["param"], "model")
        self.server.post("/infill", ask(id_slot=3, t_max_prompt_ms=5, cache_prompt=True, samplers=["top_k"]))


if __name__ == "__main__":
    unittest.main()
