#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that objects compiled for one instruction set share no code with the others.

An inline function that such an object emits is a weak symbol; the linker keeps one copy per program, and if it keeps
this one, processors without the instructions crash. So every weak function of such an object must carry the object's
own tag in its name. Reads an optimised build: without optimisation every inline function becomes a symbol.

usage: check_isa_symbols.py libtinfer.a | avx2.cpp.o …     (the tag is the object's name up to the first dot)
"""
import pathlib
import re
import subprocess
import sys

# One source file per instruction set, named after its tag.
TAGS = {path.stem for path in (pathlib.Path(__file__).resolve().parents[1] / "src/kernels/isa").glob("*.cpp")}


def weak_functions(path):
    """(object, symbol) of every weak symbol that is no data, of an object or of all objects of an archive."""
    member = path
    for line in subprocess.run(["nm", "--defined-only", path], check=True, capture_output=True,
                               text=True).stdout.splitlines():
        fields = line.split()
        if line.endswith(":"):
            member = line[:-1]
        elif len(fields) == 3 and fields[1] in "Ww":
            yield member, fields[2]


def carries_tag(symbol, tag):
    """Mangled names spell a class as its length and its name; ours lie in namespace tinfer (xsimd has an avx2, too)."""
    return "6tinfer" in symbol and re.search(f"(?<![0-9]){len(tag)}{tag}E", symbol) is not None


def main():
    if len(sys.argv) < 2:
        print(__doc__.splitlines()[-1], file=sys.stderr)
        return 2
    tables, strangers = set(), []
    for path in sys.argv[1:]:
        for member, symbol in weak_functions(path):
            tag = pathlib.Path(member).name.split(".")[0]
            if tag not in TAGS:
                continue
            tables.add(tag)
            if not carries_tag(symbol, tag):
                strangers.append(f"{member}: weak symbol without the tag '{tag}': {symbol}")
    print(*strangers, sep="\n", end="\n" if strangers else "", file=sys.stderr)
    if not tables:
        print("no object of an instruction set found, nothing to check")
    return 1 if strangers else 0


if __name__ == "__main__":
    sys.exit(main())
