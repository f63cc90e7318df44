// SPDX-License-Identifier: MIT
// Kimi Linear (arXiv:2510.26692) and Ling 3.0, which bounds the decays from below, rotates in its attention layers and
// gates their heads.
#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "model/families.hpp"
#include "model/kimi_delta.hpp"

namespace tinfer::model {

HParams read_kimi(KeyReader& keys) {
    HParams hp =
        read_common(keys, RopeKind::norm, CommonKeys{.kinds = LayerKinds::hybrid, .ff = FeedForwardKey::optional});
    read_split_latent(keys, hp);
    hp.recurrent.ssm.n_state = positive_u32(keys, "kda.head_dim", 1u << 12);
    hp.recurrent.ssm.n_conv = positive_u32(keys, "ssm.conv_kernel", 256);
    if (hp.recurrent.ssm.n_conv < 2) keys.bad("ssm.conv_kernel", cat(hp.recurrent.ssm.n_conv), "must lie in 2 to 256");
    hp.recurrent.states.resize(static_cast<std::size_t>(hp.n_layer));
    for (int il = 0; il < hp.n_layer; ++il) {
        const auto i = static_cast<std::size_t>(il);
        if (!is_delta_layer(hp, il)) continue;
        if (hp.n_head[i] == 0) keys.bad("attention.head_count", "0", cat("layer ", il, " has heads"));
        const std::int64_t width = std::int64_t{hp.n_head[i]} * hp.recurrent.ssm.n_state,
                           before = hp.recurrent.ssm.n_conv - 1;
        hp.recurrent.states[i] = {{"conv_q_state", before * width},
                                  {"conv_k_state", before * width},
                                  {"conv_v_state", before * width},
                                  {"delta_state", width * hp.recurrent.ssm.n_state}};
    }
    read_experts(keys, hp);
    require_experts(keys, hp);
    hp.experts.n_ff = required_expert_width(keys);
    return hp;
}

void bind_kimi_delta(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w, const KimiParts& parts) {
    const auto name = [&](std::string_view role) { return block_name(il, role); };
    const std::int64_t e = hp.n_embd, n_head = hp.n_head_of(il), size = hp.recurrent.ssm.n_state, n = n_head * size;
    w.attn_q = binder.linear(name("attn_q"), e, n);
    w.attn_k = binder.linear(name("attn_k"), e, n);
    w.attn_v = binder.linear(name("attn_v"), e, n);
    const auto conv = [&](std::string_view role) {
        return binder.vectors(name(role), {hp.recurrent.ssm.n_conv, 1, n, 1});
    };
    w.ssm.conv_q = conv("ssm_conv1d_q.weight");
    w.ssm.conv_k = conv("ssm_conv1d_k.weight");
    w.ssm.conv_v = conv("ssm_conv1d_v.weight");
    const auto map = [&](Rank rank, std::string_view full, std::string_view low, Linear& first, Linear& second) {
        first = binder.linear(name(full), e, rank == Rank::low ? size : n);
        if (rank == Rank::low) second = binder.linear(name(low), size, n);
    };
    map(parts.decay, "ssm_f_a", "ssm_f_b", w.ssm.f_a, w.ssm.f_b);
    map(parts.gate, parts.gate_name, "ssm_g_b", w.ssm.g_a, w.ssm.g_b);
    w.ssm.beta = binder.linear(name("ssm_beta"), e, n_head);
    w.ssm.dt_bias = binder.vector(name("ssm_dt.bias"), n);
    w.ssm.a = parts.flat_rates ? binder.vector(name("ssm_a"), n_head) : binder.vectors(name("ssm_a"), {1, n_head});
    w.ssm.norm = binder.norm(name("ssm_norm"), {size});
    w.attn_output = binder.linear(name("attn_output"), n, e);
}

Tensor kimi_delta(const BuildContext& b, const Inputs& in, int il, Tensor h, Decay decay) {
    Graph& g = b.g;
    const HParams& hp = b.hp;
    const LayerWeights& layer = b.layer(il);
    const StateSpaceWeights& w = layer.ssm;
    const std::int64_t n_head = hp.n_head_of(il), size = hp.recurrent.ssm.n_state, n = n_head * size;
    g.set_part(Part::state);

    // q, k, v = silu(conv(W·h)), q and k of length 1
    const auto mixed = [&](const Linear& map, const TensorInfo* conv, std::size_t k, std::string_view name) {
        const Tensor taps = g.reshape(vector(g, conv), {hp.recurrent.ssm.n_conv, n, 1, 1});
        const RecurrentState past = state(b, in, il, k);
        const Tensor x = g.name(g.causal_conv(g.name(linear(b, map, h), name), taps, {}, past), name);
        return g.heads(g.name(g.silu(x), name), n_head);
    };
    const Tensor q = g.name(g.l2_norm(mixed(layer.attn_q, w.conv_q, 0, "delta_q"), hp.rms_eps), "delta_q_unit");
    const Tensor k = g.name(g.l2_norm(mixed(layer.attn_k, w.conv_k, 1, "delta_k"), hp.rms_eps), "delta_k_unit");
    const Tensor v = mixed(layer.attn_v, w.conv_v, 2, "delta_v");

    // z = f(h) + bias; the decay of each key
    const auto mapped = [&](const Linear& first, const Linear& second, std::string_view name) {
        const Tensor x = g.name(linear(b, first, h), name);
        return second ? g.name(linear(b, second, x), name) : x;
    };
    const Tensor dt_bias = vector(g, w.dt_bias);
    const Tensor z = g.name(g.add(mapped(w.f_a, w.f_b, "delta_f"), dt_bias), "delta_rate");
    const Tensor one = g.reshape(vector(g, w.a), {1, n_head, 1, 1});
    const Tensor rates = g.reshape(expand_rows(g, one, size), {n, 1, 1, 1});
    Tensor log;
    if (decay == Decay::open) {
        log = g.mul(g.softplus(z), rates);
    } else {
        const Tensor x = g.mul(z, rates);
        log = g.scale(g.sigmoid(decay == Decay::bounded ? x : g.scale(x, -1.0f)), hp.recurrent.decay_lower_bound);
    }
    const Tensor gamma = g.heads(g.name(g.exp(log), "delta_gamma"), n_head);
    const Tensor beta = g.name(g.sigmoid(g.name(linear(b, w.beta, h), "delta_b")), "delta_beta");

    const float scale = 1.0f / std::sqrt(static_cast<float>(size));
    const Tensor o = g.name(g.delta_rule(q, k, v, gamma, beta, scale, state(b, in, il, 3)), "delta_rule");
    if (writes_only(b, il)) return o;
    const Tensor normed = norm(b, w.norm, o, "delta_norm");
    const Tensor gate = g.name(g.sigmoid(mapped(w.g_a, w.g_b, "delta_g")), "delta_gate");
    const Tensor gated = g.name(g.mul(gate, g.reshape(normed, g.value(gate).ne)), "delta_gated");
    return g.name(linear(b, layer.attn_output, gated), "delta_out");
}

namespace {

template <Decay kDecay>
Tensor kimi_recurrence(const BuildContext& b, const Inputs& in, int il, Tensor h) {
    return kimi_delta(b, in, il, h, kDecay);
}

void refuse_joined(const WeightBinder& binder, int il) {
    binder.refuse(block_name(il, "attn_kv_b.weight"), "joined matrices of the latent not supported");
}

}  // namespace

namespace kimi_linear {

HParams read(KeyReader& keys) {
    HParams hp = read_kimi(keys);
    hp.rope.kind = RopeKind::none;  // the sizes stay: part of each head would turn
    if (hp.attention.mla.n_lora_q > 0)
        keys.bad("attention.q_lora_rank", cat(hp.attention.mla.n_lora_q), "must be 0 or left out");
    require_gating(keys);
    hp.experts.weights_norm = true;
    hp.experts.n_ff_shared = shared_width(keys, std::max<int>(1, hp.experts.n_ff), 1);
    if (hp.experts.n_ff_shared == 0) hp.experts.n_ff_shared = hp.experts.n_ff;
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::required, {.mixer = Mixer::own, .ffn = FeedForward::dense_or_experts},
                      [&](int il, LayerWeights& layer) {
                          require_choice_bias(binder, il, layer);
                          if (is_delta_layer(hp, il)) return bind_kimi_delta(binder, hp, il, layer, {});
                          refuse_joined(binder, il);
                          bind_latent_attention(binder, hp, il, layer);
                      });
}

}  // namespace kimi_linear

const Family families::kimi_linear{.mixer = latent_attention,
                                   .recurrence = kimi_recurrence<Decay::open>,
                                   .read_all = kimi_linear::read,
                                   .bind_all = kimi_linear::bind};

namespace bailingmoe3 {

HParams read(KeyReader& keys) {
    HParams hp = read_kimi(keys);
    require_gating(keys);
    if (!keys.boolean("kda.safe_gate", true)) unsupported(keys.file(), hp.arch, "decays without a bound not supported");
    hp.recurrent.decay_lower_bound = keys.require_f32("kda.gate_lower_bound");
    if (!(hp.recurrent.decay_lower_bound < 0))
        keys.bad("kda.gate_lower_bound", cat(hp.recurrent.decay_lower_bound), "must be below 0");
    int all = shared_width(keys, hp.experts.n_ff, 1);
    if (all == 0) all = hp.experts.n_ff;
    hp.experts.n_ff_shared = expert_width(keys, "expert_shared_feed_forward_length", static_cast<std::uint32_t>(all));
    hp.gate_limits = {.routed = layer_limits(keys, hp, "swiglu_clamp_exp"),
                      .dense = layer_limits(keys, hp, "swiglu_clamp_shexp")};
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::tied_if_missing, {.mixer = Mixer::own, .ffn = FeedForward::dense_or_experts},
                      [&](int il, LayerWeights& layer) {
                          require_choice_bias(binder, il, layer);
                          if (is_delta_layer(hp, il))
                              return bind_kimi_delta(binder, hp, il, layer, {.decay = Rank::full, .gate = Rank::full});
                          refuse_joined(binder, il);
                          bind_latent_attention(binder, hp, il, layer);
                          layer.attn_gate = binder.linear(block_name(il, "attn_gate"), hp.n_embd, hp.n_head_of(il));
                      });
}

}  // namespace bailingmoe3

const Family families::bailingmoe3{.mixer = latent_attention,
                                   .recurrence = kimi_recurrence<Decay::bounded>,
                                   .read_all = bailingmoe3::read,
                                   .bind_all = bailingmoe3::bind};

}  // namespace tinfer::model
