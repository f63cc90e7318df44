#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The hardest graphs a second time: written in Python from the pages, in double precision, sharing nothing with the
library. Golden models first, which show that these graphs are right; then models made up for branches that no golden
model takes: optional keys, other numbers, tensors that may be missing. `tinfer logits` must agree with all of them.

usage: second_graphs_test.py TINFER [--golden FOLDER] [--families NAME…]
"""
import argparse
import importlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("no numpy: skipped")
    sys.exit(77)

import gguf_model

FAMILIES = ["deepseek4", "qwen4exp", "minimax_m3", "kimi_linear", "graniteswitch", "latent_models", "decoders",
            "hybrids", "mixed", "whole_texts", "others"]


def tinfer_rows(program, path, tokens, encoder, folder):
    """Logits, or an encoder's vectors."""
    out = folder / "rows.f32"
    subprocess.run([program, "logits", path, "--tokens", ",".join(map(str, tokens)), "-o", out, "--ctx", "256",
                    "--kv-type-k", "f32", "--kv-type-v", "f32", "--quiet", *["--embeddings"] * encoder], check=True,
                   stdout=subprocess.DEVNULL)
    return np.fromfile(out, "<f4").reshape(len(tokens), -1).astype(np.float64)


def compare(name, expected, actual, tolerance, rows=None):
    rows = range(len(expected)) if rows is None else rows
    worst = max(float(np.abs(expected[r] - actual[r]).max()) for r in rows)
    spread = float(expected.std())
    good = worst <= tolerance and spread > 0.05 and np.isfinite(expected).all()
    print(f"{'ok  ' if good else 'FAIL'} {name}: largest difference {worst:.1e} of {spread:.2f} spread", flush=True)
    return good


def golden_cases(graph, folder):
    for name in graph.GOLDEN:
        case = folder / "models" / name
        if case.exists():
            yield name, case


def made_up(graph, seed, changes):
    """A file of its own for one variant: (model, tokens)."""
    keys = {**graph.BASE, **changes}
    n_tokens = keys.pop("tokens", 30)
    steps = keys.pop("steps", [])
    model = gguf_model.Model({k: v for k, v in keys.items() if v is not None}, None, seed)
    n_vocab = model.key("vocab_size")
    random = np.random.default_rng(seed + 1)
    tokens = [int(t) for t in random.integers(0, n_vocab, n_tokens)]
    for at, token in steps:
        tokens[at] = token
    expected = graph.logits(model, tokens)
    return model, tokens, expected


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    beside = pathlib.Path(__file__).resolve().parents[4] / "shared" / "golden"
    parser.add_argument("--golden", default=os.environ.get("TINFER_GOLDEN") or (beside if beside.exists() else None))
    parser.add_argument("--families", nargs="*", default=FAMILIES)
    args = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for family in args.families:
            graph = importlib.import_module(family)
            encoders = getattr(graph, "ENCODERS", ())
            for case_name, case in golden_cases(graph, pathlib.Path(args.golden)) if args.golden else []:
                told = json.loads((case / "case.json").read_text())
                keys, tensors = gguf_model.read(case / "model.gguf")
                model = gguf_model.Model(keys, tensors)
                rows = "embd" if model.arch in encoders else "logits"
                exact = case / f"{rows}_exact.f32"  # without the reference's table of GELU
                expected = np.fromfile(exact if exact.exists() else case / f"{rows}.f32", "<f4")
                expected = expected.reshape(len(told["tokens"]), -1)
                ours = graph.logits(model, told["tokens"])
                good &= compare(f"{case_name}, as golden", expected, ours, 3e-4, told.get("compare_rows"))
            for seed, (title, changes) in enumerate(graph.VARIANTS.items()):
                model, tokens, expected = made_up(graph, 100 + seed, changes)
                path = folder / "model.gguf"
                gguf_model.write(path, model.keys, model.tensors)
                try:
                    actual = tinfer_rows(args.program, path, tokens, model.arch in encoders, folder)
                except subprocess.CalledProcessError:
                    good = False
                    print(f"FAIL {family}, {title}: refused")
                    continue
                good &= compare(f"{family}, {title}", expected, actual, getattr(graph, "TOLERANCE", 5e-5))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
