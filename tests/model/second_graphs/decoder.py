# SPDX-License-Identifier: MIT
"""One decoder for the families that differ from llama by a few sentences each: what they say, in fields."""
from dataclasses import dataclass, field
from typing import Callable, Optional

import numpy as np

from pieces import Rope, attend, choose_experts, experts, gated, rms, rope_scaling, sigmoid, silu_gate, softplus


@dataclass
class Says:
    rope: Callable                                   # layer -> Rope or None
    window: Callable = lambda il: 0                  # layer -> tokens, 0 for all
    head_norm: str = ""                              # before, after, whole (before), gain (after, one per head)
    gate: str = ""                                   # head, element, or softplus of either shape
    gate_width: Callable = lambda il: 0              # of softplus gates: heads or elements
    scale: Optional[float] = None
    value_scale: float = 1.0
    sinks: Callable = lambda il: False
    fused: bool = False
    bias: bool = False
    norms: bool = True                               # have weights
    post: tuple = ()                                 # names of the norms behind the branches
    post_eps: Optional[float] = None
    parallel: bool = False
    ffn: Callable = None                             # (block, layer, n, x before any norm) -> y
    embed: Callable = lambda x: x
    logits: Callable = lambda z: z
    tied: bool = False
    final_norm: bool = True
    residual: float = 1.0
    layer_scale: bool = False                        # talkie's x0
    layer_norm: bool = False
    cache: dict = field(default_factory=dict)


def period(m, n, default, first):
    """Which layers slide: by an array, a period or the default one; `first`: the first of a period is full, else the
    last."""
    given = m.key("attention.sliding_window_pattern", default)
    if isinstance(given, list):
        return given[:n]
    return [(il % given != 0) if first else il % given < given - 1 for il in range(n)]


def rope_of(m, pairs, n_rot=None, base=None, scaled=True, still=(), factored=True):
    linear, yarn = rope_scaling(m) if scaled else (1.0, None)
    n_rot = m.key("rope.dimension_count", head_dims(m)[0]) if n_rot is None else n_rot
    factors = m.find("rope_freqs.weight") if factored else None
    return Rope(n_rot, m.key("rope.freq_base", 10000.0) if base is None else base, pairs, yarn=yarn, linear=linear,
                still=still, factors=factors)


def head_dims(m):
    heads = m.key("attention.head_count")
    own = m.key("embedding_length") // (heads[0] if isinstance(heads, list) else heads)
    dk = m.key("attention.key_length", own)
    return dk, m.key("attention.value_length", dk if m.has("attention.key_length") else own)


def attention(m, s, b, il, n, p):
    e, eps, (dk, dv) = len(n), m.key("attention.layer_norm_rms_epsilon", 0.0), head_dims(m)
    layers = m.key("block_count")
    h, kv = m.per_layer("attention.head_count", layers)[il], m.per_layer("attention.head_count_kv", layers)[il]
    sizes = {"q": h * dk, "k": kv * dk, "v": kv * dv}
    if s.fused:
        parts = np.split(m.tensor(b + "attn_qkv.weight", e, sum(sizes.values())) @ n, [h * dk, (h + kv) * dk])
        got = dict(zip("qkv", parts))
    else:
        got = {r: m.tensor(f"{b}attn_{r}.weight", e, width) @ n for r, width in sizes.items()}
    if s.bias:
        got = {r: x + m.tensor(f"{b}attn_{r}.bias", len(x), kind="vector") for r, x in got.items()}
    if s.head_norm == "whole":
        for r in "qk":
            got[r] = rms(got[r], m.tensor(f"{b}attn_{r}_norm.weight", sizes[r], kind="norm"), eps)
    q, k, v = got["q"].reshape(h, dk), got["k"].reshape(kv, dk), got["v"].reshape(kv, dv)

    def normed(x, r):
        return rms(x, m.tensor(f"{b}attn_{r}_norm.weight", dk, kind="norm"), eps)

    if s.head_norm == "before":
        q, k = normed(q, "q"), normed(k, "k")
    rope = s.rope(il)
    if rope is not None:
        q, k = rope(q, p), rope(k, p)
    if s.head_norm == "after":
        q, k = normed(q, "q"), normed(k, "k")
    if s.head_norm == "gain":
        q = rms(q, None, eps) * m.tensor(b + "attn_q_norm.weight", 1, h, kind="norm")
        k = rms(k, None, eps)
    keys, values = s.cache.setdefault((il, "k"), []), s.cache.setdefault((il, "v"), [])
    keys.append(k)
    values.append(v)
    window = s.window(il)
    first = max(0, p - window + 1) if window else 0
    ks, vs = np.array(keys[first:]), np.array(values[first:])
    sinks = m.tensor(b + "attn_sinks.weight", h, kind="vector") if s.sinks(il) else [None] * h
    scale = 1 / np.sqrt(dk) if s.scale is None else s.scale
    o = np.array([attend(q[i], ks[:, i * kv // h], vs[:, i * kv // h], scale, sinks[i]) for i in range(h)])
    if s.gate == "head":
        o = o * sigmoid(m.tensor(b + "attn_gate.weight", e, h) @ n)[:, None]
    if s.gate == "element":
        o = o * sigmoid(m.tensor(b + "attn_gate.weight", e, h * dv) @ n).reshape(h, dv)
    if s.gate == "softplus":
        g = softplus(m.tensor(b + "attn_gate.weight", e, s.gate_width(il)) @ n)
        o = o * (g[:, None] if len(g) == h else g.reshape(h, dv))
    return s.value_scale * (m.tensor(b + "attn_output.weight", h * dv, e) @ o.reshape(-1))


def moe(m, b, n, *, width=None, gating=None, bias=False, normalize=None, shared=0, act=silu_gate, shared_act=None,
        router_input=None, halve=False, bias_name="exp_probs_b.bias", scale=None):
    e, x = len(n), m.key("expert_count")
    k = m.key("expert_used_count")
    width = m.key("expert_feed_forward_length") if width is None else width
    z = m.tensor(b + "ffn_gate_inp.weight", e, x) @ (n if router_input is None else router_input)
    probs = m.tensor(b + bias_name, x, kind="vector") if bias else None
    normalize = m.key("expert_weights_norm", False) if normalize is None else normalize
    scale = m.key("expert_weights_scale", 1.0) if scale is None else scale
    chosen, weights = choose_experts(z, probs, k, m.key("expert_gating_func", gating), normalize, scale,
                                     m.key("expert_group_count", 0), m.key("expert_group_used_count", 0))
    y = experts(m, b, n, chosen, weights, x, width, act, fused=bool(m.marks.get("fused")))
    if shared:
        y = y + gated(m, b, "_shexp", n, shared, act if shared_act is None else shared_act)
    return y / 2 if halve else y


def decode(m, s, tokens):
    e, v, eps = m.key("embedding_length"), m.key("vocab_size"), m.key("attention.layer_norm_rms_epsilon", 0.0)
    n = m.key("block_count") - m.key("nextn_predict_layers", 0)

    def norm(name, x, epsilon=eps):
        weight = m.tensor(name, e, kind="norm") if s.norms else None
        if s.layer_norm:
            c, epsilon = x - x.mean(), m.key("attention.layer_norm_epsilon")
            return c / np.sqrt(np.mean(c * c) + epsilon) * weight
        return rms(x, weight, epsilon)

    def behind(b, which, y):
        if not s.post:
            return y
        return norm(b + s.post[which], y, eps if s.post_eps is None else s.post_eps)

    out = []
    for p, token in enumerate(tokens):
        table = m.tensor("token_embd.weight", e, v, kind=lambda r, shape: r.standard_normal(shape))
        x = first = s.embed(table[token])
        for il in range(n):
            b = f"blk.{il}."
            h = norm(b + "attn_norm.weight", x)
            a = attention(m, s, b, il, h, p)
            if s.parallel:
                x = x + a + s.ffn(b, il, h, x)
                continue
            y = x + s.residual * behind(b, 0, a)
            f = s.ffn(b, il, norm(b + "ffn_norm.weight", y), x)
            x = y + s.residual * behind(b, 1, f)
            if s.layer_scale:
                x = x + m.tensor(b + "layer_output_scale.weight", 1, kind="norm") * first
        h = norm("output_norm.weight", x)
        tie = m.marks.get("tied") if m.makes else s.tied and m.find("output.weight") is None
        out.append(s.logits((table if tie else m.tensor("output.weight", e, v)) @ h))
    return np.array(out)
