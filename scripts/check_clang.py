#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that Clang accepts what another compiler builds: every kernel table with its own flags, and every source, in
the single header. Nothing is generated (-fsyntax-only), so it takes seconds; Clang 14, the oldest that is supported, if
there.

usage: check_clang.py compile_commands.json single-header/tinfer.hpp      (exit code 77: no Clang here)
"""
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile


def find_clang():
    for name in ("clang++-14", "clang++", *(f"clang++-{version}" for version in range(15, 40))):
        if path := shutil.which(name):
            return path
    return None


def table_commands(database):
    """(flags, source, folder) of each kernel table, without what is the other compiler's own."""
    for entry in json.loads(pathlib.Path(database).read_text(encoding="utf-8")):
        path = pathlib.PurePosixPath(entry["file"])
        if path.parts[-4:-1] != ("src", "kernels", "isa"):
            continue
        words = entry.get("arguments") or shlex.split(entry["command"])
        flags = [word for word in words if re.match(r"-(I|D|m|std=|ffp-contract|W(all|extra|pedantic|shadow)$)", word)]
        for before, word in zip(words, words[1:]):
            if before == "-isystem":
                flags += [before, word]
        yield flags, str(path), entry["directory"]


def check(clang, flags, source, cwd=None):
    command = [clang, "-fsyntax-only", "-O2", "-Werror", "-Wno-error=deprecated-declarations", *flags, source]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode != 0:
        print(shlex.join(command), done.stderr, sep="\n", file=sys.stderr)
    return done.returncode == 0


def main():
    if len(sys.argv) != 3:
        print(__doc__.splitlines()[-1], file=sys.stderr)
        return 2
    clang = find_clang()
    if clang is None:
        print("skipped: no Clang here (scripts/setup --clang installs Clang 14), so nothing says whether it takes the "
              "sources")
        return 77
    good, n_tables = True, 0
    for flags, source, folder in table_commands(sys.argv[1]):
        good, n_tables = check(clang, flags, source, folder) and good, n_tables + 1
    with tempfile.TemporaryDirectory() as folder:
        unit = pathlib.Path(folder) / "unit.cpp"
        unit.write_text(f'#define TINFER_IMPLEMENTATION\n#include "{pathlib.Path(sys.argv[2]).resolve()}"\n',
                        encoding="utf-8")
        good = check(clang, ["-std=c++20", "-Wall", "-Wextra"], str(unit)) and good
    print(f"{clang}: {n_tables} kernel tables and the single header {'accepted' if good else 'refused'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
