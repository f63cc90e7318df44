# SPDX-License-Identifier: MIT
"""Small published checkpoints made on the spot, and a plain reader of GGUF files: what the tests of `tinfer convert`
compare with. Nothing here knows how the converter works."""
import json
import pathlib
import random
import struct


def f32(values):
    return struct.pack(f"<{len(values)}f", *values)


def bf16(values):
    """Rounded to nearest, ties to even."""
    bits = [struct.unpack("<I", struct.pack("<f", v))[0] for v in values]
    return struct.pack(f"<{len(bits)}H", *((b + 0x7FFF + (b >> 16 & 1)) >> 16 for b in bits))


def f16(values):
    return struct.pack(f"<{len(values)}e", *values)


PACK = {"F32": f32, "BF16": bf16, "F16": f16, "F64": lambda v: struct.pack(f"<{len(v)}d", *v)}
SIZE = {"F32": 4, "BF16": 2, "F16": 2, "F64": 8}


def save_safetensors(path, tensors, order=None):
    """tensors: {name: (dtype, shape, values)}; the header names them sorted, the data lies in `order`."""
    header, at, data = {}, 0, b""
    for name in order or tensors:
        dtype, shape, values = tensors[name]
        blob = PACK[dtype](values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(blob)]}
        at += len(blob)
        data += blob
    text = json.dumps(dict(sorted(header.items()))).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def random_values(shape, seed):
    n = 1
    for extent in shape:
        n *= extent
    draw = random.Random(seed)
    # Multiples of 2^-7 below 1: the same in every type.
    return [draw.randrange(-127, 128) / 128 for _ in range(n)]


def byte_characters():
    """GPT-2's printable characters of the bytes."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return [chr(b) if b in own else chr(0x100 + [c for c in range(256) if c not in own].index(b)) for b in range(256)]


def tokenizer_json(n_merges=2, added=("<|endoftext|>",), **parts):
    characters = byte_characters()
    vocab = {c: i for i, c in enumerate(characters)}
    merges = [["t", "h"], ["th", "e"]][:n_merges]
    for left, right in merges:
        vocab[left + right] = len(vocab)
    tokens = [{"id": len(vocab) + i, "content": text, "special": True, "lstrip": False, "rstrip": False,
               "single_word": False, "normalized": False} for i, text in enumerate(added)]
    return {"version": "1.0", "added_tokens": tokens, "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
            "post_processor": None, "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": vocab, "merges": merges}} | parts


LLAMA = {"architectures": ["LlamaForCausalLM"], "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
         "vocab_size": 259, "hidden_act": "silu", "tie_word_embeddings": False, "bos_token_id": 258,
         "eos_token_id": 258}


def llama_tensors(config, dtype="F32", biases=False, seed=1, head=True):
    e, f, v = config["hidden_size"], config["intermediate_size"], 259
    h, g = config["num_attention_heads"], config["num_key_value_heads"]
    d = config.get("head_dim", e // h)
    shapes = {"model.embed_tokens.weight": [v, e], "model.norm.weight": [e]}
    for n in range(config["num_hidden_layers"]):
        at = f"model.layers.{n}."
        for name, rows, columns in (("self_attn.q_proj", h * d, e), ("self_attn.k_proj", g * d, e),
                                    ("self_attn.v_proj", g * d, e), ("self_attn.o_proj", e, h * d),
                                    ("mlp.gate_proj", f, e), ("mlp.up_proj", f, e), ("mlp.down_proj", e, f)):
            shapes[f"{at}{name}.weight"] = [rows, columns]
            if biases:
                shapes[f"{at}{name}.bias"] = [rows]
        shapes[f"{at}input_layernorm.weight"] = [e]
        shapes[f"{at}post_attention_layernorm.weight"] = [e]
    if head:
        shapes["lm_head.weight"] = [v, e]
    return {name: (dtype, shape, random_values(shape, f"{seed} {name}")) for name, shape in shapes.items()}


def save_checkpoint(folder, config, tensors, tokenizer=None, **files):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files = {"config.json": config, "tokenizer.json": tokenizer or tokenizer_json()} | files
    for name, content in files.items():
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    if tensors is not None:
        save_safetensors(folder / "model.safetensors", tensors)
    return folder


class Gguf:
    """Metadata as {key: value}, tensors as {name: (dims, type, place)}."""
    SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def __init__(self, path):
        self.bytes, self.at = pathlib.Path(path).read_bytes(), 4
        assert self.bytes[:4] == b"GGUF" and self.number("I") == 3
        n_tensors, n_keys = self.number("Q"), self.number("Q")
        self.keys = {self.text().decode(): self.value(self.number("I")) for _ in range(n_keys)}
        self.tensors = {}
        for _ in range(n_tensors):
            name, dims = self.text().decode(), [self.number("Q") for _ in range(self.number("I"))]
            self.tensors[name] = (dims, self.number("I"), self.number("Q"))
        self.base = (self.at + 31) // 32 * 32

    def number(self, code):
        value = struct.unpack_from("<" + code, self.bytes, self.at)[0]
        self.at += struct.calcsize("<" + code)
        return value

    def text(self):
        n = self.number("Q")
        self.at += n
        return self.bytes[self.at - n:self.at]

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            inner, n = self.number("I"), self.number("Q")
            return [self.value(inner) for _ in range(n)]
        return self.number(self.SCALARS[kind])

    def data(self, name):
        """Bytes of an F32 tensor."""
        dims, kind, place = self.tensors[name]
        assert kind == 0, f"{name} has the type {kind}"
        n = 4
        for extent in dims:
            n *= extent
        return self.bytes[self.base + place:self.base + place + n]

    def floats(self, name):
        data = self.data(name)
        return list(struct.unpack(f"<{len(data) // 4}f", data))
