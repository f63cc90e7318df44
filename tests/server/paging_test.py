#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""[N22] A server under --ram: the answers of one without, also to several at once; /metrics counts experts.

usage: paging_test.py path/to/tinfer [unittest arguments]
"""
import concurrent.futures
import json
import subprocess
import sys
import unittest

from server_support import FOLDER, HERE, NO_EOG, TINFER, Server

MIXTURE = FOLDER / "mixture.gguf"
subprocess.run([sys.executable, HERE.parent / "support/tiny_model.py", MIXTURE, "3", "moe"], check=True)
BODIES = [{"prompt": text, "max_tokens": 24, "temperature": 0, **NO_EOG}
          for text in ("the one", "once upon", "a", "on and on and on")]


def placement(*args):
    return json.loads(subprocess.run([TINFER, "inspect", MIXTURE, "--placement", "--json", *map(str, args)], check=True,
                                     capture_output=True).stdout)


def answers(server):
    def ask(body):
        return server.post("/v1/completions", body)["choices"][0]["text"]
    alone = [ask(body) for body in BODIES]
    with concurrent.futures.ThreadPoolExecutor(len(BODIES)) as pool:
        together = list(pool.map(ask, BODIES))
    return alone, together


def experts(server):
    lines = server.ask("GET", "/metrics")[2].decode().splitlines()
    return {line.split("{")[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("tinfer_expert_")}


class Paging(unittest.TestCase):
    def test_answers_and_counts(self):
        weights = sum(row["bytes"] for row in placement())
        limit = weights - 4096
        self.assertIn("paged", {row["place"] for row in placement("--ram", limit)})
        with Server("--parallel", 4, model=MIXTURE) as server:
            expected = answers(server)
            self.assertEqual(experts(server), {})   # it is in memory: there is nothing to count
        self.assertEqual(expected[0], expected[1])
        with Server("--parallel", 4, "--ram", limit, model=MIXTURE) as server:
            before = experts(server)
            self.assertEqual(answers(server), expected)
            after = experts(server)
        found, missed = (after[f"tinfer_expert_{kind}_total"] for kind in ("hits", "misses"))
        self.assertGreater(found, 0)
        self.assertGreater(missed, 0)
        self.assertGreater(after["tinfer_expert_read_bytes_total"], 0)
        self.assertTrue(0 < after["tinfer_expert_bytes"] <= limit)
        for name, value in before.items():
            self.assertLessEqual(value, after[name], name)


if __name__ == "__main__":
    unittest.main()
