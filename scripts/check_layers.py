#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks the house rules that a compiler does not: a folder includes only the folders on its right, and so does a room
of src/kernels, includes are written from the source root, the public header and the examples stay outside, every file
starts with its licence and can be finished by a reader, enums of the header have names.

usage: check_layers.py [project root]
"""
import pathlib
import re
import sys

# The definition of the layers. `tinfer/`, the public headers, is below all of them.
LAYERS = {
    "base": [],
    "gguf": ["base"],
    "kernels": ["base"],
    "quantize": ["kernels", "gguf", "base"],   # kernels: their decoders
    "graph": ["base"],
    "memory": ["graph", "base"],
    "tokenizer": ["gguf", "base"],
    "grammar": ["tokenizer", "base"],
    "sampling": ["tokenizer", "base"],
    "model": ["graph", "gguf", "base"],
    "trace": ["graph", "kernels", "base"],   # kernels: only trace/live, which records what they declare
    "runtime": ["model", "memory", "trace", "graph", "kernels", "base"],
    "chat": ["grammar", "tokenizer", "gguf", "base"],
    "generation": ["runtime", "sampling", "tokenizer", "base"],
    "serving": ["generation", "runtime", "sampling", "grammar", "tokenizer", "base"],
}
# The subfolders of src/kernels: each includes only those on its right. "" is the folder itself: its headers are at a
# low level; its sources, which nothing includes, may include everything.
KERNEL_ROOMS = {
    "isa": ["matmul", "recurrent", "reference", "attention", "elementwise", ""],
    "matmul": ["gemv", "gemm", "pack", "dequantize", "quants", "", "simd"],
    "gemv": ["pack", "dequantize", "quants", "", "simd"],
    "gemm": ["pack", "dequantize", "quants", "", "simd"],
    "recurrent": ["reference", "attention", "elementwise", "", "simd"],
    "reference": ["attention", "dequantize", "quants", ""],
    "attention": ["elementwise", "quants", "", "simd"],
    "pack": ["dequantize", "quants", "", "simd"],
    "dequantize": ["quants", "simd"],
    "elementwise": ["quants", "", "simd"],
    "quants": ["simd"],
    "": ["simd"],
    "simd": [],
}
MAX_LINES = 500
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')


def includes(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if match := INCLUDE.match(line):
            yield number, match[1] == '"', match[2]


def check_room(where, path, target):
    """An include inside src/kernels: `path` and `target` lie in rooms, and their floors say who may know whom."""
    room, other = "/".join(path.parts[2:-1]), "/".join(target.split("/")[1:-1])
    if room not in KERNEL_ROOMS:
        yield f"{where}: kernels/{room}/ is no room of KERNEL_ROOMS"
    elif other != room and other not in KERNEL_ROOMS[room] and (room or path.suffix == ".hpp"):
        allowed = ", ".join(below or "kernels itself" for below in KERNEL_ROOMS[room]) or "nothing"
        yield f"{where}: kernels/{room} includes kernels/{other} (allowed: {allowed})"


def check_source(root, path):
    folder = path.relative_to(root / "src").parts[0] if path.parent != root / "src" else None
    for number, quoted, target in includes(path):
        where = f"{path.relative_to(root)}:{number}"
        if target.startswith("tinfer/"):
            continue
        if not quoted:
            if "/" in target and target.split("/")[0] in LAYERS:
                yield f"{where}: <{target}> is ours: write it in quotes"
            continue
        if not (root / "src" / target).is_file():
            yield f'{where}: "{target}" is no path from the source root'
            continue
        layer = target.split("/")[0]
        if folder is not None and layer != folder and layer not in LAYERS.get(folder, []):
            allowed = " ".join(LAYERS[folder]) if folder in LAYERS else "nothing: the folder is in no layer"
            yield f"{where}: {folder}/ includes {layer}/ (allowed: {allowed})"
        elif folder == "trace" and layer == "kernels" and path.parent.name != "live":
            yield f"{where}: of trace/ only live/ includes kernels/: expectations must not share their arithmetic"
        elif folder == layer == "kernels":
            yield from check_room(where, path.relative_to(root), target)


# Every product with a weight goes through one file, so that changes to all of them are made once.
WEIGHT_PRODUCT = re.compile(r"\.mul_mat(_id|_heads)?\(")
WEIGHT_DOORS = ("src/model/linear.cpp", "src/model/adapters.cpp")


def check_weight_door(root, path):
    name = path.relative_to(root).as_posix()
    if not name.startswith("src/model/") or name in WEIGHT_DOORS:
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if WEIGHT_PRODUCT.search(line):
            yield (f"{name}:{number}: a product with a weight outside {WEIGHT_DOORS[0]}: linear(), expert_linear() or "
                   f"head_linear()")


def check_public_header(root, path):
    for number, quoted, target in includes(path):
        if quoted and (root / "include" / target).is_file():
            continue   # its other parts
        if quoted or "/" in target or target.endswith(".h"):
            yield f"{path.relative_to(root)}:{number}: <{target}>: the public header includes the standard library only"
    text = path.read_text(encoding="utf-8")
    for enum in re.finditer(r"enum class (?:\[\[nodiscard\]\] ?)?(\w+)", text):
        if not re.search(rf"(to_string\(|operator<<\(std::ostream& out, )(\w+::)*{enum[1]} ", text):
            number = text.count("\n", 0, enum.start()) + 1
            yield f"{path.relative_to(root)}:{number}: {enum[1]} has neither to_string nor operator<< beside it"


MAX_EXAMPLE_LINES = 80   # a program that people copy


def check_example(root, path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    if lines > MAX_EXAMPLE_LINES:
        yield f"{path.relative_to(root)}: {lines} lines, limit of a program that people copy {MAX_EXAMPLE_LINES}"
    for number, quoted, target in includes(path):
        if quoted and not (path.parent / target).is_file():
            yield f'{path.relative_to(root)}:{number}: "{target}": examples use the public header only'


# The rooms of apps/ and those that each may include beside its own files and the public header.
APPS = {
    "tinfer": ["server", "hub"],
    "server": ["hub"],
    "hub": [],
}


def check_app(root, path):
    apps = root / "apps"
    room = path.relative_to(apps).parts[0]
    for number, quoted, target in includes(path):
        where = f"{path.relative_to(root)}:{number}"
        if not quoted:
            continue
        if (path.parent / target).is_file() and (path.parent / target).resolve().is_relative_to(apps / room):
            continue
        if (apps / room / target).is_file():
            continue
        other = target.split("/")[0]
        if other not in APPS.get(room, []) or not (apps / target).is_file():
            allowed = ", ".join(APPS.get(room, [])) or "nothing else"
            yield f'{where}: "{target}": apps/{room} uses its own files and the public header (beside them: {allowed})'


# Bindings for other languages stand on the public header, and on what it does not have.
BINDINGS_MAY = {"kernels/dequantize/dequantize.hpp"}


def check_binding(root, path):
    for number, quoted, target in includes(path):
        if quoted and not (path.parent / target).is_file() and target not in BINDINGS_MAY:
            yield f'{path.relative_to(root)}:{number}: "{target}": bindings use the public header only'


def check_length(name, lines):
    if len(lines) > MAX_LINES and not name.stem.endswith("_table") and name.parts[0] != "include":
        yield f"{name}: {len(lines)} lines, limit {MAX_LINES}"


def check_form(root, path):
    lines = path.read_text(encoding="utf-8").splitlines()
    name = path.relative_to(root)
    if "SPDX-License-Identifier: MIT" not in "\n".join(lines[:2]):
        yield f"{name}:1: no SPDX line"
    yield from check_length(name, lines)
    for number, line in enumerate(lines, 1):
        if name.parts[0] != "tests" and re.match(r"using namespace", line):
            yield f"{name}:{number}: using-directive at file scope"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1]).resolve()
    kinds = {"src": check_source, "include": check_public_header, "examples": check_example, "apps": check_app,
             "tests": None, "benchmarks": None, "bindings": check_binding, "python": check_binding}
    findings, count = [], 0
    floors = list(KERNEL_ROOMS)
    findings += [f"KERNEL_ROOMS: {room} stands above {below}, which may not include it" for below in floors
                 for room in KERNEL_ROOMS[below] if floors.index(room) <= floors.index(below)]
    for top, check in kinds.items():
        for path in sorted(p for suffix in ("hpp", "cpp") for p in (root / top).rglob(f"*.{suffix}")):
            count += 1
            findings += check_form(root, path)
            if check:
                findings += check(root, path)
            findings += check_weight_door(root, path)
    for top in (*kinds, "scripts", "cmake"):
        for path in sorted(p for suffix in ("py", "js", "mjs", "css", "html", "cmake", "txt")
                           for p in (root / top).rglob(f"*.{suffix}")):
            if path.name != "prose.txt":   # a text that tests read
                findings += check_length(path.relative_to(root), path.read_text(encoding="utf-8").splitlines())
    print("\n".join(findings) if findings else f"{count} files keep the layers")
    return 1 if findings or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
