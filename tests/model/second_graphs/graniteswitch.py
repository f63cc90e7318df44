# SPDX-License-Identifier: MIT
"""Granite Switch: granite with adapters that tokens of the text turn on."""
import numpy as np

from pieces import Rope, attend, rms, rope_scaling, silu_gate


def logits(m, tokens):
    e, v, eps = m.key("embedding_length"), m.key("vocab_size"), m.key("attention.layer_norm_rms_epsilon")
    heads, n_kv = m.key("attention.head_count"), m.key("attention.head_count_kv")
    d, ff = m.key("attention.key_length", e // heads), m.key("feed_forward_length")
    n, rank = m.key("adapters.count"), m.key("adapters.lora_rank")
    activate, substitute = m.key("adapters.token_ids_activate"), m.key("adapters.token_ids_substitute")
    linear, yarn = rope_scaling(m)
    rope = Rope(m.key("rope.dimension_count", d), m.key("rope.freq_base", 10000.0), "norm", yarn=yarn, linear=linear)
    turns = m.key("rope.scaling.finetuned", True)
    scale = m.key("attention.scale", 0.0) or 1 / np.sqrt(d)
    residual = m.key("residual_scale", 0.0) or 1.0
    keys, values, slot, out = {}, {}, 0, []

    def product(b, role, weight, x):
        a = m.tensor(f"{b}{role}.lora_a", len(x), rank, n + 1)[slot]
        return weight @ x + m.tensor(f"{b}{role}.lora_b", rank, len(weight), n + 1)[slot] @ (a @ x)

    for p, token in enumerate(tokens):
        if token in activate:
            slot = activate.index(token) + 1
            token = substitute[slot - 1]
        table = m.tensor("token_embd.weight", e, v, kind=lambda r, s: r.standard_normal(s) / 3)
        x = table[token] * (m.key("embedding_scale", 0.0) or 1.0)
        for il in range(m.key("block_count")):
            b = f"blk.{il}."
            h = rms(x, m.tensor(b + "attn_norm.weight", e, kind="norm"), eps)
            qkv = m.tensor(b + "attn_qkv.weight", e, (heads + 2 * n_kv) * d)
            q = product(b, "attn_q", qkv[:heads * d], h).reshape(heads, d)
            k = product(b, "attn_k", qkv[heads * d:(heads + n_kv) * d], h).reshape(n_kv, d)
            w = product(b, "attn_v", qkv[(heads + n_kv) * d:], h).reshape(n_kv, d)
            if turns:
                q, k = rope(q, p), rope(k, p)
            keys.setdefault(il, []).append(k)
            values.setdefault(il, []).append(w)
            ks, vs = np.array(keys[il]), np.array(values[il])
            o = np.concatenate([attend(q[i], ks[:, i * n_kv // heads], vs[:, i * n_kv // heads], scale)
                                for i in range(heads)])
            x = x + residual * product(b, "attn_output", m.tensor(b + "attn_output.weight", heads * d, e), o)
            h = rms(x, m.tensor(b + "ffn_norm.weight", e, kind="norm"), eps)
            gate = product(b, "ffn_gate", m.tensor(b + "ffn_gate.weight", e, ff), h)
            up = product(b, "ffn_up", m.tensor(b + "ffn_up.weight", e, ff), h)
            x = x + residual * product(b, "ffn_down", m.tensor(b + "ffn_down.weight", ff, e), silu_gate(gate, up))
        h = rms(x, m.tensor("output_norm.weight", e, kind="norm"), eps)
        untied = m.marks.get("untied") or m.find("output.weight") is not None
        out.append((m.tensor("output.weight", e, v) if untied else table) @ h / m.key("logit_scale"))
    return np.array(out)


GOLDEN = ["graniteswitch"]
K = "graniteswitch."
BASE = {
    "general.architecture": "graniteswitch", K + "vocab_size": 64, K + "context_length": 512,
    K + "embedding_length": 48, K + "block_count": 2, K + "feed_forward_length": 56, K + "attention.head_count": 4,
    K + "attention.head_count_kv": 2, K + "attention.layer_norm_rms_epsilon": 3e-3, K + "rope.freq_base": 10000.0,
    K + "rope.dimension_count": 12, K + "embedding_scale": 6.0, K + "residual_scale": 0.4, K + "attention.scale": 0.11,
    K + "logit_scale": 0.6, K + "adapters.count": 3, K + "adapters.lora_rank": 5,
    K + "adapters.token_ids_activate": [60, 61, 63], K + "adapters.token_ids_substitute": [5, 6, 60],
}
VARIANTS = {
    "as usual": {"steps": [(9, 61)]},
    "none turned on": {"steps": [(i, i) for i in range(30)]},
    "one after the other, the latest counts": {"steps": [(3, 60), (9, 63), (10, 61), (20, 60)]},
    "the first token turns on": {"steps": [(0, 63)]},
    "no RoPE, no scale of scores, head of its own": {K + "rope.scaling.finetuned": False, K + "attention.scale": None,
                                                    "untied": True, "steps": [(9, 60)]},
    "no scales at all": {K + "attention.scale": None, K + "embedding_scale": None, K + "residual_scale": None,
                         "steps": [(5, 60)]},
    "a gain that does not count, heads of a size of their own": {
        K + "adapters.router_gain": 3.0, K + "attention.key_length": 16, K + "attention.value_length": 16,
        K + "rope.dimension_count": 8, "steps": [(5, 60)]},
    "more adapters than experts may be": {
        K + "vocab_size": 1200, K + "adapters.count": 1100, K + "adapters.lora_rank": 2, K + "embedding_length": 24,
        K + "feed_forward_length": 16, K + "attention.head_count": 2, K + "attention.head_count_kv": 1,
        K + "adapters.token_ids_activate": list(range(60, 1160)),
        K + "adapters.token_ids_substitute": [5] * 1100, "steps": [(5, 60), (9, 1159)]},
    "YaRN": {K + "rope.scaling.type": "yarn", K + "rope.scaling.factor": 4.0,
             K + "rope.scaling.original_context_length": 64, "steps": [(5, 60)]},
}
