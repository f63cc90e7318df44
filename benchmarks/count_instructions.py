#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Instructions that products of a few tokens take per byte of weights, counted in an emulator: what can be said of the
speed of an instruction set where no machine has it. A product is made once and twice, and the difference counted, so
that only the product is. Each count needs `one_product` of a build for its processor (target one_product, with
TINFER_BUILD_BENCHMARKS=ON) and QEMU's user-mode emulator of that.

    benchmarks/count_instructions.py build/release/bin/one_product avx2 build/aarch64/bin/one_product neon_dot
    benchmarks/count_instructions.py --tokens 4 --types q4_k,q8_0 build/aarch64/bin/one_product neon_dot
"""
import argparse
import os
import platform
import struct
import subprocess
import sys

TYPES = ("q4_0 q4_1 q5_0 q5_1 q8_0 q2_k q3_k q4_k q5_k q6_k iq2_xxs iq2_xs iq2_s iq3_xxs iq3_s iq1_s iq1_m iq4_nl "
         "iq4_xs tq1_0 tq2_0 mxfp4 nvfp4 q1_0 q2_0").split()
# bytes of 256 values
BYTES = dict(zip(TYPES, (144, 160, 176, 192, 272, 84, 110, 144, 176, 210, 66, 74, 82, 98, 110, 50, 56, 144, 136, 54, 66,
                         136, 144, 36, 72)))
MACHINES = {62: "x86_64", 183: "aarch64"}  # e_machine of ELF


def emulator(program):
    with open(program, "rb") as file:
        machine = MACHINES[struct.unpack_from("<H", file.read(20), 18)[0]]
    for name in (f"qemu-{machine}-static", f"qemu-{machine}"):
        for folder in os.environ["PATH"].split(":"):
            if os.access(os.path.join(folder, name), os.X_OK):
                return [name, "-cpu", "max", "-singlestep", "-d", "exec,nochain", "-D", "/dev/stdout"]
    sys.exit(f"count_instructions: no emulator of {machine} here ({platform.machine()})")


def executed(command):
    """How many instructions a command executes: the emulator writes a line for each."""
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        lines = sum(block.count(b"\nTrace") for block in iter(lambda: process.stdout.read(1 << 20), b""))
    if process.returncode != 0:
        sys.exit(f"count_instructions: {' '.join(command)} failed")
    return lines


def per_byte(program, table, type_name, tokens, k, rows):
    once, twice = (executed([*emulator(program), program, table, type_name, str(tokens), str(k), str(rows), str(times)])
                   for times in (1, 2))
    return (twice - once) / (rows * k // 256 * BYTES[type_name])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1)
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--k", type=int, default=2048)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("counts", nargs="+", metavar="PROGRAM TABLE", help="of the first one the others are a share")
    args = parser.parse_args()
    counts = list(zip(args.counts[::2], args.counts[1::2]))
    print("| type | " + " | ".join(table for _, table in counts) + " |" + " ratio |" * (len(counts) - 1))
    print("|---|" + "---:|" * (2 * len(counts) - 1))
    for type_name in args.types.split(","):
        found = [per_byte(program, table, type_name, args.tokens, args.k, args.rows) for program, table in counts]
        print(f"| {type_name} | " + " | ".join(f"{each:.2f}" for each in found) + " |" +
              "".join(f" {each / found[0]:.2f} |" for each in found[1:]), flush=True)


if __name__ == "__main__":
    main()
