# SPDX-License-Identifier: MIT
"""DeepSeek V4, from docs/architectures.md and the paper's words: four streams, compressed pasts, experts by token."""
import numpy as np

from pieces import (Rope, attend, best, choose_experts, clamped_before, experts, gated, rms, rope_scaling, sigmoid,
                    softmax, softplus, weigh)


def mixer_parts(m, prefix, flat, n_out, n_scale, eps):
    fn = m.tensor(prefix + "_fn.weight", len(flat), n_out)
    return fn @ rms(flat, None, eps), m.tensor(prefix + "_scale.weight", n_scale, kind="norm"), m.tensor(
        prefix + "_base.weight", n_out, kind="vector")


def matrix_of(z, epsilon, rounds):
    """M[src][dst]."""
    x = softmax(z.reshape(4, 4), axis=1) + epsilon
    x = x / (x.sum(0, keepdims=True) + epsilon)
    for _ in range(rounds - 1):
        x = x / (x.sum(1, keepdims=True) + epsilon)
        x = x / (x.sum(0, keepdims=True) + epsilon)
    return x


class Layer:
    def __init__(self, m, il, e):
        self.m, self.b, self.e = m, f"blk.{il}.", e
        self.heads, self.d, self.rot = (m.key("attention.head_count"), m.key("attention.key_length"),
                                        m.key("rope.dimension_count"))
        self.ratio = m.key("attention.compress_ratios")[il]
        self.eps = m.key("attention.layer_norm_rms_epsilon")
        linear, yarn = rope_scaling(m)
        base = m.key("attention.compress_rope_freq_base" if self.ratio else "rope.freq_base")
        if not self.ratio:
            linear, yarn = 1.0, None
        make = lambda d: Rope(self.rot, base, "norm", d - self.rot, yarn, magnitude=False, linear=linear)
        self.turn, self.di = make(self.d), m.key("attention.indexer.key_length")
        self.turn_index = make(self.di)
        self.keys, self.inputs = [], []

    def entry(self, prefix, width, block):
        """Entry number `block`, before it turns."""
        r, parts = self.ratio, 2 if self.ratio == 4 else 1
        t_w = self.m.tensor(self.b + prefix + "_kv.weight", self.e, parts * width)
        g_w = self.m.tensor(self.b + prefix + "_gate.weight", self.e, parts * width)
        ape = self.m.tensor(self.b + prefix + "_ape.weight", parts * width, r, kind="vector")
        ts, gs = [], []
        for part in range(parts):
            first = (block - (parts - 1 - part)) * r
            for j in range(first, first + r):
                if j < 0:
                    continue
                half = slice(part * width, (part + 1) * width)
                ts.append((t_w @ self.inputs[j])[half])
                gs.append((g_w @ self.inputs[j] + ape[j % r])[half])
        mixed = (softmax(np.array(gs), axis=0) * np.array(ts)).sum(0)
        return rms(mixed, self.m.tensor(self.b + prefix + "_norm.weight", width, kind="norm"), self.eps)

    def attention(self, n, p):
        m, b, e, heads, d = self.m, self.b, self.e, self.heads, self.d
        self.inputs.append(n)
        rank = m.key("attention.q_lora_rank")
        qr = rms(m.tensor(b + "attn_q_a.weight", e, rank) @ n,
                 m.tensor(b + "attn_q_a_norm.weight", rank, kind="norm"), self.eps)
        q = (m.tensor(b + "attn_q_b.weight", rank, heads * d) @ qr).reshape(heads, d)
        q = self.turn(rms(q, None, self.eps), p)
        kv = rms(m.tensor(b + "attn_kv.weight", e, d) @ n, m.tensor(b + "attn_kv_a_norm.weight", d, kind="norm"),
                 self.eps)
        self.keys.append(self.turn(kv, p))
        rows = []
        if self.ratio:
            n_blocks = (p + 1) // self.ratio
            seen = range(n_blocks)
            if self.ratio == 4:
                hi, di = m.key("attention.indexer.head_count"), self.di
                iq = (m.tensor(b + "indexer.attn_q_b.weight", rank, hi * di) @ qr).reshape(hi, di)
                iq = self.turn_index(iq, p)
                w = m.tensor(b + "indexer.proj.weight", e, hi) @ n / np.sqrt(hi * di)
                if self.m.makes and not n_blocks:  # so that all is asked for
                    self.m.tensor(b + "indexer_compressor_norm.weight", di, kind="norm")
                scores = [w @ np.maximum(iq @ self.turn_index(self.entry("indexer_compressor", di, k), 4 * k), 0)
                          for k in range(n_blocks)]
                seen = best(scores, m.key("attention.indexer.top_k"))
            rows = [self.turn(self.entry("attn_compressor", d, k), self.ratio * k) for k in seen]
            if m.makes and not n_blocks:
                parts = 2 if self.ratio == 4 else 1
                for prefix, width in (("attn_compressor", d), ("indexer_compressor", self.di))[:parts]:
                    m.tensor(b + prefix + "_kv.weight", e, parts * width)
                    m.tensor(b + prefix + "_gate.weight", e, parts * width)
                    m.tensor(b + prefix + "_ape.weight", parts * width, self.ratio, kind="vector")
                    m.tensor(b + prefix + "_norm.weight", width, kind="norm")
        window = m.key("attention.sliding_window")
        rows = np.array(rows + self.keys[max(0, p - window + 1):])
        sinks = m.tensor(b + "attn_sinks.weight", heads, kind="vector")
        o = np.array([attend(q[h], rows, rows, 1 / np.sqrt(d), sinks[h]) for h in range(heads)])
        o = self.turn(o, -p).reshape(-1)
        groups, low = m.key("attention.output_group_count"), m.key("attention.output_lora_rank")
        wide = heads * d // groups
        a = m.tensor(b + "attn_output_a.weight", wide, low * groups).reshape(groups, low, wide)
        y = np.concatenate([a[g] @ o[g * wide:(g + 1) * wide] for g in range(groups)])
        return m.tensor(b + "attn_output_b.weight", low * groups, e) @ y

    def ffn(self, n, token, il):
        m, b, e = self.m, self.b, self.e
        x, k, width = m.key("expert_count"), m.key("expert_used_count"), m.key("expert_feed_forward_length")
        z = m.tensor(b + "ffn_gate_inp.weight", e, x) @ n
        normalize, scale = m.key("expert_weights_norm"), m.key("expert_weights_scale")
        if il < m.key("hash_layer_count", 0):
            v = m.key("vocab_size")
            pick = lambda r, shape: np.array([r.permutation(x)[:k] for _ in range(v)])
            chosen = m.tensor(b + "ffn_gate_tid2eid.weight", k, v, kind=pick)[token]
            weights = weigh(np.sqrt(softplus(z))[chosen], normalize, scale)
        else:
            bias = m.tensor(b + "exp_probs_b.bias", x, kind="vector")
            chosen, weights = choose_experts(z, bias, k, 4, normalize, scale, m.key("expert_group_count", 0),
                                             m.key("expert_group_used_count", 0))
        blocks = m.key("block_count")
        limit = m.per_layer("swiglu_clamp_exp", blocks, 0.0)[il]
        shared = m.per_layer("swiglu_clamp_shexp", blocks, limit)[il]
        y = experts(m, b, n, chosen, weights, x, width, clamped_before(limit))
        return y + gated(m, b, "_shexp", n, width * m.key("expert_shared_count"), clamped_before(shared))


def logits(m, tokens):
    e, v = m.key("embedding_length"), m.key("vocab_size")
    n_layer = m.key("block_count") - m.key("nextn_predict_layers", 0)
    epsilon, rounds = m.key("hyper_connection.epsilon"), m.key("hyper_connection.sinkhorn_iterations")
    layers = [Layer(m, il, e) for il in range(n_layer)]
    eps = m.key("attention.layer_norm_rms_epsilon")
    out = []

    def through(prefix, x, branch, norm):
        z, s, base = mixer_parts(m, prefix, x.reshape(-1), 24, 3, eps)
        a = sigmoid(s[0] * z[:4] + base[:4]) + epsilon
        c = 2 * sigmoid(s[1] * z[4:8] + base[4:8])
        mix = matrix_of(s[2] * z[8:] + base[8:], epsilon, rounds)
        y = branch(rms(a @ x, m.tensor(norm, e, kind="norm"), eps))
        return c[:, None] * y + mix.T @ x

    for p, token in enumerate(tokens):
        x = np.tile(m.tensor("token_embd.weight", e, v)[token], (4, 1))
        for il, layer in enumerate(layers):
            b = f"blk.{il}."
            x = through(b + "hc_attn", x, lambda n: layer.attention(n, p), b + "attn_norm.weight")
            x = through(b + "hc_ffn", x, lambda n: layer.ffn(n, token, il), b + "ffn_norm.weight")
        z, s, base = mixer_parts(m, "output_hc", x.reshape(-1), 4, 1, eps)
        h = (sigmoid(s[0] * z + base) + epsilon) @ x
        out.append(m.tensor("output.weight", e, v) @ rms(h, m.tensor("output_norm.weight", e, kind="norm"), eps))
    return np.array(out)


GOLDEN = ["deepseek4"]
BASE = {
    "general.architecture": "deepseek4", "deepseek4.vocab_size": 64, "deepseek4.context_length": 512,
    "deepseek4.embedding_length": 32, "deepseek4.block_count": 3, "deepseek4.attention.head_count": 4,
    "deepseek4.attention.head_count_kv": 1, "deepseek4.attention.layer_norm_rms_epsilon": 3e-3,
    "deepseek4.rope.freq_base": 10000.0, "deepseek4.attention.key_length": 24, "deepseek4.attention.value_length": 24,
    "deepseek4.rope.dimension_count": 8, "deepseek4.attention.q_lora_rank": 20,
    "deepseek4.attention.sliding_window": 7, "deepseek4.attention.indexer.head_count": 3,
    "deepseek4.attention.indexer.key_length": 64, "deepseek4.attention.indexer.top_k": 4,
    "deepseek4.attention.output_group_count": 2, "deepseek4.attention.output_lora_rank": 10,
    "deepseek4.attention.compress_rope_freq_base": 5000.0, "deepseek4.attention.compress_ratios": [0, 4, 128],
    "deepseek4.hyper_connection.count": 4, "deepseek4.hyper_connection.sinkhorn_iterations": 4,
    "deepseek4.hyper_connection.epsilon": 0.03, "deepseek4.hash_layer_count": 1, "deepseek4.expert_count": 8,
    "deepseek4.expert_used_count": 3, "deepseek4.expert_feed_forward_length": 16, "deepseek4.expert_gating_func": 4,
    "deepseek4.expert_weights_norm": True, "deepseek4.expert_weights_scale": 1.5, "deepseek4.expert_shared_count": 2,
    "deepseek4.swiglu_clamp_exp": 0.6,
}
K = "deepseek4."
VARIANTS = {
    "as usual": {},
    "one round, one output group": {K + "hyper_connection.sinkhorn_iterations": 1,
                                    K + "attention.output_group_count": 1},
    "linear scaling, no layer by token": {K + "rope.scaling.type": "linear", K + "rope.scaling.factor": 4.0,
                                          K + "hash_layer_count": None},
    "YaRN with keys that do not count": {
        K + "rope.scaling.type": "yarn", K + "rope.scaling.factor": 8.0,
        K + "rope.scaling.original_context_length": 32, K + "rope.scaling.yarn_beta_fast": 8.0,
        K + "rope.scaling.attn_factor": 2.0, K + "rope.freq_base_swa": 77.0},
    "weights not normalized, limits per layer, shared ones of their own": {
        K + "expert_weights_norm": False, K + "expert_weights_scale": 0.7, K + "swiglu_clamp_exp": [0.5, 0.0, 0.9],
        K + "swiglu_clamp_shexp": [0.2, 0.8, 0.0]},
    "no limits, all layers by token, whole heads turn": {K + "swiglu_clamp_exp": 0.0, K + "hash_layer_count": 3,
                                                         K + "rope.dimension_count": 24},
    "groups of experts": {K + "expert_group_count": 4, K + "expert_group_used_count": 2, K + "hash_layer_count": 0},
    "a draft block behind": {K + "nextn_predict_layers": 1, K + "block_count": 4,
                             K + "attention.compress_ratios": [4, 0, 4, 0], "tokens": 40},
    "every layer with groups, more entries than are chosen": {K + "attention.compress_ratios": [4, 4, 4],
                                                              K + "attention.indexer.top_k": 2, "tokens": 60},
}
