#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tinfer quantize: mixes, rules of single tensors, and files that depend on nothing else.

usage: quantize_test.py path/to/tinfer [unittest arguments]
"""
import hashlib
import json
import pathlib
import unittest

from cli_support import FOLDER, MODEL, damaged, golden_model, tinfer


def types_of(path):
    return {t["name"]: t["type"] for t in json.loads(tinfer("inspect", path, "--json"))["tensors"]}


def quantized(name, *args, model=MODEL):
    document = json.loads(tinfer("quantize", model, FOLDER / name, *args, "--json"))
    data = (FOLDER / name).read_bytes()
    assert document["bytes"] == len(data) and document["sha256"] == hashlib.sha256(data).hexdigest()
    assert document["types"] == types_of(FOLDER / name)
    return document


class Quantize(unittest.TestCase):
    def test_mixes_are_those_of_the_public_quantizer(self):   # [Q1]
        for folder, mix in (("quant-q4_k_m", "Q4_K_M"), ("quant-q3_k_m", "Q3_K_M"), ("quant-q2_k_mix", "Q2_K")):
            theirs, source = golden_model(folder), golden_model("quant-f16")
            if theirs is None or source is None:
                self.skipTest("no golden data (TINFER_GOLDEN)")
            ours = json.loads(tinfer("quantize", source, "none.gguf", mix, "--dry-run", "--json"))["types"]
            self.assertEqual(ours, types_of(theirs), mix)
        self.assertFalse(pathlib.Path("none.gguf").exists())

    def test_the_file_depends_on_no_thread(self):   # [Q1]
        for mix in ("Q4_K_M", "Q8_0", "IQ4_NL", "F16"):
            hashes = {quantized("t.gguf", mix, "-t", n)["sha256"] for n in (1, 2, 5)}
            self.assertEqual(len(hashes), 1, mix)
        once = quantized("a.gguf", "Q5_1", "--search", "thorough")["sha256"]
        self.assertEqual(once, quantized("b.gguf", "Q5_1", "--search", "thorough", "-t", "1")["sha256"])
        self.assertNotEqual(once, quantized("b.gguf", "Q5_1")["sha256"])

    def test_what_is_written_runs(self):
        quantized("q8.gguf", "Q8_0")
        said = json.loads(tinfer("run", FOLDER / "q8.gguf", "--temp", "0", "--json", "-p", "a", "-n", "4"))
        self.assertEqual(len(said["tokens"]), 4)
        shown = json.loads(tinfer("inspect", FOLDER / "q8.gguf", "--json", "--data-check"))["metadata"]
        self.assertEqual(shown["general.file_type"]["value"], 7)
        self.assertEqual(shown["general.quantization_version"]["value"], 2)

    def test_codebooks_run_and_depend_on_no_thread(self):   # [Q1]
        wide = golden_model("quant-f16")   # rows of whole blocks of 256
        if wide is None:
            self.skipTest("no golden data (TINFER_GOLDEN)")
        books = ("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s")
        names = [f"blk.{layer}.attn_{x}.weight" for layer in range(2) for x in "qkv"] + ["blk.0.attn_output.weight"]
        rules = [x for name, book in zip(names, books) for x in ("--tensor-type", f"{name}={book}")]
        once = quantized("c.gguf", "F16", *rules, "-t", "2", model=wide)
        self.assertEqual([once["types"][name] for name in names], list(books))
        self.assertEqual(once["sha256"], quantized("d.gguf", "F16", *rules, "-t", "1", model=wide)["sha256"])
        tinfer("logits", FOLDER / "c.gguf", "--tokens", "1 2 3", "-o", FOLDER / "c.f32")
        types = json.loads(tinfer("quantize", wide, "none.gguf", "IQ2_M", "--dry-run", "--json"))["types"]
        self.assertLessEqual({"iq2_s", "iq3_s"}, set(types.values()))

    def test_rules_of_single_tensors_and_pure(self):
        before = types_of(MODEL)
        rules = "--tensor-type", "blk.*=q8_0", "--tensor-type", "blk.0.attn_q*=f16"
        types = quantized("r.gguf", "Q4_0", *rules)["types"]
        self.assertEqual(types["blk.0.attn_q.weight"], "f16")
        self.assertEqual(types["blk.1.attn_q.weight"], "q8_0")
        self.assertEqual(types["blk.0.attn_norm.weight"], before["blk.0.attn_norm.weight"])
        self.assertEqual(set(quantized("p.gguf", "Q4_0", "--pure")["types"].values()), {"f32", "q4_0"})
        dry = tinfer("quantize", MODEL, FOLDER / "never.gguf", "Q4_0", "--dry-run").decode()
        self.assertRegex(dry, r"(?m)^blk\.0\.attn_q\.weight +\d+ x \d+ +f32 +-> q4_0 ")
        self.assertFalse((FOLDER / "never.gguf").exists())

    def test_what_cannot_be_done_is_said_and_nothing_is_left(self):
        out = FOLDER / "no.gguf"
        for code, words, args in (
                (2, "IQ5_XXS", (MODEL, out, "IQ5_XXS")),
                (2, "--tensor-type 'q8_0'", (MODEL, out, "Q8_0", "--tensor-type", "q8_0")),
                (2, "no whole blocks", (MODEL, out, "Q8_0", "--tensor-type", "*=q4_k")),
                (1, "--allow-requantize", (FOLDER / "done.gguf", out, "Q4_0")),
                (1, "is read too", (MODEL, MODEL, "Q8_0")),
                (1, "no-such", (FOLDER / "no-such.gguf", out, "Q8_0"))):
            quantized("done.gguf", "Q8_0")
            tinfer("quantize", *args, code=code)
            self.assertIn(words, tinfer.stderr)
            self.assertFalse(out.exists())
        bad = damaged("nan.gguf", MODEL, "blk.1.ffn_up.weight", 3, [float("nan")])
        tinfer("quantize", bad, out, "Q8_0", code=1)
        self.assertIn("'blk.1.ffn_up.weight': row 0, column 3", tinfer.stderr)
        norm = damaged("inf.gguf", MODEL, "blk.1.attn_norm.weight", 0, [float("inf")])
        tinfer("quantize", norm, out, "Q8_0", code=1)
        self.assertIn("'blk.1.attn_norm.weight'", tinfer.stderr)
        self.assertEqual([p.name for p in FOLDER.iterdir() if p.name.startswith("no.gguf")], [])


if __name__ == "__main__":
    unittest.main()
