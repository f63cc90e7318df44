#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Sparse attention in a trace: every event reads the KV slots that its indexer chose, and no others. Which those are
says a second evaluation of the model, in numpy and double precision (tests/model/second_graphs).

usage: sparse_trace_test.py TINFER
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "model" / "second_graphs"), str(HERE.parent / "support"),
                str(HERE.parents[1] / "examples")]
try:
    import numpy  # noqa: F401, what the second evaluation needs
except ImportError:
    print("no numpy: skipped")
    sys.exit(77)

import gguf_model
import latent
import latent_models
import read_trace
import tiny_model

TINFER = sys.argv[1]
PROMPT, N_NEW, TOP_K = "the rain in the hat on", 12, 7


def model_with_vocabulary(arch, more):
    pieces = list(tiny_model.tokens())
    keys = latent_models.keys(arch, {**latent_models.SPARSE, **more, "vocab_size": len(pieces)})
    model = gguf_model.Model(keys, None, 3)
    model.keys.update(gguf_model.vocabulary(pieces))
    return model


def choices(model, tokens):
    """(what each indexer chose, by layer and position; the token that follows)."""
    made, choose = {}, latent.Index.choose

    def remember(self, n, qr, p):
        made[self.b, p] = choose(self, n, qr, p)
        return made[self.b, p]

    latent.Index.choose = remember
    try:
        rows = latent_models.logits(model, tokens)
    finally:
        latent.Index.choose = choose
    return made, int(rows[-1].argmax())


def rows_read(trace, run, kernel, layer, cache):
    """Rows of a cache that the events of a kernel read, by its ranges."""
    strings, tensors, plans, _ = trace
    _, _, plan, events, ranges = run
    steps, operands = plans[plan]
    rows = set()
    for event in events:
        step = steps[event["step"]]
        if not strings[step["kernel"]].startswith(kernel) or step["layer"] != layer:
            continue
        own = ranges[event["range"]:event["range"] + event["ranges"]]
        for i, operand in enumerate(operands[step["operand"]:step["operand"] + step["operands"]]):
            if operand["ref"] >= 1 << 31 or strings[tensors[operand["ref"]]["name"]] != f"{cache}-{layer}":
                continue
            size = int(tensors[operand["ref"]]["row_bytes"])
            for part in own[own["operand"] == i]:
                assert part["count"] == 1 and part["offset"] % size == 0 and part["length"] % size == 0
                rows |= set(range(int(part["offset"]) // size, int(part["offset"] + part["length"]) // size))
    return rows


class SparseTrace(unittest.TestCase):
    def check(self, arch, more, indexed):
        """`indexed`: the layer whose indexer chooses, for every layer."""
        with tempfile.TemporaryDirectory() as folder:
            path, out = pathlib.Path(folder) / "model.gguf", pathlib.Path(folder) / "run.tntrace"
            model = model_with_vocabulary(arch, more)
            latent_models.logits(model, [1, 2, 3])  # makes the tensors
            gguf_model.write(path, model.keys, model.tensors)
            run = lambda *args: subprocess.run([TINFER, *args], check=True, stdout=subprocess.PIPE,
                                               stderr=subprocess.DEVNULL).stdout
            tokens = json.loads(run("tokenize", path, "-p", PROMPT, "--quiet"))
            n_prompt = len(tokens)
            self.assertGreater(n_prompt, TOP_K)
            run("trace", "record", path, "-p", PROMPT, "-n", str(N_NEW), "--temp", "0", "--kv-type-k", "f32",
                "--kv-type-v", "f32", "-o", out)
            for _ in range(N_NEW - 1):
                tokens.append(choices(model, tokens)[1])
            made, _ = choices(model, tokens)
            trace = read_trace.read(out)
            self.assertEqual(len(trace[3]), N_NEW)
            for i, seen in enumerate(trace[3][1:]):
                position = n_prompt + i
                for layer, source in enumerate(indexed):
                    chosen = set(made[f"blk.{source}.", position])
                    self.assertEqual(len(chosen), TOP_K)
                    for cache in ("cache_k", "cache_v"):
                        self.assertEqual(rows_read(trace, seen, "sparse_attention", layer, cache), chosen)
                    if layer == source:
                        self.assertEqual(rows_read(trace, seen, "select_keys", layer, "cache_index"),
                                         set(range(position + 1)))

    def test_an_indexer_in_every_layer(self):
        self.check("deepseek32", {}, [0, 1, 2, 3])

    def test_layers_that_take_the_choice_of_another(self):
        self.check("glm-dsa", {"attention.indexer.types": [1, 0, 1, 0]}, [0, 0, 2, 2])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
