#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the library as one header: the public header, then, under TINFER_IMPLEMENTATION, every source in layer order
and every kernel table of the platform. Deterministic: the same sources give the same bytes.

usage: amalgamate.py out/tinfer.hpp

What a table's kernels are made of is in the file once. The header includes itself for each table, inside a region with
the table's target and in a namespace of its own: a function is compiled with the target in force where it is defined.
"""
import pathlib
import re
import sys

sys.dont_write_bytecode = True   # leave no bytecode of check_layers in the source tree
from check_layers import LAYERS  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
SRC, INCLUDE_ROOT = ROOT / "src", ROOT / "include"
PUBLIC = INCLUDE_ROOT / "tinfer/tinfer.hpp"
ISA_FOLDER, ISA_FLAGS = SRC / "kernels/isa", ROOT / "cmake/isa.cmake"
REGISTERS = ROOT / "scripts/single_header/registers.hpp"   # instead of xsimd
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<(tinfer/\w+\.hpp)>)')
TABLE = ".def"   # a file that is included again and again, each time for another list
SYSTEM_INCLUDE = re.compile(r"^\s*#\s*include\s*<([^>]+)>")
# What holds instructions of a table: templates over its tag, or over its registers (base/math_lanes.hpp).
OVER_A_TABLE = re.compile(r"^\s*template <.*\bclass (Arch|V)\b", re.M)

X86, ARM = "defined(__x86_64__)", "defined(__aarch64__)"


def read_tables():
    """The tables beside `reference`, from the lists and flags of cmake/isa.cmake: family of processors, target of GCC
    and Clang, and the macros that those flags would define, as far as kernels ask for them."""
    lists = {name: value.split() for name, value in
             re.findall(r"^set\(tinfer_(\w+) (.+)\)$", ISA_FLAGS.read_text(encoding="utf-8"), re.M)}

    def flags(table):
        for flag in lists[f"{table}_flags"]:
            if match := re.fullmatch(r"\$\{tinfer_(\w+)_flags\}", flag):
                yield from flags(match[1])
            else:
                yield flag

    tables = {}
    for table in lists["x86_tables"]:
        parts = [flag.removeprefix("-m") for flag in flags(table)]
        macros = [part.upper().replace("-", "_") for part in parts if part.startswith(("avx", "amx"))]
        tables[table] = X86, ",".join(parts), macros
    for table in lists["arm_tables"]:
        parts = "".join(flags(table)).split("+")[1:]   # -march=armv8.2-a+dotprod
        tables[table] = ARM, "".join(f"+{part}" for part in parts), [f"ARM_FEATURE_{part.upper()}" for part in parts]
    return tables


TABLES = read_tables()

HEAD = """\
// tinfer @VERSION@ as a single header, made by scripts/amalgamate.py: edit the sources, not this file.
//
// In exactly one source file, before anything else:
//     #define TINFER_IMPLEMENTATION
//     #include "tinfer.hpp"
// Every other file just includes the header and needs the standard library only. The one file needs PCRE2 (8-bit)
// and utf8proc (Debian, Ubuntu: libpcre2-dev libutf8proc-dev):
//     g++ -std=c++20 -O2 -fopenmp app.cpp -lpcre2-8 -lutf8proc        (or clang++)
// Without -fopenmp it computes on one thread. Without -O2 it works, slowly.
//
// All kernel tables of the processor's family are in it, and the best that the processor has is chosen at run time, so
// no -march is needed. They take minutes and gigabytes to compile: keep the one file small and compile it apart. To
// have fewer of them, define those that you want; `reference` is always there:
//     @TABLES@
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
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wsubobject-linkage"   // one unit alone has the implementation
#elif defined(_MSC_VER)
#  pragma fp_contract(off)
#endif
#ifndef TINFER_TRACE
#  define TINFER_TRACE 1
#endif

// Which kernel tables there are: those that were asked for, else all of the family.
#if !(@ANY_ASKED@)
#  if !defined(__GNUC__)
#    pragma message("tinfer: only GCC and Clang compile the fast kernel tables; computing is 20 to 100 times slower")
#  elif defined(__x86_64__)
@ALL_X86@
#  elif defined(__aarch64__)
@ALL_ARM@
#  else
#    pragma message("tinfer: fast kernel tables are for x86-64 and 64-bit ARM; computing is 20 to 100 times slower")
#  endif
#endif
#if defined(__GNUC__) && !defined(__OPTIMIZE__)
#  pragma message("tinfer: compiled without optimization, kernels are many times slower; compile this file with -O2")
#endif
"""

TAIL = """
#if defined(__GNUC__) && !defined(__clang__)
#  pragma GCC diagnostic pop
#  pragma GCC pop_options
#endif
#endif  // TINFER_IMPLEMENTATION_INCLUDED
#endif  // TINFER_IMPLEMENTATION
"""

# The header includes itself under its actual file name.
SELF = """
// ---- kernel tables
#ifndef TINFER_SELF
#  ifdef __FILE_NAME__
#    define TINFER_SELF __FILE_NAME__
#  else
#    define TINFER_SELF __FILE__   // found where the header's path is absolute; else define TINFER_SELF
#  endif
#endif
"""

# GCC checks the signatures of lambdas before applying the target to them. Its AVX-512 intrinsics have undefined
# operands.
QUIET = """
#if defined(__GNUC__) && !defined(__clang__)
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wpsabi"
#  pragma GCC diagnostic ignored "-Wuninitialized"
#  pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
"""
LOUD = """
#if defined(__GNUC__) && !defined(__clang__)
#  pragma GCC diagnostic pop
#endif
"""


def included(match):
    """The file that an include of our own names: public headers lie in include/, all others in src/."""
    name = match[1] or match[2]
    return (INCLUDE_ROOT if name.startswith("tinfer/") else SRC) / name


class Writer:
    def __init__(self, done=()):
        self.out, self.done = [], set(done)

    def add(self, path):
        """The file's text, with includes of our own files replaced by their text where they are met first."""
        if path in self.done:
            return
        if path.suffix != TABLE:
            self.done.add(path)
        self.out.append(f"\n// ---- {path.relative_to(ROOT)}\n")
        depth = 0
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            directive = line.strip().replace(" ", "")
            depth += directive.startswith("#if") - directive.startswith("#endif")
            if match := INCLUDE.match(line):
                target = included(match)
                if target not in self.done and target.suffix != TABLE and depth > 0:
                    sys.exit(f"{path.relative_to(ROOT)}:{number}: our own includes must not depend on a condition")
                self.add(target)
            elif directive == "#include<xsimd/xsimd.hpp>":
                self.add(REGISTERS)
            elif directive not in ("#pragmaonce", "//SPDX-License-Identifier:MIT"):
                self.out.append(line + "\n")

    def text(self):
        return "".join(self.out)


def closure(paths):
    """The files, and all of ours that they include."""
    writer = Writer()
    for path in paths:
        writer.add(path)
    return writer.done


def opaque(text):
    """The declarations of arrays of constants as weak ones. Where GCC sees an array's initializer, it copies all of it
    for every pointer into it: 20 minutes for the codebooks. It does not look into weak definitions."""
    return re.sub(r"^(extern const std::u?int\d+_t k\w+\[)", r'[[gnu::weak, gnu::visibility("hidden")]] \1', text,
                  flags=re.M)


def table_text(common):
    """What the tables are made of, to be compiled once for each: the text, and what it includes of the system. `common`
    is there already, compiled for any processor."""
    shared = {path for path in common if not OVER_A_TABLE.search(path.read_text(encoding="utf-8"))}
    writer = Writer(shared)
    for table in TABLES:
        path = ISA_FOLDER / f"{table}.cpp"
        pattern = rf'=\s+make_table<tinfer::kernels::{table}>\("{table}"\);'
        if not re.search(pattern, path.read_text(encoding="utf-8")):
            sys.exit(f"{path.relative_to(ROOT)}: not made as '{pattern}'")
        for header in sorted(closure([path]) - {path} - shared):
            if header not in writer.done:
                writer.add(header)
    lines, system = [], set()
    text = re.sub(r"^extern const [^;({]*;[^\n]*\n", "", writer.text(), flags=re.M)   # data: defined once
    for line in text.splitlines(keepends=True):
        if match := SYSTEM_INCLUDE.match(line):
            system.add(match[1])   # outside of target regions, because its functions run on any processor
        else:
            line = re.sub(r"defined\(__(A(?:VX|MX|RM_)\w+?)_*\)", r"defined(TINFER_HAS_\1)", line)
            line = re.sub(r"^namespace tinfer\b", "namespace tinfer::TINFER_TABLE_REGION", line)
            lines.append(line)
    text = "".join(lines)
    if match := re.search(r"\b__(AVX|AMX|ARM_)\w*", text):
        sys.exit(f"{match[0]}: what a table has must be asked for as defined({match[0]})")
    return text, system


def common_names(tables, common):
    """In a table's namespaces what is compiled once for all is found by the same names."""
    both = (set(re.findall(r"^namespace tinfer::TINFER_TABLE_REGION::([\w:]+) {", tables, re.M)) &
            set(re.findall(r"^namespace tinfer::([\w:]+) {", common, re.M)))
    return "".join(f"namespace tinfer::TINFER_TABLE_REGION::{name} {{ using namespace tinfer::{name}; }}\n"
                   for name in sorted(both))


def system_includes(names):
    only = {"immintrin.h": X86, "arm_neon.h": ARM}
    out = [f"#include <{name}>\n" for name in sorted(names) if name not in only]
    for name in sorted(names & only.keys()):
        out.append(f"#if {only[name]}\n#  include <{name}>\n#endif\n")
    return "".join(out)


def region(table):
    """The inclusion of the header by itself for one table."""
    family, target, macros = TABLES[table]
    defines = "".join(f"#  define TINFER_HAS_{macro} 1\n" for macro in macros)
    undefines = "".join(f"#  undef TINFER_HAS_{macro}\n" for macro in macros)
    before = after = ""
    if target:
        clang = ",".join(part.lstrip("+") for part in target.split(","))
        gcc = "arch=armv8.2-a" + target if family == ARM else target
        before = (f"#  if defined(__clang__)\n"
                  f'#    pragma clang attribute push(__attribute__((target("{clang}"))), apply_to = function)\n'
                  f"#  else\n#    pragma GCC push_options\n#    pragma GCC target(\"{gcc}\")\n#  endif\n")
        after = ("#  if defined(__clang__)\n#    pragma clang attribute pop\n"
                 "#  else\n#    pragma GCC pop_options\n#  endif\n")
    return (f"#if defined(TINFER_TABLE_{table.upper()})\n#  if !{family} || !defined(__GNUC__)\n"
            f'#    error "TINFER_TABLE_{table.upper()}: not for this compiler and family of processors"\n#  endif\n'
            f"{defines}#  define TINFER_TABLE_REGION for_{table}\n"
            f"{before}#  include TINFER_SELF\n{after}"
            f"#  undef TINFER_TABLE_REGION\n{undefines}"
            f"constinit const tinfer::kernels::KernelTable tinfer::kernels::{table}_table =\n"
            f"    tinfer::for_{table}::kernels::make_table<tinfer::for_{table}::kernels::{table}>"
            f'("{table}");\n#endif\n')


def choice():
    """What the header says of tables before anything else of the implementation."""
    def all_of(family):
        return "\n".join(f"#    define TINFER_TABLE_{table.upper()} 1" for table in TABLES
                         if TABLES[table][0] == family)
    asked = " || ".join(f"defined(TINFER_TABLE_{table.upper()})" for table in TABLES)
    return BITS.replace("@ANY_ASKED@", asked).replace("@ALL_X86@", all_of(X86)).replace("@ALL_ARM@", all_of(ARM))


def single_header():
    version_header = (INCLUDE_ROOT / "tinfer/version.hpp").read_text(encoding="utf-8")
    version = ".".join(re.findall(r"#define TINFER_VERSION_\w+ (\d+)", version_header))
    names = " ".join(f"-DTINFER_TABLE_{table.upper()}" for table in TABLES).replace(" -DTINFER_TABLE_NEON ",
                                                                                    "\n//     -DTINFER_TABLE_NEON ")
    sources = [path for layer in LAYERS for path in sorted((SRC / layer).rglob("*.cpp")) if path.parent != ISA_FOLDER]
    sources.append(SRC / "tinfer.cpp")
    tables, tables_include = table_text(closure(sources))

    writer = Writer()
    writer.add(PUBLIC)
    public = writer.text()
    writer.out.clear()
    for path in sources:
        writer.add(path)
    return "".join([
        "// SPDX-License-Identifier: MIT\n", HEAD.replace("@VERSION@", version).replace("@TABLES@", names),
        "#ifndef TINFER_TABLE_REGION\n\n#ifndef TINFER_HPP_INCLUDED\n#define TINFER_HPP_INCLUDED\n\n", public,
        "\n#endif  // TINFER_HPP_INCLUDED\n", choice(), opaque(writer.text()), SELF, system_includes(tables_include),
        *map(region, TABLES), TAIL,
        "\n#else  // TINFER_TABLE_REGION: the kernels of one table\n", QUIET,
        common_names(tables, writer.text()), tables, LOUD,
        "\n#endif  // TINFER_TABLE_REGION\n"])


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        wants_help = sys.argv[1:] in (["-h"], ["--help"])
        print(__doc__.strip(), file=sys.stdout if wants_help else sys.stderr)
        return 0 if wants_help else 2
    target, text = pathlib.Path(sys.argv[1]), single_header()
    if not target.is_file() or target.read_text(encoding="utf-8") != text:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
