#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the examples at the top of the public headers as one source file, each as a function that takes the path of a
model in place of "model.gguf": so they are compiled and run by the tests as they stand.

usage: header_examples.py include/tinfer out.cpp
"""
import pathlib
import re
import sys

CODE = "//     "
WITHOUT = {"export"}   # contains no declarations to use
HEAD = """\
// SPDX-License-Identifier: MIT
// Made by scripts/header_examples.py: the examples at the top of the public headers.
#include <tinfer/tinfer.hpp>

#include <iostream>

#include "api/header_examples.hpp"

namespace tinfer::test {

namespace {

"""


def example_of(header):
    lines = []
    for line in header.read_text(encoding="utf-8").splitlines():
        if not line.startswith("//"):
            break
        if line.startswith(CODE):
            lines.append("    " + line[len(CODE):])
    return "\n".join(lines)


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
        code = example_of(folder / f"{name}.hpp")
        if not code:
            if name in WITHOUT:
                continue
            sys.exit(f"header_examples: {name}.hpp does not open with an example")
        uses_path = '"model.gguf"' in code
        code = code.replace('"model.gguf"', "the_model")
        out.append(f"void example_{name}(const std::filesystem::path&{' the_model' if uses_path else ''}) "
                   f"{{\n{code}\n}}\n\n")
        entries.append(f'    {{"{name}", example_{name}}},\n')
    out += ["constexpr HeaderExample kHeaderExamples[]{\n", *entries, "};\n\n}  // namespace\n\n",
            "std::span<const HeaderExample> header_examples() { return kHeaderExamples; }\n\n",
            "}  // namespace tinfer::test\n"]
    target.write_text("".join(out), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
