#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A trace of every golden model that makes text, with routers, is valid by every rule.

usage: golden_trace_test.py path/to/tinfer [unittest arguments]
"""
import json
import unittest

from cli_support import FOLDER, golden_model, tinfer


class EveryModel(unittest.TestCase):
    def test_traces_are_valid(self):
        one = golden_model("llama")
        if one is None:
            self.skipTest("no golden data")
        seen, path = 0, FOLDER / "golden.tntrace"
        for model in sorted(one.parent.parent.glob("*/model.gguf")):
            case = model.with_name("case.json")
            tokens = json.loads(case.read_text()).get("tokens") if case.exists() else None
            if not tokens:
                continue
            with self.subTest(model=model.parent.name):
                try:
                    tinfer("trace", "record", model, "--tokens", ",".join(map(str, tokens[:20])), "-n", 2, "-t", 1,
                           "--extras", "router", "-o", path, "--overwrite")
                except AssertionError:
                    if "the context sees the whole text at once" in tinfer.stderr:
                        continue   # encoders, and models that fill masked places
                    raise
                verdict = json.loads(tinfer("trace", "validate", path, "--model", model, "--json"))
                self.assertEqual([r for r in verdict["rules"] if r["state"] == "FAIL"], [])
                seen += 1
        self.assertGreater(seen, 100)


if __name__ == "__main__":
    unittest.main()
