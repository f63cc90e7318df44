#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the library as one header: the public header, then, under TINFER_IMPLEMENTATION, every source in layer order.
Deterministic: the same sources give the same bytes.

usage: amalgamate.py out/tinfer.hpp
"""
import pathlib
import re
import sys

sys.dont_write_bytecode = True   # check_layers is imported from the source tree
from check_layers import LAYERS  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
SRC, INCLUDE_ROOT = ROOT / "src", ROOT / "include"
PUBLIC = INCLUDE_ROOT / "tinfer/tinfer.hpp"
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<(tinfer/\w+\.hpp)>)')


def included(match):
    """The file that an include of our own names: public headers lie in include/, all others in src/."""
    name = match[1] or match[2]
    return (INCLUDE_ROOT if name.startswith("tinfer/") else SRC) / name

# Kernel tables beside `reference`, best first, and what a compiler defines when its flags allow them. One is compiled in.
# FAMILIES: the macro that the build system sets for the processors that have the table.
TIERS = {
    "amx": "__AVX512F__ __AVX512BW__ __AVX512DQ__ __AVX512VL__ __AVX512CD__ __AVX512VNNI__ __AMX_TILE__ __AMX_INT8__",
    "avx512vnni": "__AVX512F__ __AVX512BW__ __AVX512DQ__ __AVX512VL__ __AVX512CD__ __AVX512VNNI__",
    "avx512": "__AVX512F__ __AVX512BW__ __AVX512DQ__ __AVX512VL__ __AVX512CD__",
    "avxvnni": "__AVX2__ __FMA__ __F16C__ __AVXVNNI__",
    "avx2": "__AVX2__ __FMA__ __F16C__",
    "neon_dot": "__aarch64__ __ARM_FEATURE_DOTPROD",
    "neon": "__aarch64__",
}
FAMILIES = {tier: "TINFER_ARM" if tier.startswith("neon") else "TINFER_X86" for tier in TIERS}

HEAD = """\
// tinfer @VERSION@ as a single header, made by scripts/amalgamate.py: edit the sources, not this file.
// In exactly one source file, before anything else:
//     #define TINFER_IMPLEMENTATION
//     #include "tinfer.hpp"
// That file needs xsimd, PCRE2 (8-bit) and utf8proc, and -lpcre2-8 -lutf8proc when linking; OpenMP is used where the
// compiler's flags switch it on. Every other file just includes the header and needs the standard library only.
"""

BITS = """
#ifdef TINFER_IMPLEMENTATION
#ifndef TINFER_IMPLEMENTATION_INCLUDED
#define TINFER_IMPLEMENTATION_INCLUDED

// The bits of a result are a promise: no reassociation, no contraction of a·b+c.
#if defined(__FAST_MATH__)
#  error "tinfer: -ffast-math changes results; compile the file with TINFER_IMPLEMENTATION without it"
#endif
#if defined(__clang__)
#  pragma clang fp contract(off)
#elif defined(__GNUC__)
#  pragma GCC push_options
#  pragma GCC optimize("fp-contract=off")
#elif defined(_MSC_VER)
#  pragma fp_contract(off)
#endif
#ifndef TINFER_TRACE
#  define TINFER_TRACE 1
#endif
"""

TAIL = """
#if defined(__GNUC__) && !defined(__clang__)
#  pragma GCC pop_options
#endif
#endif  // TINFER_IMPLEMENTATION_INCLUDED
#endif  // TINFER_IMPLEMENTATION
"""


class Writer:
    def __init__(self):
        self.out, self.done = [], set()

    def add(self, path):
        """The file's text, with includes of our own files replaced by their text where they are met first."""
        if path in self.done:
            return
        self.done.add(path)
        self.out.append(f"\n// ---- {path.relative_to(ROOT)}\n")
        depth = 0
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            directive = line.strip().replace(" ", "")
            depth += directive.startswith("#if") - directive.startswith("#endif")
            if match := INCLUDE.match(line):
                target = included(match)
                if target not in self.done and depth > 0:
                    sys.exit(f"{path.relative_to(ROOT)}:{number}: our own includes must not depend on a condition")
                self.add(target)
            elif directive not in ("#pragmaonce", "//SPDX-License-Identifier:MIT"):
                self.out.append(line + "\n")

    def headers_of(self, path):
        for line in path.read_text(encoding="utf-8").splitlines():
            if match := INCLUDE.match(line):
                self.add(included(match))


def condition(tier):
    return " && ".join(f"defined({macro})" for macro in TIERS[tier].split())


def add_tables(writer):
    """The headers of the vector tables, then the best table alone. Comes last: every other header is there by then."""
    folder = SRC / "kernels/isa"
    writer.out.append("\n#if defined(TINFER_X86) || defined(TINFER_ARM)\n")
    for tier in TIERS:
        writer.headers_of(folder / f"{tier}.cpp")
    writer.out.append("#endif\n")
    for index, tier in enumerate(TIERS):
        writer.out.append(f"#{'elif' if index else 'if'} {condition(tier)}\n")
        if tier == "amx":   # shares the vector code of the table below it
            writer.out.append(folder.joinpath("avx512vnni.cpp").read_text(encoding="utf-8").split("\n", 2)[2])
        writer.add(folder / f"{tier}.cpp")
    writer.out.append("#endif\n")


def table_macros():
    """TINFER_X86 or TINFER_ARM as the build system sets it, and which one of its tables is compiled in."""
    lines = ["\n"]
    for index, tier in enumerate(TIERS):
        lines.append(f"#{'elif' if index else 'if'} {condition(tier)}\n#  define {FAMILIES[tier]} 1\n"
                     f"#  define TINFER_TABLE_{tier.upper()} 1\n")
        if tier == "amx":
            lines.append("#  define TINFER_TABLE_AVX512VNNI 1\n")
    return lines + ["#endif\n"]


def only_the_table(line):
    """Wraps a line that takes the address of a vector table, which may not be the one compiled in."""
    if (match := re.search(r"&(\w+)_table\b", line)) and match[1] in TIERS:
        return f"#if defined(TINFER_TABLE_{match[1].upper()})\n{line}#endif\n"
    return line


def main():
    if len(sys.argv) != 2:
        print(__doc__.splitlines()[-1], file=sys.stderr)
        return 2
    version_header = (INCLUDE_ROOT / "tinfer/version.hpp").read_text(encoding="utf-8")
    version = ".".join(re.findall(r"#define TINFER_VERSION_\w+ (\d+)", version_header))
    writer = Writer()
    writer.out += ["// SPDX-License-Identifier: MIT\n", HEAD.replace("@VERSION@", version)]
    writer.out.append("#ifndef TINFER_HPP_INCLUDED\n#define TINFER_HPP_INCLUDED\n\n")
    writer.add(PUBLIC)
    writer.out += ["\n#endif  // TINFER_HPP_INCLUDED\n", BITS, *table_macros()]
    for layer in LAYERS:
        for path in sorted((SRC / layer).rglob("*.cpp")):
            if path.parent != SRC / "kernels/isa":
                writer.add(path)
    writer.add(SRC / "tinfer.cpp")
    writer.out = [only_the_table(line) for line in writer.out]
    add_tables(writer)
    writer.out.append(TAIL)

    target, text = pathlib.Path(sys.argv[1]), "".join(writer.out)
    if not target.is_file() or target.read_text(encoding="utf-8") != text:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
