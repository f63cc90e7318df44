#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a trace says of the machine and of texts: roofs that are measured once, peaks of benchmarks, pieces of tokens,
two traces in one page.

usage: roofs_test.py path/to/tinfer [unittest arguments]
"""
import json
import pathlib
import unittest

from cli_support import FOLDER, MODEL, record, tinfer, trace, trace_json

DENSE, MOE = str(FOLDER / "dense.tntrace"), str(FOLDER / "other.tntrace")


class Roofs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for path in (DENSE, MOE):
            record(path, MODEL, "--no-roofs")

    def test_roofs_are_measured_once_and_stand_in_the_trace(self):
        cache = FOLDER / "roof cache"
        where = {"XDG_CACHE_HOME": str(cache)}
        told = FOLDER / "told.tntrace"
        record(told, MODEL, env=where)
        self.assertIn("measured for this machine", tinfer.stderr)
        measured = trace_json("roofline", told)
        self.assertTrue(all(measured[peak] > 0 for peak in ("peak_gbps", "peak_gmacs", "peak_f32_gmacs")))
        self.assertEqual({g["bound"] for g in measured["groups"]} - {"memory", "compute", "overhead"}, set())
        for phase in measured["phases"]:
            self.assertAlmostEqual(phase["memory"] + phase["compute"] + phase["overhead"], 1)
        record(told, MODEL, "--overwrite", env=where)
        self.assertNotIn("measured", tinfer.stderr)   # kept in the cache folder
        self.assertEqual(trace_json("roofline", told)["peak_gbps"], measured["peak_gbps"])
        kept, = (cache / "tinfer").glob("roofs-*.json")
        kept.write_text("{")   # damaged: measured anew
        record(told, MODEL, "--overwrite", env=where)
        self.assertIn("measured for this machine", tinfer.stderr)
        record(told, MODEL, "--overwrite", "--roofs", "gbps=2e6,int8_gmacs=3e6,f32_gmacs=4e6", env=where)
        given = trace_json("roofline", told)
        self.assertEqual([given[k] for k in ("peak_gbps", "peak_gmacs", "peak_f32_gmacs")], [2e6, 3e6, 4e6])
        self.assertEqual({g["bound"] for g in given["groups"]}, {"overhead"})   # far below both
        self.assertIn("100.0 % is overhead", trace("roofline", told))
        record(told, MODEL, "--overwrite", "--no-roofs")
        trace("roofline", told)
        self.assertIn("see --peaks", tinfer.stderr)
        for wrong in ("gbps=x", "speed=3", FOLDER / "absent.json"):
            record(told, MODEL, "--overwrite", "--roofs", wrong, code=None)
            self.assertIn("tinfer: ", tinfer.stderr)

    def test_bench_lines_are_peaks(self):
        lines = FOLDER / "bench.json"
        line = {"test": "tg4", "threads": 1, "stream_gbps": 5, "dot_gmacs": 50, "fma_gmacs": 6, "gbps": 1, "gmacs": 2}
        lines.write_text("".join(json.dumps(line | {"threads": n, "stream_gbps": gbps}) + "\n"
                                 for n, gbps in ((1, 5), (2, 8), (2, 9), (4, 20))))
        roofs = trace_json("roofline", DENSE, "--peaks", lines)   # recorded with two threads
        self.assertEqual([roofs[k] for k in ("peak_gbps", "peak_gmacs", "peak_f32_gmacs")], [9, 50, 6])

    def test_texts_of_tokens_stand_in_the_trace(self):
        page = FOLDER / "text.html"
        trace("view", DENSE, "-o", page)
        data = pathlib.Path(DENSE).read_bytes()
        self.assertGreaterEqual(data.find(b"TNBK\x11\0"), 0)           # a block of pieces
        quiet = FOLDER / "quiet.tntrace"
        for option in ("--no-text", "--no-token-ids"):
            record(quiet, MODEL, "--overwrite", option)
            self.assertEqual(quiet.read_bytes().find(b"TNBK\x11\0"), -1)
        self.assertEqual(trace("hash", quiet).split()[0] == trace("hash", DENSE).split()[0], False)
        record(quiet, MODEL, "--overwrite", "--no-text")
        self.assertEqual(trace("hash", quiet).split()[0], trace("hash", DENSE).split()[0])   # times and texts aside
        cut = FOLDER / "cut pieces.tntrace"
        trace("cut", DENSE, "--run", 1, "-o", cut)
        self.assertGreaterEqual(cut.read_bytes().find(b"TNBK\x11\0"), 0)

    def test_two_traces_in_one_page(self):
        page = FOLDER / "both.html"
        trace("view", DENSE, MOE, "-o", page)
        text = page.read_text()
        self.assertEqual([text.count(f'id="{name}">') for name in ("view-info", "view-info-2", "view-data-2")],
                         [1, 1, 1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
