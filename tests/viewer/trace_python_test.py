#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The format of traces from Python: the writer of the tests gives the bytes of the worked example, and
examples/read_trace.py reads what it writes. Needs numpy; exits with 77 where it is missing.
"""
import collections
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "examples")]
import synthetic_trace
import trace_writer

try:
    import numpy
    import read_trace
except ImportError:
    numpy = read_trace = None

WORKED_EXAMPLE = bytes.fromhex("""
    54 4e 46 54 52 41 43 45 01 00 00 00 80 00 00 00 0d 0c 0b 0a 01 00 00 00 00 00 2a 36 fe 9c 97 17
    15 cd 5b 07 00 00 00 00 01 00 00 00 01 00 00 00 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f
    10 11 12 13 14 15 16 17 18 19 1a 1b 1c 1d 1e 1f 20 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 98 01 00 00 00 00 00 00 00 00 00 00 97 ab 84 9f
    54 4e 42 4b 01 00 00 00 1c 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 55 35 15 b3 10 db 74 fe 01 00 00 00 13 00 00 00
    62 6c 6b 2e 30 2e 61 74 74 6e 5f 71 2e 77 65 69 67 68 74 00 00 00 00 00 54 4e 42 4b 0a 00 00 00
    10 00 00 00 01 00 00 00 01 00 00 00 00 00 00 00 dc 05 00 00 00 00 00 00 00 00 00 00 00 00 00 00
    10 00 00 00 00 00 00 00 4e d4 7b 47 25 3e 65 33 dc 05 00 00 00 00 00 00 01 00 00 00 00 00 00 00
    54 4e 42 4b 0f 00 00 00 40 00 00 00 02 00 00 00 02 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
    00 00 00 00 00 00 00 00 20 00 00 00 00 00 00 00 9e 23 a8 d7 1c 2c b1 84 80 00 00 00 00 00 00 00
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01 00 00 00 01 00 00 00 d8 00 00 00 00 00 00 00
    dc 05 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01 00 00 00 0a 00 00 00""")


class Writer(unittest.TestCase):
    def test_worked_example(self):
        self.assertEqual(trace_writer.worked_example(), WORKED_EXAMPLE)

    def test_checksum(self):
        self.assertEqual(trace_writer.crc32c(b"123456789"), 0xE3069283)

    @unittest.skipUnless(numpy, "no numpy")
    def test_checksum_of_much_is_that_of_a_loop(self):
        data = numpy.random.default_rng(1).bytes(150_001)
        self.assertEqual(trace_writer.crc32c(data), trace_writer._crc_step(0xFFFFFFFF, data) ^ 0xFFFFFFFF)


@unittest.skipUnless(numpy, "no numpy")
class Reader(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="tinfer-trace-")
        cls.path = pathlib.Path(cls.folder.name) / "t.tntrace"

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def read(self, data):
        self.path.write_bytes(data)
        return read_trace.read(self.path)

    def test_is_short(self):
        self.assertLessEqual(len((ROOT / "examples/read_trace.py").read_text().splitlines()), 60)

    def test_records_are_those_of_the_format(self):
        for record, size in (("TENSOR", 96), ("STEP", 48), ("OPERAND", 40), ("EVENT", 32), ("RANGE", 40)):
            self.assertEqual(getattr(read_trace, record).itemsize, size, record)

    def test_worked_example(self):
        strings, tensors, plans, runs = self.read(WORKED_EXAMPLE)
        self.assertEqual(strings, {0: "", 1: "blk.0.attn_q.weight"})
        self.assertEqual((len(tensors), plans, runs), (0, {}, []))

    def test_dense_model_reads_every_weight_once_a_run(self):
        tokens = 5
        strings, tensors, plans, runs = self.read(synthetic_trace.dense(prompt=7, tokens=tokens))
        self.assertEqual([(phase, len(events)) for _, phase, _, events, _ in runs], [(0, 334)] + [(1, 334)] * tokens)
        totals = read_trace.reads(tensors, plans, runs)
        by_type = collections.Counter()
        for tensor, (accesses, size) in zip(tensors, totals):
            name = strings[tensor["name"]]
            if tensor["class"] == 0:
                by_type[int(tensor["type"])] += 1
                self.assertEqual(accesses, 1 + tokens, name)
                if name != "token_embd.weight":
                    self.assertEqual(size, (1 + tokens) * tensor["bytes"], name)
        self.assertEqual(by_type, {0: 45, 12: 133, 14: 23})   # norms; most matrices; two of 11 layers and the head
        keys = next(i for i, t in enumerate(tensors) if strings[t["name"]] == "cache_k.21")
        row = 2 * 64 * 4                                       # F16, four heads of 64
        self.assertEqual(totals[keys][1], row * sum(range(7, 7 + tokens + 1)))

    def test_experts_are_slices(self):
        strings, tensors, plans, runs = self.read(synthetic_trace.dense(synthetic_trace.MIXTURE, 1, 3))
        totals = read_trace.reads(tensors, plans, runs)
        for tensor, (accesses, size) in zip(tensors, totals):
            if tensor["slice_bytes"]:
                self.assertEqual((accesses, size), (4, 4 * 8 * tensor["slice_bytes"]), strings[tensor["name"]])

    def test_program(self):
        self.path.write_bytes(synthetic_trace.dense(prompt=2, tokens=1))
        out = subprocess.run([sys.executable, ROOT / "examples/read_trace.py", self.path], check=True,
                             capture_output=True, text=True).stdout
        self.assertEqual(len(out.splitlines()), 245)
        self.assertRegex(out, r"(?m)^ +2 +107520000  output\.weight$")

    def test_no_trace(self):
        with self.assertRaisesRegex(ValueError, "no trace of version 1"):
            self.read(b"GGUF" + bytes(200))


if __name__ == "__main__":
    if not numpy:
        print("no package numpy: skipped")
        sys.exit(77)
    unittest.main()
