// SPDX-License-Identifier: MIT
// Mamba and Falcon-Mamba (arXiv:2312.00752): layers of one selective state space each, no attention, no feed-forward
// part.
#include "model/families.hpp"
#include "model/recurrent.hpp"

namespace tinfer::model {

const Family families::mamba{
    .rope = RopeKind::none,
    .common = {.kinds = LayerKinds::recurrent},
    .keys =
        [](KeyReader& keys, HParams& hp) {
            read_state_space(keys, hp);
            hp.recurrent.ssm.norms = keys.boolean("ssm.dt_b_c_rms", false);
            hp.recurrent.states.resize(static_cast<std::size_t>(hp.n_layer));
            for (std::size_t il = 0; il < hp.recurrent.states.size(); ++il) add_selective_states(hp, il);
        },
    .block = {.norms = BlockNorms::own, .ffn = FeedForward::own},
    .layer = bind_selective,
    .build_all = [](const BuildContext& b) { mixer_stack(b, selective_state_space); },
};

}  // namespace tinfer::model
