# SPDX-License-Identifier: MIT
"""MiniMax-M3: each KV group chooses blocks of positions by a small head of its own."""
import numpy as np

from pieces import Rope, attend, choose_experts, experts, gated, oai_swiglu, rms, rope_scaling


class Layer:
    def __init__(self, m, il):
        self.m, self.b, self.sparse = m, f"blk.{il}.", il >= m.key("leading_dense_block_count", 0)
        linear, yarn = rope_scaling(m)
        self.rope = Rope(m.key("rope.dimension_count"), m.key("rope.freq_base"), "neox", yarn=yarn, linear=linear)
        self.keys, self.values, self.small = [], [], []
        self.eps = m.key("attention.layer_norm_rms_epsilon")

    def seen(self, n, p):
        m, b, e = self.m, self.b, len(n)
        groups, di = m.key("attention.indexer.head_count"), m.key("attention.indexer.key_length")
        size, local = m.key("attention.indexer.block_size"), m.key("attention.indexer.local_blocks")
        norm = lambda role: m.tensor(f"{b}indexer.{role}_norm.weight", di, kind="norm")
        iq = self.rope(rms((m.tensor(b + "indexer.q_proj.weight", e, groups * di) @ n).reshape(groups, di),
                           norm("q"), self.eps), p)
        self.small.append(self.rope(rms(m.tensor(b + "indexer.k_proj.weight", e, di) @ n, norm("k"), self.eps), p))
        newest = p // size
        lists = []
        for q in iq:
            ranks = []
            for block in range(newest + 1):
                score = max(q @ self.small[j] for j in range(block * size, min((block + 1) * size, p + 1)))
                ranks.append((0, -block) if block > newest - local else (1, -score))
            kept = sorted(range(newest + 1), key=lambda i: ranks[i])[:m.key("attention.indexer.top_k")]
            lists.append([j for j in range(p + 1) if j // size in kept])
        return lists

    def attention(self, n, p):
        m, b, e, eps = self.m, self.b, len(n), self.eps
        heads, n_kv = m.key("attention.head_count"), m.key("attention.head_count_kv")
        dk, dv = m.key("attention.key_length"), m.key("attention.value_length")
        norm = lambda role: m.tensor(f"{b}attn_{role}_norm.weight", dk, kind="norm")
        q = self.rope(rms((m.tensor(b + "attn_q.weight", e, heads * dk) @ n).reshape(heads, dk), norm("q"), eps), p)
        k = rms((m.tensor(b + "attn_k.weight", e, n_kv * dk) @ n).reshape(n_kv, dk), norm("k"), eps)
        self.keys.append(self.rope(k, p))
        self.values.append((m.tensor(b + "attn_v.weight", e, n_kv * dv) @ n).reshape(n_kv, dv))
        lists = self.seen(n, p) if self.sparse else [range(p + 1)] * n_kv
        o = []
        for h in range(heads):
            g = h * n_kv // heads
            o.append(attend(q[h], np.array([self.keys[j][g] for j in lists[g]]),
                            np.array([self.values[j][g] for j in lists[g]]), 1 / np.sqrt(dk)))
        return m.tensor(b + "attn_output.weight", heads * dv, e) @ np.concatenate(o)

    def ffn(self, n):
        m, b, e = self.m, self.b, len(n)
        if not self.sparse:
            return gated(m, b, "", n, m.key("feed_forward_length"), oai_swiglu)
        x, width = m.key("expert_count"), m.key("expert_feed_forward_length")
        z = m.tensor(b + "ffn_gate_inp.weight", e, x) @ n
        chosen, weights = choose_experts(z, m.tensor(b + "exp_probs_b.bias", x, kind="vector"),
                                         m.key("expert_used_count"), m.key("expert_gating_func"),
                                         m.key("expert_weights_norm", False), m.key("expert_weights_scale", 1.0),
                                         m.key("expert_group_count", 0), m.key("expert_group_used_count", 0))
        y = experts(m, b, n, chosen, weights, x, width, oai_swiglu, fused=bool(m.marks.get("fused")))
        return y + gated(m, b, "_shexp", n, width * m.key("expert_shared_count"), oai_swiglu)


def logits(m, tokens):
    e, v, eps = m.key("embedding_length"), m.key("vocab_size"), m.key("attention.layer_norm_rms_epsilon")
    layers = [Layer(m, il) for il in range(m.key("block_count"))]
    out = []
    for p, token in enumerate(tokens):
        x = m.tensor("token_embd.weight", e, v, kind=lambda r, s: r.standard_normal(s))[token]
        for il, layer in enumerate(layers):
            x = x + layer.attention(rms(x, m.tensor(f"blk.{il}.attn_norm.weight", e, kind="norm"), eps), p)
            x = x + layer.ffn(rms(x, m.tensor(f"blk.{il}.ffn_norm.weight", e, kind="norm"), eps))
        out.append(m.tensor("output.weight", e, v) @ rms(x, m.tensor("output_norm.weight", e, kind="norm"), eps))
    return np.array(out)


GOLDEN = ["minimax-m3"]
K = "minimax-m3."
BASE = {
    "general.architecture": "minimax-m3", K + "vocab_size": 64, K + "context_length": 512, K + "embedding_length": 32,
    K + "block_count": 3, K + "feed_forward_length": 48, K + "attention.head_count": 4,
    K + "attention.head_count_kv": 2, K + "attention.layer_norm_rms_epsilon": 3e-3, K + "rope.freq_base": 10000.0,
    K + "attention.key_length": 24, K + "attention.value_length": 24, K + "rope.dimension_count": 12,
    K + "expert_count": 6, K + "expert_used_count": 3, K + "expert_feed_forward_length": 20,
    K + "expert_gating_func": 2, K + "expert_weights_norm": True, K + "expert_weights_scale": 2.0,
    K + "expert_shared_count": 1, K + "attention.indexer.head_count": 2, K + "attention.indexer.key_length": 16,
    K + "attention.indexer.top_k": 3, K + "attention.indexer.block_size": 4, K + "attention.indexer.local_blocks": 1,
}
VARIANTS = {
    "as usual": {"tokens": 40},
    "a dense layer in front, no local blocks": {K + "leading_dense_block_count": 1,
                                                K + "attention.indexer.local_blocks": 0, "tokens": 40},
    "more local blocks than are chosen": {K + "attention.indexer.local_blocks": 4,
                                          K + "attention.indexer.top_k": 2, "tokens": 40},
    "softmax of experts, not normalized, no scale, two shared": {
        K + "expert_gating_func": 1, K + "expert_weights_norm": None, K + "expert_weights_scale": None,
        K + "expert_shared_count": 2},
    "groups of experts": {K + "expert_group_count": 3, K + "expert_group_used_count": 2},
    "blocks of one, heads of their own group, index keys that turn whole": {
        K + "attention.indexer.block_size": 1, K + "attention.indexer.top_k": 9, K + "attention.head_count_kv": 4,
        K + "attention.indexer.head_count": 4, K + "attention.indexer.key_length": 12},
    "YaRN": {K + "rope.scaling.type": "yarn", K + "rope.scaling.factor": 4.0,
             K + "rope.scaling.original_context_length": 64},
    "linear scaling": {K + "rope.scaling.type": "linear", K + "rope.scaling.factor": 3.0},
    "values wider than keys": {K + "attention.value_length": 32},
}
