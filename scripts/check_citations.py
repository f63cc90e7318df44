#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that what sources cite can be read: every "numerics rule 3", "architectures §2.5" or "kernels.md §4.1" in a
source is a heading or a numbered rule of that page in docs/, every V7 in a comment of src/gguf is a rule of
docs/gguf.md, every [L6] in the name of a test is a row of docs/rows.md, and what a row says is measured is a part of
benchmarks/run.

A § belongs to the last page or work that was named before it in the same file. Papers and standards are not looked
into; a § of anything else is a finding, because no reader could look it up.

usage: check_citations.py [--update]

  --update   first sets the marks "Not yet" in docs/rows.md from the ids that tests name
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
SOURCES = ("src", "include", "tests", "examples", "apps", "benchmarks", "scripts", "cmake", "bindings", "python")
SUFFIXES = {".hpp", ".cpp", ".h", ".py", ".txt", ".cmake", ".in", ""}
PAGES = {page.stem: page.name for page in (ROOT / "docs").glob("*.md")}
WORKS = r"arXiv:[\d.]+|doi:\S+|FIPS [\d-]+|Unicode [\d.]+|Intel SDM|RFC \d+|UAX #\d+|ECMA-\d+|IEEE \d+|" \
        r"JSON Schema|the standard"
NAMED = re.compile(rf"(?P<work>{WORKS})|(?<![\w/-])(?P<page>{'|'.join(PAGES)})(?:\.md)?(?=[\s,]+(?:§|rules?\s))")
NUMBERS = r"\d+(?:(?:,|\s+and|,\s+and|–|-)\s*\d+)*"
CITED = re.compile(rf"(?P<before>[\w.-]*)\s*§\s?(?P<section>\d+(?:\.\d+)*)|(?<![\w-])[Rr]ules?\s+(?P<rules>{NUMBERS})")
FOREIGN_PAGE = re.compile(r"(?<![\w/.-])([a-z][\w-]*\.md)(?![\w/])")
ROW = re.compile(r"^\| ([A-Z]\d+) \| (.*?)(?: \*Not yet\.\*)? \|$", re.MULTILINE)
GGUF_RULE = re.compile(r"^\| (V\d+) \|", re.MULTILINE)
ROW_ID = re.compile(r"\[([A-Z]\d+)\]")
MARK = " *Not yet.*"


def sources():
    for top in SOURCES:
        for path in sorted((ROOT / top).rglob("*")):
            if path.is_file() and path.suffix in SUFFIXES and path != pathlib.Path(__file__).resolve():
                try:
                    yield path, path.read_text(encoding="utf-8")
                except UnicodeDecodeError:
                    continue   # data


def headings(page):
    """The numbers that a page's headings have, and those of its numbered rules."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    sections = set(re.findall(r"^#+ (\d+(?:\.\d+)*)\.? ", text, re.MULTILINE))
    return sections, set(re.findall(r"^(\d+)\. \*\*", text, re.MULTILINE))


def one_line(text):
    """Comments that go on in the next line become one; every line keeps its length, so that places stay known."""
    return re.sub(r"\n([ \t]*)(///?|#)( ?)", lambda m: " " * len(m[0]), text)


def citations(text):
    """(offset, page or None for a paper, "§" or "rule", number) of all that a text cites; page is "" where none was
    named, or a word in front of the § is no page."""
    flat = one_line(text)
    marks = sorted([(m.start(), m, None) for m in NAMED.finditer(flat)]
                   + [(m.start(), None, m) for m in CITED.finditer(flat)],
                   key=lambda mark: mark[0])
    source, named_to = "", 0
    for at, named, cited in marks:
        if named:
            source, named_to = None if named["work"] else PAGES[named["page"]], named.end()
        elif cited["section"]:
            stranger = cited["before"] not in ("", "and", "or") and cited.end("before") > named_to
            yield at, "" if stranger else source, "§", cited["section"]
        elif source == "numerics.md":   # e.g. "rule 3" of a grammar is no citation
            for number in re.findall(r"\d+", cited["rules"]):
                yield at, source, "rule", number


def ids_of_tests():
    """Ids in the names of test cases, and in comments and opening words of docstrings of the tests that are written in
    Python or CMake: id, place."""
    for path, text in sources():
        if "tests" not in path.relative_to(ROOT).parts:
            continue
        pattern = (r"TEST_CASE\w*\(\s*(?:\w+,\s*)?\"[^\"]*\""
                   if path.suffix in (".cpp", ".hpp") else r"# .*|\"\"\"(?:\[\w+\],? ?)+")
        for found in re.finditer(pattern, text):
            for row in ROW_ID.findall(found[0]):
                yield row, f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, found.start()) + 1}"


def update(page, tested):
    text = page.read_text(encoding="utf-8")
    page.write_text(ROW.sub(lambda m: f"| {m[1]} | {m[2]}{'' if m[1] in tested else MARK} |", text), encoding="utf-8")


def findings(tested):
    known = {page: headings(page) for page in PAGES.values()}
    gguf_rules = set(GGUF_RULE.findall((ROOT / "docs/gguf.md").read_text(encoding="utf-8")))
    pages = {path.name for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.md")]}
    for path, text in sources():
        where = lambda at: f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, at) + 1}"
        for at, page, kind, number in citations(text):
            if page == "":
                yield f"{where(at)}: §{number} of what? Name the page or the paper before it"
            elif page is not None and number not in known[page][kind == "rule"]:
                yield f"{where(at)}: docs/{page} has no {'rule ' if kind == 'rule' else '§'}{number}"
        if path.parent == ROOT / "src/gguf":
            for found in re.finditer(r"//.*", text):
                for rule in set(re.findall(r"\bV\d+\b", found[0])) - gguf_rules:
                    yield f"{where(found.start())}: docs/gguf.md has no rule {rule}"
        if path.suffix in (".hpp", ".cpp"):
            for found in FOREIGN_PAGE.finditer(text):
                name = found[1]
                if name not in pages:
                    yield f"{where(found.start())}: no page is called {name}"

    rows = (ROOT / "docs/rows.md").read_text(encoding="utf-8")
    run = (ROOT / "benchmarks/run").read_text(encoding="utf-8")
    parts = set(re.findall(r'"(\w+)": \w+', re.search(r"^PARTS = \{.*?\}", run, re.MULTILINE | re.DOTALL)[0]))
    for part in set(re.findall(r"`benchmarks/run --parts (\w+)`", rows)) - parts:
        yield f"docs/rows.md: benchmarks/run has no part {part}"
    listed = [row for row, _ in ROW.findall(rows)]
    for row in sorted({row for row in listed if listed.count(row) > 1}):
        yield f"docs/rows.md: {row} stands there twice"
    for row, where in tested:
        if row not in listed:
            yield f"{where}: [{row}] is no row of docs/rows.md"


def main():
    if sys.argv[1:] not in ([], ["--update"]):
        print(__doc__)
        return 2
    tested = list(ids_of_tests())
    page = ROOT / "docs/rows.md"
    if sys.argv[1:]:
        update(page, {row for row, _ in tested})
    found = list(findings(tested))
    if found:
        print("\n".join(found))
        return 1
    print(f"{sum(1 for _, text in sources() for _ in citations(text))} citations and {len(tested)} ids of tests lead "
          f"somewhere")
    return 0


if __name__ == "__main__":
    sys.exit(main())
