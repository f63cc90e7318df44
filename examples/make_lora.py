#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes a LoRA adapter, or a control vector, with seeded random values: something small to try the options with.

usage: tinfer inspect model.gguf --csv | make_lora.py ARCH OUT [--match TEXT] [--rank R] [--alpha A]
           [--seed N] [--size X]
       make_lora.py ARCH OUT --directions FIRST,LAST --embd N [--seed N] [--size X]

ARCH is the model's general.architecture. Needs nothing but Python.
"""
import argparse
import csv
import random
import struct
import sys

STRING, U32, F32 = 8, 4, 6


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def key(name, kind, value):
    packed = text(value) if kind == STRING else struct.pack("<f" if kind == F32 else "<I", value)
    return text(name) + struct.pack("<I", kind) + packed


def write(path, keys, tensors):
    """A GGUF file of version 3: tensors are (name, shape, floats), contiguous dimension first."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keys)) + b"".join(keys)
    data = b""
    for name, shape, values in tensors:
        head += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        head += struct.pack("<IQ", 0, len(data))  # type 0: f32
        data += struct.pack(f"<{len(values)}f", *values)
        data += b"\0" * (-len(data) % 32)
    head += b"\0" * (-len(head) % 32)
    with open(path, "wb") as out:
        out.write(head + data)


def product(shape):
    n = 1
    for extent in shape:
        n *= extent
    return n


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arch")
    parser.add_argument("out")
    parser.add_argument("--match", default="attn_q")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--alpha", type=float, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", type=float, default=0.02)
    parser.add_argument("--directions")
    parser.add_argument("--embd", type=int)
    args = parser.parse_args()
    source = random.Random(args.seed)
    values = lambda shape: [source.gauss(0, args.size) for _ in range(product(shape))]
    if args.directions:
        first, last = map(int, args.directions.split(","))
        keys = [key("general.architecture", STRING, "controlvector"),
                key("controlvector.model_hint", STRING, args.arch)]
        write(args.out, keys, [(f"direction.{il}", (args.embd,), values((args.embd,)))
                               for il in range(first, last + 1)])
        return
    tensors = []
    for row in csv.DictReader(sys.stdin):
        ne = [int(row[f"ne{i}"]) for i in range(int(row["n_dims"]))]
        if len(ne) < 2 or args.match not in row["name"]:
            continue
        a, b = (ne[0], args.rank), (args.rank, ne[1])
        if row["name"] == "token_embd.weight":
            a, b = (args.rank, ne[1]), (args.rank, ne[0])
        for suffix, shape in ((".lora_a", (*a, *ne[2:])), (".lora_b", (*b, *ne[2:]))):
            tensors.append((row["name"] + suffix, shape, values(shape)))
    keys = [key("general.type", STRING, "adapter"), key("general.architecture", STRING, args.arch),
            key("adapter.type", STRING, "lora"), key("adapter.lora.alpha", F32, args.alpha)]
    write(args.out, keys, tensors)


if __name__ == "__main__":
    main()
