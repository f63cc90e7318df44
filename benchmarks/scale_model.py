#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What many processes would do, computed from what one does: a simulator of docs/scale.md.

Two questions, each a function: how many tokens a second a pipeline of stages gives (`pipeline`), and how much of the
prompts is found in caches by the number of replicas (`prefixes`). Their inputs are measured on one process; nothing is
fitted to what is compared with them.

usage: scale_model.py [FIGURES.json] [--check] [--paper]

FIGURES.json (scale_figures.json beside this file) is what python/tests/ray_scale.py prints. --check: exit code 1 where
something is more than 15 % off. --paper: the tables of docs/scale.md for machines that are not there.
"""
from __future__ import annotations

import heapq
import json
import pathlib
import random
import sys
from collections import OrderedDict
from dataclasses import dataclass


MOST_OFF = 0.15


# ---- A pipeline

def pipeline(stage_s: list[float], hop_s: float, in_flight: int, cores: int, n_tokens: int = 400) -> float:
    """Tokens a second of `in_flight` sequences that go through the stages round after round: a token of a sequence
    enters the first stage when the one before has left the last. A stage takes one sequence at a time and a core while
    it computes; a hop to the next takes `hop_s` and no core. First come, first served."""
    arrivals = [(0.0, i, i, 0) for i in range(in_flight)]   # (time, order, sequence, stage)
    free_at = [0.0] * len(stage_s)
    core_free = [0.0] * cores
    done, order, last = 0, in_flight, 0.0
    begin = None
    warm = 4 * in_flight
    while done < n_tokens + warm:
        time, _, sequence, stage = heapq.heappop(arrivals)
        core = min(range(cores), key=core_free.__getitem__)
        start = max(time, free_at[stage], core_free[core])
        if start > time:   # comes again when it can run, behind those that can run before
            heapq.heappush(arrivals, (start, order, sequence, stage))
            order += 1
            continue
        end = start + stage_s[stage]
        free_at[stage] = core_free[core] = end
        is_last = stage + 1 == len(stage_s)
        if is_last:
            done += 1
            last = end
            if done == warm:
                begin = end
        heapq.heappush(arrivals, (end + hop_s, order, sequence, 0 if is_last else stage + 1))
        order += 1
    return n_tokens / (last - begin)


# ---- Caches

@dataclass
class Talks:
    """A load of conversations, whose turns come mixed: tokens of the text that all begin with, of a first question,
    those behind it that the next turn finds again (fewer than none where caches keep whole pages), and of what each
    turn adds beside them."""
    n: int
    turns: int
    system: float
    first: float
    again: float
    further: float
    seed: int = 0


Piece = tuple[str, float]   # a text's name, and its tokens


class Cache:
    """A replica's: the sequences of the last `most` answers, each a chain of pieces of text. A prompt finds the longest
    beginning that it shares with one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[int, tuple[Piece, ...]] = OrderedDict()
        self._next = 0

    def shared(self, prompt: tuple[Piece, ...]) -> float:
        best, where = 0.0, None
        for key, kept in self._kept.items():
            n = 0.0
            for a, b in zip(prompt, kept):
                if a != b:
                    break
                n += a[1]
            if n > best:
                best, where = n, key
        if where is not None:
            self._kept.move_to_end(where)
        return best

    def keep(self, sequence: tuple[Piece, ...]) -> None:
        for key in [key for key, kept in self._kept.items() if sequence[:len(kept)] == kept]:
            del self._kept[key]   # a sequence that goes on takes the place of its beginning
        self._kept[self._next] = sequence
        self._next += 1
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)


def prefixes(n_replicas: int, talks: Talks, kept: int, is_aware: bool, most_branches: int = 4) -> float:
    """The share of prompt tokens that caches have, with requests one after another, sent to the replica that has seen
    the most of the prompt, or in turns. What more than most_branches conversations begin with binds none of them."""
    caches = [Cache(kept) for _ in range(n_replicas)]
    sent: list[set[tuple[Piece, ...]]] = [set() for _ in range(n_replicas)]
    left = [i for i in range(talks.n) for _ in range(talks.turns)]
    random.Random(talks.seed).shuffle(left)
    texts = [(("system", talks.system), (f"first{i}", talks.first)) for i in range(talks.n)]
    begun: set[int] = set()
    hits, total, turn = 0.0, 0.0, 0
    for i in left:
        prompt = texts[i]
        covered = [max((n for n in range(len(prompt), 0, -1) if prompt[:n] in sent[r]), default=0)
                   for r in range(n_replicas)]
        is_shared = max(covered) == 1 and len(begun) > most_branches
        begun.add(i)
        if is_aware and max(covered) > 0 and not is_shared:
            r = covered.index(max(covered))
        else:
            turn += 1
            r = turn % n_replicas
        sent[r].update(prompt[:n] for n in range(1, len(prompt) + 1))
        n_prompt = sum(size for _, size in prompt)
        hits += min(caches[r].shared(prompt), n_prompt - 1)   # the last token is computed for its logits
        total += n_prompt
        answer = (f"answer{i}.{len(prompt)}", talks.again)
        caches[r].keep((*prompt, answer))
        texts[i] = (*prompt, answer, (f"further{i}.{len(prompt)}", talks.further))
    return hits / total


# ---- Beside what was measured

def compare(figures: dict) -> list[tuple[str, float, float]]:
    """(what, measured, modelled) for each figure that was measured on several processes."""
    rows = []
    for run in figures.get("pipeline", []):
        rows.append((f"pipeline, {len(run['stage_s'])} stages, {run['in_flight']} in flight, tokens/s", run["tokens_s"],
                     pipeline(run["stage_s"], run["hop_s"], run["in_flight"], run["cores"])))
    for run in figures.get("prefixes", []):
        how = "by prefix" if run["is_aware"] else "in turns"
        rows.append((f"{run['replicas']} replicas, routed {how}, share reused", run["share"],
                     prefixes(run["replicas"], Talks(**run["talks"]), run["kept"], run["is_aware"])))
    return rows


def paper(talks: Talks, kept: int) -> None:
    """What docs/scale.md tells of more machines than there are."""
    print("\npipeline: rate beside a machine that had room for all, by stages and sequences in flight; a hop takes a")
    print("tenth of a stage's time, each stage has a core")
    print("| stages | " + " | ".join(f"{m} in flight" for m in (1, 2, 4, 8, 16, 32)) + " |")
    for n in (2, 4, 8, 16):
        stage = 1.0 / n
        row = [pipeline([stage] * n, 0.1 * stage, m, n) for m in (1, 2, 4, 8, 16, 32)]
        print(f"| {n} | " + " | ".join(f"{value:.2f}" for value in row) + " |")
    print("\nprefixes: share of prompt tokens found, by replicas, for ten conversations of 8 turns a replica")
    for n in (1, 2, 4, 8, 16, 32):
        load = Talks(**{**vars(talks), "n": 10 * n})
        print(f"| {n} | {prefixes(n, load, kept, True):.2f} | {prefixes(n, load, kept, False):.2f} |")


def main() -> int:
    options = [one for one in sys.argv[1:] if one.startswith("--")]
    paths = [one for one in sys.argv[1:] if not one.startswith("--")]
    path = pathlib.Path(paths[0]) if paths else pathlib.Path(__file__).with_name("scale_figures.json")
    figures = json.loads(path.read_text())
    rows = compare(figures)
    print(f"{'':62}  measured  modelled     off")
    for what, measured, modelled in rows:
        print(f"{what:62} {measured:9.3f} {modelled:9.3f} {modelled / measured - 1:+7.1%}")
    if "--paper" in options:
        paper(Talks(**figures["prefixes"][0]["talks"]), figures["prefixes"][0]["kept"])
    if "--check" in options:
        far = [what for what, measured, modelled in rows if abs(modelled / measured - 1) > MOST_OFF]
        print("\n".join(f"more than {MOST_OFF:.0%} off: {what}" for what in far))
        return 1 if far or not rows else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
