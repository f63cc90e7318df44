#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The same program twice, with `Llama` of the PyPI package `llama-cpp-python` and with that of tinfer.shims.llama_cpp,
on the same files: the ids of texts, the greedy answers to them and where these part, how often the best token differs
where both have read the same, and how fast both load, read a prompt and answer, in turns.

Both round activations where weights are quantized, each at its own places, so logits differ there in the second digit
behind the point, and answers part where two tokens are about as likely. Of a file in F32 neither rounds.

The exit code is 1 where ids differ, or where the best tokens of less than --agreement of all positions agree.

usage: beside_text.py MODEL.gguf… --other PYTHON [--predict 64] [--threads N] [--agreement 0.95] [--rounds 5]
                      [--prompt 256] [--each]
    --other: an interpreter that has llama-cpp-python; tinfer is installed for the one that runs this
    --rounds: of the speeds, of which medians are printed; 0: none are measured
    --each: a line for each prompt, too
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

PROMPTS = [
    "Once upon a time",
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "Water boils at 100 degrees Celsius, and ice melts at",
    "<|im_start|>user\nName three rivers of Europe.<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nWhat is 17 + 25?<|im_end|>\n<|im_start|>assistant\n",
    "Es war einmal ein König, der",
    "SELECT name, count(*) FROM visits WHERE",
    "In 1969 two people walked on the moon. Their names were",
    "日本の首都は",
]


def llama_of(args, **options):
    if args.engine == "tinfer":
        from tinfer.shims.llama_cpp import Llama
    else:
        from llama_cpp import Llama
    return Llama(str(args.model), n_threads=args.threads, n_threads_batch=args.threads, verbose=False, **options)


def answers(args):
    """One engine's part: greedy tokens, and the logits behind every token of its own text or of the one in `text`."""
    llama = llama_of(args, n_ctx=args.predict + 128, logits_all=True)
    given = np.load(args.text) if args.text else None
    kept = {}
    for i, prompt in enumerate(PROMPTS):
        ids = llama.tokenize(prompt.encode(), special=True)
        llama.reset()
        if given is not None:
            ids = given[f"tokens{i}"].tolist()
            llama.eval(ids)
        else:
            kept[f"prompt{i}"] = np.array(ids)
            for _ in range(args.predict):
                llama.eval(ids[llama.n_tokens:])
                ids.append(int(np.argmax(llama.scores[llama.n_tokens - 1])))
            kept[f"bytes{i}"] = np.frombuffer(llama.detokenize(ids[len(kept[f"prompt{i}"]):]), np.uint8)
        kept[f"tokens{i}"] = np.array(ids)
        kept[f"logits{i}"] = np.array(llama.scores[:llama.n_tokens])
    np.savez(args.out, **kept)


def speeds(args):
    """One engine's part: seconds to load, tokens a second of a prompt, of a generation through the package's iterator,
    and of a completion as programs ask for it, from the prompt to the text."""
    begin = time.perf_counter()
    llama = llama_of(args, n_ctx=args.prompt + args.predict + 64, n_batch=args.prompt)
    figures = {"load, s": time.perf_counter() - begin}
    ids = [100 + i for i in range(args.prompt)]

    def best(n, work):
        """The best of three, all but the first of which are warm."""
        times = []
        for _ in range(3):
            llama.reset()
            begin = time.perf_counter()
            work()
            times.append(time.perf_counter() - begin)
        return n / min(times)

    def generate():
        tokens = llama.generate(ids[:8], temp=0.0)
        for _ in range(args.predict):
            next(tokens)
        tokens.close()

    def complete():
        said = llama.create_completion("Once upon a time", max_tokens=args.predict, temperature=0.0)
        assert said["usage"]["completion_tokens"] == args.predict, said
    figures["prompt, t/s"] = best(args.prompt, lambda: llama.eval(ids))
    figures["generate(), t/s"] = best(args.predict, generate)
    figures["create_completion(), t/s"] = best(args.predict, complete)
    print(json.dumps(figures))


def asked(engine, args, model, *more):
    python = sys.executable if engine == "tinfer" else args.other
    command = [python, __file__, model, "--engine", engine, "--predict", str(args.predict), "--threads",
               str(args.threads), "--prompt", str(args.prompt), *map(str, more)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def compared(args, model, folder):
    """Prints a row; how many prompts have other ids, positions whose best tokens agree, and all positions."""
    paths = {name: pathlib.Path(folder) / f"{name}.npz" for name in ("ours", "theirs", "same")}
    asked("tinfer", args, model, "--out", paths["ours"])
    asked("llama_cpp", args, model, "--out", paths["theirs"])
    # Theirs once more over the text of ours: every position is a comparison, not only those before they part.
    asked("llama_cpp", args, model, "--out", paths["same"], "--text", paths["ours"])
    ours, theirs, same_text = (np.load(path) for path in paths.values())
    different_ids, n_whole, n_until, n_same, n_all, squares, gaps = 0, 0, 0, 0, 0, [], []
    for i, prompt in enumerate(PROMPTS):
        if ours[f"prompt{i}"].tolist() != theirs[f"prompt{i}"].tolist():
            different_ids += 1
            continue
        first = len(ours[f"prompt{i}"])
        one, two = ours[f"tokens{i}"], theirs[f"tokens{i}"]
        parts = np.flatnonzero(one != two)
        a, b = ours[f"logits{i}"], same_text[f"logits{i}"]
        n = min(len(a), len(b))
        same = int((a[:n].argmax(1) == b[:n].argmax(1)).sum())
        n_same, n_all = n_same + same, n_all + n
        place = int(parts[0]) if len(parts) else len(one)
        n_whole, n_until = n_whole + (len(parts) == 0), n_until + place - first
        if len(parts):
            gaps.append(float(a[place - 1][one[place]] - a[place - 1][two[place]]))
        elif ours[f"bytes{i}"].tobytes() != theirs[f"bytes{i}"].tobytes():
            different_ids += 1   # the same ids, another text
        off = (a[:n] - a[:n].mean(1, keepdims=True)) - (b[:n] - b[:n].mean(1, keepdims=True))
        squares.append(float((off.astype(np.float64) ** 2).mean()))
        if args.each:
            said = "all equal" if not len(parts) else f"equal up to {place - first}, then {gaps[-1]:.3f} apart"
            print(f"{prompt!r}: {said}; {same} of {n} best tokens equal; logits differ by {squares[-1] ** 0.5:.4f}")
    print(f"| {model.stem} | {n_whole} of {len(PROMPTS)} | {n_until} of {len(PROMPTS) * args.predict} | "
          f"{max(gaps, default=0.0):.3f} | {np.sqrt(np.mean(squares)) if squares else 0.0:.4f} | {n_same} of {n_all} |",
          flush=True)
    return different_ids, n_same, n_all


def timed(args, model):
    """Prints a row for each kind of work."""
    turns = {"tinfer": [], "llama_cpp": []}
    for turn in range(args.rounds):
        for engine in turns if turn % 2 == 0 else reversed(turns):
            turns[engine].append(json.loads(asked(engine, args, model, "--speeds").splitlines()[-1]))
    for work in turns["tinfer"][0]:
        ours, theirs = (statistics.median(one[work] for one in turns[engine]) for engine in turns)
        times = [a[work] / b[work] for a, b in zip(*turns.values())]
        times = sorted(1 / one for one in times) if work == "load, s" else sorted(times)
        digits = 3 if work == "load, s" else 1
        print(f"| {model.stem} | {work} | {ours:.{digits}f} | {theirs:.{digits}f} | {statistics.median(times):.2f} | "
              f"{times[0]:.2f} to {times[-1]:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--other", default=None)
    parser.add_argument("--predict", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--agreement", type=float, default=0.95)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--each", action="store_true")
    for hidden in ("--engine", "--out", "--text"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--speeds", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.engine:
        args.model = args.models[0]
        return speeds(args) if args.speeds else answers(args)
    if args.other is None:
        parser.error("--other names an interpreter that has llama-cpp-python")
    failed = []
    print("| file | answers equal | tokens equal until they part | at partings, ours: first before second, at most "
          "| logits differ by | best tokens equal, same text |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for model in args.models:
            different_ids, n_same, n_all = compared(args, model, folder)
            if different_ids:
                failed.append(f"{model.stem}: other ids or text for {different_ids} prompts")
            if n_same < args.agreement * n_all or n_all == 0:
                failed.append(f"{model.stem}: best tokens equal at {n_same} of {n_all} positions alone")
    if args.rounds > 0:
        print("\n| file | work | tinfer | llama-cpp-python | times | turns |\n|---|---|---|---|---|---|")
        for model in args.models:
            timed(args, model)
    if failed:
        print(*failed, sep="\n", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
