// SPDX-License-Identifier: MIT
// Experts: their keys, their weights, and their place in the graph (architectures §2.9).
#include <algorithm>

#include "base/error.hpp"
#include "model/family.hpp"

namespace tinfer::model {

// ---- keys -----------------------------------------------------------------------------------------------------------

int required_expert_width(KeyReader& keys) {
    return expert_width(keys, "expert_feed_forward_length", keys.require_u32("expert_feed_forward_length"));
}

void require_experts(KeyReader& keys, const HParams& hp) {
    if (hp.experts.n == 0)
        keys.bad("expert_count", "0", cat("architecture '", escaped(hp.arch), "' needs expert_count > 0"));
}

int expert_width(KeyReader& keys, std::string_view key, std::uint32_t otherwise) {
    const std::uint32_t value = keys.u32(key, otherwise);
    if (value == 0 || value > (1u << 24)) keys.bad(key, cat(value), "must lie in 1 to 16777216");
    return static_cast<int>(value);
}

int shared_width(KeyReader& keys, const HParams& hp) { return shared_width(keys, hp.experts.n_ff); }

int shared_width(KeyReader& keys, int of_one, std::uint32_t count_otherwise) {
    const std::uint32_t count = keys.u32("expert_shared_count", count_otherwise);
    const std::uint64_t n = std::uint64_t{count} * static_cast<std::uint32_t>(of_one);
    if (n > (1u << 24))
        keys.bad("expert_shared_count", cat(count), cat("times the width ", of_one, " must be at most 16777216"));
    return static_cast<int>(n);
}

int optional_width(KeyReader& keys, std::string_view key) {
    const std::uint32_t value = keys.u32(key, 0);
    return value == 0 ? 0 : expert_width(keys, key, value);
}

void require_gating(KeyReader& keys) {
    const std::uint32_t gating = keys.require_u32("expert_gating_func");
    if (gating != 1 && gating != 2) keys.bad("expert_gating_func", cat(gating), "must be 1 or 2");
}

namespace {

void read_expert_groups(KeyReader& keys, HParams& hp) {
    const std::uint32_t n_group = keys.u32("expert_group_count", 0), n_used = keys.u32("expert_group_used_count", 0);
    if (n_group <= 1) return;
    const auto n_expert = static_cast<std::uint32_t>(hp.experts.n);
    if (n_expert % n_group != 0 || n_used == 0 || n_used > n_group ||
        static_cast<std::uint32_t>(hp.experts.n_used) > n_expert / n_group * n_used)
        keys.bad("expert_group_count", cat(n_group),
                 cat("expert group settings inconsistent: ", n_used, " groups used, ", n_expert, " experts, ",
                     hp.experts.n_used, " used"));
    hp.experts.n_group = static_cast<int>(n_group);
    hp.experts.n_group_used = static_cast<int>(n_used);
}

void read_routing(KeyReader& keys, HParams& hp) {
    hp.experts.weights_scale = keys.f32("expert_weights_scale", 1.0f);
    if (hp.experts.weights_scale < 0)
        keys.bad("expert_weights_scale", cat(hp.experts.weights_scale), "must not be below 0; 0 is 1");
    if (hp.experts.weights_scale == 0) hp.experts.weights_scale = 1.0f;
    hp.experts.weights_norm = keys.boolean("expert_weights_norm", hp.experts.weights_norm);
    const std::uint32_t gating = keys.u32("expert_gating_func", 0);
    const bool knows_4 = hp.experts.gating == GatingFunc::sqrt_softplus;
    if (gating > (knows_4 ? 4u : 3u)) keys.bad("expert_gating_func", cat(gating), "must lie in 0 to 3");
    if (gating > 0) hp.experts.gating = static_cast<GatingFunc>(gating);
    const std::uint32_t n_dense = keys.u32("leading_dense_block_count", 0);
    if (const int n_block = hp.n_layer + hp.n_layer_draft; n_dense > static_cast<std::uint32_t>(n_block))
        keys.bad("leading_dense_block_count", cat(n_dense), cat("must lie in 0 to block_count = ", n_block));
    hp.experts.n_layer_dense = static_cast<int>(n_dense);
    read_expert_groups(keys, hp);
}

std::uint32_t expert_count(KeyReader& keys) {
    const std::uint32_t n = keys.u32("expert_count", 0);
    if (n > 1024) keys.bad("expert_count", cat(n), "at most 1024 experts");
    return n;
}

void check_used(KeyReader& keys, std::uint32_t n_used, std::uint32_t n_expert, bool may_be_none) {
    if (n_used > n_expert || (!may_be_none && (n_expert > 0) != (n_used > 0)))
        keys.bad("expert_used_count", cat(n_used), cat("must lie in 1 to expert_count = ", n_expert));
}

}  // namespace

void read_experts(KeyReader& keys, HParams& hp) {
    const std::uint32_t n_expert = expert_count(keys), n_used = keys.u32("expert_used_count", 0);
    check_used(keys, n_used, n_expert, false);
    hp.experts.n = static_cast<int>(n_expert);
    hp.experts.n_used = static_cast<int>(n_used);
    read_routing(keys, hp);
}

void read_layer_experts(KeyReader& keys, HParams& hp) {
    const auto n = static_cast<std::size_t>(hp.n_layer + hp.n_layer_draft);
    const std::uint32_t n_expert = expert_count(keys);
    const auto used = keys.find_per_layer("expert_used_count", n).value_or(std::vector<std::uint32_t>(n, 0));
    hp.experts.n = static_cast<int>(n_expert);
    for (const std::uint32_t value : used) {
        check_used(keys, value, n_expert, true);
        hp.experts.n_used_in.push_back(static_cast<int>(value));
        hp.experts.n_used = std::max(hp.experts.n_used, hp.experts.n_used_in.back());
    }
    check_used(keys, static_cast<std::uint32_t>(hp.experts.n_used), n_expert, false);
    read_routing(keys, hp);
    if (n_expert == 0) return;
    const auto widths = keys.find_per_layer("expert_feed_forward_length", n);
    for (std::size_t il = 0; il < n; ++il) {
        const int k = std::max(hp.experts.n_used_in[il], 1);
        const std::uint32_t width = widths ? (*widths)[il] : static_cast<std::uint32_t>(hp.n_ff[il] / k);
        if (width > (1u << 24)) keys.bad("expert_feed_forward_length", cat(width), "must lie in 1 to 16777216");
        hp.experts.n_ff_in.push_back(static_cast<int>(width));
    }
}

namespace {

void read_fixed_experts(KeyReader& keys, HParams& hp, bool normalized) {
    hp.experts.weights_norm = normalized;
    read_experts(keys, hp);
    if (hp.experts.weights_norm != normalized)
        keys.bad("expert_weights_norm", normalized ? "false" : "true",
                 cat("architecture '", escaped(hp.arch), normalized ? "' always normalizes" : "' never normalizes"));
    if (hp.experts.weights_scale != 1.0f)
        keys.bad("expert_weights_scale", cat(hp.experts.weights_scale),
                 cat("architecture '", escaped(hp.arch), "' scales by nothing"));
}

int width_of_one(KeyReader& keys, const HParams& hp, ExpertKeys::Width width) {
    constexpr std::string_view kKey = "expert_feed_forward_length";
    const auto n_ff = static_cast<std::uint32_t>(hp.n_ff[0]);
    switch (width) {
        case ExpertKeys::Width::required: return required_expert_width(keys);
        case ExpertKeys::Width::or_dense: return expert_width(keys, kKey, n_ff);
        case ExpertKeys::Width::or_part:
            return expert_width(keys, kKey, n_ff / static_cast<std::uint32_t>(hp.experts.n_used));
        case ExpertKeys::Width::dense_whatever: (void)keys.u32(kKey, 0); break;
        case ExpertKeys::Width::dense: break;
    }
    return hp.n_ff[0];
}

int width_of_shared(KeyReader& keys, const HParams& hp, ExpertKeys::Shared shared) {
    constexpr std::string_view kKey = "expert_shared_feed_forward_length";
    switch (shared) {
        case ExpertKeys::Shared::counted: return shared_width(keys, hp);
        case ExpertKeys::Shared::if_given: return optional_width(keys, kKey);
        case ExpertKeys::Shared::or_one: return expert_width(keys, kKey, static_cast<std::uint32_t>(hp.experts.n_ff));
        case ExpertKeys::Shared::or_dense: return expert_width(keys, kKey, static_cast<std::uint32_t>(hp.n_ff[0]));
        case ExpertKeys::Shared::none: break;
    }
    return 0;
}

}  // namespace

void read_normalized_experts(KeyReader& keys, HParams& hp) { read_fixed_experts(keys, hp, true); }
void read_plain_experts(KeyReader& keys, HParams& hp) { read_fixed_experts(keys, hp, false); }

void read_experts(KeyReader& keys, HParams& hp, const ExpertKeys& rules) {
    using Sum = ExpertKeys::Sum;
    if (rules.count == ExpertKeys::Count::none) return;
    hp.experts.gating = rules.gating;
    hp.experts.weights_norm = rules.sum == Sum::normalized;
    if (rules.sum == Sum::always) read_normalized_experts(keys, hp);
    else if (rules.sum == Sum::never) read_plain_experts(keys, hp);
    else read_experts(keys, hp);
    if (rules.count == ExpertKeys::Count::required) require_experts(keys, hp);
    if (rules.gating_given) require_gating(keys);
    hp.experts.n_ff = width_of_one(keys, hp, rules.width);
    hp.experts.n_ff_shared = width_of_shared(keys, hp, rules.shared);
}

// ---- weights --------------------------------------------------------------------------------------------------------

void bind_experts(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w, Bias bias) {
    const std::int64_t e = hp.n_embd, f = hp.experts.width(static_cast<std::size_t>(il)), n = hp.experts.n;
    w.ffn_gate_inp = binder.linear(block_name(il, "ffn_gate_inp"), e, n, bias);
    if (binder.exists(block_name(il, "ffn_gate_up_exps.weight"))) {
        w.ffn_gate_up_exps = binder.experts(block_name(il, "ffn_gate_up_exps"), e, 2 * f, n, bias);
    } else {
        binder.refuse(block_name(il, "ffn_gate.0.weight"), "legacy per-expert layout; reconvert the file");
        w.ffn_gate_exps = binder.experts(block_name(il, "ffn_gate_exps"), e, f, n, bias);
        w.ffn_up_exps = binder.experts(block_name(il, "ffn_up_exps"), e, f, n, bias);
    }
    w.ffn_down_exps = binder.experts(block_name(il, "ffn_down_exps"), f, e, n, bias);
    for (const char* const name : {"exp_probs_b.bias", "exp_probs_b"})  // some writers leave the suffix out
        if (w.exp_probs_b == nullptr) w.exp_probs_b = binder.find_vector(block_name(il, name), n);
    if (hp.experts.n_ff_shared == 0) return;
    w.ffn_gate_shexp = binder.linear(block_name(il, "ffn_gate_shexp"), e, hp.experts.n_ff_shared);
    w.ffn_up_shexp = binder.linear(block_name(il, "ffn_up_shexp"), e, hp.experts.n_ff_shared);
    w.ffn_down_shexp = binder.linear(block_name(il, "ffn_down_shexp"), hp.experts.n_ff_shared, e);
}

void bind_dense_or_experts(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w) {
    const bool routed = binder.exists(block_name(il, "ffn_gate_inp.weight"));
    if (routed != hp.experts.stand_in(il) || (routed && binder.exists(block_name(il, "ffn_up.weight"))))
        binder.unsupported(cat("mixed dense/expert layer ", il, " not supported"));
    if (routed) bind_experts(binder, hp, il, w);
    else bind_gated_ffn(binder, hp, il, w);
}

void require_choice_bias(const WeightBinder& binder, int il, const LayerWeights& w) {
    if (w.ffn_gate_inp && w.exp_probs_b == nullptr) binder.missing(block_name(il, "exp_probs_b.bias"));
}

void bind_by_router(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w) {
    if (!binder.exists(block_name(il, "ffn_gate_inp.weight"))) return bind_gated_ffn(binder, hp, il, w);
    if (hp.experts.n == 0) binder.unsupported(cat("layer ", il, " has a router, and expert_count is 0"));
    bind_experts(binder, hp, il, w);
}

// ---- graph ----------------------------------------------------------------------------------------------------------

Routing route(const BuildContext& b, const LayerWeights& w, Tensor h, Tensor ids) {
    Graph& g = b.g;
    g.set_part(Part::router);
    const Tensor logits = g.name(linear(b, w.ffn_gate_inp, h), "ffn_moe_logits");
    const bool after = b.hp.experts.gating == GatingFunc::softmax_selected;
    Tensor probs = logits;
    if (b.hp.experts.gating == GatingFunc::softmax) probs = g.name(g.softmax(logits), "ffn_moe_probs");
    if (b.hp.experts.gating == GatingFunc::sigmoid) probs = g.name(g.sigmoid(logits), "ffn_moe_probs");
    if (b.hp.experts.gating == GatingFunc::sqrt_softplus)
        probs = g.name(g.signed_sqrt(g.name(g.softplus(logits), "ffn_moe_softplus")), "ffn_moe_probs");
    Tensor scores = probs;  // rank the experts; probs weigh them
    if (w.exp_probs_b != nullptr) scores = g.name(g.add(scores, vector(g, w.exp_probs_b)), "ffn_moe_scores");
    if (b.hp.experts.n_group > 1)
        scores = g.name(g.keep_groups(scores, b.hp.experts.n_group, b.hp.experts.n_group_used), "ffn_moe_groups");
    Routing out;
    out.ids = ids ? ids : g.name(g.top_k(scores, b.hp.experts.used(layer_of(b, w))), "ffn_moe_topk");
    if (!after) {
        out.weights = g.name(g.moe_weights(probs, out.ids, b.hp.experts.weights_norm, b.hp.experts.weights_scale),
                             "ffn_moe_weights");
        return out;
    }
    const Tensor chosen = g.name(g.moe_weights(logits, out.ids, false, 1.0f), "ffn_moe_chosen");
    out.weights = g.name(g.softmax(chosen), "ffn_moe_weights");
    if (b.hp.experts.weights_scale != 1.0f)
        out.weights = g.name(g.scale(out.weights, b.hp.experts.weights_scale), "ffn_moe_scaled");
    return out;
}

Tensor experts(const BuildContext& b, const LayerWeights& w, Tensor x, Tensor ids) {
    Graph& g = b.g;
    g.set_part(Part::experts);
    if (!w.ffn_gate_up_exps && !w.ffn_gate_exps) {
        const Tensor plain = expert_linear(b, w.ffn_up_exps, x, ids, "ffn_moe_up");
        return expert_linear(b, w.ffn_down_exps, g.name(activate(g, b.hp.activation, plain), "ffn_moe_act"), ids,
                             "ffn_moe_down");
    }
    Tensor gate, up;
    if (w.ffn_gate_up_exps) {
        const Tensor both = expert_linear(b, w.ffn_gate_up_exps, x, ids, "ffn_moe_gate_up");
        const std::int64_t n_ff = g.value(both).ne[0] / 2;
        gate = g.view(both, 0, n_ff);
        up = g.view(both, n_ff, n_ff);
    } else {
        gate = expert_linear(b, w.ffn_gate_exps, x, ids, "ffn_moe_gate");
        up = expert_linear(b, w.ffn_up_exps, x, ids, "ffn_moe_up");
    }
    const float limit = GateLimits::of(b.hp.gate_limits.routed, layer_of(b, w));
    const Tensor product = gated(b, gate, up, {"ffn_moe_silu", "ffn_moe_swiglu"}, limit);
    return expert_linear(b, w.ffn_down_exps, product, ids, "ffn_moe_down");
}

Tensor routed_experts(const BuildContext& b, const LayerWeights& w, Tensor x, const Routing& routing) {
    return b.g.name(b.g.moe_sum(experts(b, w, x, routing.ids), routing.weights), "ffn_moe_out");
}

Tensor moe_ffn(const BuildContext& b, const LayerWeights& w, Tensor h, Tensor ids) {
    Graph& g = b.g;
    const Tensor routed = routed_experts(b, w, h, route(b, w, h, ids));
    if (!w.ffn_up_shexp) return routed;
    const Tensor shared = shared_expert(b, w, h);
    g.set_part(Part::ffn);
    const Tensor sum = g.name(g.add(routed, shared), "ffn_out");
    return b.hp.experts.sum_scale == 1.0f ? sum : g.name(g.scale(sum, b.hp.experts.sum_scale), "ffn_out_scaled");
}

}  // namespace tinfer::model
