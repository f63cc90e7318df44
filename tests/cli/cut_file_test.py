#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A model file that is cut short while a command reads it: an error of one line, never a signal. One that is removed
is read to the end.

usage: cut_file_test.py path/to/tinfer [unittest arguments]
"""
import json
import os
import pathlib
import shutil
import subprocess
import time
import unittest

from cli_support import FOLDER, MODEL, NO_EOG, TINFER, environment, make_model, tinfer

SECONDS = 120


class CutFiles(unittest.TestCase):
    def mapped(self, child, path):
        """Waits until the program has mapped the file, or reads it."""
        def has_it():
            process = pathlib.Path(f"/proc/{child.pid}")
            return (str(path) in (process / "maps").read_text() or
                    any(os.readlink(fd) == str(path) for fd in (process / "fd").iterdir()))
        for _ in range(SECONDS * 100):
            try:
                if has_it():
                    return
            except OSError:
                pass
            if child.poll() is not None:
                self.fail(f"exit {child.returncode} before the file was mapped: {child.communicate()[1]}")
            time.sleep(0.01)
        self.fail("the file is never mapped")

    def cut(self, left, *command):
        """What the command says on stderr when its file has only so many bytes left while it runs."""
        path = FOLDER / "cut.gguf"
        shutil.copyfile(MODEL, path)
        words = [TINFER, *(str(path) if word is None else str(word) for word in command)]
        child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
        try:
            self.mapped(child, path)
            time.sleep(0.2)
            os.truncate(path, left)
            _, stderr = child.communicate(timeout=SECONDS)
        finally:
            child.kill()
        self.assertEqual(child.returncode, 1, (command, left, stderr))
        return stderr.decode()

    def test_a_file_without_a_name_answers_to_the_end(self):
        """Removed while the program pages its experts: the answer is that of the file, and its statistics are there."""
        model = make_model("removed-moe.gguf", 1, "moe")
        weights = sum(row["bytes"] for row in json.loads(tinfer("inspect", model, "--placement", "--json")))
        words = ["run", model, "-p", "on", "-n", "3000", "-c", "4096", "--temp", "0", "-t", "1", "--json", *NO_EOG,
                 "--ram", weights - 4096]
        whole = json.loads(tinfer(*words))
        self.assertIn("paging", whole)
        child = subprocess.Popen([TINFER, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 env=environment())
        try:
            self.mapped(child, model)
            os.remove(model)
            self.assertIsNone(child.poll())
            stdout, stderr = child.communicate(timeout=SECONDS)
        finally:
            child.kill()
        self.assertEqual(child.returncode, 0, stderr)
        answer = json.loads(stdout)
        self.assertTrue(answer["tokens"] == whole["tokens"])
        self.assertEqual(answer.keys(), whole.keys())

    def test_commands_report_it(self):
        size = os.path.getsize(MODEL)
        for left in (0, 4096, size // 2, size - 8):   # header, weights, and inside the last page
            for command in (["bench", None, "-p", "16", "-n", "16", "-r", "1000", "-t", "2"],
                            ["run", None, "-p", "a", "-n", "200000", "-c", "262144", *NO_EOG],
                            ["perplexity", None, "-f", FOLDER / "text"]):
                (FOLDER / "text").write_text("once on a time in the inn " * 200_000)
                stderr = self.cut(left, *command)
                self.assertIn("cannot read at byte ", stderr)
                self.assertIn("cut.gguf", stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
