#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds sources to `.clang-format`: the formatter of Clang 14 would change nothing, and no line, comments included, is
longer than its column limit, except between `// clang-format off` and `// clang-format on`. Holds everything else that
is written by hand to the same limit: scripts, pages, tests in Python; of Markdown all but tables, code and headings.
Exits with 77 where there is no clang-format-14.

usage: check_format.py [--wrap] [project root]

--wrap first breaks the lines of Markdown that are too long, and changes nothing else.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys

FORMATTER = "clang-format-14"   # other versions format differently
SKIPPED = 77                    # what CTest takes for skipped
ROOTS = ["src", "include", "tests", "examples", "apps", "benchmarks", "bindings", "python"]
OTHER_ROOTS = [*ROOTS, "cmake", "docs", "scripts", ".ci"]
OTHER_KINDS = {".py", ".js", ".css", ".html", ".cmake", ".in", ".txt", ""}


def sources(root):
    for place in ROOTS:
        yield from sorted(file for file in (root / place).rglob("*") if file.suffix in {".cpp", ".hpp"})


def others(root):
    """What has no formatter. A file without an ending is a script if it says so."""
    for place in [root, *(root / name for name in OTHER_ROOTS)]:
        for file in sorted(place.glob("*") if place == root else place.rglob("*")):
            if not file.is_file() or file.suffix not in OTHER_KINDS or "__pycache__" in file.parts:
                continue
            if file.suffix == ".txt" and file.name != "CMakeLists.txt":
                continue
            if file.suffix or file.read_bytes().startswith(b"#!"):
                yield file


def long_lines(lines, limit):
    """Numbers of lines beyond the limit, in characters."""
    fenced = False
    for number, line in enumerate(lines, 1):
        if "clang-format off" in line:
            fenced = True
        elif "clang-format on" in line:
            fenced = False
        elif len(line) > limit and not fenced:
            yield number


def is_prose(lines):
    """Of Markdown: which lines can be broken, neither tables nor code nor headings nor a single long word."""
    code = False
    for line in lines:
        if line.lstrip().startswith("```"):
            code = not code
            yield False
        else:
            yield not code and " " in line.strip() and not re.match(r"\s*(\||#|<|\[[^\]]+\]: |    \S)", line)


def broken(line, limit):
    """A line of Markdown in lines that fit; what stands in backticks stays together, and none begins like a list."""
    start = re.match(r"\s*(?:> )*(?:[-*+] |\d+\. )?", line)[0]
    indent = re.sub(r"[-*+] |\d+\. ", lambda mark: " " * len(mark[0]), start)
    words = re.findall(r"(?:`[^`]*`|[^\s`])+|`", line[len(start):])
    out, rest = [], start
    for k, word in enumerate(words):
        if len(rest) + 1 + len(word) > limit and rest.strip() and rest != indent:
            last = ""
            if re.fullmatch(r"[-*+>#|=]+|\d+[.)]", word):  # would be Markdown syntax there
                rest, last = rest.rsplit(" ", 1)
            out.append(rest)
            rest = indent + last
        rest += word if k == 0 or rest == indent else " " + word
    return [*out, rest]


def wrap(path, limit):
    lines = path.read_text(encoding="utf-8").splitlines()
    prose = [*is_prose(lines), False]
    out = []
    for k, line in enumerate(lines):
        if not prose[k] or len(line) <= limit:
            out.append(line)
            continue
        pieces = broken(line, limit)
        # The rest continues in the next line, if that is part of the same paragraph.
        then = lines[k + 1] if prose[k + 1] else ""
        indent = re.match(r"[\s>]*", pieces[-1])[0]
        if len(pieces) > 1 and then.startswith(indent) and re.match(r"[\w`(*\[]", then[len(indent):]) \
                and not re.match(r"(\* |\d+\. )", then[len(indent):]):
            lines[k + 1] = f"{pieces.pop()} {then[len(indent):]}"
        out += pieces
    if out != path.read_text(encoding="utf-8").splitlines():
        path.write_text("\n".join(out) + "\n", encoding="utf-8")


def complaints(formatter, files):
    """What the formatter would change, as `file:line:column`, sixteen files a call."""
    for first in range(0, len(files), 16):
        done = subprocess.run([formatter, "--dry-run", "--Werror", *files[first:first + 16]], capture_output=True,
                              text=True)
        yield from re.findall(r"^(\S+?:\d+:\d+): error", done.stderr, re.MULTILINE)
        if done.returncode != 0 and "error: code should be clang-formatted" not in done.stderr:
            sys.exit(done.stderr)


def other_complaints(path, limit):
    lines = path.read_text(encoding="utf-8").splitlines()
    may_be_long = [not prose for prose in is_prose(lines)] if path.suffix == ".md" else [False] * len(lines)
    for number in long_lines(lines, limit):
        # A URL is one word.
        if not may_be_long[number - 1] and not re.search(rf"\S{{{limit - 20}}}", lines[number - 1]):
            yield f"{path}:{number}: more than {limit} columns"


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("--wrap", action="store_true")
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1])
    args = parser.parse_args()
    style = (args.root / ".clang-format").read_text(encoding="utf-8")
    limit = int(re.search(r"^ColumnLimit: (\d+)", style, re.MULTILINE)[1])
    plain = list(others(args.root))
    if args.wrap:
        for path in plain:
            if path.suffix == ".md":
                wrap(path, limit)
    formatter = shutil.which(FORMATTER)
    if formatter is None:
        print(f"skipped: no {FORMATTER}; scripts/setup installs it")
        return SKIPPED
    files = list(sources(args.root))
    wrong = [f"{path}:{number}: more than {limit} columns" for path in files
             for number in long_lines(path.read_text(encoding="utf-8").splitlines(), limit)]
    wrong += [complaint for path in plain for complaint in other_complaints(path, limit)]
    wrong += [f"{place}: {FORMATTER} writes this in another way" for place in complaints(formatter, files)]
    print(*(line.removeprefix(f"{args.root}/") for line in wrong), sep="\n", end="\n" if wrong else "")
    print(f"{len(files)} files held to .clang-format, {len(plain)} others to its columns, {len(wrong)} complaints")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
