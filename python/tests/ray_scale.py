# SPDX-License-Identifier: MIT
"""Measures what docs/scale.md tells and benchmarks/scale_model.py computes, with 1, 2 and 4 processes: how much of
prompts is found in caches.

usage: ray_scale.py MODEL OUT.json     in the environment of the tests, with TINFER_PROGRAM
"""
import contextlib
import json
import pathlib
import statistics
import sys

import ray_support
from ray import serve
from ray_serve_test import PROGRAM, conversations, free_port, share_of

from tinfer.ray import app

MODEL, OUT = sys.argv[1:3]
N_TALKS, N_TURNS, KEPT = 24, 8, 64


def talks_of(rows):
    """What the model wants to know of the load, from the run with one replica: mean lengths, and how far a prompt is
    found again: what of an answer is another text's tokens when it comes back as a message."""
    by_turn = [[row for row in rows if row[1] == turn] for turn in range(N_TURNS)]
    prompt = [statistics.mean(row[2] for row in turn) for turn in by_turn]
    before = {(row[0], row[1]): row[2] for row in rows}
    again = statistics.mean(row[3] - before[row[0], row[1] - 1] for row in rows if row[1] > 0)
    system = statistics.median(row[3] for row in by_turn[0])
    grown = (prompt[-1] - prompt[0]) / (N_TURNS - 1)
    return {"n": N_TALKS, "turns": N_TURNS, "system": system, "first": prompt[0] - system, "again": again,
            "further": grown - again, "seed": 0}


def prefixes():
    shares, talks = [], None
    with served() as address:
        for n in 1, 2, 4:
            for is_aware in (True, False):
                serve.run(app(MODEL, ["-c", "65536", "--keep-sequences", str(KEPT)], program=PROGRAM, replicas=n,
                              prefix_routing=is_aware, stats_period_s=1), name="tinfer")
                rows = conversations(address, N_TALKS, N_TURNS)
                serve.delete("tinfer")
                talks = talks or talks_of(rows)
                shares.append({"replicas": n, "is_aware": is_aware, "share": share_of(rows), "kept": KEPT,
                               "talks": talks, "tokens": sum(row[2] for row in rows)})
    return shares


@contextlib.contextmanager
def served():
    port = free_port()
    serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})
    yield f"http://127.0.0.1:{port}"
    serve.shutdown()


def main():
    with ray_support.local_ray(n_cpus=5):
        figures = {"prefixes": prefixes()}
    pathlib.Path(OUT).write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
