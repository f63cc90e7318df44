#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The example `masked`: places are filled pass by pass as a second evaluation of the model fills them, in numpy and
double precision (tests/model/second_graphs).

usage: masked_test.py TINFER MASKED
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "model" / "second_graphs"), str(HERE.parent / "support")]
try:
    import numpy as np
except ImportError:
    print("no numpy: skipped")
    sys.exit(77)

import gguf_model
import tiny_model
import whole_texts

TINFER, MASKED = sys.argv[1:3]
PROMPT = "the rain in the hat"


def model_with_vocabulary(arch, more):
    pieces = list(tiny_model.tokens()) + [("<mask>", 0.0, 3)]
    keys = whole_texts.keys(arch, {**whole_texts.PLAIN, **more, "vocab_size": len(pieces)})
    shift = keys.pop(f"{arch}.shift", None)
    model = gguf_model.Model(keys, None, 5)
    model.keys.update(gguf_model.vocabulary(pieces))
    model.keys["tokenizer.ggml.mask_token_id"] = len(pieces) - 1
    if shift is not None:
        model.keys["diffusion.shift_logits"] = shift
    return model, len(pieces) - 1


def filled(model, tokens, n_new, n_pass, mask, shifted):
    """The places the model is surest of, in every pass as many of those left as passes are left."""
    n_prompt, tokens = len(tokens), list(tokens) + [mask] * n_new
    for done in range(n_pass):
        rows = whole_texts.logits(model, tokens)
        guesses = []
        for place in range(n_prompt, len(tokens)):
            if tokens[place] != mask:
                continue
            row = rows[place - 1 if shifted and place > 0 else place]
            guesses.append((1 / np.exp(row - row.max()).sum(), place, int(row.argmax())))
        guesses.sort(reverse=True)
        left = n_pass - done
        for _, place, token in guesses[:(len(guesses) + left - 1) // left]:
            tokens[place] = token
    return tokens[n_prompt:]


class Masked(unittest.TestCase):
    def check(self, arch, more, n_new, n_pass, shifted):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "model.gguf"
            model, mask = model_with_vocabulary(arch, more)
            model.tensor("token_embd.weight", 48, model.key("vocab_size"), kind=whole_texts.normal)
            whole_texts.logits(model, [1, 2, 3])  # makes the tensors
            gguf_model.write(path, model.keys, model.tensors)
            run = lambda *args: subprocess.run(args, check=True, stdout=subprocess.PIPE).stdout
            ids = json.loads(run(TINFER, "tokenize", path, "-p", PROMPT, "--quiet"))
            self.assertGreater(len(ids), 4)
            expected = filled(model, ids, n_new, n_pass, mask, shifted)
            wanted = run(TINFER, "detokenize", path, "--quiet", "--tokens", ",".join(map(str, expected)))
            self.assertEqual(run(MASKED, path, PROMPT, str(n_new), str(n_pass)).rstrip(b"\n"), wanted.rstrip(b"\n"))

    def test_llada_reads_a_place_at_its_own(self):
        self.check("llada", {"shift": False}, 9, 3, False)

    def test_dream_reads_a_place_at_the_one_before(self):
        self.check("dream", {}, 7, 7, True)

    def test_experts_in_one_pass(self):
        self.check("rnd1", {**whole_texts.MOE, "shift": True}, 5, 1, True)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
