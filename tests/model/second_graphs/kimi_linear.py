# SPDX-License-Identifier: MIT
"""Kimi Linear: delta nets with a decay for each key, and latent attention that knows no positions."""
import numpy as np

from delta import DeltaHead, ShortConv, unit
from pieces import attend, choose_experts, experts, gated, rms, sigmoid, silu, silu_gate, softplus


class DeltaLayer:
    def __init__(self, m, b, heads):
        self.m, self.b, self.heads, self.d = m, b, heads, m.key("kda.head_dim")
        kernel, wide = m.key("ssm.conv_kernel"), heads * self.d
        self.convs = [ShortConv(m.tensor(f"{b}ssm_conv1d_{role}.weight", kernel, 1, wide)[:, 0]) for role in "qkv"]
        self.states = [DeltaHead(self.d) for _ in range(heads)]

    def __call__(self, n, p):
        m, b, h, d, e = self.m, self.b, self.heads, self.d, len(n)
        eps = m.key("attention.layer_norm_rms_epsilon")
        q, k, v = (silu(conv(m.tensor(f"{b}attn_{role}.weight", e, h * d) @ n)).reshape(h, d)
                   for role, conv in zip("qkv", self.convs))
        q, k = unit(q, eps), unit(k, eps)
        low = m.tensor(b + "ssm_f_b.weight", d, h * d) @ (m.tensor(b + "ssm_f_a.weight", e, d) @ n)
        step = softplus(low + m.tensor(b + "ssm_dt.bias", h * d, kind="vector")).reshape(h, d)
        gamma = np.exp(m.tensor(b + "ssm_a", 1, h, kind="negative") * step)
        beta = sigmoid(m.tensor(b + "ssm_beta.weight", e, h) @ n)
        o = np.array([self.states[i](q[i], k[i], v[i], gamma[i], beta[i]) for i in range(h)])
        gate = m.tensor(b + "ssm_g_b.weight", d, h * d) @ (m.tensor(b + "ssm_g_a.weight", e, d) @ n)
        o = rms(o, m.tensor(b + "ssm_norm.weight", d, kind="norm"), eps).reshape(-1) * sigmoid(gate)
        return m.tensor(b + "attn_output.weight", h * d, e) @ o


class LatentLayer:
    def __init__(self, m, b, heads):
        self.m, self.b, self.heads, self.keys, self.values = m, b, heads, [], []

    def __call__(self, n, p):
        m, b, h, e = self.m, self.b, self.heads, len(n)
        rank, dr = m.key("attention.kv_lora_rank"), m.key("rope.dimension_count")
        dk, dv = m.key("attention.key_length_mla"), m.key("attention.value_length_mla")
        q = (m.tensor(b + "attn_q.weight", e, h * dk) @ n).reshape(h, dk)
        u = m.tensor(b + "attn_kv_a_mqa.weight", e, rank + dr) @ n
        latent = rms(u[:rank], m.tensor(b + "attn_kv_a_norm.weight", rank, kind="norm"),
                     m.key("attention.layer_norm_rms_epsilon"))
        k_b = m.tensor(b + "attn_k_b.weight", dk - dr, rank, h)
        v_b = m.tensor(b + "attn_v_b.weight", rank, dv, h)
        self.keys.append(np.array([np.concatenate([k_b[i].T @ latent, u[rank:]]) for i in range(h)]))
        self.values.append(np.array([v_b[i] @ latent for i in range(h)]))
        keys, values = np.array(self.keys), np.array(self.values)
        o = [attend(q[i], keys[:, i], values[:, i], 1 / np.sqrt(dk)) for i in range(h)]
        return m.tensor(b + "attn_output.weight", h * dv, e) @ np.concatenate(o)


def ffn(m, b, il, n):
    e = len(n)
    if il < m.key("leading_dense_block_count", 0):
        return gated(m, b, "", n, m.key("feed_forward_length"), silu_gate)
    x, width = m.key("expert_count"), m.key("expert_feed_forward_length")
    z = m.tensor(b + "ffn_gate_inp.weight", e, x) @ n
    chosen, weights = choose_experts(z, m.tensor(b + "exp_probs_b.bias", x, kind="vector"),
                                     m.key("expert_used_count"), m.key("expert_gating_func"), True,
                                     m.key("expert_weights_scale", 1.0), m.key("expert_group_count", 0),
                                     m.key("expert_group_used_count", 0))
    y = experts(m, b, n, chosen, weights, x, width, silu_gate)
    return y + gated(m, b, "_shexp", n, width * max(1, m.key("expert_shared_count", 0)), silu_gate)


def logits(m, tokens):
    e, v, eps = m.key("embedding_length"), m.key("vocab_size"), m.key("attention.layer_norm_rms_epsilon")
    n = m.key("block_count")
    heads, kv = m.per_layer("attention.head_count", n), m.per_layer("attention.head_count_kv", n)
    layers = [(LatentLayer if kv[il] else DeltaLayer)(m, f"blk.{il}.", heads[il]) for il in range(n)]
    out = []
    for p, token in enumerate(tokens):
        x = m.tensor("token_embd.weight", e, v, kind=lambda r, s: r.standard_normal(s))[token]
        for il, layer in enumerate(layers):
            b = f"blk.{il}."
            x = x + layer(rms(x, m.tensor(b + "attn_norm.weight", e, kind="norm"), eps), p)
            x = x + ffn(m, b, il, rms(x, m.tensor(b + "ffn_norm.weight", e, kind="norm"), eps))
        out.append(m.tensor("output.weight", e, v) @ rms(x, m.tensor("output_norm.weight", e, kind="norm"), eps))
    return np.array(out)


GOLDEN = ["kimi-linear"]
K = "kimi-linear."
BASE = {
    "general.architecture": "kimi-linear", K + "vocab_size": 64, K + "context_length": 512, K + "embedding_length": 32,
    K + "block_count": 4, K + "feed_forward_length": 40, K + "attention.head_count": 4,
    K + "attention.head_count_kv": [0, 1, 0, 1], K + "attention.layer_norm_rms_epsilon": 3e-3,
    K + "rope.freq_base": 10000.0, K + "rope.dimension_count": 8, K + "attention.key_length": 24,
    K + "attention.value_length": 16, K + "attention.kv_lora_rank": 16, K + "attention.key_length_mla": 20,
    K + "attention.value_length_mla": 12, K + "ssm.conv_kernel": 4, K + "kda.head_dim": 12,
    K + "leading_dense_block_count": 1, K + "expert_count": 8, K + "expert_used_count": 3,
    K + "expert_feed_forward_length": 20, K + "expert_gating_func": 2, K + "expert_weights_scale": 2.4,
    K + "expert_shared_count": 1,
}
VARIANTS = {
    "as usual": {},
    "softmax of experts, no scale, no count of shared ones": {
        K + "expert_gating_func": 1, K + "expert_weights_scale": None, K + "expert_shared_count": None},
    "two shared experts, groups of experts": {K + "expert_shared_count": 2, K + "expert_group_count": 4,
                                              K + "expert_group_used_count": 2},
    "no dense layer, an attention layer first, kernel of two": {
        K + "leading_dense_block_count": 0, K + "attention.head_count_kv": [1, 0, 0, 1], K + "ssm.conv_kernel": 2},
    "all layers dense but the last": {K + "leading_dense_block_count": 3},
    "head dim of a power of two, long text": {K + "kda.head_dim": 16, "tokens": 100},
}
