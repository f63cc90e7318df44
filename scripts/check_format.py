#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds sources to `.clang-format`: the formatter of Clang 14 would change nothing, and no line, comments included, is longer
than its column limit, except between `// clang-format off` and `// clang-format on`. Exits with 77 where there is no
clang-format-14.

usage: check_format.py [project root]
"""
import pathlib
import re
import shutil
import subprocess
import sys

FORMATTER = "clang-format-14"   # others break lines in other places
SKIPPED = 77                    # what CTest takes for skipped
ROOTS = ["src", "include", "tests", "examples", "benchmarks"]


def sources(root):
    for place in ROOTS:
        yield from sorted(file for file in (root / place).rglob("*") if file.suffix in {".cpp", ".hpp"})


def long_lines(path, limit):
    """Numbers of lines beyond the limit, in characters."""
    fenced = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if "clang-format off" in line:
            fenced = True
        elif "clang-format on" in line:
            fenced = False
        elif len(line) > limit and not fenced:
            yield number


def complaints(formatter, files):
    """What the formatter would change, as `file:line:column`, sixteen files a call."""
    for first in range(0, len(files), 16):
        done = subprocess.run([formatter, "--dry-run", "--Werror", *files[first:first + 16]], capture_output=True, text=True)
        yield from re.findall(r"^(\S+?:\d+:\d+): error", done.stderr, re.MULTILINE)
        if done.returncode != 0 and "error: code should be clang-formatted" not in done.stderr:
            sys.exit(done.stderr)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[1])
    formatter = shutil.which(FORMATTER)
    if formatter is None:
        print(f"skipped: no {FORMATTER}; scripts/setup installs it")
        return SKIPPED
    limit = int(re.search(r"^ColumnLimit: (\d+)", (root / ".clang-format").read_text(encoding="utf-8"), re.MULTILINE)[1])
    files = list(sources(root))
    wrong = [f"{path}:{number}: more than {limit} columns" for path in files for number in long_lines(path, limit)]
    wrong += [f"{place}: {FORMATTER} writes this in another way" for place in complaints(formatter, files)]
    print(*(line.removeprefix(f"{root}/") for line in wrong), sep="\n", end="\n" if wrong else "")
    print(f"{len(files)} files held to .clang-format, {len(wrong)} complaints")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
