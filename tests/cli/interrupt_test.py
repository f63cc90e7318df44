#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Ctrl-C is heard once, whatever the program is doing: it ends with 130 and says nothing more.

usage: interrupt_test.py path/to/tinfer [unittest arguments]
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from cli_support import FOLDER, HERE, MODEL, TINFER, environment

if not hasattr(os, "mkfifo"):
    sys.exit(77)


class Interrupts(unittest.TestCase):
    def interrupted(self, args, wait=0.5, stdin=subprocess.PIPE):
        """Exit code and the two outputs of a program that gets one SIGINT while it works or waits."""
        # Into files: nobody reads a pipe while the program is waited for, and a full one would hold it up.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
            process = subprocess.Popen([TINFER, *map(str, args)], stdin=stdin, stdout=out, stderr=errors,
                                       env=environment())
            with process:
                time.sleep(wait)
                self.assertIsNone(process.poll(), f"{args}: it was done before it could be interrupted")
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(120)   # with stdin still open
                except subprocess.TimeoutExpired:
                    process.kill()
                    raise AssertionError(f"{args}: not heard") from None
            out.seek(0)
            errors.seek(0)
            return process.returncode, out.read(), errors.read().decode()

    def test_while_it_waits_for_a_text(self):
        fifo = FOLDER / "never-opened"
        os.mkfifo(fifo)
        for args in (["tokenize", MODEL, "-f", "-"], ["run", MODEL, "-f", "-"], ["score", MODEL, "-f", "-"],
                     ["chat", MODEL, "--template", "chatml"], ["run", MODEL, "-f", fifo],
                     ["grammar", "check", "-"], ["replay", "-"]):
            code, out, errors = self.interrupted(args)
            self.assertEqual((code, out), (130, b""), args)
            self.assertNotIn("Interrupted system call", errors)
            self.assertNotIn("tinfer: -", errors)

    def test_while_it_does_what_nothing_else_can_stop(self):
        text = FOLDER / "long.txt"
        text.write_text("Some words, and more of them in 2024. " * 1_500_000)
        for args in (["tokenize", MODEL, "-f", text], ["run", MODEL, "-f", text], ["embed", MODEL, "-f", text],
                     ["perplexity", MODEL, "-f", text]):
            code, out, errors = self.interrupted(args)
            self.assertEqual((code, out), (130, b""), (args, errors))

    def test_while_a_disk_is_measured(self):
        file = FOLDER / "large"
        file.write_bytes(bytes(64 << 20))
        curve = FOLDER / "curve.csv"
        code, out, _ = self.interrupted(["trace", "disk", file, "--seconds", 600, "-o", curve])
        self.assertEqual((code, out), (130, b""))
        self.assertFalse(curve.exists())

    def test_what_can_be_shown_is_shown(self):
        args = ["run", MODEL, "-p", "once", "-n", -1, "-c", 256, "--context-shift", "--json", "--logit-bias", "2=-1e9"]
        code, out, errors = self.interrupted(args, wait=1)
        document = json.loads(out)
        self.assertEqual((code, document["stop"], errors), (130, "interrupt", ""))
        self.assertGreater(len(document["tokens"]), 0)


if __name__ == "__main__":
    unittest.main()
