// SPDX-License-Identifier: MIT
// Qwen3-Next (arXiv:2412.06464 for its delta net), Qwen3.5 and 3.6: three of four layers are gated delta nets, the
// others attention with an output gate and partial RoPE; experts with a gated shared one behind each, or, in small
// models of the second, a gated feed-forward.
#include <cmath>

#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/families.hpp"
#include "model/qwen3next.hpp"
#include "model/recurrent.hpp"

namespace tinfer::model {

namespace {

std::int64_t key_width(const HParams& hp) { return std::int64_t{hp.recurrent.ssm.n_group} * hp.recurrent.ssm.n_state; }
std::int64_t value_width(const HParams& hp) { return std::int64_t{hp.recurrent.ssm.n_rank} * hp.recurrent.ssm.n_state; }
std::int64_t conv_width(const HParams& hp) { return 2 * key_width(hp) + value_width(hp); }

}  // namespace

Tensor gated_attention(const BuildContext& b, const Inputs& in, int il, Tensor h, Tensor chosen) {
    Graph& g = b.g;
    const LayerWeights& w = b.layer(il);
    const AttentionParams p = attention_params(b, il);
    g.set_part(Part::attn);
    const Tensor q_gate = g.heads(g.name(linear(b, w.attn_q, h), "q_gate"), p.n_head);
    const Tensor q = norm(b, w.attn_q_norm, g.view(q_gate, 0, p.head_dim_k), "q_norm");
    const Tensor k = norm(b, w.attn_k_norm, g.heads(g.name(linear(b, w.attn_k, h), "k"), p.n_head_kv), "k_norm");
    const Tensor v = g.heads(g.name(linear(b, w.attn_v, h), "v"), p.n_head_kv);
    const Tensor a = cached_attention(b, in, il,
                                      {g.name(g.rope(q, in.full.rope_table, b.rope), "q_rope"),
                                       g.name(g.rope(k, in.full.rope_table, b.rope), "k_rope"), v},
                                      chosen);
    if (writes_only(b, il)) return a;
    g.set_part(Part::attn_out);
    const Tensor gate = g.name(g.sigmoid(g.view(q_gate, p.head_dim_k, p.head_dim_k)), "attn_gate");
    const Tensor gated = g.name(g.mul(a, g.reshape(gate, g.value(a).ne)), "attn_gated");
    return g.name(linear(b, w.attn_output, gated), "attn_out");
}

namespace {

struct Projections {
    Tensor qkv, z;
};  ///< {conv_width, T}: q of all key heads, k likewise, v of all value heads; {value_width, T}

Projections project(const BuildContext& b, const StateSpaceWeights& w, Tensor qkv, Tensor h) {
    Graph& g = b.g;
    if (!w.in) return {qkv, g.name(linear(b, w.gate, h), "delta_z")};
    // Older files: for each key head [q | k | its values' v | their z] in one matrix.
    const std::int64_t n_key_head = b.hp.recurrent.ssm.n_group, size = b.hp.recurrent.ssm.n_state,
                       n_value = value_width(b.hp) / n_key_head;
    const std::int64_t n_tokens = b.shape.n_tokens;
    const Tensor all = g.heads(g.name(linear(b, w.in, h), "delta_in"), n_key_head);
    const auto part = [&](std::int64_t first, std::int64_t n) {
        return g.reshape(g.copy(g.view(all, first, n)), {n * n_key_head, n_tokens, 1, 1});
    };
    const Tensor k = part(size, size), q = part(0, size);
    const Tensor qk = g.concat(q, k);
    return {g.name(g.concat(qk, part(2 * size, n_value)), "delta_qkv"),
            g.name(part(2 * size + n_value, n_value), "delta_z")};
}

}  // namespace

Tensor delta_net(const BuildContext& b, const Inputs& in, int il, Tensor h, bool plain_gate) {
    Graph& g = b.g;
    const HParams& hp = b.hp;
    const LayerWeights& layer = b.layer(il);
    const StateSpaceWeights& w = layer.ssm;
    const std::int64_t n_key_head = hp.recurrent.ssm.n_group, n_value_head = hp.recurrent.ssm.n_rank,
                       n_shared = n_value_head / n_key_head, n_tokens = b.shape.n_tokens;
    g.set_part(Part::state);

    const Projections p =
        project(b, w, layer.attn_qkv ? g.name(linear(b, layer.attn_qkv, h), "delta_qkv") : Tensor{}, h);
    const Tensor mixed = g.name(g.silu(short_conv(b, in, il, p.qkv)), "conv_silu");
    const auto unit = [&](std::int64_t first, std::string_view name) {
        return g.name(g.l2_norm(g.heads(g.view(mixed, first, key_width(hp)), n_key_head), hp.rms_eps), name);
    };
    const Tensor q = unit(0, "delta_q"), k = unit(key_width(hp), "delta_k");
    const Tensor v = g.heads(g.view(mixed, 2 * key_width(hp), value_width(hp)), n_value_head);

    // For each key head n_shared numbers b, then as many a: β = sigmoid(b), γ = exp(A·softplus(a + bias)). Or two
    // matrices in the order of the value heads, which then share key heads by turns.
    const bool modulo_heads = !w.ba;
    Tensor beta, a;
    if (modulo_heads) {
        beta = g.name(g.sigmoid(g.name(linear(b, w.beta, h), "delta_b")), "delta_beta");
        a = g.name(linear(b, w.alpha, h), "delta_a");
    } else {
        const Tensor ba = g.heads(g.name(linear(b, w.ba, h), "delta_ba"), n_key_head);
        beta = g.reshape(g.name(g.sigmoid(g.view(ba, 0, n_shared)), "delta_beta"), {n_value_head, n_tokens, 1, 1});
        a = g.reshape(g.copy(g.view(ba, n_shared, n_shared)), {n_value_head, n_tokens, 1, 1});
    }
    const Tensor rate = g.name(g.softplus(g.add(a, vector(g, w.dt_bias))), "delta_rate");
    const Tensor gamma = g.name(g.exp(g.mul(rate, vector(g, w.a))), "delta_gamma");

    const float scale = 1.0f / std::sqrt(static_cast<float>(hp.recurrent.ssm.n_state));
    const Tensor o = g.name(g.delta_rule(q, k, v, gamma, beta, scale, state(b, in, il, 1), modulo_heads), "delta_rule");
    if (writes_only(b, il)) return o;
    const Tensor normed = norm(b, w.norm, o, "delta_norm");
    const Tensor gate = g.name(plain_gate ? g.sigmoid(p.z) : g.silu(p.z), "delta_gate");
    const Tensor gated = g.name(g.mul(gate, g.reshape(normed, g.value(gate).ne)), "delta_gated");
    return g.name(linear(b, w.out, gated), "delta_out");
}

void bind_gated_attention(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w) {
    const auto i = static_cast<std::size_t>(il);
    const std::int64_t n_q = std::int64_t{hp.n_head[i]} * hp.head_dim_k, n_kv = hp.n_head_kv[i];
    w.attn_q = binder.linear(block_name(il, "attn_q"), hp.n_embd, 2 * n_q);
    w.attn_k = binder.linear(block_name(il, "attn_k"), hp.n_embd, n_kv * hp.head_dim_k);
    w.attn_v = binder.linear(block_name(il, "attn_v"), hp.n_embd, n_kv * hp.head_dim_v);
    w.attn_output = binder.linear(block_name(il, "attn_output"), std::int64_t{hp.n_head[i]} * hp.head_dim_v, hp.n_embd);
    bind_head_norms(binder, hp, il, w);
}

void bind_delta_net(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w) {
    const auto name = [&](std::string_view role) { return block_name(il, role); };
    if (binder.exists(name("ssm_in.weight"))) {
        w.ssm.in = binder.linear(name("ssm_in"), hp.n_embd, conv_width(hp) + value_width(hp));
    } else {
        w.attn_qkv = binder.linear(name("attn_qkv"), hp.n_embd, conv_width(hp));
        w.ssm.gate = binder.linear(name("attn_gate"), hp.n_embd, value_width(hp));
    }
    if (binder.exists(name("ssm_alpha.weight"))) {
        w.ssm.alpha = binder.linear(name("ssm_alpha"), hp.n_embd, hp.recurrent.ssm.n_rank);
        w.ssm.beta = binder.linear(name("ssm_beta"), hp.n_embd, hp.recurrent.ssm.n_rank);
    } else {
        w.ssm.ba = binder.linear(name("ssm_ba"), hp.n_embd, 2 * std::int64_t{hp.recurrent.ssm.n_rank});
    }
    w.ssm.conv = binder.vectors(name("ssm_conv1d.weight"), {hp.recurrent.ssm.n_conv, conv_width(hp)});
    w.ssm.dt_bias = binder.vector(name("ssm_dt.bias"), hp.recurrent.ssm.n_rank);
    w.ssm.a = binder.vector(name("ssm_a"), hp.recurrent.ssm.n_rank);
    w.ssm.norm = binder.norm(name("ssm_norm"), {hp.recurrent.ssm.n_state});
    w.ssm.out = binder.linear(name("ssm_out"), value_width(hp), hp.n_embd);
}

namespace {

void read_delta_net(KeyReader& keys, HParams& hp) {
    read_state_space(keys, hp);
    StateSpaceParams& s = hp.recurrent.ssm;
    s.n_group = positive_u32(keys, "ssm.group_count", 1u << 16);
    if (s.n_rank % s.n_group != 0)
        keys.bad("ssm.group_count", cat(s.n_group), cat("must divide time_step_rank ", s.n_rank));
    if (s.n_inner != value_width(hp))
        keys.bad("ssm.inner_size", cat(s.n_inner), cat("must be time_step_rank · state_size = ", value_width(hp)));
}

void add_delta_states(HParams& hp, const std::vector<bool>& recurrent) {
    hp.recurrent.states.resize(static_cast<std::size_t>(hp.n_layer));
    for (std::size_t il = 0; il < hp.recurrent.states.size(); ++il) {
        if (!recurrent[il]) continue;
        hp.n_head_kv[il] = 0;
        hp.recurrent.states[il] = {{"conv_state", (hp.recurrent.ssm.n_conv - 1) * conv_width(hp)},
                                   {"delta_state", value_width(hp) * hp.recurrent.ssm.n_state}};
    }
}

Weights bind_delta_stack(WeightBinder& binder, const HParams& hp) {
    const BlockParts parts{.ffn_norm = "post_attention_norm",
                           .mixer = Mixer::own,
                           .ffn = hp.experts.n > 0 ? FeedForward::experts : FeedForward::gated};
    return bind_stack(binder, hp, Head::tied_if_missing, parts, [&](int il, LayerWeights& layer) {
        if (hp.n_head_kv_of(il) > 0) bind_gated_attention(binder, hp, il, layer);
        else bind_delta_net(binder, hp, il, layer);
        if (hp.experts.n > 0)
            layer.ffn_gate_inp_shexp = binder.linear(block_name(il, "ffn_gate_inp_shexp"), hp.n_embd, 1);
    });
}

Tensor gated_from_all(const BuildContext& b, const Inputs& in, int il, Tensor h) {
    return gated_attention(b, in, il, h);
}

Tensor delta_of_layer(const BuildContext& b, const Inputs& in, int il, Tensor h) { return delta_net(b, in, il, h); }

}  // namespace

HParams read_qwen35(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox, CommonKeys{.ff = FeedForwardKey::optional});
    read_rope_sections(keys, hp, true, true);
    read_delta_net(keys, hp);
    add_delta_states(hp, read_recurrent_layers(keys, hp, 4));
    return hp;
}

namespace {

Weights bind_qwen35(WeightBinder& binder, const HParams& hp) {
    for (int il = 0; il < hp.n_layer; ++il)
        for (const char* const role : {"ssm_ba.weight", "ssm_in.weight"})
            binder.refuse(block_name(il, role), "the layout of qwen3next: its value heads stand in another order");
    return bind_delta_stack(binder, hp);
}

}  // namespace

namespace qwen3next {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    read_delta_net(keys, hp);
    read_experts(keys, hp);
    if (hp.experts.n == 0) keys.bad("expert_count", "0", "architecture 'qwen3next' needs expert_count > 0");
    hp.experts.weights_norm = true;
    hp.experts.n_ff = positive_u32(keys, "expert_feed_forward_length", 1u << 24);
    hp.experts.n_ff_shared = positive_u32(keys, "expert_shared_feed_forward_length", 1u << 24);
    add_delta_states(hp, read_recurrent_layers(keys, hp, 4));
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) { return bind_delta_stack(binder, hp); }

}  // namespace qwen3next

const Family families::qwen3next{
    .mixer = gated_from_all, .recurrence = delta_of_layer, .read_all = qwen3next::read, .bind_all = qwen3next::bind};

namespace qwen35 {

HParams read(KeyReader& keys) {
    HParams hp = read_qwen35(keys);
    if (keys.u32("expert_count", 0) > 0)
        unsupported(keys.file(), hp.arch, "experts have an architecture of their own, qwen35moe");
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) { return bind_qwen35(binder, hp); }

}  // namespace qwen35

const Family families::qwen35{
    .mixer = gated_from_all, .recurrence = delta_of_layer, .read_all = qwen35::read, .bind_all = qwen35::bind};

namespace qwen35moe {

HParams read(KeyReader& keys) {
    HParams hp = read_qwen35(keys);
    read_normalized_experts(keys, hp);
    require_experts(keys, hp);
    const auto n_ff = static_cast<std::uint32_t>(hp.n_ff[0]);
    hp.experts.n_ff =
        expert_width(keys, "expert_feed_forward_length", n_ff / static_cast<std::uint32_t>(hp.experts.n_used));
    hp.experts.n_ff_shared = expert_width(keys, "expert_shared_feed_forward_length", n_ff);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) { return bind_qwen35(binder, hp); }

}  // namespace qwen35moe

const Family families::qwen35moe{
    .mixer = gated_from_all, .recurrence = delta_of_layer, .read_all = qwen35moe::read, .bind_all = qwen35moe::bind};

}  // namespace tinfer::model
