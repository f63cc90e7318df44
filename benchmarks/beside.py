#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Speed beside another engine: the PyPI package `llama-cpp-python`, with its defaults, on the same files and threads.
Both take turns, and the best of each counts; nothing is checked. `pip install llama-cpp-python` compiles the engine for
this machine.

usage: beside.py [MODEL.gguf…] [--threads 1,2] [--prompt 256] [--predict 64] [--depth 0] [--rounds 3] [--runs 5]
With --depth both behind so many tokens.
Without models: those that benchmarks/run has generated.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
TINFER = ROOT / "build/release/bin/tinfer"
DATA = ROOT / "build/release/bench-data"
FILES = ["1.1b-q4_k_m", "1.1b-q8_0", "1.1b-q6_k", "1.1b-q4_0", "1.1b-q5_k", "1.1b-iq4_xs", "1.1b-f16", "135m-q4_1"]


def package(model, n_prompt, n_predict, threads, depth, n_runs):
    """Prints tokens per second of a prompt and of a generation, the best of a few, by the package's C interface."""
    import llama_cpp as engine
    quiet = engine.llama_log_callback(lambda level, text, data: None)
    engine.llama_log_set(quiet, None)
    engine.llama_backend_init()
    loaded = engine.llama_model_load_from_file(str(model).encode(), engine.llama_model_default_params())
    parameters = engine.llama_context_default_params()
    parameters.n_ctx = depth + max(n_prompt, n_predict) + 64
    parameters.n_threads = parameters.n_threads_batch = threads
    context = engine.llama_init_from_model(loaded, parameters)
    batch = engine.llama_batch_init(max(n_prompt, 1), 0, 1)
    memory = engine.llama_get_memory(context)

    def decode(n, begin):
        batch.n_tokens = n
        for i in range(n):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = 100 + i, begin + i, 1, i == n - 1
            batch.seq_id[i][0] = 0
        if engine.llama_decode(context, batch) != 0:
            raise RuntimeError("the package failed to decode")
        engine.llama_synchronize(context)

    def best(n, n_decodes, runs):
        times = []
        for _ in range(runs):
            if not engine.llama_memory_seq_rm(memory, 0, depth, -1):
                raise RuntimeError("the package failed to forget")
            begin = time.perf_counter()
            for i in range(n_decodes):
                decode(n, depth + i)
            times.append(time.perf_counter() - begin)
        return n * n_decodes / min(times)

    decode(8, 0)   # warm
    engine.llama_memory_clear(memory, True)
    for begin in range(0, depth, n_prompt):
        decode(min(n_prompt, depth - begin), begin)
    print(json.dumps({"prompt": best(n_prompt, 1, n_runs), "generation": best(1, n_predict, min(n_runs, 3)),
                      "version": engine.__version__}))


def own(model, n_prompt, n_predict, threads, depth, n_runs):
    output = subprocess.run([TINFER, "bench", "-m", model, "-p", str(n_prompt), "-n", str(n_predict), "-t",
                             str(threads), "-r", str(n_runs), "-d", str(depth),
                             "-c", str(depth + max(n_prompt, n_predict) + 64), "--json"], check=True,
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    prompt, generation = (json.loads(line)["max"] for line in output.splitlines())
    return {"prompt": prompt, "generation": generation}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", type=pathlib.Path)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--predict", type=int, default=64)
    parser.add_argument("--depth", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--package", metavar="MODEL", type=pathlib.Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.package:
        return package(args.package, args.prompt, args.predict, int(args.threads), args.depth, args.runs)
    models = args.models or [path for name in FILES if (path := DATA / f"{name}.gguf").exists()]
    if not models:
        sys.exit("no models: give some, or let benchmarks/run generate its own")
    print("| file | work | threads | tinfer, t/s | llama-cpp-python, t/s | times |\n|---|---|---|---|---|---|")
    version = "?"
    for model in models:
        for threads in map(int, args.threads.split(",")):
            ours, theirs = {}, {}
            for _ in range(args.rounds):
                for to, figures in ((ours, own(model, args.prompt, args.predict, threads, args.depth, args.runs)),
                                    (theirs, json.loads(subprocess.run(
                        [sys.executable, __file__, "--package", model, "--threads", str(threads), "--prompt",
                         str(args.prompt), "--predict", str(args.predict), "--depth", str(args.depth), "--runs",
                         str(args.runs)], check=True, stdout=subprocess.PIPE,
                         text=True).stdout.splitlines()[-1]))):
                    version = figures.pop("version", version)
                    for work, speed in figures.items():
                        to[work] = max(to.get(work, 0.0), speed)
            for work in ("prompt", "generation"):
                print(f"| {model.stem} | {work} | {threads} | {ours[work]:.1f} | {theirs[work]:.1f} | "
                      f"{ours[work] / theirs[work]:.2f} |", flush=True)
    print(f"\nllama-cpp-python {version}, {os.cpu_count()} processors, prompts of {args.prompt} tokens, generations of "
          f"{args.predict}" + (f", {args.depth} tokens deep." if args.depth else "."))
    return 0


if __name__ == "__main__":
    sys.exit(main())
