# SPDX-License-Identifier: MIT
"""Models whose tokens see the whole text: encoders of this and last year, and masked diffusion."""
import numpy as np

from decoder import moe, rope_of
from pieces import Rope, choose_experts, gated, layer_norm, rms, silu, silu_gate, softmax

ENCODERS = ("modern-bert", "neo-bert", "eurobert", "jina-bert-v3", "nomic-bert-moe")


def gelu(g):
    return 0.5 * g * (1 + np.tanh(0.7978845608028654 * (g + 0.044715 * g ** 3)))


def normal(r, shape):
    return r.standard_normal(shape)


def attend_all(m, b, h, q, k, v, rope, visible):
    """Rows of q, k, v by token and head; `visible`: {token, token}."""
    n, heads, kv = len(h), q.shape[1], k.shape[1]
    q = np.array([rope(q[p], p) for p in range(n)]) if rope else q
    k = np.array([rope(k[p], p) for p in range(n)]) if rope else k
    out = np.empty((n, heads, v.shape[2]))
    for i in range(heads):
        s = q[:, i] @ k[:, i * kv // heads].T / np.sqrt(q.shape[2])
        out[:, i] = softmax(np.where(visible, s, -np.inf)) @ v[:, i * kv // heads]
    return out.reshape(n, -1)


def parts(m, b, h, heads, kv, dk, bias=False):
    e, sizes = h.shape[1], [heads * dk, kv * dk, kv * dk]
    fused = m.marks.get("fused_qkv") if m.makes else m.find(b + "attn_qkv.weight") is not None
    if fused:
        all_of = h @ m.tensor(b + "attn_qkv.weight", e, sum(sizes)).T
        if bias:
            all_of = all_of + m.tensor(b + "attn_qkv.bias", sum(sizes), kind="vector")
        got = np.split(all_of, [sizes[0], sizes[0] + sizes[1]], axis=1)
    else:
        got = [h @ m.tensor(f"{b}attn_{r}.weight", e, size).T for r, size in zip("qkv", sizes)]
        if bias:
            got = [x + m.tensor(f"{b}attn_{r}.bias", x.shape[1], kind="vector") for r, x in zip("qkv", got)]
    return [x.reshape(len(h), n, dk) for x, n in zip(got, (heads, kv, kv))]


def encode(m, tokens):
    e, v, n, f = (m.key(k) for k in ("embedding_length", "vocab_size", "block_count", "feed_forward_length"))
    heads, eps = m.key("attention.head_count"), m.key("attention.layer_norm_epsilon", m.key(
        "attention.layer_norm_rms_epsilon", 0.0))
    kv, dk, base, t = m.key("attention.head_count_kv", heads), e // heads, m.key("rope.freq_base"), len(tokens)
    x = m.tensor("token_embd.weight", e, v, kind=normal)[tokens]
    everything = np.ones((t, t), bool)
    arch = m.arch

    def ln(name, y, bias=False):
        w = m.tensor(name + ".weight", e, kind="norm")
        return layer_norm(y, w, m.tensor(name + ".bias", e, kind="vector") if bias else 0.0, eps)

    def project(b, o):
        y = o @ m.tensor(b + "attn_output.weight", heads * dk, e).T
        return y

    if arch == "modern-bert":
        x = ln("token_embd_norm", x)
        given, window = m.key("attention.sliding_window_pattern", 3), m.key("attention.sliding_window", 0)
        distance = abs(np.arange(t)[:, None] - np.arange(t)[None, :])
        act = silu if m.key("hidden_activation", "gelu") == "silu" else gelu
        for il in range(n):
            b = f"blk.{il}."
            slides = window > 0 and (given[il] if isinstance(given, list) else il % given != 0)
            rope = Rope(dk, m.key("rope.freq_base_swa", 10000.0) if slides else base, "neox")
            h = x if il == 0 else ln(b + "attn_norm", x)
            x = x + project(b, attend_all(m, b, h, *parts(m, b, h, heads, heads, dk), rope,
                                          distance <= window // 2 if slides else everything))
            h = ln(b + "ffn_norm", x) @ m.tensor(b + "ffn_up.weight", e, 2 * f).T
            x = x + (act(h[:, :f]) * h[:, f:]) @ m.tensor(b + "ffn_down.weight", f, e).T
        return ln("output_norm", x)
    if arch in ("neo-bert", "eurobert"):
        rope = Rope(dk, base, "norm" if arch == "neo-bert" else "neox")
        for il in range(n):
            b = f"blk.{il}."
            h = rms(x, m.tensor(b + "attn_norm.weight", e, kind="norm"), eps)
            x = x + project(b, attend_all(m, b, h, *parts(m, b, h, heads, kv, dk), rope, everything))
            h = rms(x, m.tensor(b + "ffn_norm.weight", e, kind="norm"), eps)
            if arch == "neo-bert":
                both = h @ m.tensor(b + "ffn_up.weight", e, 2 * f).T
                inner = silu(both[:, :f]) * both[:, f:]
            else:
                inner = silu(h @ m.tensor(b + "ffn_gate.weight", e, f).T) * (
                    h @ m.tensor(b + "ffn_up.weight", e, f).T)
            x = x + inner @ m.tensor(b + "ffn_down.weight", f, e).T
        last = "enc.output_norm.weight" if arch == "neo-bert" else "output_norm.weight"
        return rms(x, m.tensor(last, e, kind="norm"), eps)
    # jina-bert-v3, nomic-bert-moe: norms behind
    types = m.marks.get("types") if m.makes else m.find("token_types.weight") is not None
    if types:
        x = x + m.tensor("token_types.weight", e, 1, kind="vector")[0]
    x, rope, every = ln("token_embd_norm", x, True), Rope(dk, base, "neox"), m.key("moe_every_n_layers", 0)
    bias = m.marks.get("bias") if m.makes else m.find("blk.0.attn_qkv.bias") is not None or m.find(
        "blk.0.attn_q.bias") is not None
    for il in range(n):
        b = f"blk.{il}."
        y = project(b, attend_all(m, b, x, *parts(m, b, x, heads, heads, dk, bias), rope, everything))
        if bias:
            y = y + m.tensor(b + "attn_output.bias", e, kind="vector")
        x = ln(b + "attn_output_norm", x + y, True)
        if every and il % every == 1:
            count, k = m.key("expert_count"), m.key("expert_used_count")
            up = m.tensor(b + "ffn_up_exps.weight", e, f, count)
            down = m.tensor(b + "ffn_down_exps.weight", f, e, count)
            y = np.empty_like(x)
            for p in range(t):
                chosen, w = choose_experts(m.tensor(b + "ffn_gate_inp.weight", e, count) @ x[p], None, k, 1, False, 1)
                y[p] = sum(a * (down[i] @ gelu(up[i] @ x[p])) for i, a in zip(chosen, w))
        else:
            own = m.marks.get("ffn_bias", bias) if m.makes else m.find(b + "ffn_up.bias") is not None
            h = x @ m.tensor(b + "ffn_up.weight", e, f).T + (m.tensor(b + "ffn_up.bias", f, kind="vector") if own
                                                             else 0)
            y = gelu(h) @ m.tensor(b + "ffn_down.weight", f, e).T + (m.tensor(b + "ffn_down.bias", e, kind="vector")
                                                                     if own else 0)
        x = ln(b + "layer_output_norm", x + y, True)
    return x


def diffuse(m, tokens):
    e, v, n, t = m.key("embedding_length"), m.key("vocab_size"), m.key("block_count"), len(tokens)
    eps, heads = m.key("attention.layer_norm_rms_epsilon"), m.key("attention.head_count")
    kv = m.key("attention.head_count_kv", heads)
    dk, f, arch = m.key("attention.key_length", e // heads), m.key("feed_forward_length", 0), m.arch
    rope = rope_of(m, "norm" if arch == "llada" else "neox", m.key("rope.dimension_count", dk))
    table = m.tensor("token_embd.weight", e, v, kind=normal)
    x, everything = table[tokens], np.ones((t, t), bool)
    normed, expert = arch in ("llada-moe", "rnd1"), arch in ("llada-moe", "rnd1")
    for il in range(n):
        b = f"blk.{il}."
        h = rms(x, m.tensor(b + "attn_norm.weight", e, kind="norm"), eps)
        q, k, w = parts(m, b, h, heads, kv, dk, arch == "dream")
        if normed:
            q = rms(q, m.tensor(b + "attn_q_norm.weight", dk, kind="norm"), eps)
            k = rms(k, m.tensor(b + "attn_k_norm.weight", dk, kind="norm"), eps)
        x = x + attend_all(m, b, h, q, k, w, rope, everything) @ m.tensor(b + "attn_output.weight", heads * dk, e).T
        h = rms(x, m.tensor(b + "ffn_norm.weight", e, kind="norm"), eps)
        if expert:
            width = m.key("expert_feed_forward_length", f // m.key("expert_used_count") if arch == "rnd1" else f)
            y = [moe(m, b, row, width=width, gating=1, normalize=arch == "rnd1", scale=1.0) for row in h]
        else:
            y = [gated(m, b, "", row, f, silu_gate) for row in h]
        x = x + np.array(y)
    x = rms(x, m.tensor("output_norm.weight", e, kind="norm"), eps)
    tied = m.marks.get("tied") if m.makes else m.find("output.weight") is None
    return x @ (table if tied else m.tensor("output.weight", e, v)).T


def logits(m, tokens):
    return encode(m, tokens) if m.arch in ENCODERS else diffuse(m, tokens)


MARKS = ("tied", "fused_qkv", "bias", "types", "ffn_bias", "tokens")


def keys(arch, more):
    base = {"vocab_size": 64, "context_length": 512, "embedding_length": 48, "block_count": 4,
            "feed_forward_length": 40, "attention.head_count": 4, "rope.freq_base": 10000.0}
    named = {**base, **{k: v for k, v in more.items() if k not in MARKS}}
    return {"general.architecture": arch, "tokenizer.ggml.token_type_count": 1,
            **{f"{arch}.{k}": v for k, v in named.items()},
            **{k: v for k, v in more.items() if k in MARKS}}


LN = {"attention.layer_norm_epsilon": 3e-3, "attention.causal": False, "pooling_type": 1}
RMS = {"attention.layer_norm_rms_epsilon": 3e-3, "attention.causal": False, "pooling_type": 1}
PLAIN = {"attention.layer_norm_rms_epsilon": 3e-3, "attention.head_count_kv": 2}
TYPES = {"bias": True, "fused_qkv": True, "types": True}
MOE = {"expert_count": 6, "expert_used_count": 2}
GOLDEN = ["modern-bert", "neo-bert", "eurobert", "jina-bert-v3", "nomic-bert-moe", "llada", "dream", "llada-moe",
          "rnd1"]
TOLERANCE = 1e-4
BASE = {}
_LIST = [
    ("modern-bert", {**LN, "attention.sliding_window": 8, "rope.freq_base": 160000.0, "fused_qkv": True}),
    ("modern-bert", {**LN, "attention.sliding_window": 7, "attention.sliding_window_pattern": 2,
                     "hidden_activation": "silu", "rope.freq_base_swa": 300.0, "fused_qkv": True}),
    ("modern-bert", {**LN, "attention.sliding_window": 6, "fused_qkv": True,
                     "attention.sliding_window_pattern": [True, False, True, True]}),
    ("modern-bert", {**LN, "fused_qkv": True}),
    ("neo-bert", {**RMS, "fused_qkv": True}),
    ("neo-bert", {**RMS, "fused_qkv": True, "attention.head_count_kv": 2}),
    ("eurobert", {**RMS, "attention.head_count_kv": 2}),
    ("eurobert", {**RMS, "fused_qkv": True}),
    ("jina-bert-v3", {**LN, **TYPES}),
    ("jina-bert-v3", {**LN, **TYPES, "types": False}),
    ("nomic-bert-moe", {**LN, **TYPES, **MOE, "moe_every_n_layers": 2}),
    ("nomic-bert-moe", {**LN, **TYPES, **MOE, "moe_every_n_layers": 3}),
    ("nomic-bert-moe", {**LN, **TYPES, "moe_every_n_layers": 0}),
    ("llada", PLAIN),
    ("llada", {**PLAIN, "tied": True, "attention.causal": True}),
    ("dream", PLAIN),
    ("llada-moe", {**PLAIN, **MOE, "expert_feed_forward_length": 20, "attention.key_length": 16,
                   "attention.value_length": 16, "rope.dimension_count": 8}),
    ("rnd1", {**PLAIN, **MOE, "tied": True}),
    ("rnd1", {**PLAIN, **MOE, "expert_feed_forward_length": 28}),
]
VARIANTS = {f"{arch}, {i}": keys(arch, more) for i, (arch, more) in enumerate(_LIST)}
