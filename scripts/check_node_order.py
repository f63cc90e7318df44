#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that graphs do not depend on the compiler: C++ leaves open in which order the arguments of a call are
evaluated, so at most one argument of a call may make nodes or leaves of a graph; the others stand in locals before it,
in the order in which they are meant. (What stands in braces is evaluated from left to right.)

usage: check_node_order.py [project root]
"""
import pathlib
import re
import sys

FOLDERS = ("model", "runtime", "graph")   # those that build graphs
OPEN, CLOSE = "([{", ")]}"
LAMBDA = re.compile(r"\[[&=\w, ]*\] ?(\([^()]*\))?[^{};()]*\{")
NO_CALLS = {"if", "for", "while", "switch", "return", "catch"}


def bare(text):
    """The source without comments and texts, each line where it was."""
    text = re.sub(r'"(\\.|[^"\\\n])*"', '""', text)
    text = re.sub(r"'(\\.|[^'\\\n])'", "''", text)
    text = re.sub(r"//[^\n]*", "", text)
    return re.sub(r"/\*.*?\*/", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL)


def end_of(text, begin):
    """Where the bracket that opens at `begin` is closed."""
    depth = 0
    for i in range(begin, len(text)):
        depth += (text[i] in OPEN) - (text[i] in CLOSE)
        if depth == 0:
            return i
    return len(text) - 1


def arguments(text):
    depth, begin = 0, 0
    for i, letter in enumerate(text):
        depth += (letter in OPEN) - (letter in CLOSE)
        if letter == "," and depth == 0:
            yield text[begin:i]
            begin = i + 1
    yield text[begin:]


def without_lambdas(text):
    """A lambda that is passed is not run where it stands."""
    while match := LAMBDA.search(text):
        text = text[:match.start()] + text[end_of(text, match.end() - 1) + 1:]
    return text


def types_of_nodes(text):
    """Tensor, and the structures that have one."""
    types, known = {"Tensor"}, 0
    while known != len(types):
        known = len(types)
        member = re.compile(rf"\b({'|'.join(sorted(types))})\b[^()]*;")
        types |= {match[1] for match in re.finditer(r"struct (\w+) \{", text)
                  if member.search(text[match.end():end_of(text, match.end() - 1)])}
    return types


def makers(root, sources):
    """Functions that return a node: the builder's members, those of its macros by their op, and those of model/."""
    text = "\n".join(sources.values())
    names = set(re.findall(rf"\b(?:{'|'.join(sorted(types_of_nodes(text)))})>? (\w+)\(", text))
    table = (root / "include/tinfer/ops.def").read_text(encoding="utf-8")
    names |= set(re.findall(r"^TINFER_OP\((\w+), *(?:unary|binary),", table, re.MULTILINE))
    return names - {"name", "operator"}   # name() labels a node


def check(name, text, names):
    maker = re.compile(rf"\b({'|'.join(sorted(names))})\(")
    lambdas = {match[1] for match in re.finditer(r"\bauto&? (\w+) = (?=\[)", text)
               if (body := LAMBDA.match(text, match.end()))
               and maker.search(text[body.end():end_of(text, body.end() - 1)])}
    maker = re.compile(rf"\b({'|'.join(sorted(names | lambdas))})\(")
    for call in re.finditer(r"\b(\w+)\(", text):
        if call[1] in NO_CALLS:
            continue
        inside = text[call.end():end_of(text, call.end() - 1)]
        found = [match[1] for argument in arguments(inside) if (match := maker.search(without_lambdas(argument)))]
        if len(found) > 1:
            yield (f"{name}:{text.count(chr(10), 0, call.start()) + 1}: several arguments of {call[1]}() make nodes "
                   f"({', '.join(found)}), in an order that each compiler chooses: make them in locals before")


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1]).resolve()
    paths = sorted(path for folder in FOLDERS for suffix in ("hpp", "cpp")
                   for path in (root / "src" / folder).rglob(f"*.{suffix}"))
    sources = {path.relative_to(root).as_posix(): bare(path.read_text(encoding="utf-8")) for path in paths}
    names = makers(root, sources)
    if not {"add", "mul_mat", "linear", "vector", "state", "qkv"} <= names:
        print("the functions that make nodes are not where this script looks for them")
        return 1
    findings = [finding for name, text in sources.items() for finding in check(name, text, names)]
    print("\n".join(findings) if findings else f"{len(sources)} files make nodes one after the other")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
