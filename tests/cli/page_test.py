#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""docs/tracing.md is true: every command of the page is run in its order, on small models under the page's names, and
what the page shows has the shape of what the program prints: the same headings, the same names at the beginnings of
lines, and the same exit code. Numbers differ with model and machine.

usage: page_test.py path/to/tinfer [unittest arguments]
"""
import pathlib
import re
import shlex
import subprocess
import sys
import unittest

from cli_support import FOLDER, HERE, MODEL, NO_EOG, TINFER, environment, make_model

ROOT = HERE.parent.parent
PAGE = ROOT / "docs/tracing.md"
PROGRAM = str(pathlib.Path(TINFER).resolve())
MODELS = {"smollm2.gguf": "llama", "1.1b.gguf": "llama", "model.gguf": "llama", "moe.gguf": "moe"}
# Rows that are the same whatever the model; of the others the headings are compared.
FIXED_ROWS = ("validate", "--predict", "--prefetch")
FINDINGS = {"diff": (0, 1)}


def examples():
    """(command, lines of its output) of every command that the page shows with output, or without."""
    for block in re.findall(r"^```\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.S | re.M):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, *output = part.splitlines()
            yield command.split("   #")[0], [line for line in output if line.strip() and not line.startswith("(")]


def cells(line):
    return re.split(r"\s{2,}", line.strip())


def is_heading(line):
    return len(cells(line)) > 2 and not re.search(r"\d{2}|\b\d\b", line) and not line.startswith(" ")


def is_indented_heading(line):
    return len(cells(line)) > 2 and not re.search(r"\d", line) and line.startswith(" ")


class Page(unittest.TestCase):
    def run_command(self, words):
        if words[0].endswith("draw_layers.py"):
            words = [sys.executable, str(ROOT / words[0]), PROGRAM, *words[2:]]
        else:
            words = [PROGRAM, *words[1:]]
            if "record" in words:
                words += [*NO_EOG, "--overwrite"]
            elif "disk" in words:   # small models are too small to measure a storage by
                words[3] = str(FOLDER / "large")
                (FOLDER / "large").write_bytes(bytes(1 << 23))
        done = subprocess.run(words, cwd=FOLDER, capture_output=True, timeout=300, env=environment(), text=True,
                              errors="replace")
        verb = words[2] if len(words) > 2 else ""
        self.assertIn(done.returncode, FINDINGS.get(verb, (0,)), f"{words}\n{done.stderr}")
        return done.stdout + "\n" + done.stderr

    def test_every_command(self):
        for i, (name, kind) in enumerate(MODELS.items()):
            make_model(name, 1 + i, kind)
        n = 0
        for command, shown in examples():
            words = shlex.split(command)
            if words[0] == "generate_model":   # of benchmarks/; the name stands for a small model here
                continue
            with self.subTest(command):
                n += 1
                printed = self.run_command(words).splitlines()
                got = {" ".join(cells(line)) for line in printed}
                first = {cells(line)[0] for line in printed}
                in_table = False
                for line in shown:
                    if is_heading(line) or is_indented_heading(line):
                        in_table = True
                        # Those left out name what the model has.
                        if "--by role" not in command and "diff" not in words and words[-2:] != ["--phase", "decode"]:
                            self.assertIn(" ".join(cells(line)), got)
                    elif (not in_table and len(cells(line)) > 1 and "hash" not in words
                          or any(word in command for word in FIXED_ROWS)):
                        self.assertIn(cells(line)[0], first)
        self.assertGreater(n, 20)

    def test_the_table_of_questions_names_verbs_that_exist(self):
        known = subprocess.run([TINFER, "trace", "--help"], capture_output=True, text=True, check=True,
                               env=environment()).stdout
        for line in re.findall(r"^\| [A-Z].*\?.*\| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.M):
            for command in re.findall(r"`([^`]+)`", line):
                verb = command.split()[0]
                if not verb.startswith("-") and verb != "tinfer":
                    self.assertRegex(known, rf"(?m)^  {verb}\b", command)


if __name__ == "__main__":
    unittest.main()
