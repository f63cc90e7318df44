// SPDX-License-Identifier: MIT
#include "model/mla.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/math.hpp"

namespace tinfer::model {

namespace {

void check_latent(KeyReader& keys, const HParams& hp, const MlaSizes& m, int head_k, int head_v) {
    if (hp.rope.n_rot >= m.head_dim_k)
        keys.bad("rope.dimension_count", cat(hp.rope.n_rot), cat("must be below the head size ", m.head_dim_k));
    if (head_k != m.n_lora_kv + hp.rope.n_rot || head_v != m.n_lora_kv)
        unsupported(keys.file(), hp.arch, "key_length, value_length and kv_lora_rank do not fit one another");
}

int required_size(KeyReader& keys, std::string_view key) { return positive_u32(keys, key, 1u << 24); }

}  // namespace

void read_split_latent(KeyReader& keys, HParams& hp, bool has_windows) {
    const auto rank_q = static_cast<int>(std::min(keys.u32("attention.q_lora_rank", 0), 1u << 24));
    hp.attention.mla = {.n_lora_q = rank_q,
                        .n_lora_kv = required_size(keys, "attention.kv_lora_rank"),
                        .head_dim_k = required_size(keys, "attention.key_length_mla"),
                        .head_dim_v = required_size(keys, "attention.value_length_mla"),
                        .absorbed = true};
    check_latent(keys, hp, hp.attention.mla, hp.head_dim_k, hp.head_dim_v);
    for (const int n : hp.n_head_kv)
        if (n > 1) keys.bad("attention.head_count_kv", cat(n), "must be 1: the cache holds latents");
    hp.attention.scale = 1.0f / std::sqrt(static_cast<float>(hp.attention.mla.head_dim_k));
    if (!has_windows) return;
    hp.attention.mla_window = {.n_lora_q = rank_q,
                               .n_lora_kv = required_size(keys, "attention.kv_lora_rank_swa"),
                               .head_dim_k = required_size(keys, "attention.key_length_mla_swa"),
                               .head_dim_v = required_size(keys, "attention.value_length_mla_swa"),
                               .absorbed = true};
    hp.attention.scale_window = 1.0f / std::sqrt(static_cast<float>(hp.attention.mla_window.head_dim_k));
    check_latent(keys, hp, hp.attention.mla_window, hp.windows.head_dim_k > 0 ? hp.windows.head_dim_k : hp.head_dim_k,
                 hp.windows.head_dim_v > 0 ? hp.windows.head_dim_v : hp.head_dim_v);
}

void share_yarn_magnitude(KeyReader& keys, HParams& hp) {
    const float stored = keys.f32("rope.scaling.yarn_log_multiplier", 0.0f);
    if (stored < 0) keys.bad("rope.scaling.yarn_log_multiplier", cat(stored), "must not be below 0");
    hp.rope.yarn_magnitude_share = stored / 0.1f;
    usual_yarn_ramp(hp);
    const double factor = 1.0 / static_cast<double>(hp.rope.freq_scale);
    double m = static_cast<double>(hp.rope.attn_factor);
    if (hp.rope.yarn_ext_factor != 0.0f && factor > 1.0) m *= 1.0 + 0.1 * math::log(factor);
    hp.attention.scale = static_cast<float>(m * m / std::sqrt(static_cast<double>(hp.attention.mla.head_dim_k)));
    if (!std::isfinite(hp.attention.scale) || !std::isfinite(hp.rope.yarn_magnitude_share))
        keys.bad("rope.scaling.yarn_log_multiplier", cat(stored), "must leave the scale of scores finite");
}

IndexerParams& read_indexer_sizes(KeyReader& keys, HParams& hp) {
    IndexerParams& x = hp.attention.indexer;
    x.n_head = positive_u32(keys, "attention.indexer.head_count", 1024);
    x.head_dim = positive_u32(keys, "attention.indexer.key_length", 65536);
    x.top_k = positive_u32(keys, "attention.indexer.top_k", 1u << 20);
    if (x.head_dim < hp.rope.n_rot)
        keys.bad("attention.indexer.key_length", cat(x.head_dim),
                 cat("must be at least the ", hp.rope.n_rot, " that turn"));
    return x;
}

void read_indexer(KeyReader& keys, HParams& hp, bool neox) {
    IndexerParams& x = read_indexer_sizes(keys, hp);
    x.neox = neox;
    x.n_rot = hp.rope.n_rot;
    x.layers.assign(static_cast<std::size_t>(hp.n_layer), true);
}

bool read_indexer_types(KeyReader& keys, HParams& hp) {
    constexpr std::string_view kTypes = "attention.indexer.types";
    const auto types = keys.find_per_layer(kTypes, static_cast<std::size_t>(hp.n_layer + hp.n_layer_draft));
    if (!types) return false;
    for (std::size_t il = 0; il < hp.attention.indexer.layers.size(); ++il) {
        if ((*types)[il] > 1) keys.bad(kTypes, cat((*types)[il]), "must be 0 or 1");
        hp.attention.indexer.layers[il] = (*types)[il] == 1;
    }
    return true;
}

void bind_indexer(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w) {
    if (!hp.attention.indexer.is_in(static_cast<std::size_t>(il))) return;
    const auto name = [&](std::string_view role) { return block_name(il, role); };
    const std::int64_t n = hp.attention.indexer.n_head, d = hp.attention.indexer.head_dim;
    w.indexer.q = binder.linear(name("indexer.attn_q_b"), hp.attention.mla.n_lora_q, n * d);
    w.indexer.k = binder.linear(name("indexer.attn_k"), hp.n_embd, d);
    w.indexer.k_norm = binder.norm(name("indexer.k_norm"), {d}, Bias::required);
    w.indexer.proj = binder.linear(name("indexer.proj"), hp.n_embd, n);
}

namespace {

// Rotates n_rot elements of each head from the indexer's first on.
Tensor turn_index(const BuildContext& b, const AttentionInputs& view, Tensor x) {
    Graph& g = b.g;
    const IndexerParams& p = b.hp.attention.indexer;
    RopeParams rope = view.rope;
    rope.neox = p.neox ? 1 : 0;
    if (p.first == 0) return g.rope(x, view.rope_table, rope);
    const Tensor rotated = g.rope(g.view(x, p.first, p.n_rot), view.rope_table, rope);
    return g.concat(g.view(x, 0, p.first), rotated);
}

// The slots that a query attends to, from the normed stream and the latent of q (arXiv:2512.02556 §2.1):
// score_j = Σ_h w_h · max(iq_h·ik_j, 0)
Tensor choose_slots(const BuildContext& b, const Inputs& in, int il, Tensor h, Tensor latent_q) {
    Graph& g = b.g;
    const auto i = static_cast<std::size_t>(il);
    const IndexerWeights& w = b.w.layers[i].indexer;
    const IndexerParams& p = b.hp.attention.indexer;
    const AttentionInputs& view = in.of(b.hp, il);
    const AttentionParams params{.n_head = p.n_head, .n_head_kv = 1, .head_dim_k = p.head_dim};
    const Tensor raw = g.name(linear(b, w.k, h), "index_k");
    const Tensor bias = vector(g, w.k_norm.bias), weight = vector(g, w.k_norm.weight);
    const Tensor normed = g.layer_norm(raw, weight, bias, p.eps);
    const Tensor ik = g.name(turn_index(b, view, g.heads(g.name(normed, "index_k_norm"), 1)), "index_k_rope");
    const TensorInfo& cache = *b.memory[i].index;
    const Tensor keys = g.name(g.kv_write(g.cache(cache), ik, view.slots, params, false), "cache_index_write");
    if (writes_only(b, il)) return keys;
    const Tensor q = g.heads(g.name(linear(b, w.q, latent_q), "index_q"), p.n_head);
    const Tensor iq = g.name(turn_index(b, view, q), "index_q_rope");
    const float factor = 1.0f / std::sqrt(static_cast<float>(p.n_head) * static_cast<float>(p.head_dim));
    const Tensor weights = g.name(g.scale(g.name(linear(b, w.proj, h), "index_proj"), factor), "index_weights");
    const int k = static_cast<int>(std::min<std::int64_t>(p.top_k, cache.ne[1]));
    return g.name(g.select_keys(iq, keys, weights, view.kv, params, {.k = k}), "index_choice");
}

}  // namespace

void bind_latent_attention(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w) {
    const MlaSizes& m = hp.mla_of(il);
    const std::int64_t n_head = hp.n_head_of(il), n_nope = m.head_dim_k - hp.rope.n_rot;
    if (m.n_lora_q > 0) {
        w.attn_q_a = binder.linear(block_name(il, "attn_q_a"), hp.n_embd, m.n_lora_q);
        w.attn_q_a_norm = binder.norm(block_name(il, "attn_q_a_norm"), {m.n_lora_q});
        w.attn_q_b = binder.linear(block_name(il, "attn_q_b"), m.n_lora_q, n_head * m.head_dim_k);
    } else {
        w.attn_q = binder.linear(block_name(il, "attn_q"), hp.n_embd, n_head * m.head_dim_k);
    }
    w.attn_kv_a_mqa = binder.linear(block_name(il, "attn_kv_a_mqa"), hp.n_embd, m.n_lora_kv + hp.rope.n_rot);
    w.attn_kv_a_norm = binder.norm(block_name(il, "attn_kv_a_norm"), {m.n_lora_kv});
    if (m.absorbed) {
        w.attn_k_b = binder.matrix(block_name(il, "attn_k_b"), {n_nope, m.n_lora_kv, n_head});
        w.attn_v_b = binder.matrix(block_name(il, "attn_v_b"), {m.n_lora_kv, m.head_dim_v, n_head});
        binder.ignore(block_name(il, "attn_kv_b.weight"));  // the same numbers once more, in some files
    } else {
        w.attn_kv_b = binder.linear(block_name(il, "attn_kv_b"), m.n_lora_kv, n_head * (n_nope + m.head_dim_v));
    }
    w.attn_output = binder.linear(block_name(il, "attn_output"), n_head * m.head_dim_v, hp.n_embd);
}

void bind_latent_block(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w) {
    bind_block(binder, hp, il, w, {.mixer = Mixer::own, .ffn = FeedForward::dense_or_experts});
    bind_latent_attention(binder, hp, il, w);
    for (const char* const role : {"attn_q_b.weight", "attn_k.weight", "k_norm.weight", "k_norm.bias", "proj.weight"})
        binder.ignore(block_name(il, cat("indexer.", role)));
}

Tensor latent_attention(const BuildContext& b, const Inputs& in, int il, Tensor h) {
    return latent_attention(b, in, il, h, nullptr);
}

Tensor latent_attention(const BuildContext& b, const Inputs& in, int il, Tensor h, Tensor* chosen) {
    Graph& g = b.g;
    const LayerWeights& w = b.layer(il);
    const MlaSizes& m = b.hp.mla_of(il);
    const AttentionInputs& view = in.of(b.hp, il);
    const int n_head = b.hp.n_head_of(il), n_rot = b.hp.rope.n_rot, n_nope = m.head_dim_k - n_rot;
    g.set_part(Part::attn);
    const auto rotated = [&](Tensor x, std::string_view name) {
        return b.hp.rotates(il) ? g.name(g.rope(x, view.rope_table, view.rope), name) : x;
    };

    // q = [q_n | rope(q_r)] per head
    const Tensor from = w.attn_q ? h : norm(b, w.attn_q_a_norm, g.name(linear(b, w.attn_q_a, h), "q_a"), "q_a_norm");
    const Tensor q = g.heads(g.name(linear(b, w.attn_q ? w.attn_q : w.attn_q_b, from), "q"), n_head);
    const Tensor q_n = g.view(q, 0, n_nope);
    const Tensor q_r = rotated(g.view(q, n_nope, n_rot), "q_rope");

    // [l | k_r] = W_kva·h: the latent, normed, and the rotated part of every head's key
    const Tensor kv_a = g.name(linear(b, w.attn_kv_a_mqa, h), "kv_a");
    const Tensor latent = norm(b, w.attn_kv_a_norm, g.view(kv_a, 0, m.n_lora_kv), "kv_a_norm");
    const Tensor k_r =
        rotated(norm(b, w.attn_k_norm, g.heads(g.view(kv_a, m.n_lora_kv, n_rot), 1), "k_norm"), "k_rope");

    Qkv x;
    if (m.absorbed) {
        // ⟨q_n, K_h·l⟩ = ⟨K_hᵀ·q_n, l⟩, so the latent is the one key, and Σ p·V_h·l = V_h·Σ p·l
        x.q = g.name(g.concat(g.name(head_linear(b, *w.attn_k_b, q_n), "q_latent"), q_r), "q_joined");
        x.v = g.heads(latent, 1);
        x.k = g.name(g.concat(x.v, k_r), "k_joined");
    } else {
        const Tensor kv = g.heads(g.name(linear(b, w.attn_kv_b, latent), "kv"), n_head);
        x.q = g.name(g.concat(q_n, q_r), "q_joined");
        x.k = g.name(g.concat(g.view(kv, 0, n_nope), k_r), "k_joined");
        x.v = g.view(kv, n_nope, m.head_dim_v);
    }
    if (b.hp.attention.temperature_scale != 0.0f) x.q = scale_by_temperature(b, in, x.q);
    if (chosen != nullptr && w.indexer.k) *chosen = choose_slots(b, in, il, h, from);
    Tensor a = cached_attention(b, in, il, x, chosen == nullptr ? Tensor{} : *chosen);
    if (writes_only(b, il)) return a;
    if (m.absorbed) {
        a = g.name(head_linear(b, *w.attn_v_b, g.heads(a, n_head)), "attn_heads");
        a = g.reshape(a, {std::int64_t{m.head_dim_v} * n_head, b.shape.n_tokens, 1, 1});
    }
    g.set_part(Part::attn_out);
    if (const Tensor gate = attention_gate(b, il, h)) a = gate_heads(b, a, gate);
    return g.name(linear(b, w.attn_output, a), "attn_out");
}

}  // namespace tinfer::model
