// SPDX-License-Identifier: MIT
// Ministral 3 and Mistral Small 3.1 and later (2025): llama's block whose queries get a factor that grows with the
// position, and whose YaRN shares its magnitude with the scores.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::mistral3 {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::norm);
    require_full_rotation(keys, hp);
    hp.yarn_magnitude_share = keys.f32("rope.scaling.yarn_log_multiplier", 0.0f);
    if (hp.yarn_magnitude_share < 0)
        keys.bad("rope.scaling.yarn_log_multiplier", cat(hp.yarn_magnitude_share), "must not be below 0");
    read_temperature(keys, hp, "rope.scaling.original_context_length");
    read_normalized_experts(keys, hp);
    hp.n_ff_expert = hp.n_ff[0];
    (void)keys.u32("expert_feed_forward_length", 0);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::tied_if_missing, kBiasesAsGiven);
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace tinfer::model::mistral3
