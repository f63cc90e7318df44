# SPDX-License-Identifier: MIT
"""The same model as another writer might put it: keys and tensors in another order, wider numbers, another alignment,
and without what has a default. Files of version 3; tensor data stays byte by byte."""
import pathlib
import random
import struct

FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
WIDER = {4: 10, 5: 11, 6: 12}   # u32 to u64, i32 to i64, f32 to f64
ALIGNMENT = 64


class Cursor:
    def __init__(self, data):
        self.data, self.at = data, 8

    def number(self, code):
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def text(self):
        size = self.number("Q")
        self.at += size
        return self.data[self.at - size:self.at]

    def value(self, kind):
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            kind, count = self.number("I"), self.number("Q")
            return kind, [self.value(kind) for _ in range(count)]
        return self.number(FORMATS[kind])


def read(path):
    cursor = Cursor(pathlib.Path(path).read_bytes())
    n_tensors, n_keys = cursor.number("Q"), cursor.number("Q")
    keys = []
    for _ in range(n_keys):
        name, kind = cursor.text().decode(), cursor.number("I")
        keys.append((name, kind, cursor.value(kind)))
    tensors = []
    for _ in range(n_tensors):
        name, n_dims = cursor.text(), cursor.number("I")
        extents = [cursor.number("Q") for _ in range(n_dims)]
        tensors.append((name, extents, cursor.number("I"), cursor.number("Q")))
    alignment = next((value for name, _, value in keys if name == "general.alignment"), 32)
    return keys, tensors, cursor.data[(cursor.at + alignment - 1) // alignment * alignment:]


def with_data(tensors, data):
    """Every tensor with its bytes and the padding behind them, which are harmless."""
    ends = sorted({offset for *_, offset in tensors} | {len(data)})
    return [(name, extents, kind, data[offset:ends[ends.index(offset) + 1]]) for name, extents, kind, offset in tensors]


def put_text(data):
    return struct.pack("<Q", len(data)) + data


def put_value(kind, value):
    if kind == STRING:
        return put_text(value)
    if kind == ARRAY:
        return struct.pack("<IQ", value[0], len(value[1])) + b"".join(put_value(value[0], item) for item in value[1])
    return struct.pack("<" + FORMATS[kind], value)


def has_default(name, value, values):
    """What says what is so without it."""
    arch, _, last = name.partition(".")
    if last == "attention.head_count_kv":
        return value == values.get(arch + ".attention.head_count")
    return last == "vocab_size" or value == {"rope.freq_base": 10000.0,
                                             "expert_weights_scale": 1.0}.get(last, NotImplemented)


def rewrite(source, target, seed):
    order = random.Random(seed)
    keys, tensors, data = read(source)
    values = {name: value for name, _, value in keys}
    keys = [(name, WIDER.get(kind, kind) if "." in name and not name.startswith("general.") and order.random() < 0.4
             else kind, value)
            for name, kind, value in keys if name != "general.alignment" and not has_default(name, value, values)]
    keys.append(("general.alignment", 4, ALIGNMENT))
    tensors = with_data(tensors, data)
    order.shuffle(keys)
    order.shuffle(tensors)
    head, body = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)), b""
    for name, kind, value in keys:
        head += put_text(name.encode()) + struct.pack("<I", kind) + put_value(kind, value)
    for name, extents, kind, content in tensors:
        head += put_text(name) + struct.pack(f"<I{len(extents)}QIQ", len(extents), *extents, kind, len(body))
        body += content + b"\0" * (-len(content) % ALIGNMENT)
    pathlib.Path(target).write_bytes(head + b"\0" * (-len(head) % ALIGNMENT) + body)
