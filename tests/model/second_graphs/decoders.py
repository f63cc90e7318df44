# SPDX-License-Identifier: MIT
"""Families that differ from llama by a few sentences each, and models of their less common branches."""
import numpy as np

from decoder import Says, decode, head_dims, moe, period, rope_of
from latent import clamped_after
from pieces import clamped_before, gated, rms, silu, silu_gate


def dense(m, act=silu_gate, width=None):
    return lambda b, il, n, x: gated(m, b, "", n, m.key("feed_forward_length") if width is None else width, act)


def led(m, experts, act=silu_gate):
    """Dense layers in front."""
    return lambda b, il, n, x: (dense(m, act)(b, il, n, x) if il < m.key("leading_dense_block_count", 0)
                                else experts(b, il, n, x))


def gelu_gate(g, u):
    return 0.5 * g * (1 + np.tanh(0.7978845608028654 * (g + 0.044715 * g ** 3))) * u


def relu_gate(g, u):
    return np.maximum(g, 0) * u


def has(m, mark, name):
    return bool(m.marks.get(mark)) if m.makes else m.find(name) is not None


def says(m):
    n, arch = m.key("block_count"), m.arch
    dk, window = head_dims(m)[0], m.key("attention.sliding_window", 0)
    shared_width = m.key("expert_shared_feed_forward_length", 0)
    fx, count = m.key("expert_feed_forward_length", 0), m.key("expert_shared_count", 0)
    swa_base = m.key("rope.freq_base_swa", m.key("rope.freq_base", 10000.0))
    swa_rot = m.key("rope.dimension_count_swa", m.key("rope.dimension_count", dk))
    bias = m.marks.get("bias") if m.makes else any(name.endswith("exp_probs_b.bias") for name in m.tensors)

    def slide(default, first):
        which = period(m, n, default, first)
        return which, lambda il: window if which[il] else 0

    if arch == "exaone-moe":
        which, w = slide(4, False)
        return Says(lambda il: rope_of(m, "neox") if which[il] else None, w, "before", ffn=led(
            m, lambda b, il, h, x: moe(m, b, h, bias=bias, shared=shared_width or fx)))
    if arch == "hy_v3":
        name = "exp_probs_b" if m.marks.get("bare", m.find(f"blk.{n - 1}.exp_probs_b") is not None) else \
            "exp_probs_b.bias"
        routed = lambda il: m.find(f"blk.{il}.ffn_gate_inp.weight") is not None if not m.makes else il >= 1
        return Says(lambda il: rope_of(m, "neox"), head_norm="before", tied=True, ffn=lambda b, il, h, x: moe(
            m, b, h, gating=2, bias=True, bias_name=name, shared=shared_width or fx) if routed(il)
            else dense(m)(b, il, h, x))
    if arch == "mellum":
        which, w = slide(4, False)
        return Says(lambda il: rope_of(m, "neox", scaled=not which[il] or not window),
                    w if window else (lambda il: 0), "before",
                    ffn=lambda b, il, h, x: moe(m, b, h, gating=1, normalize=True, scale=1.0))
    if arch == "maple":
        which, w = slide(None, False)
        limits = m.per_layer("swiglu_clamp_exp", n)
        return Says(lambda il: rope_of(m, "neox", swa_rot, swa_base) if which[il] else None, w, "before",
                    ffn=lambda b, il, h, x: moe(m, b, h, gating=1, normalize=True, scale=1.0,
                                                act=clamped_before(limits[il])))
    if arch == "spark2_5":
        which, w = slide(None, False)
        return Says(lambda il: rope_of(m, "neox", swa_rot if which[il] else None, swa_base if which[il] else None), w,
                    gate="head", ffn=dense(m, gelu_gate), tied=True)
    if arch == "laguna":
        which, w = slide(4, True)
        if not window:
            which, w = [False] * n, lambda il: 0
        heads, dv = m.per_layer("attention.head_count", n), head_dims(m)[1]
        wide = lambda il: (heads[il] * (dv if m.marks.get("elements") else 1) if m.makes else
                           m.find(f"blk.{il}.attn_gate.weight").shape[0])
        return Says(lambda il: rope_of(m, "neox", swa_rot, swa_base, scaled=False) if which[il]
                    else rope_of(m, "neox"), w, "before", "softplus", wide, tied=True, ffn=led(
                        m, lambda b, il, h, x: moe(m, b, h, gating=2, bias=True,
                                                   shared=shared_width or fx * (count or 1))))
    if arch == "afmoe":
        which, w = slide(4, False)
        e = m.key("embedding_length")
        return Says(lambda il: None if (il + 1) % 4 == 0 else rope_of(m, "neox", None, swa_base if which[il] else None),
                    w, "before", "element", post=("post_attention_norm.weight", "post_ffw_norm.weight"), tied=True,
                    embed=lambda x: x * np.sqrt(e), ffn=led(m, lambda b, il, h, x: moe(
                        m, b, h, gating=2, bias=True, shared=fx * count)))
    if arch == "muse-glimmer":
        which, w = slide(4, False)
        cap, factor, eps = m.key("final_logit_softcapping", 30.0), m.key("logit_scale"), m.key(
            "attention.layer_norm_rms_epsilon")
        return Says(lambda il: rope_of(m, "norm", None, swa_base, scaled=False) if which[il] else None, w, "before",
                    "element", post=("post_attention_norm.weight", "post_ffw_norm.weight"), post_eps=1e-8,
                    embed=lambda x: rms(x, None, eps), ffn=dense(m),
                    logits=lambda z: cap * np.tanh(z * factor / cap) if cap else z * factor)
    if arch == "plamo3":
        which, w = slide(8, False)
        if not window:
            which, w = [False] * n, lambda il: 0
        f = m.key("feed_forward_length")

        def ffn(b, il, h, x):
            both = m.tensor(b + "ffn_up.weight", len(h), 2 * f) @ h
            return m.tensor(b + "ffn_down.weight", f, len(h)) @ (silu(both[:f]) * both[f:])

        swa = m.key("rope.freq_base_swa", 10000.0)
        return Says(lambda il: rope_of(m, "neox", None, swa, scaled=False) if which[il] else rope_of(m, "neox"), w,
                    "before", fused=True, post=("post_attention_norm", "post_ffw_norm"), ffn=ffn, tied=True)
    if arch == "maincoder":
        return Says(lambda il: rope_of(m, "norm"), head_norm="after", ffn=dense(m), tied=True)
    if arch == "talkie":
        eps, factor = m.key("attention.layer_norm_rms_epsilon"), m.key("logit_scale")
        return Says(lambda il: rope_of(m, "neox"), head_norm="gain", norms=False, ffn=dense(m), layer_scale=True,
                    embed=lambda x: rms(x, None, eps), logits=lambda z: z * factor)
    if arch == "step35":
        which, w = slide(None, False)
        routed, shared = (m.per_layer(k, n, 0.0) for k in ("swiglu_clamp_exp", "swiglu_clamp_shexp"))
        swa10k, half = m.key("rope.freq_base_swa", 10000.0), m.key("rope.dimension_count") // 2
        has_experts = lambda il: m.find(f"blk.{il}.ffn_gate_inp.weight") is not None if not m.makes else il >= 1

        def ffn(b, il, h, x):
            if not has_experts(il):
                return dense(m, clamped_after(shared[il]))(b, il, h, x)
            return moe(m, b, h, gating=2, bias=bias, shared=shared_width, act=clamped_after(routed[il]),
                       shared_act=clamped_after(shared[il]))

        return Says(lambda il: rope_of(m, "neox", swa_rot, swa10k, scaled=False, factored=False) if which[il]
                    else rope_of(m, "neox", half), w,
                    "before" if has(m, "head_norms", "blk.0.attn_q_norm.weight") else "",
                    "head" if has(m, "gates", "blk.0.attn_gate.weight") else "", ffn=ffn)
    if arch == "mimo2":
        which, w = slide(None, False)
        has_experts = lambda il: m.find(f"blk.{il}.ffn_gate_inp.weight") is not None if not m.makes else il >= 1
        sunk = lambda il: which[il] if m.makes else m.find(f"blk.{il}.attn_sinks.weight") is not None
        return Says(lambda il: rope_of(m, "neox", None, swa_base if which[il] else None), w, sinks=sunk,
                    fused=has(m, "fused_qkv", "blk.0.attn_qkv.weight"),
                    value_scale=m.key("attention.value_scale", 0.0) or 1.0,
                    ffn=lambda b, il, h, x: moe(m, b, h, gating=2, bias=bias, normalize=True, scale=1.0)
                    if has_experts(il) else dense(m)(b, il, h, x))
    if arch == "minimax-m2":
        return Says(lambda il: rope_of(m, "neox"), head_norm="whole", ffn=lambda b, il, h, x: moe(
            m, b, h, width=m.key("feed_forward_length"), gating=2, bias=True, normalize=True, scale=1.0))
    if arch in ("dots1", "bailingmoe2"):
        wide = (shared_width or fx) * count if arch == "bailingmoe2" else fx * count
        return Says(lambda il: rope_of(m, "neox"), head_norm="before", fused=arch == "bailingmoe2", ffn=led(
            m, lambda b, il, h, x: moe(m, b, h, bias=bias, shared=wide)))
    if arch == "bailingmoe":
        return Says(lambda il: rope_of(m, "norm"), ffn=lambda b, il, h, x: moe(m, b, h, gating=1, shared=fx * count),
                    scale=1 / np.sqrt(m.key("rope.dimension_count", dk)))
    if arch == "ernie4_5-moe":
        return Says(lambda il: rope_of(m, "norm"), tied=True, ffn=led(m, lambda b, il, h, x: moe(
            m, b, h, gating=1, bias=bias, normalize=True, scale=1.0, shared=shared_width)))
    if arch in ("hunyuan-dense", "hunyuan_vl"):
        alpha, base = m.key("rope.scaling.alpha", 0.0), m.key("rope.freq_base")
        base = base * alpha ** (dk / (dk - 2)) if alpha > 0 else base
        n0, n1, n2, n3 = m.key("rope.dimension_sections", [0, 0, 0, 0])
        still = [i for i in range(dk // 2) if n0 > 0 and n1 > 0 and i % (n0 + n1 + n2 + n3) >= n0 + n1 + n2]
        return Says(lambda il: rope_of(m, "neox", dk, base, still=still), head_norm="after", ffn=dense(m), tied=True)
    if arch == "hunyuan-moe":
        f = m.key("feed_forward_length")
        return Says(lambda il: rope_of(m, "neox", dk), head_norm="after", tied=True, ffn=lambda b, il, h, x: moe(
            m, b, h, width=f, gating=1, normalize=True, scale=1.0, shared=shared_width or f))
    if arch == "granite_swa":
        slides, turns = m.key("attention.sliding_window_pattern"), m.key("attention.rope_pattern", [True] * n)
        f, one = m.key("feed_forward_length"), m.key("embedding_scale", 0.0) or 1.0
        factor = m.key("logit_scale")

        def ffn(b, il, h, x):
            if not m.key("expert_count", 0):
                return dense(m)(b, il, h, x)
            y = moe(m, b, h, width=f, gating=1, normalize=True, scale=1.0)
            if not shared_width:
                return y
            both = m.tensor(b + "ffn_up_shexp.weight", len(h), 2 * shared_width) @ h
            inner = silu(both[:shared_width]) * both[shared_width:]
            return y + m.tensor(b + "ffn_down_shexp.weight", shared_width, len(h)) @ inner

        return Says(lambda il: rope_of(m, "norm") if turns[il] else None, lambda il: window if slides[il] else 0,
                    scale=m.key("attention.scale", 0.0) or None, sinks=lambda il: True, ffn=ffn, tied=True,
                    residual=m.key("residual_scale", 0.0) or 1.0, embed=lambda x: x * one,
                    logits=lambda z: z / factor)
    if arch == "cohere2moe":
        which, w = slide(4, True)
        lead, factor = m.key("leading_dense_block_count", 0), m.key("logit_scale", 0.0) or 1.0
        wide = (shared_width or fx * count) if count else 0
        return Says(lambda il: rope_of(m, "norm") if which[il] or il < lead else None, w, parallel=True, tied=True,
                    layer_norm=not m.has("attention.layer_norm_rms_epsilon"), logits=lambda z: z * factor,
                    ffn=led(m, lambda b, il, h, x: moe(m, b, h, gating=2, shared=wide, halve=count > 0)))
    if arch == "smallthinker":
        return Says(lambda il: rope_of(m, "neox") if not window or il % 4 else None, tied=True,
                    ffn=lambda b, il, h, x: moe(m, b, h, normalize=True, scale=1.0, act=relu_gate, router_input=x))
    raise ValueError(arch)


def logits(m, tokens):
    return decode(m, says(m), tokens)


MARKS = ("tied", "bias", "gates", "fused", "fused_qkv", "head_norms", "elements", "bare", "tokens")


def keys(arch, more):
    base = {
        "vocab_size": 64, "context_length": 512, "embedding_length": 32, "block_count": 5, "feed_forward_length": 40,
        "attention.head_count": 4, "attention.head_count_kv": 2, "attention.layer_norm_rms_epsilon": 3e-3,
        "rope.freq_base": 10000.0,
    }
    marks = {k: v for k, v in more.items() if k in MARKS}
    named = {**base, **{k: v for k, v in more.items() if k not in MARKS}}
    return {"general.architecture": arch, **{f"{arch}.{k}": v for k, v in named.items()}, **marks}


HEADS = {"attention.key_length": 12, "attention.value_length": 12, "rope.dimension_count": 12}
MOE = {"expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 20}
GATED = {"expert_gating_func": 2, "expert_weights_norm": True, "expert_weights_scale": 1.7}
WINDOW = {"attention.sliding_window": 6}
YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 64}
GROUPS = {"expert_group_count": 4, "expert_group_used_count": 2}
ARRAY = {"attention.sliding_window_pattern": [True, False, True, True, False]}
GOLDEN = ["exaone-moe", "hy_v3", "mellum", "maple", "spark2_5", "laguna", "afmoe", "muse-glimmer", "plamo3",
          "maincoder", "talkie", "step35", "mimo2", "minimax-m2", "dots1", "bailingmoe", "bailingmoe2", "ernie4_5-moe",
          "hunyuan-dense", "hunyuan-moe", "hunyuan_vl", "granite_swa", "cohere2moe", "smallthinker"]
TOLERANCE = 1e-4
BASE = {}
_LIST = [
    ("exaone-moe", {**HEADS, **MOE, **GATED, **WINDOW, "bias": True, "leading_dense_block_count": 1}),
    ("exaone-moe", {**HEADS, **MOE, **WINDOW, **ARRAY, "expert_gating_func": 1, "expert_shared_count": 3,
                    "expert_shared_feed_forward_length": 28}),
    ("exaone-moe", {**HEADS, **MOE, **GATED, **WINDOW, **GROUPS, "attention.sliding_window_pattern": 2}),
    ("hy_v3", {**HEADS, **MOE, **GATED, "tied": True}),
    ("hy_v3", {**HEADS, **MOE, "bare": True, "fused": True, "expert_shared_feed_forward_length": 24}),
    ("mellum", {**HEADS, **MOE, **WINDOW, **YARN}),
    ("mellum", {**HEADS, **MOE}),
    ("mellum", {**HEADS, **MOE, **WINDOW, **ARRAY, "rope.freq_base_swa": 77.0}),
    ("maple", {**HEADS, **MOE, **WINDOW, **ARRAY, "swiglu_clamp_exp": 0.4}),
    ("maple", {**HEADS, **MOE, **WINDOW, **ARRAY, "swiglu_clamp_exp": [0.0, 0.3, 0.5, 0.2, 0.9],
               "rope.freq_base_swa": 900.0, "rope.dimension_count_swa": 8}),
    ("spark2_5", {**HEADS, **WINDOW, **ARRAY}),
    ("spark2_5", {**HEADS, **WINDOW, **ARRAY, "rope.freq_base_swa": 900.0, "rope.dimension_count_swa": 8,
                  "attention.head_count": [4, 2, 4, 6, 4], "tied": True}),
    ("laguna", {**HEADS, **MOE, **GATED, **WINDOW, "leading_dense_block_count": 1}),
    ("laguna", {**HEADS, **MOE, **WINDOW, **ARRAY, **YARN, "elements": True, "rope.dimension_count": 8,
                "rope.dimension_count_swa": 12, "rope.freq_base_swa": 500.0, "expert_shared_count": 2}),
    ("laguna", {**HEADS, **MOE, "attention.head_count": [4, 2, 4, 6, 4], "tied": True,
                "expert_shared_feed_forward_length": 24, "expert_gating_func": 1}),
    ("afmoe", {**HEADS, **MOE, **GATED, **WINDOW, "leading_dense_block_count": 1, "expert_shared_count": 1}),
    ("afmoe", {**HEADS, **MOE, **WINDOW, "attention.sliding_window_pattern": 2, "rope.freq_base_swa": 500.0,
               "tied": True, "expert_weights_norm": True}),
    ("muse-glimmer", {**HEADS, **WINDOW, "logit_scale": 0.4}),
    ("muse-glimmer", {**HEADS, **WINDOW, **ARRAY, "logit_scale": 2.0, "final_logit_softcapping": 0.0,
                      "rope.freq_base_swa": 500.0, "rope.dimension_count": 8}),
    ("muse-glimmer", {**HEADS, **WINDOW, "logit_scale": 2.0, "final_logit_softcapping": 3.0,
                      "attention.sliding_window_pattern": 2}),
    ("plamo3", {**HEADS, "attention.value_length": 16}),
    ("plamo3", {**HEADS, **WINDOW, "attention.sliding_window_pattern": 3, "rope.freq_base": 500000.0, "tied": True}),
    ("plamo3", {**HEADS, **WINDOW, **ARRAY, "rope.freq_base_swa": 700.0}),
    ("maincoder", {**HEADS}),
    ("maincoder", {**HEADS, "tied": True, "attention.head_count_kv": 4}),
    ("talkie", {**HEADS, "logit_scale": 1.5}),
    ("step35", {**HEADS, **MOE, **GATED, **WINDOW, **ARRAY, "expert_shared_feed_forward_length": 16, "bias": True,
                "gates": True, "head_norms": True, "attention.head_count_kv": [2, 1, 2, 2, 1],
                "attention.head_count": [4, 2, 6, 4, 2], "rope.dimension_count_swa": 12}),
    ("step35", {**HEADS, **MOE, **WINDOW, **ARRAY, "expert_shared_feed_forward_length": 16,
                "swiglu_clamp_exp": [0.0, 0.2, 0.3, 0.4, 0.5], "swiglu_clamp_shexp": [0.2, 0.0, 0.3, 0.1, 0.6],
                "rope.freq_base_swa": 700.0}),
    ("mimo2", {**HEADS, **MOE, **WINDOW, **ARRAY, "attention.value_length": 8, "rope.dimension_count": 8,
               "bias": True, "attention.value_scale": 0.6, "attention.head_count": 4}),
    ("mimo2", {**HEADS, **MOE, **WINDOW, **ARRAY, "fused_qkv": True, "rope.freq_base_swa": 500.0,
               "attention.value_scale": 0.0, "attention.head_count_kv": [2, 4, 2, 1, 2]}),
    ("minimax-m2", {**HEADS, **MOE, "rope.dimension_count": 8, "expert_gating_func": 2,
                    "expert_feed_forward_length": None}),
    ("minimax-m2", {**HEADS, **MOE, "expert_gating_func": 1, "expert_feed_forward_length": None}),
    ("dots1", {**HEADS, **MOE, **GATED, "attention.head_count_kv": 4, "leading_dense_block_count": 2,
               "expert_shared_count": 2, "bias": True}),
    ("dots1", {**HEADS, **MOE, **GROUPS, "attention.head_count_kv": 4, "expert_gating_func": 1,
               "leading_dense_block_count": 0, "expert_shared_count": 1}),
    ("bailingmoe", {**HEADS, **MOE, "expert_shared_count": 2, "expert_weights_norm": True,
                    "expert_weights_scale": 1.3, "leading_dense_block_count": 0}),
    ("bailingmoe", {**HEADS, **MOE, "expert_shared_count": 1, "leading_dense_block_count": 0}),
    ("bailingmoe2", {**MOE, **GATED, **GROUPS, "expert_shared_count": 1, "bias": True, "rope.dimension_count": 4,
                     "leading_dense_block_count": 1}),
    ("bailingmoe2", {**MOE, "expert_gating_func": 1, "expert_shared_count": 2, "leading_dense_block_count": 1,
                     "expert_shared_feed_forward_length": 12, "rope.dimension_count": 8}),
    ("ernie4_5-moe", {**HEADS, **MOE, "interleave_moe_layer_step": 1, "bias": True, "tied": True,
                      "leading_dense_block_count": 1, "expert_shared_feed_forward_length": 24}),
    ("ernie4_5-moe", {**HEADS, **MOE, "interleave_moe_layer_step": 1}),
    ("hunyuan-dense", {**HEADS, "rope.scaling.alpha": 30.0}),
    ("hunyuan-dense", {**HEADS, "tied": True, "expert_count": 1}),
    ("hunyuan_vl", {**HEADS, "rope.dimension_sections": [2, 1, 1, 1]}),
    ("hunyuan_vl", {**HEADS, "rope.dimension_sections": [0, 1, 1, 1], "rope.scaling.alpha": 5.0}),
    ("hunyuan-moe", {**HEADS, **MOE, "expert_feed_forward_length": 40}),
    ("hunyuan-moe", {**HEADS, **MOE, "expert_feed_forward_length": 40, "expert_shared_feed_forward_length": 24,
                     "tied": True}),
    ("granite_swa", {**HEADS, **WINDOW, **ARRAY, "logit_scale": 2.0, "attention.scale": 0.2, "embedding_scale": 3.0,
                     "residual_scale": 0.5}),
    ("granite_swa", {**HEADS, **MOE, **WINDOW, **ARRAY, "expert_feed_forward_length": None, "logit_scale": 0.5,
                     "tied": True,
                     "attention.rope_pattern": [False, True, True, False, True],
                     "expert_shared_feed_forward_length": 24}),
    ("cohere2moe", {**HEADS, **MOE, **WINDOW, "expert_shared_count": 2, "logit_scale": 0.5,
                    "leading_dense_block_count": 1, "tied": True}),
    ("cohere2moe", {**HEADS, **MOE, **GATED, **WINDOW, **ARRAY, "attention.layer_norm_rms_epsilon": None,
                    "attention.layer_norm_epsilon": 3e-3, "logit_scale": 0.5, "fused": True}),
    ("cohere2moe", {**HEADS, **MOE, **WINDOW, "attention.sliding_window_pattern": 2, "expert_gating_func": 1,
                    "expert_weights_norm": True, "expert_shared_count": 1, "expert_shared_feed_forward_length": 12,
                    "logit_scale": 1.0}),
    ("smallthinker", {**HEADS, **MOE, "expert_gating_func": 1}),
    ("smallthinker", {**HEADS, **MOE, "expert_gating_func": 2, "attention.sliding_window": 4096, "tied": True}),
]
VARIANTS = {f"{arch}, {i}": keys(arch, more) for i, (arch, more) in enumerate(_LIST)}
