#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a person sees: progress, colours and empty lines on terminals, and none of them anywhere else.

usage: terminal_test.py path/to/tinfer [unittest arguments]
"""
import os
import re
import subprocess
import sys
import unittest

try:
    import pty
except ImportError:   # no pseudo-terminals on this system
    sys.exit(77)

from cli_support import FOLDER, MODEL, NO_EOG, TINFER, environment, tinfer

SHORT = ["run", MODEL, "-p", "once", "-n", "5", "--temp", "0", *NO_EOG]
BAR = r"\r(?:\x1b\[2m)?\[#*\.*\] \d+ of \d+ tokens, \d+ s left"


def on_terminal(*args, env=None, stdout=None, code=0):
    """What a terminal receives from a program whose stderr, and stdout where it is not given, it is."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([TINFER, *map(str, args)], stdin=theirs, stdout=stdout or theirs, stderr=theirs,
                               env=environment(env))
    os.close(theirs)
    received = b""
    try:
        while block := os.read(ours, 65536):
            received += block
    except OSError:   # Linux says so when the other side is closed
        pass
    os.close(ours)
    if process.wait(timeout=60) != code:
        raise AssertionError(f"exit {process.returncode}, expected {code}: {received}")
    return received.decode(errors="replace").replace("\r\n", "\n")


class Terminal(unittest.TestCase):
    def test_one_empty_line_between_text_and_statistics(self):
        text = tinfer(*SHORT).decode()
        self.assertTrue(on_terminal(*SHORT, "--no-color").startswith(text + "\n\nload "))
        newlines = on_terminal(*SHORT, "--no-color", "--logit-bias", "13=1e9")   # byte 0x0A
        self.assertTrue(newlines.startswith("\n" * 5 + "\nload "), newlines)
        self.assertEqual(on_terminal(*SHORT, "--quiet"), text + "\n")   # the prompt of a shell begins its own line
        with open(FOLDER / "out.txt", "wb") as out:
            self.assertTrue(on_terminal(*SHORT, "--no-color", stdout=out).startswith("load "))
        self.assertEqual((FOLDER / "out.txt").read_text(), text)

    def test_colours_on_terminals_alone(self):
        wrong = ["run", FOLDER / "absent.gguf", "-p", "a"]
        self.assertIn("\x1b[1;31mtinfer:\x1b[0m ", on_terminal(*wrong, code=1))
        self.assertIn("\x1b[1;31mtinfer:\x1b[0m ", on_terminal("rnu", code=2))
        self.assertIn("\x1b[2mload ", on_terminal(*SHORT))
        self.assertIn("\x1b[33mtinfer: warning:", on_terminal(*SHORT, "-c", "4096"))
        self.assertIn("\x1b[", on_terminal(*wrong, env={"NO_COLOR": ""}, code=1))   # empty: not set
        for args, env in ((["--no-color"], {}), ([], {"NO_COLOR": "1"}), ([], {"TINFER_NO_COLOR": "1"})):
            self.assertNotIn("\x1b", on_terminal(*wrong, *args, env=env, code=1))
            self.assertNotIn("\x1b", on_terminal(*SHORT, *args, env=env))
        self.assertNotIn(b"\x1b", tinfer(*SHORT) + tinfer.stderr.encode())
        tinfer(*wrong, code=1)
        self.assertNotIn("\x1b", tinfer.stderr)

    def test_progress_in_long_prompts(self):
        prompt = FOLDER / "long.txt"
        prompt.write_text("on the inn " * 250)
        args = ["run", MODEL, "-f", prompt, "-n", "3", "-t", "1", "-u", "64", "--isa", "reference", "--temp", "0",
                *NO_EOG]
        plain = tinfer(*args)
        self.assertNotIn("left", tinfer.stderr)
        seen = on_terminal(*args)
        self.assertRegex(seen, BAR)
        counts = [int(n) for n in re.findall(r"\] (\d+) of", seen)]
        self.assertEqual(counts, sorted(counts))
        bars_end = seen.rindex("s left")
        # the line is empty again before the text
        self.assertRegex(seen[bars_end:], r"\As left(\x1b\[0m)?\x1b\[K\r\x1b\[K")
        self.assertTrue(seen[bars_end:].split("\r\x1b[K")[1].startswith(plain.decode()))
        self.assertNotIn("left", on_terminal(*args, "--quiet"))
        self.assertNotRegex(on_terminal(*SHORT), BAR)   # a short one is not worth it
        lines = FOLDER / "lines.txt"
        lines.write_text("on the inn again and again\n" * 400)
        self.assertRegex(on_terminal("embed", MODEL, "-f", lines, "-o", FOLDER / "v.f32", "-t", "1", "--isa",
                                     "reference"),
                         r"\r\S*\[#*\.*\] \d+ of 400 lines, \d+ s left")


if __name__ == "__main__":
    unittest.main(verbosity=2)
