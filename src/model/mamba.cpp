// SPDX-License-Identifier: MIT
// Mamba and Falcon-Mamba (arXiv:2312.00752): layers of one selective state space each, no attention, no feed-forward
// part.
#include "model/bindings.hpp"
#include "model/families.hpp"
#include "model/recurrent.hpp"

namespace tinfer::model::mamba {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::none, NormKind::rms, LayerKinds::recurrent);
    read_state_space(keys, hp);
    hp.recurrent.ssm.norms = keys.boolean("ssm.dt_b_c_rms", false);
    hp.recurrent.states.resize(static_cast<std::size_t>(hp.n_layer));
    for (std::size_t il = 0; il < hp.recurrent.states.size(); ++il) add_selective_states(hp, il);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w = bind_globals(binder, hp);
    for (int il = 0; il < hp.n_layer; ++il) bind_selective(binder, hp, il, w.layers[static_cast<std::size_t>(il)]);
    return w;
}

void build(const BuildContext& b) { mixer_stack(b, selective_state_space); }

}  // namespace tinfer::model::mamba

namespace tinfer::model {
const Family families::mamba{.read_all = mamba::read, .bind_all = mamba::bind, .build_all = mamba::build};
}  // namespace tinfer::model
