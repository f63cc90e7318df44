#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What Python costs: tokens per second through the package beside the same engine in C++, and vectors of short texts
beside the package llama-cpp-python on the same file, where that is installed. Both sides of a comparison take turns,
and what counts is the ratio of each turn: medians are printed, and all ratios. The last column is what is promised;
the exit code is 1 where that is missed by more than --slack. Measure on an idle machine.

The package has to be installed for the interpreter that runs this, and a release build made:
    build/release/python-bare/bin/python benchmarks/from_python.py      (scripts/test --label python makes that one)

usage: from_python.py [MODEL.gguf] [--build build/release] [--threads N] [--predict 128] [--prompts 64] [--texts 10000]
                      [--rounds 5] [--only PART,…] [--other PYTHON] [--slack 0.0]
    --only: generation, batch, observer, observer_each, observer_all, observer_each_all, embed
    --other: an interpreter that has llama-cpp-python
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
WORDS = "river letter clock harbour north mend summer engine quiet copper bridge paper orchard signal".split()


def texts(n):
    """Of five to twelve words each, all different."""
    return [" ".join(WORDS[(i * 7 + j * (i % 13 + 1) + i // 97) % len(WORDS)] for j in range(5 + i % 8)) + f" {i}"
            for i in range(n)]


def rate_of(context, sampler, n):
    """Tokens a second of so many, one after the other."""
    context.clear()
    context.decode([1])
    begin = time.perf_counter()
    for _ in range(n):
        context.decode([sampler.sample(context)])
    return n / (time.perf_counter() - begin)


def generation(args):
    """One token after the other through Context and Sampler, as `tinfer bench` does it in C++."""
    import tinfer
    model = tinfer.Model.load(args.model)
    context = tinfer.Context(model, n_ctx=args.predict + 64, n_threads=args.threads)
    sampler = tinfer.Sampler(model.vocab, temp=0)

    def ours():
        return rate_of(context, sampler, args.predict)

    def program():
        said = subprocess.run([args.build / "bin/tinfer", "bench", "-m", args.model, "-p", "0", "-n", str(args.predict),
                               "-t", str(args.threads), "-r", "3", "-c", str(args.predict + 64), "--json"], check=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
        return json.loads(said.splitlines()[-1])["max"]
    return ("generation, tokens/s", "Python", "tinfer bench", lambda: max(ours() for _ in range(3)), program, 0.98)


def batch(args):
    """LLM.generate of many prompts beside benchmarks/many_prompts.cpp, the same requests to Engine in C++."""
    import tinfer
    llm = tinfer.LLM(args.model, n_ctx=16 * (args.predict + 64), n_parallel=16, n_threads=args.threads, n_kept=0)
    prompts = texts(args.prompts)
    ends = {token: -1e9 for token in llm.vocab.eog_tokens}
    params = tinfer.SamplingParams(temperature=0, max_tokens=args.predict // 4, logit_bias=ends)
    listed = "\n".join(prompts)

    def ours():
        begin = time.perf_counter()
        outputs = llm.generate(prompts, params)
        seconds = time.perf_counter() - begin
        return sum(len(output.token_ids) for output in outputs) / seconds

    def engine():
        said = subprocess.run([args.build / "bin/many_prompts", args.model, str(args.threads),
                               str(16 * (args.predict + 64)), str(args.predict // 4)], check=True, input=listed,
                              stdout=subprocess.PIPE, text=True).stdout
        return float(said)
    return (f"generate() of {args.prompts} prompts, tokens/s", "LLM", "Engine in C++", ours, engine, 0.95)


def observer(args, runs_per_call=16, accesses=False):
    """A generation that a Python observer watches, with its events as arrays, beside one that nobody watches: calls
    for many tokens at once."""
    import tinfer
    model = tinfer.Model.load(args.model)
    context = tinfer.Context(model, n_ctx=args.predict + 64, n_threads=args.threads)
    sampler = tinfer.Sampler(model.vocab, temp=0)

    class Bytes(tinfer.Observer):
        n_bytes = 0

        def on_events(self, events):
            self.n_bytes += int(events["bytes_read"].sum())

    class Both(Bytes):
        def on_events(self, events, accesses):
            super().on_events(events)

    def once():
        return rate_of(context, sampler, args.predict)

    def watched():
        with context.attach((Both if accesses else Bytes)(runs_per_call=runs_per_call)):
            return once()
    what = (f"events{' and accesses' if accesses else ''}, a call for "
            f"{'each token' if runs_per_call == 1 else f'{runs_per_call} tokens'}")
    watched(), once()   # warm; many short turns, --rounds 25, tell more than the best of a few
    return f"watched in Python, {what}, tokens/s", "watched", "not", watched, once, 0.95


def observer_each(args):
    """The same, called after every token, as by default."""
    return observer(args, 1)


def observer_all(args):
    """The same with all operands, of many tokens at once."""
    return observer(args, 16, True)


def observer_each_all(args):
    """The same with all operands after every token."""
    return observer(args, 1, True)


OTHER = '''
import json, sys, time
from llama_cpp import Llama
path, threads, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
texts = json.load(sys.stdin)
llm = Llama(path, embedding=True, n_ctx=batch, n_batch=batch, n_ubatch=batch, n_threads=threads,
            n_threads_batch=threads, verbose=False, pooling_type=1)
llm.embed(texts[:8])
begin = time.perf_counter()
rows = llm.embed(texts)
print(json.dumps([len(texts) / (time.perf_counter() - begin), rows[0][:4]]))
'''


def embed(args):
    """Vectors, the mean over the tokens of each text, as llama-cpp-python computes them with its own batches."""
    import tinfer
    llm = tinfer.LLM(args.model, n_ctx=4096, n_parallel=32, n_threads=args.threads)
    many = texts(args.texts)
    llm.embed(many[:8])

    def ours():
        begin = time.perf_counter()
        llm.embed(many)
        return len(many) / (time.perf_counter() - begin)

    def other():
        said = subprocess.run([args.other, "-c", OTHER, args.model, str(args.threads), "2048"], check=True,
                              input=json.dumps(many), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return json.loads(said.stdout.splitlines()[-1])[0]
    return (f"embed() of {len(many)} short texts, texts/s", "tinfer", "llama-cpp-python", ours, other, 1.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default=ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf", type=pathlib.Path)
    parser.add_argument("--build", default=ROOT / "build/release", type=pathlib.Path)
    parser.add_argument("--threads", default=os.cpu_count() or 1, type=int)
    parser.add_argument("--predict", default=128, type=int)
    parser.add_argument("--prompts", default=64, type=int)
    parser.add_argument("--texts", default=10_000, type=int)
    parser.add_argument("--rounds", default=5, type=int)
    parser.add_argument("--only", default="generation,batch,observer,observer_each,observer_all,observer_each_all,"
                                          "embed")
    parser.add_argument("--other", default=None)
    parser.add_argument("--slack", default=0.0, type=float)
    args = parser.parse_args()
    args.model = str(args.model)
    missed = []
    print("| what | first | second | first | second | ratio | turns | promised |\n|---|---|---|---|---|---|---|---|")
    for part in args.only.split(","):
        if part == "embed" and args.other is None:
            print("| embed() of short texts | | | | | not measured: no --other with llama-cpp-python | | |")
            continue
        what, first, second, one, two, promised = globals()[part](args)
        ones, twos = [], []
        for turn in range(args.rounds):
            for run, figures in ((one, ones), (two, twos)) if turn % 2 == 0 else ((two, twos), (one, ones)):
                figures.append(run())
        ratios = [a / b for a, b in zip(ones, twos)]
        ratio = statistics.median(ratios)
        if ratio < promised - args.slack:
            missed.append(what)
        print(f"| {what} | {first} | {second} | {statistics.median(ones):.1f} | {statistics.median(twos):.1f} | "
              f"{ratio:.3f} | {' '.join(f'{value:.2f}' for value in ratios)} | {promised} |", flush=True)
    if missed:
        print("missed:", "; ".join(missed), file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
