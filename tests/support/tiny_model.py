#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes a two-layer llama, gpt2 (learned positions) or t5 model with seeded random F32 weights and a small
SentencePiece vocabulary: enough for programs that need some model file, and the same bytes everywhere.

usage: tiny_model.py out.gguf [seed] [llama|gpt2|t5|moe|talks|lora|control] [shards]
moe is a llama with eight experts, two of them for each token; talks is a llama with a chat template; lora is an adapter
for any of these three, control a control vector for them.
With several shards the others are out.gguf.1, out.gguf.2 and so on, names that do not say so.
"""
import math
import struct
import sys

E, FF, LAYERS, HEADS, HEADS_KV, CONTEXT, BUCKETS, EXPERTS = 64, 96, 2, 4, 2, 256, 32, 8
U16, U32, F32, STRING, ARRAY, I32 = 2, 4, 6, 8, 9, 5
ALIGNMENT = 32
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}<assistant>"


def tokens():
    """(text, score, type): unknown, begin, end, the 256 bytes, letters, some words made of them."""
    yield "<unk>", 0.0, 2
    yield "<s>", 0.0, 3
    yield "</s>", 0.0, 3
    for byte in range(256):
        yield f"<0x{byte:02X}>", 0.0, 6
    for rank, text in enumerate(["▁t", "he", "▁the", "in", "re", "an", "▁a", "on", "▁o", "▁once"]):
        yield text, -float(rank + 1), 1
    for rank, letter in enumerate("▁etaoinshrdlucmfwypvbgkjqxz.,ABCDEFGH"):
        yield letter, -100.0 - rank, 1


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def random_floats(count, scale, state):
    """Uniform in ±scale, from a 64-bit linear congruence (Knuth's constants)."""
    out = []
    for _ in range(count):
        state[0] = (state[0] * 6364136223846793005 + 1442695040888963407) & (2**64 - 1)
        out.append(((state[0] >> 40) / 2**23 - 1.0) * scale)
    return struct.pack(f"<{count}f", *out)


def llama_shapes(n_vocab, experts=False):
    kv = E // HEADS * HEADS_KV
    yield from [("token_embd", (E, n_vocab)), ("output_norm", (E,)), ("output", (E, n_vocab))]
    for layer in range(LAYERS):
        for role, shape in {
            "attn_norm": (E,), "attn_q": (E, E), "attn_k": (E, kv), "attn_v": (E, kv), "attn_output": (E, E),
            "ffn_norm": (E,), **({
                "ffn_gate_inp": (E, EXPERTS), "ffn_gate_exps": (E, FF, EXPERTS), "ffn_up_exps": (E, FF, EXPERTS),
                "ffn_down_exps": (FF, E, EXPERTS),
            } if experts else {"ffn_gate": (E, FF), "ffn_up": (E, FF), "ffn_down": (FF, E)}),
        }.items():
            yield f"blk.{layer}.{role}", shape


def moe_shapes(n_vocab):
    return llama_shapes(n_vocab, experts=True)


def write_lora(path, state, rank=4):
    pairs = [(name + ".weight", shape) for name, shape in llama_shapes(0)
             if name.split(".")[-1] in ("attn_q", "attn_v", "attn_output")]
    listing = []
    for name, (n_in, n_out) in pairs:
        listing.append((name + ".lora_a", (n_in, rank), random_floats(n_in * rank, 0.3, state)))
        listing.append((name + ".lora_b", (rank, n_out), random_floats(rank * n_out, 0.3, state)))
    write(path, {"general.type": (STRING, text("adapter")), "general.architecture": (STRING, text("llama")),
                 "adapter.type": (STRING, text("lora")), "adapter.lora.alpha": (F32, struct.pack("<f", 4.0))}, listing)


def write_control(path, state):
    directions = [(f"direction.{layer}", (E,), random_floats(E, 2, state)) for layer in range(1, LAYERS)]
    write(path, {"general.architecture": (STRING, text("controlvector")),
                 "controlvector.model_hint": (STRING, text("llama"))}, directions)


def gpt2_shapes(n_vocab):
    yield from [("token_embd", (E, n_vocab)), ("position_embd", (E, CONTEXT)), ("output_norm", (E,)),
                ("output_norm.bias", (E,))]
    for layer in range(LAYERS):
        for role, shape in {
            "attn_norm": (E,), "attn_qkv": (E, 3 * E), "attn_output": (E, E), "ffn_norm": (E,), "ffn_up": (E, FF),
            "ffn_down": (FF, E),
        }.items():
            yield f"blk.{layer}.{role}", shape
            yield f"blk.{layer}.{role}.bias", shape[-1:]


def t5_shapes(n_vocab):
    kv = E // HEADS * HEADS_KV
    yield from [("token_embd", (E, n_vocab)), ("enc.output_norm", (E,)), ("dec.output_norm", (E,))]
    for side, kinds in (("enc", ("attn",)), ("dec", ("attn", "cross_attn"))):
        yield f"{side}.blk.0.attn_rel_b", (HEADS, BUCKETS)
        for layer in range(LAYERS):
            for kind in kinds:
                for part, shape in {"norm": (E,), "q": (E, E), "k": (E, kv), "v": (E, kv), "o": (E, E)}.items():
                    yield f"{side}.blk.{layer}.{kind}_{part}", shape
            for role, shape in {"ffn_norm": (E,), "ffn_up": (E, FF), "ffn_down": (FF, E)}.items():
                yield f"{side}.blk.{layer}.{role}", shape


def tensors(arch, n_vocab, state):
    for role, shape in {"llama": llama_shapes, "talks": llama_shapes, "moe": moe_shapes, "gpt2": gpt2_shapes,
                        "t5": t5_shapes}[arch](n_vocab):
        name = role if role.endswith(".bias") else role + ".weight"
        count = math.prod(shape)
        data = struct.pack(f"<{count}f", *[1.0] * count) if "norm.weight" in name else random_floats(count, 0.3, state)
        yield name, shape, data


def main():
    if len(sys.argv) < 2:
        print(next(l for l in __doc__.splitlines() if l.startswith("usage")), file=sys.stderr)
        return 2
    state = [int(sys.argv[2]) if len(sys.argv) > 2 else 1]
    arch = sys.argv[3] if len(sys.argv) > 3 else "llama"
    if arch == "lora":
        write_lora(sys.argv[1], state)
        return 0
    if arch == "control":
        write_control(sys.argv[1], state)
        return 0
    kind_of_tensors, arch = arch, "llama" if arch in ("moe", "talks") else arch
    vocabulary = list(tokens())

    def array(kind, values, pack):
        return ARRAY, struct.pack("<IQ", kind, len(values)) + b"".join(map(pack, values))

    def u32(value):
        return U32, struct.pack("<I", value)

    metadata = {
        "general.architecture": (STRING, text(arch)),
        "general.name": (STRING, text("tiny")),
        f"{arch}.block_count": u32(LAYERS),
        f"{arch}.context_length": u32(CONTEXT),
        f"{arch}.embedding_length": u32(E),
        f"{arch}.feed_forward_length": u32(FF),
        f"{arch}.attention.head_count": u32(HEADS),
        f"{arch}.attention.head_count_kv": u32(HEADS if arch == "gpt2" else HEADS_KV),
        f"{arch}.attention.layer_norm_{'' if arch == 'gpt2' else 'rms_'}epsilon": (F32, struct.pack("<f", 1e-5)),
        **{"llama": {"llama.rope.dimension_count": u32(E // HEADS)}, "gpt2": {},
           "t5": {"t5.attention.relative_buckets_count": u32(BUCKETS)}}[arch],
        **({"llama.expert_count": u32(EXPERTS), "llama.expert_used_count": u32(2)} if kind_of_tensors == "moe" else {}),
        **({"tokenizer.chat_template": (STRING, text(TEMPLATE))} if kind_of_tensors == "talks" else {}),
        "tokenizer.ggml.model": (STRING, text("llama")),
        "tokenizer.ggml.tokens": array(STRING, [t for t, _, _ in vocabulary], text),
        "tokenizer.ggml.scores": array(F32, [s for _, s, _ in vocabulary], lambda v: struct.pack("<f", v)),
        "tokenizer.ggml.token_type": array(I32, [k for _, _, k in vocabulary], lambda v: struct.pack("<i", v)),
        "tokenizer.ggml.unknown_token_id": u32(0),
        "tokenizer.ggml.bos_token_id": u32(1),
        "tokenizer.ggml.eos_token_id": u32(2),
    }
    listing = list(tensors(kind_of_tensors, len(vocabulary), state))
    n_shards = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    if n_shards == 1:
        write(sys.argv[1], metadata, listing)
        return 0
    for shard in range(n_shards):
        split = {"split.no": (U16, struct.pack("<H", shard)), "split.count": (U16, struct.pack("<H", n_shards)),
                 "split.tensors.count": (I32, struct.pack("<i", len(listing)))}
        write(sys.argv[1] + (f".{shard}" if shard else ""), split | metadata if shard == 0 else split,
              listing[shard::n_shards])
    return 0


def write(path, metadata, listing):
    head = b"GGUF" + struct.pack("<IQQ", 3, len(listing), len(metadata))
    for key, (kind, value) in metadata.items():
        head += text(key) + struct.pack("<I", kind) + value
    data = b""
    for name, shape, values in listing:
        head += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        head += struct.pack("<IQ", 0, len(data))
        data += values + b"\0" * (-len(values) % ALIGNMENT)
    head += b"\0" * (-len(head) % ALIGNMENT)
    with open(path, "wb") as out:
        out.write(head + data)


if __name__ == "__main__":
    sys.exit(main())
