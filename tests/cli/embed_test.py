#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tinfer embed: vectors of lines, together and alone, cut, empty and damaged.

usage: embed_test.py path/to/tinfer [unittest arguments]
"""
import hashlib
import json
import math
import re
import struct
import unittest

from cli_support import FOLDER, MODEL, damaged, floats, ids_of, make_model, tinfer


class Embed(unittest.TestCase):
    LINES = ["once on a time", "a", "the inn on the hill, again and again", "time"]

    def vectors(self, *args, **kw):
        return [json.loads(line)["embedding"] for line in tinfer("embed", "-m", MODEL, *args, **kw).splitlines()]

    def test_E3_lines_together_equal_each_alone(self):  # [E3] [B11]
        text = "\n".join(self.LINES).encode()
        together = self.vectors("-f", "-", input=text)
        self.assertEqual(together, [self.vectors("-p", line)[0] for line in self.LINES])
        self.assertEqual(together, self.vectors("-f", "-", "--parallel", "2", "-u", "3", input=text))
        for vector in together:
            self.assertAlmostEqual(math.hypot(*vector), 1, places=5)

    def test_E2_the_mean_is_that_of_the_rows_of_logits(self):  # [E2]
        ids = tinfer("tokenize", "-m", MODEL, "-p", self.LINES[0]).decode()
        out = FOLDER / "rows.f32"
        document = json.loads(tinfer("logits", "-m", MODEL, "--tokens", ids, "--embeddings", "-o", out))
        rows = floats(out)
        width = document["n_embd"]
        mean = [sum(rows[i::width]) / document["rows"] for i in range(width)]
        pooled = json.loads(tinfer("logits", "-m", MODEL, "--tokens", ids, "--pooled", "--pooling", "mean", "-o", out))
        self.assertEqual((pooled["rows"], pooled["n_embd"]), (1, width))
        for ours, expected, embedded in zip(floats(out), mean,
                                            self.vectors("-p", self.LINES[0], "--normalize", "-1")[0]):
            self.assertAlmostEqual(ours, expected, places=4)
            self.assertAlmostEqual(ours, embedded, places=5)
        last = self.vectors("-p", self.LINES[0], "--pooling", "last", "--normalize", "-1", "--dimensions", "5")[0]
        self.assertEqual(len(last), 5)
        for ours, expected in zip(last, rows[-width:]):
            self.assertAlmostEqual(ours, expected, places=5)

    def test_a_cut_line_keeps_what_closes_a_text(self):
        words = "on the inn again " * 40
        closing = ["--override", "tokenizer.ggml.add_eos_token=bool:true"]
        for extra, n_closing in ([], 0), (closing, 1), ([*closing, "--no-add-special"], 0):
            for pooling in ("mean", "last"):
                args = ["-c", "64", "--pooling", pooling, *extra]
                ids = ids_of(words, *extra)
                kept = ids[:64 - n_closing] + ids[len(ids) - n_closing:]
                if n_closing:
                    self.assertEqual(kept[-1], 2)
                expected = json.loads(tinfer("logits", MODEL, "--tokens", " ".join(map(str, kept)), "--pooled",
                                             "--pooling", pooling,
                                             "-o", FOLDER / "kept.f32"))
                self.assertEqual(expected["rows"], 1)
                cut = self.vectors("-p", words, "--truncate", "--normalize", "-1", *args)[0]
                self.assertEqual(list(struct.unpack(f"<{len(cut)}f", struct.pack(f"<{len(cut)}f", *cut))),
                                 list(floats(FOLDER / "kept.f32")))
        # the text cut by hand and encoded
        text = tinfer("detokenize", MODEL, "--tokens",
                      " ".join(map(str, ids_of(words, *closing)[1:63]))).decode().removeprefix(" ")
        self.assertEqual(self.vectors("-p", text, *closing),
                         self.vectors("-p", words, "-c", "64", "--truncate", *closing))

    def test_every_cut_line_is_named_and_positions_are_a_limit(self):
        model = make_model("gpt2.gguf", 3, "gpt2")   # a table of 256 positions
        lines = "\n".join(["a", "on the inn " * 100, "time", "again " * 300]).encode()
        args = ["embed", model, "-f", "-", "-c", "2048"]
        tinfer(*args, input=lines, code=1)
        self.assertRegex(tinfer.stderr, r"(?m)^tinfer: line 2 has \d+ tokens, limit 256 \(")
        answers = [json.loads(line) for line in tinfer(*args, "--truncate", input=lines).splitlines()]
        said = tinfer.stderr
        self.assertEqual([answer["tokens"] for answer in answers], [len(ids_of("a")), 256, len(ids_of("time")), 256])
        for number, cut in ((1, False), (2, True), (3, False), (4, True)):
            self.assertEqual(bool(re.search(rf"(?m)^tinfer: warning: line {number} has \d+ tokens, limit 256: cut$",
                                            said)), cut)

    def test_an_empty_line_costs_its_own_vector_only(self):
        args = ["--no-add-special"]
        text = b"once\n\non the inn\n"
        answers = [json.loads(line) for line in tinfer("embed", MODEL, "-f", "-", *args, input=text).splitlines()]
        self.assertEqual([answer["index"] for answer in answers], [0, 1, 2])
        self.assertEqual((answers[1]["tokens"], answers[1]["embedding"]), (0, None))
        self.assertIn("line 2 has no tokens", tinfer.stderr)
        self.assertEqual([answers[0]["embedding"], answers[2]["embedding"]], self.vectors("-p", "once", *args)
                         + self.vectors("-p", "on the inn", *args))
        out = FOLDER / "rows.f32"
        document = json.loads(tinfer("embed", MODEL, "-f", "-", "-o", out, "--dimensions", "5", *args, input=text))
        self.assertEqual((document["rows"], document["n_embd"], len(floats(out))), (3, 5, 15))
        self.assertEqual(floats(out)[5:10], (0.0,) * 5)
        for text, rows in ((b"", 0), (b"\n", 1)):
            document = json.loads(tinfer("embed", MODEL, "-f", "-", "-o", out, *args, input=text))
            self.assertEqual((document["rows"], len(floats(out))), (rows, rows * document["n_embd"]))
        self.assertEqual(json.loads(tinfer("embed", MODEL, "-p", "", *args))["embedding"], None)

    def test_a_vector_that_is_not_finite_is_an_error(self):
        lines = b"on\na\nthe inn\n"
        token = ids_of("a", "--no-add-special")[-1]
        model = damaged("nan.gguf", MODEL, "token_embd.weight", 64 * token, [math.nan])
        good = tinfer("embed", MODEL, "-f", "-", "--parallel", "1", input=lines).splitlines()
        self.assertEqual(tinfer("embed", model, "-f", "-", "--parallel", "1", input=lines, code=1).splitlines(),
                         good[:1])
        self.assertRegex(tinfer.stderr, r"\Atinfer: [^\n]*(token_embd\.weight|line 2)[^\n]*finite[^\n]*\n\Z")
        # weights that are finite can give values that are not
        model = damaged("large.gguf", MODEL, "blk.0.ffn_down.weight", 0, [3e38] * 64 * 96)
        self.assertEqual(tinfer("embed", model, "-p", "on", code=1), b"")
        self.assertRegex(tinfer.stderr, r"\Atinfer: line 1: the model's values are not finite\n\Z")

    def test_raw_output_and_limits(self):
        out = FOLDER / "vectors.f32"
        text = "\n".join(self.LINES).encode()
        document = json.loads(tinfer("embed", "-m", MODEL, "-f", "-", "-o", out, input=text))
        self.assertEqual(document["rows"], len(self.LINES))
        self.assertEqual(document["sha256"], hashlib.sha256(out.read_bytes()).hexdigest())
        self.assertEqual(len(floats(out)), document["rows"] * document["n_embd"])
        long = ["-p", "a " * 400, "-c", "64"]
        tinfer("embed", "-m", MODEL, *long, code=1)
        self.assertIn("line 1 has", tinfer.stderr)
        self.assertEqual(len(self.vectors(*long, "--truncate")), 1)
        self.assertIn("cut", tinfer.stderr)
        for args, code in ((["embed", "-m", MODEL, "-p", "a", "--pooling", "rank"], 1),
                           (["embed", "-m", MODEL, "-p", "a", "--pooling", "odd"], 2),
                           (["logits", "-m", MODEL, "-p", "a", "--pooled"], 1)):
            self.assertEqual(tinfer(*args, code=code), b"")
            self.assertRegex(tinfer.stderr, r"\Atinfer: [^\n]+\n\Z")
        tinfer("logits", "-m", MODEL, "-p", "a", "--pooled", "--last", code=2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
