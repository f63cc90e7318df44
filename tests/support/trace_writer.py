#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes .tntrace files (docs/trace-file.md) from Python alone, so that the readers in C++, Python and JavaScript are
tested against bytes that none of them wrote. numpy is used for checksums where it is installed, and is not needed.
"""
import struct

STRINGS, SESSION, FILES, TENSORS, PLAN, RUN, EVENTS, RUN_END, SAMPLE, MARK = range(1, 11)
PAGES, ROUTER, HASHES, DROPS, INDEX, SAMPLERS, PIECES = range(11, 18)
NONE16, NONE32, NONE64 = 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF

TENSOR = struct.Struct("<IIBBHHHIHH4QQQQQQ")
STEP = struct.Struct("<IHHIBBHIIHHIQQ")
OPERAND = struct.Struct("<IBBHQQQIHH")
NODE = struct.Struct("<IHHIIIHBB")
VALUE = struct.Struct("<IIIHH4QQ")
RUN_HEAD = struct.Struct("<QQIHBBIHHIIQIIQ")
EVENT = struct.Struct("<QIIIHBBQ")
RANGE = struct.Struct("<HHIQQQII")
SPAN = struct.Struct("<IIIHH")

_table = []
for _byte in range(256):
    for _ in range(8):
        _byte = _byte >> 1 ^ (0x82F63B78 if _byte & 1 else 0)
    _table.append(_byte)


def _crc_step(crc, data):
    for byte in data:
        crc = crc >> 8 ^ _table[(crc ^ byte) & 0xFF]
    return crc


def _crc_lanes(data):
    """Checksum state of many bytes: equal lanes side by side, then joined. State is linear in bits, so a lane is moved
    past n further bytes by the matrix of n zero bytes, squared for every halving of the lanes."""
    import numpy as np
    table = np.array(_table, np.uint32)
    log_lanes = 12
    length = len(data) >> log_lanes
    head = len(data) - (length << log_lanes)
    state = _crc_step(NONE32, data[:head])
    lanes = np.frombuffer(data, np.uint8, offset=head).reshape(1 << log_lanes, length).T.copy()
    crc = np.zeros(1 << log_lanes, np.uint32)
    for column in lanes:
        crc = crc >> 8 ^ table[(crc ^ column) & 0xFF]

    def power(n):   # images of the 32 unit states behind n zero bytes
        result, base = [1 << i for i in range(32)], [_table[1 << i] if i < 8 else 1 << i - 8 for i in range(32)]
        while n:
            if n & 1:
                result = [apply(base, x) for x in result]
            base, n = [apply(base, x) for x in base], n >> 1
        return result

    def apply(matrix, x):
        out = 0
        for i in range(32):
            if x >> i & 1:
                out ^= matrix[i]
        return out

    matrix = power(length)
    total = apply(power(length << log_lanes), state)
    while len(crc) > 1:
        even, odd = crc[0::2], crc[1::2]
        moved = np.zeros_like(even)
        for i, image in enumerate(matrix):
            moved ^= (even >> np.uint32(i) & 1) * np.uint32(image)
        crc = moved ^ odd
        matrix = [apply(matrix, x) for x in matrix]
    return total ^ int(crc[0])


def crc32c(data):
    """CRC-32C: reflected 0x82F63B78, inverted before and after."""
    if len(data) > 1 << 16:
        try:
            return _crc_lanes(data) ^ NONE32
        except ImportError:
            pass
    return _crc_step(NONE32, data) ^ NONE32


class TraceWriter:
    """One file in the making. Strings are interned and written before the first block that needs them."""

    def __init__(self, level=2, flags=0, wall=1_700_000_000_000_000_000, clock=123456789, session=bytes(range(16)),
                 fingerprint=bytes(range(16, 32))):
        self.level, self.flags, self.wall, self.clock = level, flags, wall, clock
        self.session, self.fingerprint = session, fingerprint
        self.parts, self.size = [b""], 128
        self.index, self.sequence = [], 0
        self.ids, self.pending = {"": 0}, []
        self.events = self.dropped = self.filtered = 0

    def string(self, text):
        if text not in self.ids:
            self.ids[text] = len(self.ids)
            self.pending.append((self.ids[text], text))
        return self.ids[text]

    def block(self, kind, payload, count, record_bytes=0, earliest=0, first=0):
        if self.pending and kind != STRINGS:
            entries, self.pending = self.pending, []
            data = b""
            for number, text in entries:
                raw = text.encode()
                data += struct.pack("<II", number, len(raw)) + raw + bytes(-len(raw) % 4)
            self.block(STRINGS, data, len(entries))
        head = struct.pack("<4sHHIIQQQIII", b"TNBK", kind, 0, len(payload), count, self.sequence, earliest,
                           self.dropped,
                           record_bytes, 0, crc32c(payload))
        if kind != INDEX:
            self.index.append((self.size, earliest, first, count, kind))
        offset = self.size
        block = head + struct.pack("<I", crc32c(head)) + bytes(payload)
        block += bytes(-len(block) % 8)
        self.parts.append(block)
        self.size += len(block)
        self.sequence += 1
        return offset

    def session_keys(self, pairs):
        data = b"".join(struct.pack("<II", self.string(k), self.string(v)) for k, v in pairs)
        self.block(SESSION, data, len(pairs), 8)

    def mark(self, time, text, kind=0):
        self.block(MARK, struct.pack("<QII", time, self.string(text), kind), 1, 16, time)

    def close(self, clean=True):
        """The bytes of the file; not clean: as a killed process leaves them, without index and totals."""
        index = 0
        if clean:
            data = b"".join(struct.pack("<QQQIHH", *entry, 0) for entry in self.index)
            index = self.block(INDEX, data, len(self.index), 32)
        totals = (index, self.events, self.dropped, self.filtered, self.size) if clean else (0,) * 5
        head = struct.pack("<8sHHI4sIQQII16s16s5QI", b"TNFTRACE", 1, 0, 128, bytes((13, 12, 11, 10)),
                           self.flags | clean, self.wall, self.clock, 1, self.level, self.session, self.fingerprint,
                           *totals, 0)
        self.parts[0] = head + struct.pack("<I", crc32c(head))
        return b"".join(self.parts)


def worked_example():
    """The example of the page of the format: one name, one mark at 1.5 µs."""
    trace = TraceWriter(level=1)
    trace.mark(1500, "blk.0.attn_q.weight")
    return trace.close()
