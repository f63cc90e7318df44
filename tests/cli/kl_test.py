#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tinfer imatrix and kl.

usage: kl_test.py path/to/tinfer [unittest arguments]
"""
import json
import math
import unittest
import xml.etree.ElementTree

from cli_support import FOLDER, MODEL, tinfer

TEXT = FOLDER / "text.txt"
TEXT.write_text("the cat sat on the mat and the dog ate the cat " * 30)
OPTIONS = ("-f", TEXT, "-c", "64", "--chunks", "3")


def quantized(name, *args):
    tinfer("quantize", MODEL, FOLDER / name, *args)
    return FOLDER / name


class Importance(unittest.TestCase):
    def test_runs_merge_and_resume_to_the_same_sums(self):   # [Q2]
        whole = json.loads(tinfer("imatrix", MODEL, *OPTIONS, "-o", FOLDER / "i.gguf", "--json"))
        self.assertEqual(whole["tokens"], 3 * 64)
        self.assertGreaterEqual(whole["tensors"], 14)
        tinfer("imatrix", MODEL, "-f", TEXT, "-c", "64", "--chunks", "2", "-o", FOLDER / "r.gguf")
        tinfer("imatrix", MODEL, *OPTIONS, "-o", FOLDER / "r.gguf", "--resume")
        self.assertEqual((FOLDER / "r.gguf").read_bytes(), (FOLDER / "i.gguf").read_bytes())
        parts = []
        for i, chunks in enumerate((1, 3, 2)):
            parts.append(FOLDER / f"part{i}.gguf")
            tinfer("imatrix", MODEL, "-f", TEXT, "-c", "64", "--chunks", chunks, "-o", parts[-1])
        merge = lambda out, *files: tinfer("imatrix", *(x for f in files for x in ("--merge", f)), "-o", FOLDER / out)
        merge("one.gguf", *parts)
        merge("ab.gguf", parts[1], parts[0])
        merge("two.gguf", parts[2], FOLDER / "ab.gguf")
        self.assertEqual((FOLDER / "one.gguf").read_bytes(), (FOLDER / "two.gguf").read_bytes())
        tinfer("imatrix", "--merge", FOLDER / "i.gguf", "--merge", FOLDER / "i.gguf", "-o", FOLDER / "m.gguf")
        shown = json.loads(tinfer("inspect", FOLDER / "m.gguf", "--json"))
        self.assertEqual(shown["metadata"]["imatrix.chunk_count"]["value"], 6)
        self.assertIn("blk.0.attn_q.weight.in_sum2", [t["name"] for t in shown["tensors"]])

    def test_quantize_reads_both_forms(self):   # [Q1] [Q2]
        for form, name in (("gguf", "b.gguf"), ("binary", "b.dat")):
            tinfer("imatrix", MODEL, *OPTIONS, "-o", FOLDER / name, "--format", form)
        plain, weighted, older = (json.loads(tinfer("quantize", MODEL, FOLDER / "q.gguf", "Q4_0", "--json", *more))
                                  for more in ((), ("--imatrix", FOLDER / "b.gguf"), ("--imatrix", FOLDER / "b.dat")))
        self.assertNotEqual(plain["sha256"], weighted["sha256"])
        self.assertNotEqual(plain["sha256"], older["sha256"])
        tinfer("quantize", MODEL, FOLDER / "q.gguf", "Q4_0", "--imatrix", TEXT, code=1)
        self.assertIn("text.txt", tinfer.stderr)


class Kl(unittest.TestCase):
    def test_fields_of_the_contract(self):   # [Q5]
        b = quantized("q4.gguf", "Q4_0")
        found = json.loads(tinfer("kl", MODEL, b, *OPTIONS, "--json"))
        self.assertEqual(list(found)[:10], ["mean_kl", "error", "median", "p99", "max", "top1", "ppl_a", "ppl_b",
                                            "bytes_a", "bytes_b"])
        self.assertGreater(found["mean_kl"], 0)
        self.assertGreater(found["bytes_a"], found["bytes_b"])
        for side, model in (("ppl_a", MODEL), ("ppl_b", b)):
            ppl = json.loads(tinfer("perplexity", model, *OPTIONS, "--json"))["ppl"]
            self.assertTrue(math.isclose(found[side], ppl, rel_tol=1e-6), side)
        same = json.loads(tinfer("kl", MODEL, MODEL, *OPTIONS, "--json"))
        self.assertEqual((same["max"], same["top1"]), (0, 1))

    def test_exchanged_tensors_are_what_a_written_file_has(self):   # [Q5]
        b = quantized("q8.gguf", "Q8_0")
        globs = ("blk.0.*", "*ffn_down*")
        lines = tinfer("kl", MODEL, b, *OPTIONS, "--json", *(x for g in globs for x in ("--swap", g))).splitlines()
        self.assertEqual(len(lines), 2)
        for line, glob in zip(map(json.loads, lines), globs):
            written = quantized("w.gguf", "F32", "--tensor-type", f"{glob}=q8_0")
            expected = json.loads(tinfer("kl", MODEL, written, *OPTIONS, "--json"))
            self.assertEqual((line["swap"], line["mean_kl"], line["top1"]),
                             (glob, expected["mean_kl"], expected["top1"]))
            self.assertEqual(line["saved"], expected["bytes_a"] - expected["bytes_b"])
        picture = FOLDER / "kl.svg"
        table = tinfer("kl", MODEL, b, *OPTIONS, "--swap", "blk.1.*", "--each", "--svg", picture).decode()
        self.assertEqual(len(table.splitlines()), 1 + 7)
        root = xml.etree.ElementTree.parse(picture).getroot()
        self.assertEqual(len([e for e in root if e.tag.endswith("circle")]), 7)
        tinfer("kl", MODEL, b, *OPTIONS, "--swap", "no such", code=2)


if __name__ == "__main__":
    unittest.main()
