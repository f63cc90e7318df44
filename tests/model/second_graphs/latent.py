# SPDX-License-Identifier: MIT
"""Latent attention written out per head, with what its relatives add: an indexer that chooses tokens, gates, sinks,
layers of two sizes. And the layers and models that use it."""
import numpy as np

from delta import DeltaHead, ShortConv, unit
from pieces import (Rope, attend, best, choose_experts, clamped_before, experts, gated, layer_norm, rms, rope_scaling,
                    sigmoid, silu, silu_gate, softmax, softplus)


def clamped_after(limit):
    """min(silu(g), c) · clamp(u, ±c)."""
    if not limit > 1e-6:
        return silu_gate
    return lambda g, u: np.minimum(silu(g), limit) * np.clip(u, -limit, limit)


class Latent:
    """One layer. rope: of the shared part, None for none; index: an Index, or another layer whose choice counts."""

    def __init__(self, m, b, heads, rope, suffix="", gate=None, sinks=False, k_norm=False, window=0, index=None,
                 scale=None):
        self.m, self.b, self.heads, self.rope, self.window, self.index = m, b, heads, rope, window, index
        self.gate, self.sinks, self.k_norm = gate, sinks, k_norm
        self.rank = m.key("attention.kv_lora_rank" + suffix)
        self.dk, self.dv = m.key("attention.key_length_mla" + suffix), m.key("attention.value_length_mla" + suffix)
        self.scale = 1 / np.sqrt(self.dk) if scale is None else scale
        self.keys, self.values = [], []

    def __call__(self, n, p):
        m, b, h, dr, e = self.m, self.b, self.heads, self.m.key("rope.dimension_count"), len(n)
        eps = m.key("attention.layer_norm_rms_epsilon")
        low = m.key("attention.q_lora_rank", 0)
        qr = None
        if low:
            qr = rms(m.tensor(b + "attn_q_a.weight", e, low) @ n,
                     m.tensor(b + "attn_q_a_norm.weight", low, kind="norm"), eps)
            q = m.tensor(b + "attn_q_b.weight", low, h * self.dk) @ qr
        else:
            q = m.tensor(b + "attn_q.weight", e, h * self.dk) @ n
        q = q.reshape(h, self.dk)
        u = m.tensor(b + "attn_kv_a_mqa.weight", e, self.rank + dr) @ n
        latent = rms(u[:self.rank], m.tensor(b + "attn_kv_a_norm.weight", self.rank, kind="norm"), eps)
        shared, dn = u[self.rank:], self.dk - dr
        if self.k_norm:
            shared = rms(shared, m.tensor(b + "attn_k_norm.weight", dr, kind="norm"), eps)
        if self.rope:
            q = np.concatenate([q[:, :dn], self.rope(q[:, dn:], p)], axis=1)
            shared = self.rope(shared, p)
        k_b, v_b = m.tensor(b + "attn_k_b.weight", dn, self.rank, h), m.tensor(b + "attn_v_b.weight", self.rank,
                                                                              self.dv, h)
        self.keys.append(np.array([np.concatenate([k_b[i].T @ latent, shared]) for i in range(h)]))
        self.values.append(np.array([v_b[i] @ latent for i in range(h)]))
        seen = range(max(0, p - self.window + 1) if self.window else 0, p + 1)
        if self.index is not None:
            seen = self.index.choose(n, qr, p) if isinstance(self.index, Index) else self.index.index.chosen
        sinks = m.tensor(b + "attn_sinks.weight", h, kind="vector") if self.sinks else [None] * h
        keys, values = np.array([self.keys[j] for j in seen]), np.array([self.values[j] for j in seen])
        o = np.array([attend(q[i], keys[:, i], values[:, i], self.scale, sinks[i]) for i in range(h)])
        if self.gate == "head":
            o = o * sigmoid(m.tensor(b + "attn_gate.weight", e, h) @ n)[:, None]
        o = o.reshape(-1)
        if self.gate == "element":
            o = o * sigmoid(m.tensor(b + "attn_gate.weight", e, h * self.dv) @ n)
        return m.tensor(b + "attn_output.weight", h * self.dv, e) @ o


class Index:
    """Σ_h w_h · relu(iq_h·ik_j); the top_k tokens of highest score."""

    def __init__(self, m, b, rope, eps):
        self.m, self.b, self.rope, self.eps, self.keys, self.chosen = m, b, rope, eps, [], None

    def choose(self, n, qr, p):
        m, b, e = self.m, self.b, len(n)
        hi, di = m.key("attention.indexer.head_count"), m.key("attention.indexer.key_length")
        iq = self.rope((m.tensor(b + "indexer.attn_q_b.weight", len(qr), hi * di) @ qr).reshape(hi, di), p)
        ik = layer_norm(m.tensor(b + "indexer.attn_k.weight", e, di) @ n,
                        m.tensor(b + "indexer.k_norm.weight", di, kind="norm"),
                        m.tensor(b + "indexer.k_norm.bias", di, kind="vector"), self.eps)
        self.keys.append(self.rope(ik, p))
        w = m.tensor(b + "indexer.proj.weight", e, hi) @ n / np.sqrt(hi * di)
        scores = [w @ np.maximum(iq @ key, 0) for key in self.keys]
        self.chosen = best(scores, m.key("attention.indexer.top_k"))
        return self.chosen


class BoundedDelta:
    """Kimi's delta layer with a full-rank gate and a decay whose logarithm is bounded, or not."""

    def __init__(self, m, b, heads, full_rank, gate, bound, minus):
        self.m, self.b, self.heads, self.d, self.full_rank = m, b, heads, m.key("kda.head_dim"), full_rank
        self.gate, self.bound, self.minus = gate, bound, minus
        wide, kernel = heads * self.d, m.key("ssm.conv_kernel")
        self.convs = [ShortConv(m.tensor(f"{b}ssm_conv1d_{r}.weight", kernel, 1, wide)[:, 0]) for r in "qkv"]
        self.states = [DeltaHead(self.d) for _ in range(heads)]

    def __call__(self, n, p):
        m, b, h, d, e = self.m, self.b, self.heads, self.d, len(n)
        eps = m.key("attention.layer_norm_rms_epsilon")
        q, k, v = (silu(conv(m.tensor(f"{b}attn_{r}.weight", e, h * d) @ n)).reshape(h, d)
                   for r, conv in zip("qkv", self.convs))
        q, k = unit(q, eps), unit(k, eps)
        if self.full_rank:
            f = m.tensor(b + "ssm_f_a.weight", e, h * d) @ n
        else:
            f = m.tensor(b + "ssm_f_b.weight", d, h * d) @ (m.tensor(b + "ssm_f_a.weight", e, d) @ n)
        f = (f + m.tensor(b + "ssm_dt.bias", h * d, kind="vector")).reshape(h, d)
        a = m.tensor(b + "ssm_a", *((h,) if self.minus else (1, h)), kind="negative" if self.minus else "positive")
        a = a.reshape(h, 1)
        if self.bound is None:
            gamma = np.exp(a * softplus(f))
        else:
            gamma = np.exp(self.bound * sigmoid((-a if self.minus else a) * f))
        beta = sigmoid(m.tensor(b + "ssm_beta.weight", e, h) @ n)
        o = np.array([self.states[i](q[i], k[i], v[i], gamma[i], beta[i]) for i in range(h)])
        gate = sigmoid(m.tensor(b + self.gate + ".weight", e, h * d) @ n)
        o = rms(o, m.tensor(b + "ssm_norm.weight", d, kind="norm"), eps).reshape(-1) * gate
        return m.tensor(b + "attn_output.weight", h * d, e) @ o


def moe(m, b, n, bias, width_shared, act, act_shared, normalize, gating=None):
    e, x, width = len(n), m.key("expert_count"), m.key("expert_feed_forward_length")
    z = m.tensor(b + "ffn_gate_inp.weight", e, x) @ n
    probs = m.tensor(b + "exp_probs_b.bias", x, kind="vector") if bias else None
    chosen, weights = choose_experts(z, probs, m.key("expert_used_count"),
                                     m.key("expert_gating_func", gating), normalize,
                                     m.key("expert_weights_scale", 1.0), m.key("expert_group_count", 0),
                                     m.key("expert_group_used_count", 0))
    y = experts(m, b, n, chosen, weights, x, width, act)
    return y + (gated(m, b, "_shexp", n, width_shared, act_shared) if width_shared else 0)


# ---- whole models ---------------------------------------------------------------------------------------------------

def plain_logits(m, tokens, layers, ffn, tied=False):
    e, v, eps = m.key("embedding_length"), m.key("vocab_size"), m.key("attention.layer_norm_rms_epsilon")
    out = []
    for p, token in enumerate(tokens):
        table = m.tensor("token_embd.weight", e, v, kind=lambda r, s: r.standard_normal(s))
        x = table[token]
        for il, layer in enumerate(layers):
            b = f"blk.{il}."
            x = x + layer(rms(x, m.tensor(b + "attn_norm.weight", e, kind="norm"), eps), p)
            x = x + ffn(b, il, rms(x, m.tensor(b + "ffn_norm.weight", e, kind="norm"), eps))
        h = rms(x, m.tensor("output_norm.weight", e, kind="norm"), eps)
        tie = m.marks.get("tied") or (tied and not m.makes and m.find("output.weight") is None)
        out.append((table if tie else m.tensor("output.weight", e, v)) @ h)
    return np.array(out)


def bailingmoe3(m, tokens):
    n = m.key("block_count") - m.key("nextn_predict_layers", 0)
    heads, kv = m.per_layer("attention.head_count", n), m.per_layer("attention.head_count_kv", n)
    linear, yarn = rope_scaling(m)
    rope = Rope(m.key("rope.dimension_count"), m.key("rope.freq_base"), "norm", yarn=yarn, linear=linear)
    layers = [Latent(m, f"blk.{il}.", heads[il], rope, gate="head") if kv[il] else
              BoundedDelta(m, f"blk.{il}.", heads[il], True, "ssm_g_a", m.key("kda.gate_lower_bound"), False)
              for il in range(n)]
    routed, shared = (m.per_layer(k, n, 0.0) for k in ("swiglu_clamp_exp", "swiglu_clamp_shexp"))
    wide = m.key("expert_shared_feed_forward_length", 0) or m.key("expert_feed_forward_length") * max(
        1, m.key("expert_shared_count", 0))

    def ffn(b, il, x):
        if il < m.key("leading_dense_block_count", 0):
            return gated(m, b, "", x, m.key("feed_forward_length"), clamped_after(shared[il]))
        return moe(m, b, x, True, wide, clamped_after(routed[il]), clamped_after(shared[il]),
                   m.key("expert_weights_norm", False))

    return plain_logits(m, tokens, layers, ffn, tied=True)


def deepseek32(m, tokens):
    n = m.key("block_count") - m.key("nextn_predict_layers", 0)
    dsa = m.arch == "glm-dsa"
    linear, yarn = rope_scaling(m)
    types = m.per_layer("attention.indexer.types", n, 2)
    if 2 in types:
        few = dsa and m.key("context_length") >= 1048576
        types = [1 if not few or il < 2 or (il - 2) % 4 == 0 else 0 for il in range(n)]
    if not dsa:
        types = [1] * n
    layers, last = [], None
    for il in range(n):
        make = lambda pairs: Rope(m.key("rope.dimension_count"), m.key("rope.freq_base"), pairs, yarn=yarn,
                                  linear=linear)
        b = f"blk.{il}."
        index = Index(m, b, make("norm" if dsa else "neox"), 0 if dsa else 1e-6) if types[il] else last
        layer = Latent(m, b, m.key("attention.head_count"), make("norm"), index=index)
        last = layer if types[il] else last
        layers.append(layer)

    def ffn(b, il, x):
        if il < m.key("leading_dense_block_count", 0):
            return gated(m, b, "", x, m.key("feed_forward_length"), silu_gate)
        wide = m.key("expert_feed_forward_length") * m.key("expert_shared_count", 0)
        return moe(m, b, x, bool(m.marks.get("bias", m.find(b + "exp_probs_b.bias") is not None)), wide, silu_gate,
                   silu_gate, m.key("expert_weights_norm", False), 2 if dsa else None)

    return plain_logits(m, tokens, layers, ffn)


def dots3note(m, tokens):
    n = m.key("block_count") - m.key("nextn_predict_layers", 0)
    heads, slides = m.per_layer("attention.head_count", n), m.key("attention.sliding_window_pattern")
    layers = []
    for il in range(n):
        b, base = f"blk.{il}.", m.key("rope.freq_base_swa" if slides[il] else "rope.freq_base")
        rope = Rope(m.key("rope.dimension_count"), base, "norm")
        if slides[il]:
            layers.append(Latent(m, b, heads[il], rope, "_swa", "head", k_norm=True,
                                 window=m.key("attention.sliding_window")))
        else:
            index = Index(m, b, Rope(m.key("rope.dimension_count"), base, "neox"), 1e-6)
            layers.append(Latent(m, b, heads[il], rope, "", "head", k_norm=True, index=index))

    def ffn(b, il, x):
        if il < m.key("leading_dense_block_count", 0):
            return gated(m, b, "", x, m.key("feed_forward_length"), silu_gate)
        wide = m.key("expert_feed_forward_length") * m.key("expert_shared_count")
        return moe(m, b, x, True, wide, silu_gate, silu_gate, m.key("expert_weights_norm", False))

    return plain_logits(m, tokens, layers, ffn, tied=True)


def kimi_k3(m, tokens):
    e, v, eps = m.key("embedding_length"), m.key("vocab_size"), m.key("attention.layer_norm_rms_epsilon")
    n, size = m.key("block_count"), m.key("attn_res.block_size")
    heads, kv = m.per_layer("attention.head_count", n), m.per_layer("attention.head_count_kv", n)
    bound = m.key("kda.gate_lower_bound") if m.has("kda.gate_lower_bound") else None
    gate = lambda b: "element" if m.marks.get("gates", m.find(b + "attn_gate.weight") is not None) else None
    layers = [Latent(m, f"blk.{il}.", heads[il], None, gate=gate(f"blk.{il}.")) if kv[il] else
              BoundedDelta(m, f"blk.{il}.", heads[il], False, "ssm_g", bound, True) for il in range(n)]
    beta, linear = m.key("activation.situ_beta"), m.key("activation.situ_linear_beta")
    up_of = lambda u: linear * np.tanh(u / linear) if linear > 0 else u
    situ = lambda g, u: beta * np.tanh(g / beta) * sigmoid(g) * up_of(u)

    def ffn(b, il, x):
        if il < m.key("leading_dense_block_count", 0):
            return gated(m, b, "", x, m.key("feed_forward_length"), situ)
        k, width, latent = m.key("expert_count"), m.key("expert_feed_forward_length"), m.key("expert_latent_length", 0)
        z = m.tensor(b + "ffn_gate_inp.weight", e, k) @ x
        chosen, weights = choose_experts(z, m.tensor(b + "exp_probs_b.bias", k, kind="vector"),
                                         m.key("expert_used_count"), m.key("expert_gating_func"),
                                         m.key("expert_weights_norm", False), m.key("expert_weights_scale", 1.0))
        inner = m.tensor(b + "ffn_routed_down.weight", e, latent) @ x if latent else x
        y = experts(m, b, inner, chosen, weights, k, width, situ)
        if latent:
            if m.marks.get("routed_norm", m.find(b + "ffn_routed_norm.weight") is not None):
                y = rms(y, m.tensor(b + "ffn_routed_norm.weight", latent, kind="norm"), eps)
            y = m.tensor(b + "ffn_routed_up.weight", latent, e) @ y
        if m.marks.get("shared", m.find(b + "ffn_up_shexp.weight") is not None):
            y = y + gated(m, b, "_shexp", x, width * max(1, m.key("expert_shared_count", 0)), situ)
        return y

    def mixed(bank, x, name):
        if size == 0:
            return x
        w = m.tensor(name + ".weight", e, kind="vector")
        if not bank:
            return x
        all_of = np.array(bank + [x])
        return softmax(rms(all_of, None, eps) @ w) @ all_of

    out = []
    for p, token in enumerate(tokens):
        x, bank = m.tensor("token_embd.weight", e, v, kind=lambda r, s: r.standard_normal(s))[token], []
        for il, layer in enumerate(layers):
            b = f"blk.{il}."
            h = mixed(bank, x, b + "attn_res_score")
            starts = size > 0 and il % size == 0
            if starts:
                bank = bank + [x]
            y = layer(rms(h, m.tensor(b + "attn_norm.weight", e, kind="norm"), eps), p)
            x = y if starts else x + y
            h = mixed(bank, x, b + "ffn_res_score")
            x = x + ffn(b, il, rms(h, m.tensor(b + "ffn_norm.weight", e, kind="norm"), eps))
        h = rms(mixed(bank, x, "output_res_score"), m.tensor("output_norm.weight", e, kind="norm"), eps)
        out.append(m.tensor("output.weight", e, v) @ h)
    return np.array(out)


def hy_v4(m, tokens):
    e, v, eps = m.key("embedding_length"), m.key("vocab_size"), m.key("attention.layer_norm_rms_epsilon")
    n, hc = m.key("block_count") - m.key("nextn_predict_layers", 0), m.key("hyper_connection.count")
    epsilon, size = m.key("hyper_connection.epsilon"), m.key("hyper_connection.magnitude")
    linear, yarn = rope_scaling(m)
    rot, heads = m.key("rope.dimension_count"), m.key("attention.head_count")
    make = lambda start: Rope(rot, m.key("rope.freq_base"), "norm", start, yarn=yarn, linear=linear)
    indexed = m.key("attention.indexer.top_k", 0) > 0
    types = m.per_layer("attention.indexer.types", n, 0)
    layers, last = [], None
    for il in range(n):
        b, index = f"blk.{il}.", None
        if indexed:
            index = Index(m, b, make(m.key("attention.indexer.key_length") - rot), eps) if types[il] else last
        layer = Latent(m, b, heads, make(0), gate="element", sinks=True, index=index)
        last = layer if indexed and types[il] else last
        layers.append(layer)
    limits = m.per_layer("swiglu_clamp_exp", n, 0.0)

    def ffn(b, il, x):
        if il < m.key("leading_dense_block_count", 0):
            return gated(m, b, "", x, m.key("feed_forward_length"), silu_gate)
        wide = m.key("expert_feed_forward_length") * m.key("expert_shared_count")
        return moe(m, b, x, bool(m.marks.get("bias", m.find(b + "exp_probs_b.bias") is not None)), wide,
                   clamped_before(limits[il]), silu_gate, m.key("expert_weights_norm", False))

    def through(prefix, x, branch):
        s = m.tensor(prefix + "_scale.weight", 2, kind="norm")
        base = m.tensor(prefix + "_base.weight", 2 * hc, kind="vector")
        z = m.tensor(prefix + "_fn.weight", hc * e, 2 * hc) @ rms(x.reshape(-1), None, eps)
        y = branch((sigmoid(s[0] * z[:hc] + base[:hc]) + epsilon) @ x)
        return x + (size * sigmoid(s[1] * z[hc:] + base[hc:]) + epsilon)[:, None] * y

    out = []
    for p, token in enumerate(tokens):
        x = np.tile(m.tensor("token_embd.weight", e, v, kind=lambda r, s: r.standard_normal(s))[token], (hc, 1))
        for il, layer in enumerate(layers):
            b = f"blk.{il}."
            norm = lambda role: m.tensor(b + role + ".weight", e, kind="norm")
            x = through(b + "hc_attn", x, lambda h: layer(rms(h, norm("attn_norm"), eps), p))
            x = through(b + "hc_ffn", x, lambda h: ffn(b, il, rms(h, norm("ffn_norm"), eps)))
        z = m.tensor("output_hc_fn.weight", hc * e, hc) @ rms(x.reshape(-1), None, eps)
        s, base = m.tensor("output_hc_scale.weight", 1, kind="norm"), m.tensor("output_hc_base.weight", hc,
                                                                               kind="vector")
        h = (sigmoid(s[0] * z + base) + epsilon) @ x
        out.append(m.tensor("output.weight", e, v) @ rms(h, m.tensor("output_norm.weight", e, kind="norm"), eps))
    return np.array(out)
