#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""--lora, --control-vector and what inspect says of such files, with adapters of examples/make_lora.py.

usage: adapter_test.py path/to/tinfer [unittest arguments]
"""
import json
import pathlib
import subprocess
import sys
import unittest

from cli_support import FOLDER, MODEL, NO_EOG, run_json, tinfer

MAKE = pathlib.Path(__file__).resolve().parents[2] / "examples/make_lora.py"


def make(name, *args):
    csv = tinfer("inspect", MODEL, "--csv")
    info = json.loads(tinfer("inspect", MODEL, "--json"))["hyperparameters"]
    path = FOLDER / name
    if "--directions" in args:
        args = [*args, "--embd", str(info["n_embd"])]
    subprocess.run([sys.executable, MAKE, info["architecture"], path, *args], input=csv, check=True)
    return path


def logits(*args):
    return json.loads(tinfer("logits", MODEL, "-p", "once on a time", *args))["sha256"]


class Adapters(unittest.TestCase):
    def test_lora_changes_what_is_said_and_scale_0_nothing(self):
        lora = make("lora.gguf", "--match", "ffn", "--size", "0.3")
        plain, adapted = logits(), logits("--lora", lora)
        self.assertNotEqual(plain, adapted)
        self.assertEqual(adapted, logits("--lora", f"{lora}=1"))
        self.assertEqual(plain, logits("--lora", f"{lora}=0"))
        self.assertNotEqual(adapted, logits("--lora", f"{lora}=-0.5"))
        other = make("other=1.gguf", "--match", "attn", "--size", "0.3", "--seed", "2")   # a name with = of its own
        both = logits("--lora", lora, "--lora", f"{other}=2")
        self.assertEqual(both, logits("--lora", f"{other}=2", "--lora", lora))
        self.assertNotIn(both, (plain, adapted))
        run_json("-p", "once", "-n", "4", "--lora", lora, *NO_EOG)

    def test_control_vector_with_strength_and_layers(self):
        vector = make("control.gguf", "--directions", "1,1", "--size", "1")
        plain, steered = logits(), logits("--control-vector", vector)
        self.assertNotEqual(plain, steered)
        self.assertEqual(plain, logits("--control-vector", f"{vector}=0"))
        self.assertEqual(steered, logits("--control-vector", vector, "--control-vector-layers", "1,1"))
        tinfer("logits", MODEL, "-p", "a", "--control-vector", vector, "--control-vector-layers", "0,1", code=1)
        self.assertIn("layer range [0,1] invalid", tinfer.stderr)
        tinfer("logits", MODEL, "-p", "a", "--control-vector", vector, "--control-vector-layers", "2,1", code=1)
        self.assertIn("layer range [2,1] invalid: must lie in 1 to 1, the first no later than the last", tinfer.stderr)
        tinfer("logits", MODEL, "-p", "a", "--control-vector", vector, "--control-vector-layers", "1", code=2)
        tinfer("logits", MODEL, "-p", "a", "--control-vector-layers", "1,1", code=2)

    def test_score_and_perplexity_take_them(self):
        lora = make("lora.gguf", "--match", "ffn", "--size", "0.3")
        vector = make("control.gguf", "--directions", "1,1", "--size", "1")
        line = json.dumps({"prompt": "once on", "text": " a time"}).encode()
        score = lambda *args: json.loads(tinfer("score", MODEL, "-f", "-", *args, input=line))["sum"]
        ppl = lambda *args: json.loads(tinfer("perplexity", MODEL, "-p", "a on the " * 30, "-c", "16", "--json",
                                              *args))["ppl"]
        for value in (score, ppl):
            plain = value()
            self.assertEqual(plain, value("--lora", f"{lora}=0"))
            self.assertNotEqual(plain, value("--lora", lora))
            self.assertNotEqual(plain, value("--control-vector", vector))
        tinfer("score", MODEL, "-f", "-", "--lora", FOLDER / "none.gguf", input=line, code=1)
        self.assertIn("none.gguf", tinfer.stderr)

    def test_a_scale_has_one_sign(self):
        lora = make("lora.gguf", "--match", "ffn", "--size", "0.3")
        self.assertEqual(logits("--lora", f"{lora}=2"), logits("--lora", f"{lora}=+2"))
        for text in "+-2", "-+2", "++2", "--2", "+":
            tinfer("logits", MODEL, "-p", "a", "--lora", f"{lora}={text}", code=2)
            self.assertIn("is no finite number", tinfer.stderr)

    def test_errors_name_the_file(self):
        tinfer("run", MODEL, "-p", "a", "--lora", FOLDER / "none.gguf", code=1)
        self.assertIn("none.gguf", tinfer.stderr)
        tinfer("run", MODEL, "-p", "a", "--lora", MODEL, code=1)
        self.assertIn("not an adapter file", tinfer.stderr)
        self.assertEqual(tinfer.stderr.count("\n"), 1)
        vector = make("control.gguf", "--directions", "1,1")
        tinfer("run", MODEL, "-p", "a", "--lora", vector, code=1)
        self.assertIn("it is a control vector", tinfer.stderr)

    def test_inspect_shows_pairs_and_layers(self):
        lora = make("lora.gguf", "--match", "attn_q", "--rank", "4", "--alpha", "2")
        adapter = json.loads(tinfer("inspect", lora, "--json"))["adapter"]
        self.assertEqual(adapter["type"], "lora")
        self.assertEqual({pair["rank"] for pair in adapter["pairs"]}, {4})
        self.assertIn("blk.0.attn_q.weight", [pair["base"] for pair in adapter["pairs"]])
        self.assertIn("adapter", tinfer("inspect", lora).decode())
        vector = make("control.gguf", "--directions", "1,1")
        self.assertEqual(json.loads(tinfer("inspect", vector, "--json"))["adapter"]["layers"], ["1"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
