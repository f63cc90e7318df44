#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the examples of the public headers, one for each chapter, as one source file, each as a function that takes
the path of a model in place of "model.gguf": so they are compiled and run by the tests as they stand.

usage: header_examples.py include/tinfer out.cpp
"""
import itertools
import pathlib
import re
import sys

CODE = "//     "
HEAD = """\
// SPDX-License-Identifier: MIT
// Made by scripts/header_examples.py: the examples of the public headers.
#include <tinfer/tinfer.hpp>

#include <iostream>

#include "api/header_examples.hpp"

namespace tinfer::test {

namespace {

"""


def openings(header):
    """The comments that open the chapters of a header: title, "" for what stands at its top, and lines."""
    lines = header.read_text(encoding="utf-8").splitlines()
    starts = [(0, "")] + [(number + 1, title[1]) for number, line in enumerate(lines)
                          if (title := re.fullmatch(r"// =+ (.+) =+", line))]
    return [(title, list(itertools.takewhile(lambda line: line.startswith("//"), lines[start:])))
            for start, title in starts]


def example_of(opening):
    return "\n".join("    " + line[len(CODE):] for line in opening if line.startswith(CODE))


def main():
    if len(sys.argv) != 3:
        print(__doc__.splitlines()[-1], file=sys.stderr)
        return 2
    folder, target = map(pathlib.Path, sys.argv[1:])
    names = re.findall(r'#include "tinfer/(\w+)\.hpp"', (folder / "tinfer.hpp").read_text(encoding="utf-8"))
    unlisted = {path.stem for path in folder.glob("*.hpp")} - set(names) - {"tinfer"}
    if unlisted:
        sys.exit(f"header_examples: tinfer.hpp does not include {', '.join(sorted(unlisted))}")
    out, entries = [HEAD], []
    for name in ["tinfer", *names]:
        chapters = openings(folder / f"{name}.hpp")
        for number, (title, opening) in enumerate(chapters):
            place = f"{name}: {title}" if title else name
            code = example_of(opening)
            if not code and not title and len(chapters) > 1:
                continue
            if not code:
                sys.exit(f"header_examples: {place} does not open with an example")
            uses_path = '"model.gguf"' in code
            code = code.replace('"model.gguf"', "the_model")
            out.append(f"void example_{name}_{number}(const std::filesystem::path&{' the_model' if uses_path else ''}) "
                       f"{{\n{code}\n}}\n\n")
            entries.append(f'    {{"{place}", example_{name}_{number}}},\n')
    out += ["constexpr HeaderExample kHeaderExamples[]{\n", *entries, "};\n\n}  // namespace\n\n",
            "std::span<const HeaderExample> header_examples() { return kHeaderExamples; }\n\n",
            "}  // namespace tinfer::test\n"]
    target.write_text("".join(out), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
