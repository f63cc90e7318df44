# SPDX-License-Identifier: MIT
"""Text of Qwen3-VL, PaddleOCR, DeepSeek-OCR and CogVLM, Pangu, Jais 2, PLM, Apertus, GroveMoE, PLaMo 2, ARWKV 7,
LFM2 with experts."""
import numpy as np

from decoder import Says, attention, moe, rope_of
from delta import ShortConv
from pieces import (Rope, attend, gated, layer_norm, rms, sigmoid, silu, silu_gate, softmax, softplus)


def normal(r, shape):
    return r.standard_normal(shape)


def stack(m, tokens, layers, through, final=None, norm_name="output_norm.weight", tied=True):
    e, v, eps = m.key("embedding_length"), m.key("vocab_size"), m.key("attention.layer_norm_rms_epsilon", 0.0)
    out = []
    for p, token in enumerate(tokens):
        table = m.tensor("token_embd.weight", e, v, kind=normal)
        x = table[token]
        for il, layer in enumerate(layers):
            x = through(f"blk.{il}.", il, layer, x, p)
        h = final(x) if final else rms(x, m.tensor(norm_name, e, kind="norm"), eps)
        tie = m.marks.get("tied") if m.makes else tied and m.find("output.weight") is None
        out.append((table if tie else m.tensor("output.weight", e, v)) @ h)
    return np.array(out)


def llama_like(m, tokens, s, ffn, out_bias=False):
    e, eps = m.key("embedding_length"), m.key("attention.layer_norm_rms_epsilon")

    def through(b, il, layer, x, p):
        a = attention(m, s, b, il, rms(x, m.tensor(b + "attn_norm.weight", e, kind="norm"), eps), p)
        if out_bias:
            a = a + m.tensor(b + "attn_output.bias", e, kind="vector")
        x = x + a
        return x + ffn(b, il, rms(x, m.tensor(b + "ffn_norm.weight", e, kind="norm"), eps))

    return stack(m, tokens, [None] * m.key("block_count"), through)


def has(m, mark, name):
    return bool(m.marks.get(mark)) if m.makes else m.find(name) is not None


def qwen3vl(m, tokens):
    s = m.key("rope.dimension_sections")
    dk = m.key("attention.key_length")
    follows = lambda i: i % 3 == 0 and i < 3 * s[0] or i % 3 == 1 and i < 3 * s[1] or i % 3 == 2 and i < 3 * s[2]
    rope = Rope(dk, m.key("rope.freq_base"), "neox", still=[i for i in range(dk // 2) if not follows(i)])
    ffn = lambda b, il, h: gated(m, b, "", h, m.key("feed_forward_length"), silu_gate)
    if m.arch == "qwen3vlmoe":
        width = m.key("expert_feed_forward_length", m.key("feed_forward_length", 0) // m.key("expert_used_count"))
        ffn = lambda b, il, h: moe(m, b, h, width=width, gating=1, normalize=True, scale=1.0)
    return llama_like(m, tokens, Says(lambda il: rope, head_norm="before"), ffn)


def small_decoder(m, tokens):
    f, arch = m.key("feed_forward_length", 0), m.arch
    dense = lambda b, il, h: gated(m, b, "", h, f, silu_gate)
    if arch == "paddleocr":
        dk, s = m.key("attention.key_length"), m.key("rope.dimension_sections")
        still = [i for i in range(dk // 2) if i % sum(s) >= s[0] + s[1] + s[2]]
        rope = Rope(dk, m.key("rope.freq_base"), "neox", still=still)
        return llama_like(m, tokens, Says(lambda il: rope), dense, has(m, "out_bias", "blk.0.attn_output.bias"))
    if arch == "cogvlm":
        e, h = m.key("embedding_length"), m.key("attention.head_count")
        m.keys.setdefault("cogvlm.attention.head_count_kv", h)
        if m.makes:
            for il in range(m.key("block_count")):
                for name, shape in {"vis_attn_qkv": (e, 3 * e), "vis_attn_output": (e, e), "vis_gate": (e, f),
                                    "vis_up": (e, f), "vis_down": (f, e)}.items():
                    m.tensor(f"blk.{il}.{name}.weight", *shape)
        rope = Rope(e // h, 10000.0, "neox")
        return llama_like(m, tokens, Says(lambda il: rope, fused=True), dense)
    if arch == "pangu-embedded":
        s = Says(lambda il: rope_of(m, "neox"), bias=has(m, "bias", "blk.0.attn_q.bias"))
        return llama_like(m, tokens, s, dense, True)
    if arch == "deepseek2-ocr":
        e, h, fx = m.key("embedding_length"), m.key("attention.head_count"), m.key("expert_feed_forward_length")
        rope = Rope(e // h, 10000.0, "neox")
        bias = m.marks.get("bias") if m.makes else any(name.endswith("exp_probs_b.bias") for name in m.tensors)
        ffn = lambda b, il, x: dense(b, il, x) if il < m.key("leading_dense_block_count", 0) else moe(
            m, b, x, gating=1, bias=bias, shared=fx * m.key("expert_shared_count"))
        return llama_like(m, tokens, Says(lambda il: rope, fused=has(m, "fused_qkv", "blk.0.attn_qkv.weight")), ffn)
    if arch == "apertus":
        e = m.key("embedding_length")
        const = lambda name, il: (lambda v: v[il] if isinstance(v, list) else v)(m.keys["xielu." + name])

        def ffn(b, il, h):
            z = m.tensor(b + "ffn_up.weight", e, f) @ h
            beta, eps = const("beta", il), const("eps", il)
            ap, an = softplus(const("alpha_p", il)), beta + softplus(const("alpha_n", il))
            y = np.where(z > 0, ap * z * z + beta * z, an * (np.expm1(np.minimum(z, eps)) - z) + beta * z)
            return m.tensor(b + "ffn_down.weight", f, e) @ y

        s = Says(lambda il: rope_of(m, "neox"), head_norm="before")
        return llama_like(m, tokens, s, ffn, has(m, "out_bias", "blk.0.attn_output.bias"))
    if arch == "grovemoe":
        x, k, size = m.key("expert_count"), m.key("expert_used_count"), m.key("experts_per_group")
        chunk = m.key("expert_chunk_feed_forward_length", m.key("attention.key_length"))

        def ffn(b, il, h):
            e = len(h)
            y = moe(m, b, h, gating=1, normalize=True, scale=1.0)
            z = m.tensor(b + "ffn_gate_inp.weight", e, x) @ h
            picks = sorted(range(x), key=lambda i: (-z[i], i))[:min(k, x // size)]
            groups = [i // size for i in picks]
            w = softmax(z)[groups]
            w = w / w.sum()
            gate = m.tensor(b + "ffn_gate_chexps.weight", e, chunk, x // size)
            up = m.tensor(b + "ffn_up_chexps.weight", e, chunk, x // size)
            down = m.tensor(b + "ffn_down_chexps.weight", chunk, e, x // size)
            more = sum(a * (down[g] @ silu_gate(gate[g] @ y, up[g] @ y)) for g, a in zip(groups, w))
            return y + m.key("expert_group_scale") * more

        return llama_like(m, tokens, Says(lambda il: rope_of(m, "neox"), head_norm="before"), ffn)
    raise ValueError(arch)


def jais2(m, tokens):
    e, f, eps = m.key("embedding_length"), m.key("feed_forward_length"), m.key("attention.layer_norm_epsilon")
    s = Says(lambda il: rope_of(m, "neox"), bias=has(m, "bias", "blk.0.attn_q.bias"))

    def ln(name, x):
        return layer_norm(x, m.tensor(name + ".weight", e, kind="norm"), m.tensor(name + ".bias", e, kind="vector"),
                          eps)

    def through(b, il, layer, x, p):
        a = attention(m, s, b, il, ln(b + "attn_norm", x), p) + m.tensor(b + "attn_output.bias", e, kind="vector")
        x = x + a
        z = m.tensor(b + "ffn_up.weight", e, f) @ ln(b + "ffn_norm", x) + m.tensor(b + "ffn_up.bias", f,
                                                                                  kind="vector")
        y = m.tensor(b + "ffn_down.weight", f, e) @ np.maximum(z, 0) ** 2
        return x + y + m.tensor(b + "ffn_down.bias", e, kind="vector")

    return stack(m, tokens, [None] * m.key("block_count"), through, lambda x: ln("output_norm", x))


def plm(m, tokens):
    e, f, eps = m.key("embedding_length"), m.key("feed_forward_length"), m.key("attention.layer_norm_rms_epsilon")
    h, dk, dv = m.key("attention.head_count"), m.key("attention.key_length"), m.key("attention.value_length")
    dr, c = m.key("rope.dimension_count"), m.key("attention.kv_lora_rank")
    dn, rope, cache = dk - dr, Rope(dr, m.key("rope.freq_base"), "norm"), {}

    def through(b, il, layer, x, p):
        n = rms(x, m.tensor(b + "attn_norm.weight", e, kind="norm"), eps)
        q = (m.tensor(b + "attn_q.weight", e, h * dk) @ n).reshape(h, dk)
        q = np.concatenate([q[:, :dn], rope(q[:, dn:], p)], axis=1)
        u = m.tensor(b + "attn_kv_a_mqa.weight", e, c + dr) @ n
        latent = rms(u[:c], m.tensor(b + "attn_kv_a_norm.weight", c, kind="norm"), eps)
        kv = (m.tensor(b + "attn_kv_b.weight", c, h * (dn + dv)) @ latent).reshape(h, dn + dv)
        shared = np.tile(rope(u[c:], p), (h, 1))
        cache.setdefault((il, 0), []).append(np.concatenate([kv[:, :dn], shared], axis=1))
        cache.setdefault((il, 1), []).append(kv[:, dn:])
        ks, vs = np.array(cache[il, 0]), np.array(cache[il, 1])
        o = [attend(q[i], ks[:, i], vs[:, i], 1 / np.sqrt(dk)) for i in range(h)]
        x = x + m.tensor(b + "attn_output.weight", h * dv, e) @ np.concatenate(o)
        n = rms(x, m.tensor(b + "ffn_norm.weight", e, kind="norm"), eps)
        return x + m.tensor(b + "ffn_down.weight", f, e) @ np.maximum(m.tensor(b + "ffn_up.weight", e, f) @ n, 0) ** 2

    if m.makes and m.marks.get("unused_head"):
        m.tensor("output.weight", e, m.key("vocab_size"))
    out = []
    for p, token in enumerate(tokens):
        table = m.tensor("token_embd.weight", e, m.key("vocab_size"), kind=normal)
        x = table[token]
        for il in range(m.key("block_count")):
            x = through(f"blk.{il}.", il, None, x, p)
        out.append(table @ rms(x, m.tensor("output_norm.weight", e, kind="norm"), eps))
    return np.array(out)


class PlamoScan:
    def __init__(self, m, b, e):
        self.m, self.b = m, b
        self.di, self.ds, self.nh = (m.key("ssm." + k) for k in ("inner_size", "state_size", "time_step_rank"))
        self.rank = max(64, e // 16)
        self.conv = ShortConv(m.tensor(b + "ssm_conv1d.weight", m.key("ssm.conv_kernel"), self.di))
        self.s = np.zeros((self.nh, self.di // self.nh, self.ds))

    def __call__(self, n, p):
        m, b, di, ds, nh, eps = self.m, self.b, self.di, self.ds, self.nh, self.m.key(
            "attention.layer_norm_rms_epsilon")
        zu = (m.tensor(b + "ssm_in.weight", len(n), 2 * di) @ n).reshape(nh, 2, -1)
        z, u = zu[:, 0].reshape(-1), silu(self.conv(zu[:, 1].reshape(-1)))
        bs, cs, dt = np.split(m.tensor(b + "ssm_x.weight", di, 2 * ds + self.rank) @ u, [ds, 2 * ds])
        norm = lambda x, role: rms(x, m.tensor(b + role, len(x), kind="norm"), eps)
        bs, cs, dt = norm(bs, "ssm_b_norm"), norm(cs, "ssm_c_norm"), norm(dt, "ssm_dt_norm")
        step = softplus(m.tensor(b + "ssm_dt.weight", self.rank, nh) @ dt + m.tensor(b + "ssm_dt.bias", nh,
                                                                                    kind="vector"))
        a, d = m.tensor(b + "ssm_a", nh, kind="negative"), m.tensor(b + "ssm_d", nh, kind="vector")
        u, y = u.reshape(nh, -1), np.empty((nh, di // nh))
        for i in range(nh):
            self.s[i] = self.s[i] * np.exp(step[i] * a[i]) + step[i] * np.outer(u[i], bs)
            y[i] = self.s[i] @ cs + d[i] * u[i]
        return m.tensor(b + "ssm_out.weight", di, len(n)) @ (y.reshape(-1) * silu(z))


def plamo2(m, tokens):
    e, eps, f = m.key("embedding_length"), m.key("attention.layer_norm_rms_epsilon"), m.key("feed_forward_length")
    n, h, dk, dv = m.key("block_count"), m.key("attention.head_count"), m.key("attention.key_length"), m.key(
        "attention.value_length")
    kv, rope, cache = m.per_layer("attention.head_count_kv", n), rope_of(m, "neox"), {}

    def full(b, il, x, p):
        g = kv[il]
        q, k, v = np.split(m.tensor(b + "attn_qkv.weight", e, h * dk + g * (dk + dv)) @ x, [h * dk, (h + g) * dk])
        q = rope(rms(q.reshape(h, dk), m.tensor(b + "attn_q_norm.weight", dk, h, kind="norm"), eps), p)
        k = rope(rms(k.reshape(g, dk), m.tensor(b + "attn_k_norm.weight", dk, g, kind="norm"), eps), p)
        cache.setdefault((il, 0), []).append(k)
        cache.setdefault((il, 1), []).append(v.reshape(g, dv))
        ks, vs = np.array(cache[il, 0]), np.array(cache[il, 1])
        o = [attend(q[i], ks[:, i * g // h], vs[:, i * g // h], 1 / np.sqrt(dv)) for i in range(h)]
        return m.tensor(b + "attn_output.weight", h * dv, e) @ np.concatenate(o)

    def through(b, il, layer, x, p):
        y = rms(x, m.tensor(b + "attn_norm.weight", e, kind="norm"), eps)
        y = full(b, il, y, p) if layer is None else layer(y, p)
        x = x + rms(y, m.tensor(b + "post_attention_norm", e, kind="norm"), eps)
        both = m.tensor(b + "ffn_up.weight", e, 2 * f) @ rms(x, m.tensor(b + "ffn_norm.weight", e, kind="norm"), eps)
        y = m.tensor(b + "ffn_down.weight", f, e) @ (silu(both[:f]) * both[f:])
        return x + rms(y, m.tensor(b + "post_ffw_norm", e, kind="norm"), eps)

    return stack(m, tokens, [None if kv[il] else PlamoScan(m, f"blk.{il}.", e) for il in range(n)], through)


def arwkv7(m, tokens):
    e, eps, hs = m.key("embedding_length"), m.key("attention.layer_norm_rms_epsilon"), m.key("wkv.head_size")
    n, f, heads = m.key("block_count"), m.key("feed_forward_length"), m.key("embedding_length") // m.key(
        "wkv.head_size")
    rank = {k: m.key(f"attention.{name}_lora_rank", 0) for k, name in {
        "w": "decay", "a": "iclr", "v": "value_residual_mix", "g": "gate"}.items()}
    before, state, first = [np.zeros(e) for _ in range(n)], np.zeros((n, heads, hs, hs)), {}
    gates = rank["g"] > 0
    normed = has(m, "ln", "blk.0.time_mix_ln.weight")

    def through(b, il, layer, x, p):
        t = lambda name, *ne, kind="matrix": m.tensor(f"{b}time_mix_{name}.weight", *ne, kind=kind)
        h = rms(x, m.tensor(b + "attn_norm.weight", e, kind="norm"), eps)
        shift, before[il] = before[il] - h, h
        count = 6 if gates else 5
        lerp = m.tensor(b + "time_mix_lerp_fused.weight", e, 1, 1, count, kind="vector").reshape(count, e)
        z = h + shift * lerp  # r w k v a g
        low = lambda k, v, inner=lambda y: y, r=None: t(k + "2", rank[k] if r is None else r, e) @ inner(
            t(k + "1", e, rank[k] if r is None else r) @ v)
        r, k, v = (t(name, e, e) @ z[i] for name, i in (("receptance", 0), ("key", 2), ("value", 3)))
        w = np.exp(-0.606531 * sigmoid(t("w0", e, kind="vector") + low("w", z[1], np.tanh)))
        a = sigmoid(t("a0", e, kind="vector") + low("a", z[4]))
        if il == 0:
            first[p] = v
        else:
            v = v + (first[p] - v) * sigmoid(t("v0", e, kind="vector") + low("v", z[3]))
        kappa = (k * t("k_k", e, kind="norm")).reshape(heads, hs)
        kappa = kappa / np.maximum(np.sqrt((kappa * kappa).sum(1, keepdims=True)), 1e-12)
        k = k + k * t("k_a", e, kind="norm") * (a - 1)
        rh, kh, vh, wh, ah = (y.reshape(heads, hs) for y in (r, k, v, w, a))
        y = np.empty((heads, hs))
        for i in range(heads):
            s = state[il, i]
            q = -s @ kappa[i]
            state[il, i] = s * wh[i] + np.outer(vh[i], kh[i]) + np.outer(q, kappa[i] * ah[i])
            y[i] = state[il, i] @ rh[i]
        if normed:
            c = y - y.mean(1, keepdims=True)
            y = c / np.sqrt((c * c).mean(1, keepdims=True) + 64e-5)
            y = y.reshape(-1) * t("ln", e, kind="norm") + m.tensor(b + "time_mix_ln.bias", e, kind="vector")
            y = y.reshape(heads, hs)
        share = (rh * kh * t("r_k", e, kind="vector").reshape(heads, hs)).sum(1, keepdims=True)
        y = (y + vh * share).reshape(-1)
        if gates:
            y = y * low("g", z[5], sigmoid)
        x = x + t("output", e, e) @ y
        return x + gated(m, b, "", rms(x, m.tensor(b + "ffn_norm.weight", e, kind="norm"), eps), f, silu_gate)

    return stack(m, tokens, [None] * n, through)


def lfm2moe(m, tokens):
    e, eps, n = m.key("embedding_length"), m.key("attention.layer_norm_rms_epsilon"), m.key("block_count")
    kv, kernel = m.per_layer("attention.head_count_kv", n), m.key("shortconv.l_cache")
    s = Says(lambda il: rope_of(m, "neox"), head_norm="before")
    convs = [None if kv[il] else ShortConv(m.tensor(f"blk.{il}.shortconv.conv.weight", kernel, e))
             for il in range(n)]

    def through(b, il, conv, x, p):
        h = rms(x, m.tensor(b + "attn_norm.weight", e, kind="norm"), eps)
        if conv is None:
            x = x + attention(m, s, b, il, h, p)
        else:
            bb, c, u = np.split(m.tensor(b + "shortconv.in_proj.weight", e, 3 * e) @ h, 3)
            x = x + m.tensor(b + "shortconv.out_proj.weight", e, e) @ (c * conv(bb * u))
        h = rms(x, m.tensor(b + "ffn_norm.weight", e, kind="norm"), eps)
        if il < m.key("leading_dense_block_count", 0):
            return x + gated(m, b, "", h, m.key("feed_forward_length"), silu_gate)
        return x + moe(m, b, h, bias=True, normalize=True, scale=1.0)

    return stack(m, tokens, convs, through, norm_name="token_embd_norm.weight")


def logits(m, tokens):
    special = {"qwen3vl": qwen3vl, "qwen3vlmoe": qwen3vl, "jais2": jais2, "plm": plm, "plamo2": plamo2,
               "arwkv7": arwkv7, "lfm2moe": lfm2moe}
    return special.get(m.arch, small_decoder)(m, tokens)


MARKS = ("tied", "bias", "out_bias", "fused_qkv", "ln", "unused_head", "tokens", "raw")


def keys(arch, more):
    base = {"vocab_size": 64, "context_length": 512, "embedding_length": 48, "block_count": 3,
            "feed_forward_length": 40, "attention.head_count": 4, "attention.head_count_kv": 2,
            "attention.layer_norm_rms_epsilon": 3e-3, "rope.freq_base": 10000.0}
    named = {**base, **{k: v for k, v in more.items() if k not in MARKS}}
    return {"general.architecture": arch, **{f"{arch}.{k}": v for k, v in named.items()}, **more.get("raw", {}),
            **{k: v for k, v in more.items() if k in MARKS and k != "raw"}}


DK = {"attention.key_length": 24, "attention.value_length": 24}
MOE = {"expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 20}
LN = {"attention.layer_norm_rms_epsilon": None, "attention.layer_norm_epsilon": 3e-3}
MLA = {"attention.head_count_kv": 4, "attention.key_length": 20, "attention.value_length": 12,
       "rope.dimension_count": 8, "attention.kv_lora_rank": 18}
XIELU = {"xielu.alpha_n": 0.4, "xielu.alpha_p": 0.2, "xielu.beta": 0.5, "xielu.eps": -0.1}
SCAN = {"ssm.conv_kernel": 4, "ssm.inner_size": 96, "ssm.state_size": 12, "ssm.time_step_rank": 6,
        "ssm.group_count": 0, "attention.head_count_kv": [0, 2, 0], "attention.key_length": 16,
        "attention.value_length": 16}
RWKV = {"attention.head_count": 0, "attention.head_count_kv": None, "rope.freq_base": None, "embedding_length": 128,
        "wkv.head_size": 64, "attention.decay_lora_rank": 12, "attention.iclr_lora_rank": 8,
        "attention.value_residual_mix_lora_rank": 10, "attention.gate_lora_rank": 14, "token_shift_count": 1,
        "ln": True}
LFM = {**MOE, "attention.head_count_kv": [0, 2, 0], "shortconv.l_cache": 3, "expert_gating_func": 2}
OCR = {**MOE, "attention.head_count_kv": 4, "expert_shared_count": 2}
GOLDEN = ["qwen3vl", "qwen3vlmoe", "paddleocr", "cogvlm", "pangu-embedded", "deepseek2-ocr", "apertus", "grovemoe",
          "jais2", "plm", "plamo2", "arwkv7", "lfm2moe"]
TOLERANCE = 1e-4
BASE = {}
_LIST = [
    ("qwen3vl", {**DK, "rope.dimension_sections": [4, 4, 4, 0]}),
    ("qwen3vl", {**DK, "rope.dimension_sections": [6, 3, 2, 0], "tied": True, "n_deepstack_layers": 2}),
    ("qwen3vlmoe", {**DK, **MOE, "rope.dimension_sections": [5, 4, 3, 0], "expert_feed_forward_length": None}),
    ("qwen3vlmoe", {**DK, **MOE, "rope.dimension_sections": [5, 4, 3, 0], "tied": True}),
    ("paddleocr", {**DK, "rope.dimension_sections": [4, 3, 3, 2], "out_bias": True}),
    ("paddleocr", {**DK, "rope.dimension_sections": [2, 2, 1, 1], "tied": True}),
    ("cogvlm", {"attention.head_count_kv": None, "rope.freq_base": 77.0, "tied": True}),
    ("pangu-embedded", {"bias": True}),
    ("pangu-embedded", {"tied": True}),
    ("deepseek2-ocr", {**OCR, "leading_dense_block_count": 1}),
    ("deepseek2-ocr", {**OCR, "expert_gating_func": 2, "bias": True, "expert_weights_norm": True,
                       "expert_weights_scale": 1.6, "fused_qkv": True, "tied": True}),
    ("apertus", {**DK, "raw": XIELU, "out_bias": True}),
    ("apertus", {**DK, "raw": {**XIELU, "xielu.beta": [0.3, 0.5, 0.7], "xielu.eps": [-0.1, -0.2, -0.3]}}),
    ("grovemoe", {**DK, **MOE, "experts_per_group": 2, "expert_group_scale": 0.4}),
    ("grovemoe", {**DK, **MOE, "experts_per_group": 4, "expert_group_scale": 0.2, "tied": True,
                  "expert_chunk_feed_forward_length": 12}),
    ("jais2", {**LN, "bias": True}),
    ("jais2", {**LN, "tied": True}),
    ("plm", MLA),
    ("plm", {**MLA, "unused_head": True}),
    ("plamo2", SCAN),
    ("plamo2", {**SCAN, "tied": True, "attention.value_length": 12, "attention.head_count_kv": [1, 0, 1],
                "rope.dimension_count": 8}),
    ("arwkv7", RWKV),
    ("arwkv7", {**RWKV, "attention.gate_lora_rank": 0}),
    ("arwkv7", {**RWKV, "ln": False}),
    ("lfm2moe", LFM),
    ("lfm2moe", {**LFM, "leading_dense_block_count": 1, "expert_gating_func": 1, "tied": True}),
]
VARIANTS = {f"{arch}, {i}": keys(arch, more) for i, (arch, more) in enumerate(_LIST)}
