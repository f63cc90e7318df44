#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures what a memory limit costs and gains (docs/paging.md): each model mapped and under --ram in the same control
group, in turn, medians of ratios, beside the rate of the storage in the same minute and what `tinfer forecast` told.

usage: paging.py BUILD [--folder FOLDER] [--rounds 3] [--quick] [--json]

BUILD is a release build with TINFER_BUILD_BENCHMARKS=ON; FOLDER (the working folder) holds the models, 6.5 GB in all.
--quick: small shapes, one round. Exit code 1 where bits differ, or memory is above its limit.
Without a memory group of its own (root, or a delegated one) mapping has all of memory: its ratios are left out then.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

SLACK = 64 << 20      # beside the limit: program, stacks, outputs
FIGURES = []


class Group:
    """A control group with a hard limit of memory, version 1 or 2; `path` is None where none can be made."""

    def __init__(self, limit):
        self.path = None
        for root, name in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
            path = pathlib.Path(root) / f"tinfer-paging-{os.getpid()}"
            try:
                path.mkdir()
            except OSError:
                continue
            try:
                (path / name).write_text(str(limit))
                self.path = path
                return
            except OSError:
                path.rmdir()

    def join(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def close(self):
        if self.path:
            self.path.rmdir()


def forget(path):
    """No page of the file stays in the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def remember(path):
    """All pages of the file are in the page cache, as far as there is room."""
    with open(path, "rb", buffering=0) as file:
        while file.read(16 << 20):
            pass


TOKENS, PROMPT = 64, 512


def measure(args, model, text, limit=0, group=None, tokens=TOKENS, warm=32, prompt=PROMPT, cold=True, **more):
    if cold:
        forget(model)
    command = [args.build / "bin/bench_paging", "--model", model, "--text", text, "--tokens", tokens, "--warm", warm,
               "--prompt", prompt, "--json", *(["--ram", limit] if limit else [])]
    for key, value in more.items():
        command += ["--" + key.replace("_", "-")] + ([] if value is True else [value])
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, check=True,
                          preexec_fn=group.join if group and group.path else None)
    return json.loads(done.stdout)


def forecast(args, model, limit, context, paged, *more):
    """With the storage's rate of the runs that it is compared with: that of a shared disk changes within minutes."""
    rate = median([row["disk_bytes_per_s"] for row in paged]) / 1e9
    done = subprocess.run([str(part) for part in (
        args.build / "bin/tinfer", "forecast", model, "--ram", limit + context, "-c", 640, "--disk-gbps", rate,
        "--json", *more)], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def figure(name, value, wanted, holds):
    FIGURES.append({"figure": name, "value": value, "wanted": wanted, "holds": bool(holds)})
    if not ARGS.json:
        print(f"{name:58} {value:9.3f}   {wanted:12} {'' if holds else 'NOT REACHED'}", flush=True)


def at_least(name, value, wanted):
    figure(name, value, f">= {wanted:g}", value >= wanted)


def median(list_):
    return statistics.median(list_)


def compare(args, name, model, text, share, against_mapping, prompt_ratio, of_bound):
    """The ratios of one model with a limit of `share` of its bytes."""
    whole = measure(args, model, text, tokens=32, warm=8)
    # What the group has beside the weights is known from the first run.
    limit = int(whole["weight_bytes"] * share)
    group = Group(limit + whole["context_bytes"] + SLACK)
    profile = args.folder / "paging.profile.json"
    mapped_tokens = {"tokens": 12, "warm": 4}
    rows = {"mapped": [], "paged": [], "whole": []}
    try:
        for _ in range(args.rounds):
            if group.path:
                rows["mapped"].append(measure(args, model, text, group=group, disk_seconds=0, **mapped_tokens))
            rows["paged"].append(measure(args, model, text, limit, group, write_profile=profile))
            remember(model)
            rows["whole"].append(measure(args, model, text, disk_seconds=0, cold=False))
        sums = {measure(args, model, text, limit, disk_seconds=0, **more)["sha256"]
                for more in ({}, {"threads": 1}, {"no_ahead": True})}
    finally:
        group.close()
    sums |= {row["sha256"] for kind in ("paged", "whole") for row in rows[kind]}
    figure(f"{name}: hashes of logits", len(sums), "1", len(sums) == 1)
    paged = rows["paged"]
    resident = max(row["resident_bytes"] - row["context_bytes"] for row in paged)
    figure(f"{name}: resident MiB above the limit", (resident - limit) / 2**20, "<= 64", resident <= limit + SLACK)
    if group.path:
        at_least(f"{name}: generation, x mapping",
                 median([p["tps"] / m["tps"] for p, m in zip(paged, rows["mapped"])]), against_mapping)
        at_least(f"{name}: prompt of 512, x mapping",
                 median([p["prompt_tps"] / m["prompt_tps"] for p, m in zip(paged, rows["mapped"])]), prompt_ratio)
        # Neither computes faster than in memory, nor reads what does not fit faster than the storage gives it.
        best = [min(w["prompt_tps"], PROMPT * p["disk_bytes_per_s"] / (whole["weight_bytes"] - limit))
                for p, w in zip(paged, rows["whole"])]
        figure(f"{name}: prompt of 512, x mapping, that is possible",
               median([b / m["prompt_tps"] for b, m in zip(best, rows["mapped"])]), "", True)
        figure(f"{name}: prompt of 512, share of what is possible",
               median([p["prompt_tps"] / b for p, b in zip(paged, best)]), "", True)
    else:
        print(f"{name}: no control group can be made, mapping is not measured", file=sys.stderr)
    shares = []
    for p, w in zip(paged, rows["whole"]):
        by_disk = p["disk_bytes_per_s"] / p["best_bytes_per_token"] if p["best_bytes_per_token"] > 0 else 1e9
        missing = whole["weight_bytes"] - limit
        bound = p["disk_bytes_per_s"] / missing if of_bound == "missing" else min(by_disk, w["tps"])
        shares.append(p["tps"] / bound)
    at_least(f"{name}: share of the bound", median(shares), 0.9)
    figure(f"{name}: tokens/s under the limit", median([p["tps"] for p in paged]), "", True)
    figure(f"{name}: tokens/s in memory", median([w["tps"] for w in rows["whole"]]), "", True)
    figure(f"{name}: storage, MB/s", median([p["disk_bytes_per_s"] for p in paged]) / 1e6, "", True)
    found = median([p["hits"] / max(p["hits"] + p["misses"], 1) for p in paged])
    figure(f"{name}: found in memory", found, "", True)
    context = whole["context_bytes"]
    if share < 0.6:
        # What was read ahead in time is found, too, but the storage has read it.
        kept = median([1 - p["bytes_per_token"] * TOKENS / ((p["hits"] + p["misses"]) * p["expert_bytes"])
                       for p in paged])
        figure(f"{name}: in memory without a read", kept, "", True)
        figure(f"{name}: read, x the optimum", median([p["bytes_per_token"] / max(p["best_bytes_per_token"], 1)
                                                       for p in paged]), "", True)
        figure(f"{name}: read for the prompt, x what does not fit",
               median([p["prompt_bytes"] for p in paged]) / (whole["weight_bytes"] - limit), "", True)
    told = forecast(args, model, limit, context, paged, *([] if share > 0.6 else ["--hit-rate", kept]))
    off = told["generation_tps"] / median([p["tps"] for p in paged])
    figure(f"{name}: forecast / measured", off, "0.9 .. 1.1", 0.9 <= off <= 1.1)
    if share < 0.6:
        by_profile = forecast(args, model, limit, context, paged, "--expert-profile", profile)
        off = by_profile["generation_tps"] / median([p["tps"] for p in paged])
        figure(f"{name}: forecast with a profile / measured", off, "0.9 .. 1.1", 0.9 <= off <= 1.1)


def fits(args, model, text):
    """A model that fits is not slower with a limit that it keeps."""
    ratios = []
    remember(model)
    for i in range(4 * args.rounds + 1):
        pair = {limit: measure(args, model, text, limit, disk_seconds=0, prompt=0, cold=False)["tps"]
                for limit in ((0, 1 << 40) if i % 2 else (1 << 40, 0))}
        ratios.append(pair[1 << 40] / pair[0])
    at_least("a model that fits: with a limit / without", median(ratios), 0.99)


def smaller_limits(args, model, text):
    """One hash at 1.5, 2, 4 and 8 times the limit, as far as it works."""
    sums, done = set(), []
    for times in (1, 1.5, 2, 4, 8):
        weights = os.path.getsize(model)
        try:
            row = measure(args, model, text, 0 if times == 1 else int(weights / times), disk_seconds=0, tokens=12,
                          warm=4, prompt=64)
        except subprocess.CalledProcessError:   # less than the least that works
            continue
        sums.add(row["sha256"])
        done.append(times)
    figure(f"hashes at {', '.join(f'{t:g}' for t in done)} x the limit", len(sums), "1", len(sums) == 1)


def main():
    args = ARGS
    args.folder.mkdir(parents=True, exist_ok=True)
    moe, dense = ("moe64-small", "110m") if args.quick else ("moe64", "1.1b")

    def made(name, shape, *more):
        path = args.folder / f"paging-{shape}-{name}.gguf"
        if not path.exists():
            subprocess.run([args.build / "bin/generate_model", "--shape", shape, "--mix", "q8_0", "--out", path, *more],
                           check=True)
        return path

    for kind, text, wanted in (("skewed", "random", 10), ("uniform", "random", 5), ("drifting", "following", 5)):
        model = made(kind, moe, "--choices", kind)
        compare(args, kind, model, text, 0.5, wanted, 1.5, "best")
        if kind == "skewed":
            smaller_limits(args, model, text)
            fits(args, model, text)
    compare(args, "dense", made("dense", dense), "random", 1 / 1.5, 2, 1.5, "missing")
    if args.json:
        print(json.dumps(FIGURES))
    return 0 if all(f["holds"] for f in FIGURES if "hash" in f["figure"] or "resident" in f["figure"]) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("."))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    ARGS = parser.parse_args()
    if ARGS.quick:
        ARGS.rounds = 1
    ARGS.build = ARGS.build.resolve()
    sys.exit(main())
