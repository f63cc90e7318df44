// SPDX-License-Identifier: MIT
#include "model/family.hpp"

#include "base/error.hpp"

namespace tinfer::model {

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
