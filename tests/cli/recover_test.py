#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tinfer trace recover: whatever is damaged, what it makes is valid, and says what is lost. And what `validate` has to
know of models with several groups of experts in a layer.

usage: recover_test.py path/to/tinfer [unittest arguments]
"""
import collections
import json
import pathlib
import random
import re
import struct
import unittest

from cli_support import FOLDER, MODEL, golden_model, tinfer
from trace_test import DENSE, MOE, MOE_MODEL, Recorded, rows, trace, trace_json


class Recover(Recorded):
    def recovered(self, data, model):
        """What `recover` says of damaged bytes; fails unless what it makes of them is valid."""
        broken, whole = FOLDER / "broken.tntrace", FOLDER / "whole.tntrace"
        broken.write_bytes(data)
        report = json.loads(trace("recover", broken, "-o", whole, "--overwrite", "--json"))
        verdict = json.loads(tinfer("trace", "validate", whole, "--model", model, "--json"))
        self.assertEqual([r for r in verdict["rules"] if r["state"] == "FAIL"], [])
        stats = trace_json("stats", whole)
        self.assertEqual(stats["dropped"], report["dropped_events"])
        return report

    def test_damage_is_said_once_by_every_verb(self):
        data = pathlib.Path(MOE).read_bytes()
        flipped, cut, unclosed = (FOLDER / f"{name}.tntrace" for name in ("flipped", "short", "unclosed"))
        flipped.write_bytes(data[:len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1:])
        cut.write_bytes(data[:len(data) * 3 // 4])
        blocks, at = [], 128
        while at < len(data):
            blocks.append(at)
            at += 56 + (struct.unpack_from("<I", data, at + 8)[0] + 7) // 8 * 8
        unclosed.write_bytes(data[:blocks[-3]])   # at the end of a block: nothing but the header tells
        verbs = ([verb] for verb in ("show", "stats", "layers", "tensors", "reuse", "roofline", "cold", "io", "hash"))
        verbs = [*verbs, ["experts"], ["export", "--format", "csv"], ["export", "--format", "chrome"],
                 ["diff", MOE], ["view", "-o", FOLDER / "damaged.html"],
                 ["cut", "--run", "0", "-o", FOLDER / "part.tntrace", "--overwrite"]]
        for path in (flipped, cut, unclosed):
            for verb, *args in verbs:
                whole = tinfer("trace", verb, MOE, *args, code=None)
                self.assertNotIn("damaged", tinfer.stderr, verb)
                text = tinfer("trace", verb, path, *args, code=3)
                self.assertEqual(len(re.findall(r"^tinfer: [^\n]*: damaged: ", tinfer.stderr, re.M)), 1, (verb, path))
                tinfer("trace", verb, path, *args, "--quiet", code=3)
                self.assertIn(": damaged: ", tinfer.stderr)
                allowed = tinfer("trace", verb, path, *args, "--allow-damage", code=None if verb == "diff" else 0)
                self.assertIn(": damaged: ", tinfer.stderr)
                if verb not in ("cut",):
                    self.assertEqual(allowed, text)
            stats = trace_json("stats", path, "--allow-damage")
            self.assertEqual(stats["coverage"]["status"], "incomplete")
            self.assertGreater(stats["damage"], 0)
        for lost in (flipped, cut):   # what is not there is not equal
            tinfer("trace", "diff", MOE, lost, "--allow-damage", code=1)
        tinfer("trace", "diff", MOE, flipped, code=3)   # whichever of the two it is
        self.assertEqual(tinfer.stderr.count(": damaged: "), 1)
        tinfer("trace", "diff", cut, flipped, code=3)
        self.assertEqual(tinfer.stderr.count(": damaged: "), 2)

    def test_whatever_block_is_lost_the_rest_is_valid(self):
        for path, model in ((DENSE, MODEL), (MOE, MOE_MODEL)):
            data, kinds = pathlib.Path(path).read_bytes(), collections.Counter()
            whole, at = self.recovered(data, model), 128
            self.assertEqual((whole["lost"], whole["complete_runs"], whole["dropped_events"]), ([], 6, 0))
            while at < len(data):
                kind, size = struct.unpack_from("<H2xI", data, at + 4)
                kinds[kind] += 1
                if kinds[kind] <= 3:   # the first of each kind, and some in the middle
                    report = self.recovered(data[:at + 56] + bytes([data[at + 56] ^ 1]) + data[at + 57:], model)
                    lost = " ".join(report["lost"])
                    if kind in (1, 4):
                        self.assertTrue(report["events"] == 0 or report["complete_runs"] < 6, kind)
                    if kind == 4:
                        self.assertIn("list of tensors", lost)
                        self.assertEqual((report["events"], report["dropped_events"]), (0, whole["events"]))
                    if kind in (5, 6, 7):
                        self.assertEqual(report["events"] + report["dropped_events"], whole["events"])
                        what = {5: "its plan is lost", 6: "its beginning is lost", 7: "events? lost"}[kind]
                        self.assertRegex(lost, what)
                    if kind in (8, 12):
                        self.assertEqual((report["complete_runs"], report["events"]), (5, whole["events"]))
                at += 56 + (size + 7) // 8 * 8
            self.assertTrue({1, 2, 3, 4, 5, 6, 7, 8, 9, 15} <= set(kinds))

    def test_random_damage_is_recovered(self):
        random.seed(3)
        for path, model in ((DENSE, MODEL), (MOE, MOE_MODEL)):
            data = pathlib.Path(path).read_bytes()
            for turn in range(20):
                broken = bytearray(data if turn % 2 else data[:random.randrange(128, len(data))])
                for _ in range(random.choice((1, 3, 20)) if turn % 2 else 0):
                    broken[random.randrange(128, len(broken))] ^= 1 << random.randrange(8)
                self.recovered(broken, model)


class Groups(unittest.TestCase):
    def test_a_layer_with_two_groups_of_experts(self):
        model = golden_model("grovemoe")
        if model is None:
            self.skipTest("no golden data")
        path = FOLDER / "groups.tntrace"
        tinfer("trace", "record", model, "--tokens", "1,5,9,12,7,3", "-n", 2, "-o", path, "--extras", "router",
               "--overwrite")
        rules = {r["rule"]: r["state"] for r in trace_json("validate", path, "--model", model)["rules"]}
        self.assertEqual((rules["V9"], rules["V11"]), ("ok", "ok"))
        routes = rows(trace("export", path, "--format", "routes"))
        slots = collections.Counter((r["token"], r["layer"]) for r in routes)
        self.assertEqual(len(set(slots.values())), 1)   # the second group is no choice of its own


if __name__ == "__main__":
    unittest.main()
