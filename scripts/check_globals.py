#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that the library holds no hidden state and cannot end or talk past the program: no writable globals (but for
those of ALLOWED, each with its reason), no thread-locals, no static constructors, and no import that reads the
environment, prints, or ends the process.

Reads an optimised build without sanitizers, which add all of these.
usage: check_globals.py libtinfer.a
"""
import re
import subprocess
import sys

WRITABLE = re.compile(r"^\.(data|bss|tdata|tbss|init_array|ctors|fini_array|dtors)(\.|$)")
# Constants with relocations are read-only once loaded; the pointer to the unwinder's personality routine is the
# compiler's.
HARMLESS = re.compile(r"^\.data\.rel\.ro(\.|$)|DW\.ref\.")
# (object, section): maximum bytes, and the reason.
ALLOWED = {
    ("fault_guard.cpp.o", ".bss"): (4096,
                                    "a signal handler knows nothing but what lies at fixed places: who is at work on "
                                          "mapped files, and the handler that was there before"),
}
# (object, import): why it is never called.
ALLOWED_IMPORTS = {
    ("sinks.cpp.o", "_ZSt9terminatev"): "std::thread's destructor, behind a join",
    ("load_team.cpp.o", "_ZSt9terminatev"): "std::thread's destructor, behind a join",
    ("engine.cpp.o", "_ZSt9terminatev"): "std::thread's destructor, behind a join",
    ("mask_makers.cpp.o", "_ZSt9terminatev"): "std::thread's destructor, behind a join",
    ("engine.cpp.o", "__tls_get_addr"): "std::promise sets its value by std::call_once",
}
# In unity builds noexcept functions are inlined with their calls of std::terminate; builds of single sources show which
# file has its own.
UNIT = re.compile(r"^unity_\d+_cxx\.cxx\.o$")
FORBIDDEN = re.compile(
    r"^(getenv|secure_getenv|setenv|putenv|environ"                        # the environment
    r"|abort|exit|_exit|_Exit|quick_exit|__assert_fail|raise|kill"         # the end of the process
    r"|_ZSt21__glibcxx_assert_fail.*|_ZSt9terminatev"
    r"|(v|f|vf)?printf|__(v|f|vf)?printf_chk|puts|fputs|putchar|perror"    # output
    r"|stdout|stderr|_ZSt4cout|_ZSt4cerr|_ZSt4clog|_ZNSt8ios_base4InitC1Ev"
    r"|__cxa_guard_acquire|__cxa_atexit|atexit|__cxa_thread_atexit|__tls_get_addr"  # state behind a function
    r"|setlocale|rand|srand|strtok)$")


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def sections(archive):
    """(object, section, size) of every section with bytes."""
    member = archive
    for line in run("readelf", "-SW", archive).splitlines():
        if line.startswith("File: "):
            member = line[6:]
        elif match := re.match(r"\s*\[\s*\d+\]\s+(\S+)\s+\S+\s+[0-9a-f]+ [0-9a-f]+ ([0-9a-f]+) ", line):
            if size := int(match[2], 16):
                yield member, match[1], size


def imports(archive):
    member = archive
    for line in run("nm", "-u", archive).splitlines():
        if line.endswith(":"):
            member = line[:-1]
        elif match := re.match(r"\s+[Uwv] (\S+)", line):
            yield member, match[1].split("@")[0]


def main():
    if len(sys.argv) != 2:
        print(__doc__.splitlines()[-1], file=sys.stderr)
        return 2
    archive, findings, n_sections, n_imports = sys.argv[1], [], 0, 0
    for member, section, size in sections(archive):
        n_sections += 1
        most, _ = ALLOWED.get((member.rsplit("(", 1)[-1].rstrip(")"), re.match(r"\.\w+", section)[0] if section
                               else ""), (0, ""))
        if WRITABLE.search(section) and not HARMLESS.search(section) and size > most:
            findings.append(f"{member}: {section} holds {size} bytes")
    for member, symbol in imports(archive):
        n_imports += 1
        name = member.rsplit("(", 1)[-1].rstrip(")")
        allowed = (name, symbol) in ALLOWED_IMPORTS or (symbol == "_ZSt9terminatev" and UNIT.match(name))
        if FORBIDDEN.match(symbol) and not allowed:
            findings.append(f"{member}: imports {symbol}")
    print("\n".join(findings) if findings else f"{n_sections} sections, {n_imports} imports: no state, no way out")
    return 1 if findings or not n_sections else 0


if __name__ == "__main__":
    sys.exit(main())
