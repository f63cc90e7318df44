// SPDX-License-Identifier: MIT
// Jamba (arXiv:2403.19887): Mamba layers with norms on the time step, B and C; a few attention layers, which need no
// positions because the others keep the order; gated SiLU or experts behind every layer.
#include "model/families.hpp"
#include "model/recurrent.hpp"

namespace tinfer::model {

const Family families::jamba{
    .rope = RopeKind::none,
    .common = {.kinds = LayerKinds::hybrid},
    .experts = {.count = ExpertKeys::Count::optional, .width = ExpertKeys::Width::dense},
    .keys =
        [](KeyReader& keys, HParams& hp) {
            read_state_space(keys, hp);
            hp.recurrent.states.resize(static_cast<std::size_t>(hp.n_layer));
            for (std::size_t il = 0; il < hp.recurrent.states.size(); ++il)
                if (hp.n_head_kv[il] == 0) add_selective_states(hp, il);
        },
    .head = Head::required,
    .block = {.ffn = FeedForward::own},
    .layer =
        [](WeightBinder& binder, const HParams& hp, int il, LayerWeights& layer) {
            if (hp.n_head_kv_of(il) == 0) {
                bind_selective(binder, hp, il, layer);
                if (!layer.ssm.dt_norm) binder.missing(block_name(il, "ssm_dt_norm.weight"));
            }
            if (hp.experts.n > 0 && binder.exists(block_name(il, "ffn_gate_inp.weight")))
                bind_experts(binder, hp, il, layer);
            else bind_gated_ffn(binder, hp, il, layer);
        },
    .recurrence = selective_state_space,
};

}  // namespace tinfer::model
