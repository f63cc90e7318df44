# SPDX-License-Identifier: MIT
"""Qwen3.8-Flash-Next: streams instead of norms, delta layers, chosen blocks in full layers, rows of n-grams."""
import numpy as np

from delta import DeltaHead, ShortConv, unit
from gguf_model import U64
from pieces import (Rope, attend, best, choose_experts, experts, gated, rms, sigmoid, silu, silu_gate, softplus)


def recurrent_layers(m, n):
    given = m.key("attention.recurrent_layers", [])
    every = m.key("full_attention_interval", 4)
    return given[:n] if given else [(il + 1) % every != 0 for il in range(n)]


class Mixer:
    def __init__(self, m, prefix, injects=True):
        self.m, self.prefix, self.injects = m, prefix, injects
        self.hc, self.e, self.rank = (m.key("hyper_connection.count"), m.key("embedding_length"),
                                      m.key("hyper_connection.low_rank"))
        self.eps = m.key("attention.layer_norm_rms_epsilon")

    def read(self, x):
        """(h, how much each stream takes)."""
        m, hc, wide = self.m, self.hc, self.hc * self.e
        weight = m.tensor(self.prefix + "_norm.weight", wide, kind="norm")
        nu = (rms(x, None, self.eps) * weight.reshape(hc, self.e)).reshape(-1)
        down = m.tensor(self.prefix + "_down.weight", wide, self.rank) @ nu
        gate = m.tensor(self.prefix + "_up.weight", self.rank, wide) @ silu(down / hc)
        h = (nu * sigmoid(gate)).reshape(hc, self.e).mean(0)
        if not self.injects:
            return h, None
        return h, 2 * sigmoid(m.tensor(self.prefix + "_inject.weight", wide, hc) @ nu / hc)


class DeltaLayer:
    def __init__(self, m, b):
        self.m, self.b = m, b
        self.d, self.nk, self.nv = m.key("ssm.state_size"), m.key("ssm.group_count"), m.key("ssm.time_step_rank")
        self.wide = 2 * self.nk * self.d + self.nv * self.d
        self.conv = ShortConv(m.tensor(b + "ssm_conv1d.weight", m.key("ssm.conv_kernel"), self.wide))
        self.states = [DeltaHead(self.d) for _ in range(self.nv)]

    def __call__(self, h, p):
        m, b, d, nk, nv, e = self.m, self.b, self.d, self.nk, self.nv, len(h)
        eps = m.key("attention.layer_norm_rms_epsilon")
        qkv = silu(self.conv(m.tensor(b + "attn_qkv.weight", e, self.wide) @ h))
        q, k = (unit(x.reshape(nk, d), eps) for x in (qkv[:nk * d], qkv[nk * d:2 * nk * d]))
        v = qkv[2 * nk * d:].reshape(nv, d)
        z = (m.tensor(b + "attn_gate.weight", e, nv * d) @ h).reshape(nv, d)
        beta = sigmoid(m.tensor(b + "ssm_beta.weight", e, nv) @ h)
        step = softplus(m.tensor(b + "ssm_alpha.weight", e, nv) @ h + m.tensor(b + "ssm_dt.bias", nv, kind="vector"))
        gamma = np.exp(m.tensor(b + "ssm_a", nv, kind="negative") * step)
        o = np.array([self.states[i](q[i % nk], k[i % nk], v[i], gamma[i], beta[i]) for i in range(nv)])
        o = rms(o, m.tensor(b + "ssm_norm.weight", d, kind="norm"), eps) * sigmoid(z)
        return m.tensor(b + "ssm_out.weight", nv * d, e) @ o.reshape(-1)


class FullLayer:
    def __init__(self, m, b, ratio):
        self.m, self.b, self.ratio = m, b, ratio
        n, sections = m.key("rope.dimension_count"), m.key("rope.dimension_sections")
        still = [i for i in range(n // 2) if not (i % 3 == 1 and i < 3 * sections[1] or
                                                  i % 3 == 2 and i < 3 * sections[2] or
                                                  i % 3 == 0 and i < 3 * sections[0])]
        self.rope = Rope(n, m.key("rope.freq_base"), "neox", still=still)
        self.keys, self.values, self.raw = [], [], []

    def seen(self, h, p):
        m, b, e, eps = self.m, self.b, len(h), self.m.key("attention.layer_norm_rms_epsilon")
        hi, di, r = m.key("attention.indexer.head_count"), m.key("attention.indexer.key_length"), self.ratio
        k_norm = m.tensor(b + "indexer.k_norm.weight", di, kind="norm")
        q_norm = m.tensor(b + "indexer.q_norm.weight", di, kind="norm")
        self.raw.append(m.tensor(b + "indexer.k_proj.weight", e, di) @ h)
        q = rms((m.tensor(b + "indexer.q_proj.weight", e, hi * di) @ h).reshape(hi, di), q_norm, eps)
        if not r:
            return range(p + 1)
        q, n_blocks, scores = self.rope(q, p), (p + 1) // r, []
        for block in range(n_blocks):
            key = self.rope(rms(np.mean(self.raw[block * r:(block + 1) * r], axis=0), k_norm, eps), block * r)
            scores.append(np.maximum(q @ key, 0).sum())
        kept = best(scores, m.key("attention.indexer.top_k") // r)
        return [j for block in kept for j in range(block * r, (block + 1) * r)] + list(range(n_blocks * r, p + 1))

    def __call__(self, h, p):
        m, b, e, eps = self.m, self.b, len(h), self.m.key("attention.layer_norm_rms_epsilon")
        n, n_kv, d = m.key("attention.head_count"), m.key("attention.head_count_kv"), m.key("attention.key_length")
        both = (m.tensor(b + "attn_q.weight", e, 2 * n * d) @ h).reshape(n, 2, d)
        q = self.rope(rms(both[:, 0], m.tensor(b + "attn_q_norm.weight", d, kind="norm"), eps), p)
        k = (m.tensor(b + "attn_k.weight", e, n_kv * d) @ h).reshape(n_kv, d)
        self.keys.append(self.rope(rms(k, m.tensor(b + "attn_k_norm.weight", d, kind="norm"), eps), p))
        self.values.append((m.tensor(b + "attn_v.weight", e, n_kv * d) @ h).reshape(n_kv, d))
        seen = self.seen(h, p)
        keys, values = np.array([self.keys[j] for j in seen]), np.array([self.values[j] for j in seen])
        o = np.array([attend(q[i], keys[:, i * n_kv // n], values[:, i * n_kv // n], 1 / np.sqrt(d))
                      for i in range(n)])
        return m.tensor(b + "attn_output.weight", n * d, e) @ (o * sigmoid(both[:, 1])).reshape(-1)


def moe(m, b, h):
    x, k, e = m.key("expert_count"), m.key("expert_used_count"), len(h)
    width, shared = m.key("expert_feed_forward_length"), m.key("expert_shared_feed_forward_length")
    z = m.tensor(b + "ffn_gate_inp.weight", e, x) @ h
    chosen, weights = choose_experts(z, None, k, 1, True, 1)
    y = experts(m, b, h, chosen, weights, x, width, silu_gate, fused=bool(m.marks.get("fused")))
    share = sigmoid(m.tensor(b + "ffn_gate_inp_shexp.weight", e, kind="vector") @ h)
    return y + share * gated(m, b, "_shexp", h, shared, silu_gate)


class Ngrams:
    def __init__(self, m, b, e, hc):
        self.m, self.b, self.e, self.hc = m, b, e, hc
        self.n, self.heads = m.key("ple.ngram_size"), m.key("ple.heads_per_ngram")
        self.d = m.key("embedding_length_per_layer_input")
        self.conv = ShortConv(m.tensor(b + "ple_conv1d.weight", m.key("ple.conv_kernel"), hc * e), self.n)

    def rows(self, tokens, p):
        m, end, mask = self.m, self.m.key("ple.eos_token_id"), (1 << 64) - 1
        context, ended = [tokens[p]], False
        for s in range(1, self.n):
            ended = ended or p < s or tokens[p - s] == end
            context.append(end if ended else tokens[p - s])
        mix, out = context[0] * m.key("ple.layer_multipliers")[0] & mask, []
        for n in range(2, self.n + 1):
            mix ^= context[n - 1] * m.key("ple.layer_multipliers")[n - 1] & mask
            for g in range(self.heads):
                h = (n - 2) * self.heads + g
                out.append(mix % m.key("ple.head_vocab_sizes")[h] + m.key("ple.head_offsets")[h])
        return out

    def __call__(self, x, tokens, p):
        m, b, e, hc, eps = self.m, self.b, self.e, self.hc, self.m.key("attention.layer_norm_rms_epsilon")
        n_rows = max(o + s for o, s in zip(m.key("ple.head_offsets"), m.key("ple.head_vocab_sizes")))
        table = m.find("per_layer_token_embd.weight")
        n_rows = n_rows if table is None else table.shape[0]
        table = m.tensor("per_layer_token_embd.weight", self.d, n_rows)
        v = np.concatenate([table[r] for r in self.rows(tokens, p)])
        norm = lambda role: m.tensor(b + role + ".weight", hc * e, kind="norm").reshape(hc, e)
        key = rms((m.tensor(b + "ple_key.weight", e, hc * e) @ v).reshape(hc, e), norm("ple_norm_key"), eps)
        query = rms(x, norm("ple_norm_query"), eps)
        a = (key * query).sum(1) / np.sqrt(e)
        gate = sigmoid(np.sign(a) * np.sqrt(np.maximum(abs(a), 1e-6)))
        value = gate[:, None] * (m.tensor(b + "ple_value.weight", e, e) @ v)
        u = self.conv(rms(value, norm("ple_norm_conv"), eps).reshape(-1)).reshape(hc, e)
        return x + value + silu(u)


def logits(m, tokens):
    e, v, hc = m.key("embedding_length"), m.key("vocab_size"), m.key("hyper_connection.count")
    n = m.key("block_count") - m.key("nextn_predict_layers", 0)
    ratios = m.per_layer("attention.compress_ratios", n, 0)
    ple = m.key("ple.layers", [-1])[0]
    layers = [DeltaLayer(m, f"blk.{il}.") if recurrent else FullLayer(m, f"blk.{il}.", ratios[il])
              for il, recurrent in enumerate(recurrent_layers(m, n))]
    ngrams = Ngrams(m, f"blk.{ple}.", e, hc) if ple >= 0 else None
    out = []
    for p, token in enumerate(tokens):
        embedding = m.tensor("token_embd.weight", e, v, kind=lambda r, s: r.standard_normal(s))
        x = np.tile(embedding[token], (hc, 1))
        for il, layer in enumerate(layers):
            b = f"blk.{il}."
            if il == ple:
                x = ngrams(x, tokens, p)
            for prefix, branch in ((b + "hc_attn", lambda h: layer(h, p)), (b + "hc_ffn", lambda h: moe(m, b, h))):
                h, takes = Mixer(m, prefix).read(x)
                x = x + takes[:, None] * branch(h)
        h, _ = Mixer(m, "output_hc", injects=False).read(x)
        tied = m.marks.get("tied") or (not m.makes and m.find("output.weight") is None)
        out.append((embedding if tied else m.tensor("output.weight", e, v)) @ h)
    return np.array(out)


GOLDEN = ["qwen4exp", "qwen4exp-qsa1", "qwen4exp-qsa4"]
K = "qwen4exp."
BASE = {
    "general.architecture": "qwen4exp", K + "vocab_size": 64, K + "context_length": 512, K + "embedding_length": 24,
    K + "block_count": 4, K + "attention.head_count": 4, K + "attention.head_count_kv": 2,
    K + "attention.layer_norm_rms_epsilon": 3e-3, K + "rope.freq_base": 10000.0, K + "attention.key_length": 16,
    K + "attention.value_length": 16, K + "rope.dimension_count": 8, K + "rope.dimension_sections": [2, 1, 1, 0],
    K + "ssm.conv_kernel": 4, K + "ssm.inner_size": 48, K + "ssm.state_size": 12, K + "ssm.time_step_rank": 4,
    K + "ssm.group_count": 2, K + "expert_count": 6, K + "expert_used_count": 2, K + "expert_feed_forward_length": 16,
    K + "expert_shared_feed_forward_length": 20, K + "hyper_connection.count": 3, K + "hyper_connection.low_rank": 5,
    K + "attention.indexer.head_count": 3, K + "attention.indexer.key_length": 16, K + "attention.indexer.top_k": 6,
    K + "attention.compress_ratios": [0, 0, 0, 1],
}
PLE = {
    K + "ple.layers": [1], K + "ple.ngram_size": 3, K + "ple.heads_per_ngram": 2, K + "ple.conv_kernel": 3,
    K + "ple.eos_token_id": 7, K + "embedding_length_per_layer_input": 6,
    K + "ple.layer_multipliers": U64([0x7FFFFFFFFFFFFFC5, 6364136223846793005, 1442695040888963407]),
    K + "ple.head_vocab_sizes": U64([11, 13, 17, 19]), K + "ple.head_offsets": U64([0, 11, 24, 41]),
}
VARIANTS = {
    "as usual": {},
    "every full layer attends to all, two streams": {K + "attention.compress_ratios": None,
                                                     K + "hyper_connection.count": 2},
    "one ratio for all, delta layers by a list": {K + "attention.compress_ratios": 1,
                                                  K + "attention.recurrent_layers": [False, True, False, True]},
    "interval of two, more value heads than keys by turns": {K + "full_attention_interval": 2,
                                                             K + "attention.compress_ratios": [0, 1, 0, 0],
                                                             K + "ssm.time_step_rank": 6, K + "ssm.inner_size": 72},
    "pairs that stand still": {K + "rope.dimension_count": 16, K + "rope.dimension_sections": [3, 2, 2, 1]},
    "n-grams with ends of texts": {**PLE, "steps": [(4, 7), (5, 7), (11, 7), (20, 7)]},
    "n-grams of two in the first layer": {
        **PLE, K + "ple.layers": [0], K + "ple.ngram_size": 2, K + "ple.heads_per_ngram": 4,
        K + "ple.layer_multipliers": U64([3, 0x7FFFFFFFFFFFFFFF]), K + "ple.conv_kernel": 4},
    "tied head": {"tied": True},
}
