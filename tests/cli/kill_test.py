#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A recording that is killed at a hundred random moments: what had reached the file is recovered, run by run.

usage: kill_test.py path/to/tinfer [unittest arguments]
"""
import json
import random
import struct
import subprocess
import time
import unittest

from cli_support import FOLDER, MODEL, NO_EOG, TINFER, environment, tinfer

BLOCK, RUN, RUN_END, TIMES = 56, 6, 8, 100


def whole_blocks(data):
    """Kinds of the blocks that end inside the data, by the layout of the file alone."""
    kinds, at = [], 128
    while data[at:at + 4] == b"TNBK" and len(data) >= at + BLOCK:
        kind, size = struct.unpack_from("<H2xI", data, at + 4)
        at += BLOCK + (size + 7) // 8 * 8
        if at > len(data):
            break
        kinds.append(kind)
    return kinds


class Killed(unittest.TestCase):
    def test_every_run_that_was_written_is_recovered(self):
        random.seed(7)
        path, whole = FOLDER / "killed.tntrace", FOLDER / "whole.tntrace"
        command = [TINFER, "trace", "record", MODEL, "-p", "once on a time", "-n", "3000", "-c", "8192", "--temp", "0",
                   *NO_EOG,
                   "-t", "1", "-o", str(path), "--overwrite"]
        begin = time.monotonic()
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(), check=True)
        longest = time.monotonic() - begin
        partial = 0
        for turn in range(TIMES):
            path.unlink(missing_ok=True)
            mode = ("--flush", "run") if turn % 2 else ("--mode", "async")
            child = subprocess.Popen([*command, *mode], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                     env=environment())
            time.sleep(random.uniform(0, longest))
            child.kill()
            child.wait()
            data = path.read_bytes() if path.exists() else b""
            kinds = whole_blocks(data)
            ended = kinds.count(RUN_END)
            if len(data) < 128:   # not even a header: nothing was promised yet
                self.assertEqual(ended, 0)
                continue
            tinfer("trace", "recover", path, "-o", whole, "--overwrite")
            stats = json.loads(tinfer("trace", "stats", whole, "--json"))
            self.assertEqual(json.loads(tinfer("trace", "validate", whole, "--json"))["valid"], True)
            self.assertEqual(stats["runs"], kinds.count(RUN))
            self.assertGreaterEqual(stats["runs"], ended)
            partial += 0 < ended < 3000
        self.assertGreater(partial, TIMES // 4)   # moments in the middle were among them


if __name__ == "__main__":
    unittest.main()
