#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compiles what the pages show. A C++ snippet with `main` is a program; any other one is the body of a function, in
which the names of PRELUDE are known. Programs in C are compiled as C99, blocks of JSON and TOML are parsed. Those of
Python are run by the tests of the package, commands by the tests of the program. Exits with 77 where there is no
compiler.

usage: check_snippets.py [C++ compiler]
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

try:
    import tomllib
except ImportError:   # before Python 3.11
    tomllib = None

ROOT = pathlib.Path(__file__).resolve().parents[1]
PRELUDE = """
const tinfer::Model& model, const tinfer::Model& small_model, tinfer::Context& context, tinfer::Sampler& sampler,
const std::string& text, const std::vector<tinfer::Token>& tokens, const std::vector<tinfer::Token>& prompt,
tinfer::Chat& chat, tinfer::SeqId seq, std::string (*run)(std::string_view, std::string_view)
"""
KNOWN = {"cpp", "c", "json", "toml", "python", "sh", "text", "cmake", "dockerfile", "ini", "js"}


def snippets():
    """(page, line, language, text) of every block that says its language."""
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        for block in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S):
            yield page.relative_to(ROOT), text.count("\n", 0, block.start()) + 2, block[1], block[2]


def compiled(command, name, source):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / name
        path.write_text(source, encoding="utf-8")
        done = subprocess.run([*command, "-fsyntax-only", f"-I{ROOT / 'include'}", path], capture_output=True,
                              text=True)
        return [] if done.returncode == 0 else [line for line in done.stderr.splitlines() if "error:" in line]


def as_one_source(parts):
    """All C++ snippets, each in a namespace of its own; compilers name page and line."""
    out = ["#include <tinfer/tinfer.hpp>", "#include <algorithm>", "#include <iostream>", "#include <map>"]
    for number, (page, line, text) in enumerate(parts):
        includes = re.findall(r"^#include <[^>]+>$", text, re.M)
        body = re.sub(r"^#include <[^>]+>$", "", text, flags=re.M)   # lines stay
        place = f'#line {line} "{page}"'
        if re.search(r"\bmain\(", body):
            body = re.sub(r"\bmain\(", "program(", body)
            out += [*includes, f"namespace snippet_{number} {{", place, body + "}"]
        else:
            out += [*includes, f"void snippet_{number}({PRELUDE}) {{ {{", place, body + "} }"]
    return "\n".join(out) + "\n"


def findings(compiler):
    cpp, count = [], 0
    for page, line, language, text in snippets():
        count += 1
        if language not in KNOWN:
            yield f"{page}:{line}: who checks a block of {language}?"
        elif language == "cpp":
            cpp.append((page, line, text))
        elif language == "c":
            for error in compiled([shutil.which("cc") or "gcc", "-std=c99"], "snippet.c", text):
                yield f"{page}:{line}: {error}"
        elif language == "json":
            try:
                json.loads(text)
            except ValueError as error:
                yield f"{page}:{line}: {error}"
        elif language == "toml" and tomllib is not None:
            try:
                tomllib.loads(text)
            except ValueError as error:
                yield f"{page}:{line}: {error}"
    if len(cpp) < 20:
        yield f"only {len(cpp)} snippets in C++ were found"
    yield from compiled([compiler, "-std=c++20", "-Wno-return-type"], "snippets.cpp", as_one_source(cpp))


def main():
    compiler = sys.argv[1] if len(sys.argv) > 1 else "c++"
    if shutil.which(compiler) is None:
        print(f"skipped: no {compiler} here")
        return 77
    found = list(findings(compiler))
    print("\n".join(found) if found else "the snippets compile")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
