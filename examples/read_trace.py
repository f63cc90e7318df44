#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reads a .tntrace file into numpy arrays and prints how often each tensor was read, and how many bytes of it.
Checksums are not looked at: `tinfer trace recover` is for damaged files.   usage: read_trace.py trace.tntrace"""
import struct, sys
import numpy as np

def record(text):
    return np.dtype([tuple(reversed(field.split())) for field in text.split(",")])

TENSOR = record("u4 id,u4 name,u1 class,u1 flags,u2 layer,u2 role,u2 file,u4 type,u2 dimensions,u2 layout,4u8 ne,"
                "u8 bytes,u8 offset,u8 row_bytes,u8 slice_bytes,u8 address")
STEP = record("u4 number,u2 op,u2 layer,u4 kernel,u1 part,u1 flags,u2 operands,u4 operand,u4 node,u2 nodes,u2 reserved,"
              "u4 work,u8 macs,u8 bytes")
OPERAND = record("u4 ref,u1 mode,u1 kind,u2 passes,u8 offset,u8 length,u8 stride,u4 count,u2 slot,u2 flags")
EVENT = record("u8 begin,u4 duration,u4 step,u4 range,u2 ranges,u1 status,u1 flags,u8 bytes")
RANGE = record("u2 operand,u2 flags,u4 tag,u8 offset,u8 length,u8 stride,u4 count,u4 weight")

def read(path):
    """strings by id, tensors, plans {id: (steps, operands)}, runs [(run, phase, plan, events, ranges)]"""
    data = np.fromfile(path, np.uint8).tobytes()
    if data[:8] != b"TNFTRACE" or data[8:10] != b"\1\0":
        raise ValueError(f"{path}: no trace of version 1")
    strings, tensors, plans, heads, runs, at = {0: ""}, np.empty(0, TENSOR), {}, {}, [], 128
    while data[at:at + 4] == b"TNBK":
        kind, size, count = struct.unpack_from("<H2xII", data, at + 4)
        body, at, start = data[at + 56:at + 56 + size], at + 56 + (size + 7) // 8 * 8, 0
        for _ in range(count if kind == 1 else 0):                              # STRINGS
            number, length = struct.unpack_from("<II", body, start)
            strings[number] = body[start + 8:start + 8 + length].decode()
            start += 8 + (length + 3) // 4 * 4
        if kind == 4: tensors = np.append(tensors, np.frombuffer(body, TENSOR, count))                   # TENSORS
        elif kind == 5:                                                         # PLAN
            plan, steps, operands = struct.unpack_from("<III", body)
            plans[plan] = np.frombuffer(body, STEP, steps, 64), np.frombuffer(body, OPERAND, operands, 64 + 48 * steps)
        elif kind == 6: heads[struct.unpack_from("<Q", body)[0]] = struct.unpack_from("<22xBxI", body)  # RUN
        elif kind == 7:                                                         # EVENTS
            run, events, ranges = struct.unpack_from("<Q8xII", body)
            runs.append((run, *heads[run], np.frombuffer(body, EVENT, events, 40),
                         np.frombuffer(body, RANGE, ranges, 40 + 32 * events)))
    return strings, tensors, plans, runs

def reads(tensors, plans, runs):
    """[accesses, bytes] per tensor: what all events read of it. Operands: 0 whole, 1 a range, 2 ranges of the event."""
    total = np.zeros((len(tensors), 2), int)
    for _, _, plan, events, ranges in runs:
        for event in events:
            step = plans[plan][0][event["step"]]
            own = ranges[event["range"]:event["range"] + event["ranges"]]
            for i, operand in enumerate(plans[plan][1][step["operand"]:step["operand"] + step["operands"]]):
                if operand["ref"] < 1 << 31 and operand["mode"] & 1 and operand["kind"] < 3:
                    some = own[own["operand"] == i] if operand["kind"] == 2 else operand
                    whole, parts = tensors["bytes"][operand["ref"]], some["length"] * some["count"]
                    total[operand["ref"]] += [1, int(parts.sum() if operand["kind"] else whole)]
    return total

if __name__ == "__main__":
    strings, tensors, plans, runs = read(sys.argv[1])
    for tensor, (accesses, size) in zip(tensors, reads(tensors, plans, runs)):
        print(f"{accesses:8} {size:16}  {strings[tensor['name']]}")
