#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What many processes would do, computed from what a few do: a simulator of docs/scale.md.

Three questions, each a function: how many tokens a second a pipeline of stages gives (`pipeline`), what the loss of a
replica costs (`replicas`), and how much of the prompts is found in caches by the number of replicas (`prefixes`). Their
inputs are times measured on one process; nothing is fitted to what is compared with them.

usage: scale_model.py [FIGURES.json]     tables from figures that python/tests/ray_scale.py has measured
"""
from __future__ import annotations

import heapq
import json
import pathlib
import random
import sys
from collections import OrderedDict
from dataclasses import dataclass


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


# ---- Replicas

@dataclass
class Rates:
    """Of one replica alone on a core: a round of b streams takes round_s + b * stream_s; a prompt's token prompt_s."""
    round_s: float
    stream_s: float
    prompt_s: float = 0.0


@dataclass
class Served:
    seconds: float         # until the last stream has ended
    recomputed: int        # tokens that were made once more


def replicas(n_replicas: int, n_streams: int, n_tokens: int, rates: Rates, cores: int, parallel: int,
             lost_after: int | None = None, n_prompt: int = 0, found_after_s: float = 0.5,
             restart_s: float = 1e9) -> Served:
    """Streams of n_tokens each, dealt to replicas in turn. When stream 0 has `lost_after` tokens, its replica is lost;
    after found_after_s its streams are dealt to the others, where they are made again from their begin. Replicas that
    are at work share the cores."""
    queues: list[list[list[int]]] = [[] for _ in range(n_replicas)]   # of [tokens to make, prompt tokens to read]
    for i in range(n_streams):
        queues[i % n_replicas].append([n_tokens, n_prompt])
    alive = [True] * n_replicas
    now, recomputed, orphans, back_at = 0.0, 0, [], 0.0
    heap = [(0.0, r) for r in range(n_replicas)]
    while heap:
        now, r = heapq.heappop(heap)
        if not alive[r]:
            if now < back_at:
                continue
            alive[r] = True
        if orphans and now >= orphans[0][0]:
            targets = [t for t in range(n_replicas) if alive[t]]
            for i, (_, stream) in enumerate(orphans):
                queues[targets[i % len(targets)]].append(stream)
            orphans = []
            known = {entry[1] for entry in heap} | {r}
            for t in targets:
                if t not in known:
                    heapq.heappush(heap, (now, t))
        running = queues[r][:parallel]
        if not running:
            if orphans:
                heapq.heappush(heap, (max(now, orphans[0][0]) + 1e-9, r))
            continue
        busy = sum(alive[t] and bool(queues[t]) for t in range(n_replicas))
        seconds = (rates.round_s + rates.stream_s * len(running) + rates.prompt_s * sum(s[1] for s in running)) \
            * max(1.0, busy / cores)
        for stream in running:
            stream[0] -= 1
            stream[1] = 0
        queues[r] = [stream for stream in queues[r] if stream[0] > 0]
        now += seconds
        if lost_after is not None and r == 0 and running[0][0] <= n_tokens - lost_after:
            lost_after, alive[0], back_at = None, False, now + restart_s
            recomputed = sum(n_tokens - stream[0] for stream in queues[0])
            orphans = [(now + found_after_s, [n_tokens, n_prompt]) for _ in queues[0]]
            queues[0] = []
            heapq.heappush(heap, (back_at, 0)) if restart_s < 1e8 else None
            if not any(entry[1] != 0 for entry in heap):
                heapq.heappush(heap, (now + found_after_s + 1e-9, next(t for t in range(n_replicas) if alive[t])))
            continue
        heapq.heappush(heap, (now, r))
    return Served(now, recomputed)


# ---- Caches

@dataclass
class Talks:
    """A load of conversations, whose turns come mixed: tokens of the text that all begin with, of a first question, of
    an answer, and of each further question with what the template puts around."""
    n: int
    turns: int
    system: int
    first: int
    answer: int
    further: int
    seed: int = 0


class Cache:
    """A replica's: the sequences of the last `most` answers, each a chain of pieces of text. A prompt finds the longest
    beginning that it shares with one."""

    def __init__(self, most: int, page: int = 1) -> None:
        self._most, self._page = most, page
        self._kept: OrderedDict[int, tuple[tuple[str, int], ...]] = OrderedDict()
        self._next = 0

    def shared(self, prompt: tuple[tuple[str, int], ...]) -> int:
        best, where = 0, None
        for key, kept in self._kept.items():
            n = 0
            for a, b in zip(prompt, kept):
                if a != b:
                    break
                n += a[1]
            if n > best:
                best, where = n, key
        if where is not None:
            self._kept.move_to_end(where)
        return best // self._page * self._page

    def keep(self, sequence: tuple[tuple[str, int], ...]) -> None:
        for key in [key for key, kept in self._kept.items() if sequence[:len(kept)] == kept]:
            del self._kept[key]   # a sequence that goes on takes the place of its beginning
        self._kept[self._next] = sequence
        self._next += 1
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)


def prefixes(n_replicas: int, talks: Talks, kept: int, is_aware: bool, page: int = 1) -> float:
    """The share of prompt tokens that caches have, with requests one after another, sent to the replica that has seen
    the most of the prompt, or in turns."""
    caches = [Cache(kept, page) for _ in range(n_replicas)]
    sent: list[set[tuple[tuple[str, int], ...]]] = [set() for _ in range(n_replicas)]
    left = [i for i in range(talks.n) for _ in range(talks.turns)]
    random.Random(talks.seed).shuffle(left)
    texts = [(("system", talks.system), (f"first{i}", talks.first)) for i in range(talks.n)]
    hits = total = turn = 0
    for i in left:
        prompt = texts[i]
        covered = [max((n for n in range(len(prompt), 0, -1) if prompt[:n] in sent[r]), default=0)
                   for r in range(n_replicas)]
        if is_aware and max(covered) > 0:
            r = covered.index(max(covered))
        else:
            turn += 1
            r = turn % n_replicas
        sent[r].update(prompt[:n] for n in range(1, len(prompt) + 1))
        n_prompt = sum(size for _, size in prompt)
        hits += min(caches[r].shared(prompt), n_prompt - 1)   # the last token is computed for its logits
        total += n_prompt
        answer = (f"answer{i}.{len(prompt)}", talks.answer)
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
    for run in figures.get("replicas", []):
        rates = Rates(**run["rates"])
        made = replicas(run["replicas"], run["streams"], run["tokens"], rates, run["cores"], run["parallel"],
                        run["lost_after"], run["prompt"], run["found_after_s"])
        name = "one lost" if run["lost_after"] is not None else "none lost"
        rows.append((f"{run['replicas']} replicas, {run['streams']} streams, {name}, s", run["seconds"], made.seconds))
    for run in figures.get("prefixes", []):
        how = "by prefix" if run["is_aware"] else "in turns"
        rows.append((f"{run['replicas']} replicas, routed {how}, share reused", run["share"],
                     prefixes(run["replicas"], Talks(**run["talks"]), run["kept"], run["is_aware"], run["page"])))
    return rows


def main() -> None:
    path = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).with_name("scale_figures.json"))
    figures = json.loads(path.read_text())
    print(f"{'':62}  measured  modelled     off")
    for what, measured, modelled in compare(figures):
        print(f"{what:62} {measured:9.3f} {modelled:9.3f} {modelled / measured - 1:+7.1%}")


if __name__ == "__main__":
    main()
