# SPDX-License-Identifier: MIT
"""Gemma 4, Ministral 3, Mistral 4, looped models (Nanbeige, Mimir), Qwen3-VL's text."""
import numpy as np

from decoder import Says, attention, head_dims, moe, rope_of
from pieces import Rope, attend, choose_experts, experts, gated, rms, rope_scaling, silu_gate, small_keys


def gelu(g):
    return 0.5 * g * (1 + np.tanh(0.7978845608028654 * (g + 0.044715 * g ** 3)))


def gelu_gate(g, u):
    return gelu(g) * u


def normal(r, shape):
    return r.standard_normal(shape)


# ---- Gemma 4 --------------------------------------------------------------------------------------------------------

class GemmaLayer:
    def __init__(self, m, il, n):
        self.m, self.b, self.il = m, f"blk.{il}.", il
        self.slides = m.key("attention.sliding_window_pattern")[il]
        dk, rot = m.key("attention.key_length"), m.key("rope.dimension_count", m.key("attention.key_length"))
        factors = m.tensor("rope_freqs.weight", dk // 2, kind="positive")
        if self.slides:
            dk = m.key("attention.key_length_swa")
            self.rope = Rope(m.key("rope.dimension_count_swa", dk), m.key("rope.freq_base_swa", 10000.0), "neox")
        else:
            linear, yarn = rope_scaling(m)
            self.rope = Rope(rot, m.key("rope.freq_base"), "neox", factors=factors, linear=linear, yarn=yarn)
        self.dk, self.kv = dk, m.per_layer("attention.head_count_kv", n)[il]
        self.keys, self.values = [], []
        own = n - m.key("attention.shared_kv_layers", 0)
        self.source = None if il < own else own - (2 if self.slides else 1)

    def attention(self, layers, h, p):
        m, b, e, dk, eps = self.m, self.b, len(h), self.dk, self.m.key("attention.layer_norm_rms_epsilon")
        heads = m.key("attention.head_count")
        q = (m.tensor(b + "attn_q.weight", e, heads * dk) @ h).reshape(heads, dk)
        q = self.rope(rms(q, m.tensor(b + "attn_q_norm.weight", dk, kind="norm"), eps), p)
        if self.source is None:
            raw = (m.tensor(b + "attn_k.weight", e, self.kv * dk) @ h).reshape(self.kv, dk)
            bare = m.marks.get("no_v") and not self.slides if m.makes else m.find(b + "attn_v.weight") is None
            v = raw if bare else (m.tensor(b + "attn_v.weight", e, self.kv * dk) @ h).reshape(self.kv, dk)
            k = rms(raw, m.tensor(b + "attn_k_norm.weight", dk, kind="norm"), eps)
            self.keys.append(self.rope(k, p))
            self.values.append(rms(v, None, eps))
        source = self if self.source is None else layers[self.source]
        first = max(0, p - m.key("attention.sliding_window") + 1) if self.slides else 0
        ks, vs = np.array(source.keys[first:]), np.array(source.values[first:])
        kv = ks.shape[1]
        o = [attend(q[i], ks[:, i * kv // heads], vs[:, i * kv // heads], 1.0) for i in range(heads)]
        return m.tensor(b + "attn_output.weight", heads * dk, e) @ np.concatenate(o)

    def ffn(self, y, n):
        m, b, e, eps = self.m, self.b, len(y), self.m.key("attention.layer_norm_rms_epsilon")
        norm = lambda role: m.tensor(b + role + ".weight", e, kind="norm")
        f = gated(m, b, "", rms(y, norm("ffn_norm"), eps), m.per_layer("feed_forward_length", n)[self.il], gelu_gate)
        if not m.key("expert_count", 0):
            return f
        x, k, width = m.key("expert_count"), m.key("expert_used_count"), m.key("expert_feed_forward_length")
        router = rms(y, None, eps) / np.sqrt(e) * m.tensor(b + "ffn_gate_inp.scale", e, kind="norm")
        chosen, w = choose_experts(m.tensor(b + "ffn_gate_inp.weight", e, x) @ router, None, k, 1, True, 1)
        if m.marks.get("down_scale", m.find(b + "ffn_down_exps.scale") is not None):
            w = w * m.tensor(b + "ffn_down_exps.scale", x, kind="norm")[chosen]
        h = rms(y, norm("pre_ffw_norm_2"), eps)
        fused = m.marks.get("fused") if m.makes else m.find(b + "ffn_gate_up_exps.weight") is not None
        moe_out = experts(m, b, h, chosen, w, x, width, gelu_gate, fused=bool(fused))
        return rms(f, norm("post_ffw_norm_1"), eps) + rms(moe_out, norm("post_ffw_norm_2"), eps)


def gemma4(m, tokens):
    e, v, n = m.key("embedding_length"), m.key("vocab_size"), m.key("block_count")
    eps, width = m.key("attention.layer_norm_rms_epsilon"), m.key("embedding_length_per_layer_input")
    layers, cap = [GemmaLayer(m, il, n) for il in range(n)], m.key("final_logit_softcapping", 30.0)
    out = []
    for p, token in enumerate(tokens):
        table = m.tensor("token_embd.weight", e, v, kind=lambda r, s: r.standard_normal(s) / 5)
        x = x0 = np.sqrt(e) * table[token]
        for il, layer in enumerate(layers):
            b = f"blk.{il}."
            norm = lambda role: m.tensor(b + role + ".weight", e, kind="norm")
            y = x + rms(layer.attention(layers, rms(x, norm("attn_norm"), eps), p), norm("post_attention_norm"), eps)
            y = y + rms(layer.ffn(y, n), norm("post_ffw_norm"), eps)
            if width:
                part = slice(il * width, (il + 1) * width)
                own = m.tensor("per_layer_token_embd.weight", width * n, v, kind=normal)[token][part]
                made = (m.tensor("per_layer_model_proj.weight", e, width * n) @ x0)[part] / np.sqrt(e)
                made = rms(made, m.tensor("per_layer_proj_norm.weight", width, kind="norm"), eps)
                u = (made + np.sqrt(width) * own) / np.sqrt(2)
                inner = gelu(m.tensor(b + "inp_gate.weight", e, width) @ y) * u
                y = y + rms(m.tensor(b + "proj.weight", width, e) @ inner, norm("post_norm"), eps)
            if m.marks.get("scaled", m.find(b + "layer_output_scale.weight") is not None):
                y = y * m.tensor(b + "layer_output_scale.weight", 1, kind="norm")
            x = y
        h = rms(x, m.tensor("output_norm.weight", e, kind="norm"), eps)
        untied = m.marks.get("untied") if m.makes else m.find("output.weight") is not None
        z = (m.tensor("output.weight", e, v) if untied else table) @ h
        out.append(cap * np.tanh(z / cap) if cap else z)
    return np.array(out)


# ---- Mistral --------------------------------------------------------------------------------------------------------

def log_magnitude(m, factor_of_key):
    """The magnitude of RoPE, and the factor of the attention scale's."""
    if m.key("rope.scaling.type", "none") != "yarn":
        return 1.0, 1.0
    f = m.key("rope.scaling.factor")
    a = m.key("rope.scaling.yarn_log_multiplier", 0.0) / factor_of_key
    magnitude = (1 + 0.1 * np.log(f)) / (1 + 0.1 * a * np.log(f))
    return magnitude, (magnitude * (1 + 0.1 * a * np.log(f))) ** 2


def mistral3(m, tokens):
    e, v, n = m.key("embedding_length"), m.key("vocab_size"), m.key("block_count")
    eps, rope = m.key("attention.layer_norm_rms_epsilon"), rope_of(m, "norm")
    rope.magnitude = log_magnitude(m, 1.0)[0]
    t, c = m.key("attention.temperature_scale", 0.0), m.key("rope.scaling.original_context_length", 1)

    out, cache = [], {}
    heads, kv = m.key("attention.head_count"), m.key("attention.head_count_kv")
    dk, dv = head_dims(m)
    for p, token in enumerate(tokens):
        table = m.tensor("token_embd.weight", e, v, kind=normal)
        x = table[token]
        for il in range(n):
            b = f"blk.{il}."
            h = rms(x, m.tensor(b + "attn_norm.weight", e, kind="norm"), eps)
            q = rope((m.tensor(b + "attn_q.weight", e, heads * dk) @ h).reshape(heads, dk), p)
            q = q * (1 + t * np.log(1 + p // c))
            k = rope((m.tensor(b + "attn_k.weight", e, kv * dk) @ h).reshape(kv, dk), p)
            cache.setdefault((il, 0), []).append(k)
            cache.setdefault((il, 1), []).append((m.tensor(b + "attn_v.weight", e, kv * dv) @ h).reshape(kv, dv))
            ks, vs = np.array(cache[il, 0]), np.array(cache[il, 1])
            o = [attend(q[i], ks[:, i * kv // heads], vs[:, i * kv // heads], 1 / np.sqrt(dk)) for i in range(heads)]
            x = x + m.tensor(b + "attn_output.weight", heads * dv, e) @ np.concatenate(o)
            h = rms(x, m.tensor(b + "ffn_norm.weight", e, kind="norm"), eps)
            f = m.key("feed_forward_length")
            x = x + (moe(m, b, h, width=f, gating=1, normalize=True, scale=1.0) if m.key("expert_count", 0)
                     else gated(m, b, "", h, f, silu_gate))
        h = rms(x, m.tensor("output_norm.weight", e, kind="norm"), eps)
        tied = m.marks.get("tied") if m.makes else m.find("output.weight") is None
        out.append((table if tied else m.tensor("output.weight", e, v)) @ h)
    return np.array(out)


def mistral4(m, tokens):
    import latent
    magnitude, factor = log_magnitude(m, 0.1)
    rope = rope_of(m, "norm")
    rope.magnitude = magnitude
    t, c = m.key("attention.temperature_scale", 0.0), m.key("attention.temperature_length", 1)

    class Warm(latent.Latent):
        """Queries times 1 + t·ln(1 + floor(p / C)): as well the scale."""

        def __call__(self, n, p):
            self.scale = factor / np.sqrt(self.dk) * (1 + t * np.log(1 + p // c))
            return super().__call__(n, p)

    layers = [Warm(m, f"blk.{il}.", m.key("attention.head_count"), rope) for il in range(m.key("block_count"))]

    def ffn(b, il, x):
        if il < m.key("leading_dense_block_count", 0):
            return gated(m, b, "", x, m.key("feed_forward_length"), silu_gate)
        wide = m.key("expert_feed_forward_length") * m.key("expert_shared_count", 0)
        return latent.moe(m, b, x, m.marks.get("bias", m.find(b + "exp_probs_b.bias") is not None), wide, silu_gate,
                          silu_gate, m.key("expert_weights_norm", False), 1)

    return latent.plain_logits(m, tokens, layers, ffn, tied=True)


# ---- loops ----------------------------------------------------------------------------------------------------------

def nanbeige(m, tokens):
    e, v, n, loops = m.key("embedding_length"), m.key("vocab_size"), m.key("block_count"), m.key("num_loops", 1)
    eps, s = m.key("attention.layer_norm_rms_epsilon"), Says(lambda il: rope_of(m, "norm"))
    caches, out = [{} for _ in range(loops)], []
    for p, token in enumerate(tokens):
        table = m.tensor("token_embd.weight", e, v, kind=normal)
        x = table[token]
        for loop in range(loops):
            s.cache = caches[loop]
            for il in range(n):
                b = f"blk.{il}."
                x = x + attention(m, s, b, il, rms(x, m.tensor(b + "attn_norm.weight", e, kind="norm"), eps), p)
                h = rms(x, m.tensor(b + "ffn_norm.weight", e, kind="norm"), eps)
                x = x + gated(m, b, "", h, m.key("feed_forward_length"), silu_gate)
            last = m.tensor("output_norm.weight", e, kind="norm")
            if loop + 1 < loops and not m.key("skip_loop_final_norm", False):
                x = rms(x, last, eps)
        tied = m.marks.get("tied") if m.makes else m.find("output.weight") is None
        out.append((table if tied else m.tensor("output.weight", e, v)) @ rms(x, last, eps))
    return np.array(out)


def hrm_text(m, tokens):
    e, v, eps = m.key("embedding_length"), m.key("vocab_size"), m.key("attention.layer_norm_rms_epsilon")
    stack, high, low = (m.key("hrm." + k) for k in ("layers_per_stack", "h_cycles", "l_cycles"))
    s, caches, out = Says(lambda il: rope_of(m, "neox"), gate="element"), {}, []
    f = m.key("feed_forward_length")

    def run(first, number, x, p):
        s.cache = caches.setdefault(number, {})
        for il in range(first, first + stack):
            b = f"blk.{il}."
            x = x + attention(m, s, b, il, rms(x, None, eps), p)
            x = x + gated(m, b, "", rms(x, None, eps), f, silu_gate)
        return rms(x, None, eps)

    for p, token in enumerate(tokens):
        table = m.tensor("token_embd.weight", e, v, kind=normal)
        zh, zl, number = table[token] * (m.key("embedding_scale", 0.0) or 1.0), m.tensor("hrm.z_l_init", e,
                                                                                        kind="vector"), 0
        for _ in range(high):
            for _ in range(low):
                zl = run(0, number, zh + zl, p)
                number += 1
            zh = run(stack, number, zh + zl, p)
            number += 1
        tied = m.marks.get("tied") if m.makes else m.find("output.weight") is None
        out.append((table if tied else m.tensor("output.weight", e, v)) @ zh)
    return np.array(out)


def logits(m, tokens):
    return {"gemma4": gemma4, "mistral3": mistral3, "mistral4": mistral4, "nanbeige": nanbeige,
            "hrm_text": hrm_text}[m.arch](m, tokens)


MARKS = ("tied", "untied", "fused", "no_v", "scaled", "down_scale", "bias", "tokens")


def keys(arch, more):
    return small_keys(arch, more, MARKS)


GEMMA = {"block_count": 6, "attention.key_length": 16, "attention.value_length": 16, "attention.key_length_swa": 12,
         "attention.value_length_swa": 12, "rope.dimension_count": 16, "rope.dimension_count_swa": 12,
         "attention.sliding_window": 7, "attention.sliding_window_pattern": [True, False, True, False, True, False],
         "embedding_length_per_layer_input": 0, "attention.head_count_kv": [2, 1, 2, 1, 2, 1]}
MOE = {"expert_count": 6, "expert_used_count": 2, "expert_feed_forward_length": 20}
LATENT = {"attention.head_count_kv": 1, "attention.key_length": 24, "attention.value_length": 16,
          "attention.kv_lora_rank": 16, "attention.key_length_mla": 20, "attention.value_length_mla": 12,
          "attention.q_lora_rank": 18, "rope.dimension_count": 8, "expert_count": 8, "expert_used_count": 3,
          "expert_feed_forward_length": 20}
YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 8.0, "rope.scaling.original_context_length": 16}
GOLDEN = ["gemma4", "gemma4-moe", "mistral3", "mistral3-plain", "mistral4", "nanbeige", "hrm_text"]
TOLERANCE = 1e-4
BASE = {}
_LIST = [
    ("gemma4", GEMMA),
    ("gemma4", {**GEMMA, "embedding_length_per_layer_input": 8, "attention.shared_kv_layers": 3, "scaled": True,
                "attention.sliding_window_pattern": [True, True, False, True, False, True],
                "final_logit_softcapping": 0.0, "attention.head_count_kv": 1,
                "feed_forward_length": [40, 40, 40, 56, 56, 56]}),
    ("gemma4", {**GEMMA, **MOE, "fused": True, "down_scale": True, "no_v": True, "final_logit_softcapping": 5.0}),
    ("gemma4", {**GEMMA, **MOE, "untied": True, "rope.freq_base_swa": 300.0, "rope.dimension_count": None,
                "rope.dimension_count_swa": None}),
    ("mistral3", {}),
    ("mistral3", {**YARN, "attention.temperature_scale": 0.2, "rope.scaling.yarn_log_multiplier": 1.0, "tied": True}),
    ("mistral3", {**YARN, "rope.scaling.yarn_log_multiplier": 0.4}),
    ("mistral3", {**YARN, **MOE, "expert_feed_forward_length": None}),
    ("mistral4", LATENT),
    ("mistral4", {**LATENT, **YARN, "rope.scaling.yarn_log_multiplier": 0.1, "attention.temperature_scale": 0.2,
                  "attention.temperature_length": 10, "expert_shared_count": 1, "bias": True,
                  "expert_gating_func": 2, "expert_weights_norm": True, "expert_weights_scale": 1.4,
                  "leading_dense_block_count": 1, "tied": True}),
    ("mistral4", {**LATENT, **YARN, "rope.scaling.yarn_log_multiplier": 0.06}),
    ("mistral4", {**LATENT, **YARN}),
    ("nanbeige", {}),
    ("nanbeige", {"num_loops": 3, "tied": True}),
    ("nanbeige", {"num_loops": 2, "skip_loop_final_norm": True}),
    ("hrm_text", {"hrm.layers_per_stack": 1, "hrm.h_cycles": 2, "hrm.l_cycles": 1, "block_count": 4}),
    ("hrm_text", {"hrm.layers_per_stack": 2, "hrm.h_cycles": 1, "hrm.l_cycles": 3, "block_count": 8, "tied": True,
                  "embedding_scale": 3.0, "hrm.prefix_lm": True}),
]
VARIANTS = {f"{arch}, {i}": keys(arch, more) for i, (arch, more) in enumerate(_LIST)}
