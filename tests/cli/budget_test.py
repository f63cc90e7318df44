#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tinfer quantize by a budget of divergence or of bytes, and the recipe that comes of it.

usage: budget_test.py path/to/tinfer [unittest arguments]
"""
import json
import unittest

from cli_support import FOLDER, MODEL, make_model, tinfer

TEXT = FOLDER / "text.txt"
TEXT.write_text("the cat sat on the mat and the dog ate the cat " * 40)
OPTIONS = ("-f", TEXT, "-c", "64", "--chunks", "2", "--types", "q8_0,q5_0,iq4_nl")
COSTS = FOLDER / "costs.json"


def kl_of(path):
    return json.loads(tinfer("kl", MODEL, path, "-f", TEXT, "-c", "64", "--json"))["mean_kl"]


def by_budget(name, *args, code=0):
    out = tinfer("quantize", MODEL, FOLDER / name, *OPTIONS, "--costs", COSTS, *args, code=code)
    return out.decode()


class Budget(unittest.TestCase):
    def test_a_recipe_meets_its_budget_and_gives_the_same_bytes(self):   # [Q6]
        budget = 2e-3
        found = json.loads(by_budget("kl.gguf", "--kl", budget, "--json"))
        self.assertLessEqual(found["kl"]["mean"], budget)
        self.assertGreater(found["kl"]["windows"], 2)
        self.assertLess(kl_of(FOLDER / "kl.gguf"), 1.2 * budget)   # of the whole text, by another command
        self.assertGreater(len(set(found["types"].values()) - {"f32"}), 1)
        measured = COSTS.read_bytes()

        recipe = FOLDER / "recipe.txt"
        recipe.write_text(by_budget("again.gguf", "--kl", budget))
        self.assertNotIn("measuring", tinfer.stderr)   # --costs has it all
        self.assertEqual(COSTS.read_bytes(), measured)
        self.assertIn(found["sha256"], recipe.read_text())
        given = json.loads(tinfer("quantize", MODEL, FOLDER / "given.gguf", "--recipe", recipe, "--json", "-t", "1"))
        self.assertEqual((given["sha256"], given["types"]), (found["sha256"], found["types"]))
        dry = json.loads(tinfer("quantize", MODEL, "none.gguf", "--recipe", recipe, "--dry-run", "--json"))
        self.assertEqual((dry["bytes"], dry["types"]), (found["bytes"], found["types"]))
        self.assertEqual([p.name for p in FOLDER.iterdir() if p.name.endswith((".trial", ".measured"))], [])

    def test_at_equal_size_it_is_nearer_than_a_mix(self):   # [Q6]
        for mix in ("Q4_0", "Q5_0"):
            theirs = json.loads(tinfer("quantize", MODEL, FOLDER / "mix.gguf", mix, "--json"))
            ours = json.loads(by_budget("size.gguf", "--size", theirs["bytes"], "--json"))
            self.assertEqual(ours["bytes"], (FOLDER / "size.gguf").stat().st_size)
            self.assertLessEqual(ours["bytes"], theirs["bytes"])
            self.assertLess(kl_of(FOLDER / "size.gguf"), kl_of(FOLDER / "mix.gguf"), mix)
            self.assertLess(ours["kl"]["gap"], 1e-3)

    def test_tensors_of_a_group_have_one_type(self):
        types = json.loads(by_budget("group.gguf", "--size", "130K", "--group", "*.attn_?.weight,*.ffn_up.weight",
                                     "--json"))["types"]
        for layer in range(2):
            self.assertEqual(len({types[f"blk.{layer}.{x}.weight"] for x in ("attn_q", "attn_k", "attn_v", "ffn_up")}),
                             1)

    def test_what_cannot_be_done_is_said(self):
        out = FOLDER / "no.gguf"
        other, strange, empty = FOLDER / "other.txt", FOLDER / "strange.txt", FOLDER / "empty.txt"
        other.write_text("# of another model\nblk.0.attn_q.weight=q8_0\nblk.7.attn_q.weight=q8_0\n")
        strange.write_text("blk.0.attn_q.weight=q8_0\n\nblk.0.attn_k.weight:q8_0\n")
        empty.write_text("# nothing\n")
        text = ("-f", TEXT, "-c", "64")
        foreign = FOLDER / "foreign.json"
        foreign.write_text('{"model": 1}')
        for code, words, args in (
                (2, "one of TYPE", (MODEL, out)),
                (2, "one of TYPE", (MODEL, out, "Q8_0", "--kl", "1", *text)),
                (2, "--dry-run", (MODEL, out, "--kl", "1", "--dry-run", *text)),
                (2, "a text is needed", (MODEL, out, "--kl", "1")),
                (2, "--costs", (MODEL, out, "Q8_0", "--costs", FOLDER / "c.json")),
                (2, "'q9_9'", (MODEL, out, "--kl", "1", "--types", "q9_9", *text)),
                (1, "other.txt: no tensor has the name 'blk.7.attn_q.weight'", (MODEL, out, "--recipe", other)),
                (1, "strange.txt: line 3", (MODEL, out, "--recipe", strange)),
                (1, "empty.txt", (MODEL, out, "--recipe", empty)),
                (1, "2 windows", (MODEL, out, "--kl", "1", "-p", "a cat", "-c", "64")),
                (1, "foreign.json", (MODEL, out, "--kl", "1", "--costs", foreign, *text)),
                (1, "--size 1K", (MODEL, out, "--size", "1K", *text, "--types", "q8_0", "--chunks", "1"))):
            self.assertEqual(tinfer("quantize", *args, code=code), b"", args)
            self.assertIn(words, tinfer.stderr)
            self.assertFalse(out.exists())
        by_budget("no.gguf", "--size", "20K", code=1)
        self.assertIn("in the smallest types", tinfer.stderr)
        other_model = make_model("seven.gguf", 7)
        tinfer("quantize", other_model, out, *OPTIONS, "--costs", COSTS, "--size", "130K", code=1)
        self.assertIn("measured with another 'model'", tinfer.stderr)
        self.assertFalse(out.exists())


if __name__ == "__main__":
    unittest.main()
