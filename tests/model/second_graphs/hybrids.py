# SPDX-License-Identifier: MIT
"""Hybrids of attention and states: Qwen3.5, Granite 4.0-H, Nemotron-H, Falcon-H1, MiniMax-01; and Gemma 4, looped
models."""
import numpy as np

from decoder import Says, attention, moe, rope_of
from delta import DeltaHead, ShortConv, unit
from pieces import Rope, attend, choose_experts, experts, gated, rms, sigmoid, silu, silu_gate, small_keys, softplus
from qwen4exp import recurrent_layers


def relu_sqr(x):
    return np.maximum(x, 0) ** 2


def gelu(g):
    return 0.5 * g * (1 + np.tanh(0.7978845608028654 * (g + 0.044715 * g ** 3)))


class Mamba2:
    """Heads whose numbers decay at one rate: h ← h·exp(Δa) + Δ·x⊗B, y = h·C + D·x; gated, then normed by groups."""

    def __init__(self, m, b, norm=True):
        self.m, self.b, self.norm = m, b, norm
        names = "inner_size", "state_size", "time_step_rank", "group_count"
        self.di, self.ds, self.nh, self.g = (m.key("ssm." + name) for name in names)
        self.wide = self.di + 2 * self.g * self.ds
        self.conv = ShortConv(m.tensor(b + "ssm_conv1d.weight", m.key("ssm.conv_kernel"), self.wide))
        self.h = np.zeros((self.nh, self.di // self.nh, self.ds))
        self.bias = m.tensor(b + "ssm_conv1d.bias", self.wide, kind="vector") if m.makes or m.find(
            b + "ssm_conv1d.bias") is not None else 0

    def __call__(self, n, p):
        m, b, di, ds, nh, g, e = self.m, self.b, self.di, self.ds, self.nh, self.g, len(n)
        z, xbc, dt = np.split(m.tensor(b + "ssm_in.weight", e, 2 * di + 2 * g * ds + nh) @ n, [di, di + self.wide])
        xbc = silu(self.conv(xbc) + self.bias)
        x = xbc[:di].reshape(nh, -1)
        bs, cs = xbc[di:di + g * ds].reshape(g, ds), xbc[di + g * ds:].reshape(g, ds)
        dt = softplus(dt + m.tensor(b + "ssm_dt.bias", nh, kind="vector"))
        a = m.tensor(b + "ssm_a", 1, nh, kind="negative").reshape(-1)
        d = m.tensor(b + "ssm_d", 1, nh, kind="vector").reshape(-1)
        y = np.empty_like(x)
        for i in range(nh):
            group = i // (nh // g)
            self.h[i] = self.h[i] * np.exp(dt[i] * a[i]) + dt[i] * np.outer(x[i], bs[group])
            y[i] = self.h[i] @ cs[group] + d[i] * x[i]
        y = y.reshape(-1) * silu(z)
        if self.norm:
            w = m.tensor(b + "ssm_norm.weight", di // g, g, kind="norm")
            y = rms(y.reshape(g, -1), w, m.key("attention.layer_norm_rms_epsilon", m.key(
                "attention.layer_norm_epsilon", 0.0))).reshape(-1)
        return m.tensor(b + "ssm_out.weight", di, e) @ y


class Gated35:
    """Qwen3.5's delta layer; and its full layer, whose queries bring their gates."""

    def __init__(self, m, b, recurrent, keys=None):
        self.m, self.b, self.recurrent, self.keys, self.values = m, b, recurrent, [], []
        if recurrent:
            self.d, self.nk, self.nv = (m.key("ssm." + k) for k in ("state_size", "group_count", "time_step_rank"))
            self.wide = (2 * self.nk + self.nv) * self.d
            self.conv = ShortConv(m.tensor(b + "ssm_conv1d.weight", m.key("ssm.conv_kernel"), self.wide))
            self.states = [DeltaHead(self.d) for _ in range(self.nv)]
            return
        n, s = m.key("rope.dimension_count"), m.key("rope.dimension_sections")
        follows = lambda i: i % 3 == 0 and i < 3 * s[0] or i % 3 == 1 and i < 3 * s[1] or i % 3 == 2 and i < 3 * s[2]
        self.rope = Rope(n, m.key("rope.freq_base"), "neox", still=[i for i in range(n // 2) if not follows(i)])

    def __call__(self, n, p):
        m, b, e, eps = self.m, self.b, len(n), self.m.key("attention.layer_norm_rms_epsilon")
        if self.recurrent:
            d, nk, nv = self.d, self.nk, self.nv
            qkv = silu(self.conv(m.tensor(b + "attn_qkv.weight", e, self.wide) @ n))
            q, k = unit(qkv[:nk * d].reshape(nk, d), eps), unit(qkv[nk * d:2 * nk * d].reshape(nk, d), eps)
            v = qkv[2 * nk * d:].reshape(nv, d)
            z = (m.tensor(b + "attn_gate.weight", e, nv * d) @ n).reshape(nv, d)
            beta = sigmoid(m.tensor(b + "ssm_beta.weight", e, nv) @ n)
            step = softplus(m.tensor(b + "ssm_alpha.weight", e, nv) @ n +
                            m.tensor(b + "ssm_dt.bias", nv, kind="vector"))
            gamma = np.exp(m.tensor(b + "ssm_a", nv, kind="negative") * step)
            o = np.array([self.states[i](q[i % nk], k[i % nk], v[i], gamma[i], beta[i]) for i in range(nv)])
            o = rms(o, m.tensor(b + "ssm_norm.weight", d, kind="norm"), eps) * silu(z)
            return m.tensor(b + "ssm_out.weight", nv * d, e) @ o.reshape(-1)
        h, kv, d = m.key("attention.head_count"), m.key("attention.head_count_kv"), m.key("attention.key_length")
        both = (m.tensor(b + "attn_q.weight", e, 2 * h * d) @ n).reshape(h, 2, d)
        norm = lambda r: m.tensor(f"{b}attn_{r}_norm.weight", d, kind="norm")
        q = self.rope(rms(both[:, 0], norm("q"), eps), p)
        k = (m.tensor(b + "attn_k.weight", e, kv * d) @ n).reshape(kv, d)
        self.keys.append(self.rope(rms(k, norm("k"), eps), p))
        self.values.append((m.tensor(b + "attn_v.weight", e, kv * d) @ n).reshape(kv, d))
        ks, vs = np.array(self.keys), np.array(self.values)
        o = np.array([attend(q[i], ks[:, i * kv // h], vs[:, i * kv // h], 1 / np.sqrt(d)) for i in range(h)])
        return m.tensor(b + "attn_output.weight", h * d, e) @ (o * sigmoid(both[:, 1])).reshape(-1)


class FixedDecay:
    def __init__(self, m, b, il):
        self.m, self.b, self.h, self.d = m, b, m.key("attention.head_count"), m.key("attention.key_length")
        heads, layers = np.arange(1, self.h + 1), m.key("block_count")
        slope = 2.0 ** (-8 * heads / self.h)
        self.decay = np.exp(-slope * (1 - il / (layers - 1) + 1e-5))
        self.s = np.zeros((self.h, self.d, self.d))

    def __call__(self, n, p):
        m, b, h, d, e = self.m, self.b, self.h, self.d, len(n)
        qkv = silu(m.tensor(b + "attn_qkv.weight", e, 3 * h * d) @ n).reshape(h, 3, d)
        o = np.empty((h, d))
        for i in range(h):
            self.s[i] = self.decay[i] * self.s[i] + np.outer(qkv[i, 1], qkv[i, 2])
            o[i] = self.s[i].T @ qkv[i, 0]
        y = rms(o.reshape(-1), m.tensor(b + "attn_norm_2.weight", h * d, kind="norm"),
                m.key("attention.layer_norm_rms_epsilon"))
        gate = sigmoid(m.tensor(b + "attn_gate.weight", e, h * d) @ n)
        return m.tensor(b + "attn_output.weight", h * d, e) @ (gate * y)


class Softmaxed:
    """The attention of decoder.py as a layer."""

    def __init__(self, m, s, b, il):
        self.args = m, s, b, il

    def __call__(self, n, p):
        return attention(*self.args, n, p)


def model_of(m):
    """(layers, what a token's vector goes through at each of them, embedding, logits)."""
    arch, e, n = m.arch, m.key("embedding_length"), m.key("block_count") - m.key("nextn_predict_layers", 0)
    eps = m.key("attention.layer_norm_rms_epsilon", m.key("attention.layer_norm_epsilon", 0.0))
    norm = lambda b, role: m.tensor(f"{b}{role}.weight", e, kind="norm")
    f = m.key("feed_forward_length", 0)
    same = lambda x: x

    if arch in ("qwen35", "qwen35moe"):
        layers = [Gated35(m, f"blk.{il}.", r) for il, r in enumerate(recurrent_layers(m, n))]

        def ffn(b, h):
            if arch == "qwen35":
                return gated(m, b, "", h, f, silu_gate)
            k, used = m.key("expert_count"), m.key("expert_used_count")
            width = m.key("expert_feed_forward_length", f // used)
            chosen, w = choose_experts(m.tensor(b + "ffn_gate_inp.weight", e, k) @ h, None, used, 1, True, 1)
            y = experts(m, b, h, chosen, w, k, width, silu_gate, fused=bool(m.marks.get("fused")))
            share = sigmoid(m.tensor(b + "ffn_gate_inp_shexp.weight", e, kind="vector") @ h)
            return y + share * gated(m, b, "_shexp", h, m.key("expert_shared_feed_forward_length", f), silu_gate)

        def through(b, il, layer, x, p):
            x = x + layer(rms(x, norm(b, "attn_norm"), eps), p)
            return x + ffn(b, rms(x, norm(b, "post_attention_norm"), eps))

        return layers, through, same, same

    if arch == "granitehybrid":
        kv = m.per_layer("attention.head_count_kv", n)
        has_rope = m.key("rope.scaling.finetuned", True)
        s = Says(lambda il: rope_of(m, "norm") if has_rope else None, scale=m.key("attention.scale", 0.0) or None)
        layers = [Softmaxed(m, s, f"blk.{il}.", il) if kv[il] else Mamba2(m, f"blk.{il}.") for il in range(n)]
        residual, shared = m.key("residual_scale", 0.0) or 1.0, m.key("expert_shared_feed_forward_length", 0)

        def ffn(b, h):
            if not m.key("expert_count", 0):
                return gated(m, b, "", h, f, silu_gate)
            return moe(m, b, h, width=f, gating=1, normalize=True, scale=1.0, shared=shared)

        def through(b, il, layer, x, p):
            x = x + residual * layer(rms(x, norm(b, "attn_norm"), eps), p)
            return x + residual * ffn(b, rms(x, norm(b, "ffn_norm"), eps))

        one, factor = m.key("embedding_scale", 0.0) or 1.0, m.key("logit_scale", 0.0) or 1.0
        return layers, through, lambda x: x * one, lambda z: z / factor

    if arch == "falcon-h1":
        s = Says(lambda il: rope_of(m, "neox"))
        normed = m.marks.get("ssm_norm") if m.makes else m.find("blk.0.ssm_norm.weight") is not None
        layers = [(Softmaxed(m, s, f"blk.{il}.", il), Mamba2(m, f"blk.{il}.", normed)) for il in range(n)]

        def through(b, il, layer, x, p):
            h = rms(x, norm(b, "attn_norm"), eps)
            x = x + layer[0](h, p) + layer[1](h, p)
            bare = m.marks.get("bare") if m.makes else m.find(b + "ffn_norm") is not None
            w = m.tensor(b + ("ffn_norm" if bare else "ffn_norm.weight"), e, kind="norm")
            return x + gated(m, b, "", rms(x, w, eps), f, silu_gate)

        return layers, through, same, same

    if arch in ("nemotron_h", "nemotron_h_moe"):
        kv, ff = m.per_layer("attention.head_count_kv", n), m.per_layer("feed_forward_length", n)
        s = Says(lambda il: None)
        kind = lambda il: "ffn" if ff[il] else "attn" if kv[il] else "mamba"
        layers = [Softmaxed(m, s, f"blk.{il}.", il) if kind(il) == "attn" else
                  Mamba2(m, f"blk.{il}.") if kind(il) == "mamba" else None for il in range(n)]

        def ffn(b, il, h):
            if arch == "nemotron_h":
                return m.tensor(b + "ffn_down.weight", ff[il], e) @ relu_sqr(
                    m.tensor(b + "ffn_up.weight", e, ff[il]) @ h)
            k, used = m.key("expert_count"), m.per_layer("expert_used_count", n)[il]
            width, latent = m.per_layer("expert_feed_forward_length", n, 0)[il], m.key("moe_latent_size", 0)
            width = width or ff[il] // used
            chosen, w = choose_experts(m.tensor(b + "ffn_gate_inp.weight", e, k) @ h,
                                       m.tensor(b + "exp_probs_b.bias", k, kind="vector"), used, 2,
                                       m.key("expert_weights_norm", False), m.key("expert_weights_scale", 1.0),
                                       m.key("expert_group_count", 0), m.key("expert_group_used_count", 0))
            v = m.tensor(b + "ffn_latent_down.weight", e, latent) @ h if latent else h
            up = m.tensor(b + "ffn_up_exps.weight", len(v), width, k)
            down = m.tensor(b + "ffn_down_exps.weight", width, len(v), k)
            y = sum(a * (down[i] @ relu_sqr(up[i] @ v)) for i, a in zip(chosen, w))
            if latent:
                y = m.tensor(b + "ffn_latent_up.weight", latent, e) @ y
            shared = m.key("expert_shared_feed_forward_length")
            return y + m.tensor(b + "ffn_down_shexp.weight", shared, e) @ relu_sqr(
                m.tensor(b + "ffn_up_shexp.weight", e, shared) @ h)

        def through(b, il, layer, x, p):
            h = rms(x, norm(b, "attn_norm"), eps)
            return x + (ffn(b, il, h) if layer is None else layer(h, p))

        return layers, through, same, same

    if arch == "minimax-01":
        which = recurrent_layers(m, n) if m.has("attention.recurrent_layers") else [
            (il + 1) % m.key("full_attention_interval", 8) != 0 for il in range(n)]
        s = Says(lambda il: rope_of(m, "neox"))
        layers = [FixedDecay(m, f"blk.{il}.", il) if which[il] else Softmaxed(m, s, f"blk.{il}.", il)
                  for il in range(n)]
        rho, width = m.key("residual_scale"), f

        def through(b, il, layer, x, p):
            h = rms(x, norm(b, "attn_norm"), eps)
            y = rms(layer(h, p) + rho * h, norm(b, "ffn_norm"), eps)
            return moe(m, b, y, width=width, gating=1, normalize=True, scale=1.0) + rho * y

        return layers, through, same, same
    raise ValueError(arch)


def logits(m, tokens):
    e, v = m.key("embedding_length"), m.key("vocab_size")
    eps = m.key("attention.layer_norm_rms_epsilon", m.key("attention.layer_norm_epsilon", 0.0))
    layers, through, embed, head = model_of(m)
    out = []
    for p, token in enumerate(tokens):
        table = m.tensor("token_embd.weight", e, v, kind=lambda r, shape: r.standard_normal(shape))
        x = embed(table[token])
        for il, layer in enumerate(layers):
            x = through(f"blk.{il}.", il, layer, x, p)
        h = rms(x, m.tensor("output_norm.weight", e, kind="norm"), eps)
        tied = m.marks.get("tied") if m.makes else m.find("output.weight") is None
        out.append(head((table if tied else m.tensor("output.weight", e, v)) @ h))
    return np.array(out)


MARKS = ("tied", "fused", "bare", "ssm_norm", "tokens")


def keys(arch, more):
    return small_keys(arch, more, MARKS)


DELTA = {"ssm.conv_kernel": 4, "ssm.inner_size": 48, "ssm.state_size": 12, "ssm.time_step_rank": 4,
         "ssm.group_count": 2, "attention.key_length": 16, "attention.value_length": 16, "rope.dimension_count": 8,
         "rope.dimension_sections": [2, 1, 1, 0]}
SCAN = {"ssm.conv_kernel": 4, "ssm.inner_size": 48, "ssm.state_size": 10, "ssm.time_step_rank": 6,
        "ssm.group_count": 2}
MOE = {"expert_count": 8, "expert_used_count": 2}
TURNS = {"attention.head_count_kv": [0, 2, 0, 2]}
NEMO = {**SCAN, "attention.head_count_kv": [0, 2, 0, 0], "feed_forward_length": [0, 0, 40, 56],
        "attention.layer_norm_epsilon": 1e-2}
NEMO_MOE = {**NEMO, **MOE, "expert_feed_forward_length": 16, "expert_shared_feed_forward_length": 24}
GOLDEN = ["qwen35", "qwen35moe", "granitehybrid", "falcon-h1", "nemotron_h", "nemotron_h_moe",
          "nemotron_h_moe-arrays", "minimax-01"]
TOLERANCE = 1e-4
BASE = {}
_LIST = [
    ("qwen35", DELTA),
    ("qwen35", {**DELTA, "full_attention_interval": 2, "ssm.time_step_rank": 6, "ssm.inner_size": 72, "tied": True}),
    ("qwen35", {**DELTA, "attention.recurrent_layers": [False, False, True, False], "rope.dimension_count": 16,
                "rope.dimension_sections": [3, 3, 2, 0]}),
    ("qwen35", {**DELTA, "block_count": 5, "nextn_predict_layers": 1}),
    ("qwen35moe", {**DELTA, **MOE}),
    ("qwen35moe", {**DELTA, **MOE, "feed_forward_length": None, "expert_feed_forward_length": 20, "fused": True,
                   "expert_shared_feed_forward_length": 12}),
    ("granitehybrid", {**SCAN, **TURNS}),
    ("granitehybrid", {**SCAN, **TURNS, "rope.scaling.finetuned": False, "logit_scale": 2.0, "embedding_scale": 3.0,
                       "residual_scale": 0.4, "attention.scale": 0.2, "tied": True}),
    ("granitehybrid", {**SCAN, **TURNS, **MOE, "ssm.group_count": 1, "expert_shared_feed_forward_length": 20}),
    ("falcon-h1", SCAN),
    ("falcon-h1", {**SCAN, "ssm_norm": True, "bare": True, "tied": True, "ssm.group_count": 3}),
    ("nemotron_h", NEMO),
    ("nemotron_h", {**NEMO, "attention.layer_norm_rms_epsilon": None, "attention.layer_norm_epsilon": 2e-2,
                    "tied": True, "ssm.group_count": 1}),
    ("nemotron_h_moe", {**NEMO_MOE, "expert_weights_norm": True, "expert_weights_scale": 2.0}),
    ("nemotron_h_moe", {**NEMO_MOE, "moe_latent_size": 16, "expert_group_count": 4, "expert_group_used_count": 2}),
    ("nemotron_h_moe", {**NEMO_MOE, "expert_used_count": [0, 0, 2, 3], "expert_feed_forward_length": [0, 0, 12, 20],
                        "tied": True}),
    ("minimax-01", {**MOE, "residual_scale": 1.5}),
    ("minimax-01", {**MOE, "residual_scale": 0.7, "full_attention_interval": 2, "tied": True,
                    "rope.dimension_count": 8}),
    ("minimax-01", {**MOE, "residual_scale": 1.0, "attention.recurrent_layers": [False, True, True, False]}),
]
VARIANTS = {f"{arch}, {i}": keys(arch, more) for i, (arch, more) in enumerate(_LIST)}
