# SPDX-License-Identifier: MIT
"""A model as keys and tensors: read from a GGUF file, or made up by the graph that asks for them, and written."""
import struct

import numpy as np

# What a variant says beside keys: tensors that it has or has not.
MARKS = ("tied", "untied", "fused", "bias", "gates", "routed_norm", "shared", "fused_qkv", "head_norms", "elements",
         "bare", "ssm_norm", "no_v", "scaled", "down_scale", "types", "ffn_bias", "out_bias", "ln",
         "unused_head")
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
F32, F16, I32 = 0, 1, 26


def read(path):
    """(keys, tensors): tensors as float64 (or int64 of I32), rows first."""
    data = memoryview(open(path, "rb").read())
    at = 0

    def take(form):
        nonlocal at
        value = struct.unpack_from("<" + form, data, at)[0]
        at += struct.calcsize("<" + form)
        return value

    def text():
        nonlocal at
        n = take("Q")
        at += n
        return bytes(data[at - n:at]).decode()

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            element = take("I")
            return [value(element) for _ in range(take("Q"))]
        return take(SCALARS[kind])

    assert take("I") == 0x46554747
    take("I")
    n_tensors, n_keys = take("Q"), take("Q")
    keys = {}
    for _ in range(n_keys):
        name = text()
        keys[name] = value(take("I"))
    infos = []
    for _ in range(n_tensors):
        name = text()
        ne = [take("Q") for _ in range(take("I"))]
        infos.append((name, ne, take("I"), take("Q")))
    start = (at + 31) // 32 * 32
    tensors = {}
    for name, ne, kind, offset in infos:
        form = {F32: "<f4", F16: "<f2", I32: "<i4"}[kind]
        count = int(np.prod(ne))
        raw = np.frombuffer(data, form, count, start + offset)
        tensors[name] = raw.astype(np.int64 if kind == I32 else np.float64).reshape(ne[::-1])
    return keys, tensors


class U64(list):
    """Numbers of an array that is stored in 64 bits."""


class I32List(list):
    """Numbers of an array that is stored as signed 32 bits."""


def put_value(value):
    """(kind, bytes)."""
    if isinstance(value, str):
        raw = value.encode()
        return 8, struct.pack("<Q", len(raw)) + raw
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    kind = 10 if isinstance(value, U64) else 5 if isinstance(value, I32List) else put_value(value[0])[0]
    pack = {10: lambda v: struct.pack("<Q", v), 5: lambda v: struct.pack("<i", v)}.get(kind, lambda v: put_value(v)[1])
    body = b"".join(map(pack, value))
    return 9, struct.pack("<IQ", kind, len(value)) + body


def write(path, keys, tensors):
    head = bytearray(struct.pack("<IIQQ", 0x46554747, 3, len(tensors), len(keys)))
    for name, value in keys.items():
        kind, raw = put_value(value)
        head += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", kind) + raw
    offset, bodies = 0, []
    for name, tensor in tensors.items():
        whole = np.issubdtype(tensor.dtype, np.integer)
        raw = tensor.astype("<i4" if whole else "<f4").tobytes()
        ne = tensor.shape[::-1]
        head += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", len(ne))
        head += struct.pack(f"<{len(ne)}Q", *ne) + struct.pack("<IQ", I32 if whole else F32, offset)
        raw += b"\0" * (-len(raw) % 32)
        bodies.append(raw)
        offset += len(raw)
    head += b"\0" * (-len(head) % 32)
    with open(path, "wb") as file:
        file.write(head)
        for raw in bodies:
            file.write(raw)


class Model:
    """What a graph asks: keys by their name behind the architecture, tensors by name and shape (contiguous dimension
    first). Without tensors of a file they are made up, each when it is first asked for, and kept."""

    def __init__(self, keys, tensors=None, seed=1):
        self.keys, self.makes = dict(keys), tensors is None
        self.tensors = {} if tensors is None else tensors
        self.arch = keys["general.architecture"]
        self.marks = {k: self.keys.pop(k) for k in MARKS if k in self.keys}
        self.random = np.random.default_rng(seed)
        self.used = set()
        if self.makes:  # as in the file, where they are 32-bit floats
            self.keys = {k: float(np.float32(v)) if isinstance(v, float) else v for k, v in self.keys.items()}
            self.keys.setdefault("general.name", "a made-up model")
            self.keys["tokenizer.ggml.model"] = "no_vocab"

    def key(self, name, default=None):
        value = self.keys.get(f"{self.arch}.{name}", default)
        assert value is not None or default is None and name == "attention.sliding_window_pattern", f"no key {name}"
        return value

    def has(self, name):
        return f"{self.arch}.{name}" in self.keys

    def per_layer(self, name, n, default=None):
        value = self.key(name, default)
        return value if isinstance(value, list) else [value] * n

    def find(self, name):
        return self.tensors.get(name)

    def tensor(self, name, *ne, kind="matrix"):
        """kind: matrix, norm (about 1), vector (about 0), positive, negative, or a function of (generator, shape)."""
        self.used.add(name)
        if name not in self.tensors:
            assert self.makes, f"no tensor {name}"
            shape, random = ne[::-1], self.random
            if callable(kind):
                made = kind(random, shape)
            elif kind == "norm":
                made = 1 + 0.2 * random.standard_normal(shape)
            elif kind == "vector":
                made = 0.3 * random.standard_normal(shape)
            elif kind in ("positive", "negative"):
                made = random.uniform(0.3, 1.5, shape) * (1 if kind == "positive" else -1)
            else:
                made = random.standard_normal(shape) * 1.2 / np.sqrt(ne[0])
            whole = np.issubdtype(made.dtype, np.integer)
            self.tensors[name] = made if whole else made.astype(np.float32).astype(np.float64)
        found = self.tensors[name]
        assert found.size == int(np.prod(ne)), f"{name} is {found.shape[::-1]}, not {ne}"
        return found.reshape(ne[::-1])


def vocabulary(pieces):
    """Keys of a SentencePiece vocabulary whose pieces are (text, score, kind): unknown, BOS and EOS come first."""
    return {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": [text for text, _, _ in pieces],
            "tokenizer.ggml.scores": [float(score) for _, score, _ in pieces],
            "tokenizer.ggml.token_type": I32List(kind for _, _, kind in pieces),
            "tokenizer.ggml.unknown_token_id": 0, "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2}
