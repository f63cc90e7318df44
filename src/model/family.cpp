// SPDX-License-Identifier: MIT
#include "model/family.hpp"

#include "base/error.hpp"

namespace tinfer::model {

namespace {

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

HParams Family::read(KeyReader& reader) const {
    if (read_all != nullptr) return read_all(reader);
    HParams hp = read_common(reader, rope, common);
    if (full_rotation) require_full_rotation(reader, hp);
    hp.activation = activation;
    hp.parallel_residual = parallel;
    read_experts(reader, hp, experts);
    if (keys != nullptr) keys(reader, hp);
    return hp;
}

Weights Family::bind(WeightBinder& binder, const HParams& hp) const {
    if (bind_all != nullptr) return bind_all(binder, hp);
    if (check != nullptr) check(binder, hp);
    Weights w = bind_stack(binder, hp, head, block, [&](int il, LayerWeights& of_layer) {
        if (layer != nullptr) layer(binder, hp, il, of_layer);
    });
    if (weights != nullptr) weights(binder, hp, w);
    return w;
}

void Family::build(const BuildContext& b) const {
    if (build_all != nullptr) return build_all(b);
    if (b.hp.parallel_residual) return parallel_stack(b);
    sequential_stack(
        b,
        [&](const Inputs& in, int il, Tensor h) {
            const bool recurs = recurrence != nullptr && b.hp.n_head_kv_of(il) == 0;
            return recurs ? recurrence(b, in, il, h) : mixer(b, in, il, h);
        },
        [&](const LayerWeights& w, Tensor h) { return ffn(b, w, h); });
}

}  // namespace tinfer::model
