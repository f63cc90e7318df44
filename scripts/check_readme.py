#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that the pages tell the truth: the README's example is examples/minimal.cpp, those of the guide and of the
site are programs of examples/, and every file that README.md, CONTRIBUTING.md, CHANGELOG.md and docs/ name exists.

usage: check_readme.py
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
TREES = "src|include|examples|apps|packaging|tests|benchmarks|cmake|scripts|docs|bindings|python"


def findings():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    example = (ROOT / "examples/minimal.cpp").read_text(encoding="utf-8")
    body = example[example.index("#include"):]
    blocks = re.findall(r"```cpp\n(.*?)```", readme, re.DOTALL)
    if body not in blocks:
        yield "README.md: the example is not examples/minimal.cpp from its first #include on"

    for page in [*sorted((ROOT / "docs/guide").glob("*.md")), ROOT / "docs/site/index.md"]:
        for block in re.findall(r"```cpp\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            programs = (path.read_text(encoding="utf-8") for path in sorted((ROOT / "examples").glob("*.cpp")))
            if not any(program.endswith("\n" + block) or block == program for program in programs):
                yield f"{page.relative_to(ROOT)}: a program is none of examples/ from its first #include on"

    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md",
                                      "CHANGELOG.md")] + sorted((ROOT / "docs").rglob("*.md"))
    for page in pages:
        prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        folder = page.parent.parent if page.parent.name == "site" else page.parent   # its place on the site
        links = [(folder, link) for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose)]
        names = [(ROOT, name) for name in re.findall(rf"`((?:{TREES})/[\w./-]+)`", prose)]
        for base, name in links + names:
            if not (base / name).exists():
                yield f"{page.relative_to(ROOT)}: {name} does not exist"


if __name__ == "__main__":
    found = list(findings())
    print("\n".join(found) if found else "the pages name what is there")
    sys.exit(1 if found else 0)
