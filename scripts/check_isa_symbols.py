#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that objects compiled for one instruction set share no code with the others.

An inline function that such an object emits is a weak symbol; the linker keeps one copy per program, and if it keeps this
one, processors without the instructions crash. So every weak function must carry the object's own tag in its name.

    check_isa_symbols.py [--nm NM] avx2.cpp.o avx512.cpp.o …      the tag is the file name up to the first dot
"""
import argparse
import pathlib
import re
import subprocess
import sys

# Data, not code: a pointer to the exception personality that some compilers emit.
ALLOWED = re.compile(r"^DW\.ref\.")


def weak_functions(nm: str, path: pathlib.Path) -> list[str]:
    listing = subprocess.run([nm, "--defined-only", str(path)], check=True, capture_output=True, text=True).stdout
    return [fields[2] for fields in map(str.split, listing.splitlines()) if len(fields) == 3 and fields[1] in "Ww"]


def carries_tag(symbol: str, tag: str) -> bool:
    """Mangled names spell a class as its length and its name; ours lie in namespace tinfer (xsimd has an avx2, too)."""
    return "6tinfer" in symbol and re.search(f"(?<![0-9]){len(tag)}{tag}E", symbol) is not None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nm", default="nm")
    parser.add_argument("objects", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    failed = False
    for path in arguments.objects:
        tag = path.name.split(".")[0]
        symbols = weak_functions(arguments.nm, path)
        strangers = [s for s in symbols if not carries_tag(s, tag) and not ALLOWED.match(s)]
        for symbol in strangers:
            print(f"{path.name}: weak symbol without the tag '{tag}': {symbol}", file=sys.stderr)
        failed |= bool(strangers)
        if not symbols:
            print(f"{path.name}: no weak symbol at all: not an object of a kernel table?", file=sys.stderr)
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
