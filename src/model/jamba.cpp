// SPDX-License-Identifier: MIT
// Jamba (arXiv:2403.19887): Mamba layers with norms on the time step, B and C; a few attention layers, which need no
// positions because the others keep the order; gated SiLU or experts behind every layer.
#include "model/bindings.hpp"
#include "model/families.hpp"
#include "model/recurrent.hpp"

namespace tinfer::model::jamba {

namespace {

void bind_normed_state_space(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w) {
    bind_selective(binder, hp, il, w);
    if (!w.ssm.dt_norm) binder.missing(block_name(il, "ssm_dt_norm.weight"));
}

}  // namespace

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::none, NormKind::rms, LayerKinds::hybrid);
    read_state_space(keys, hp);
    read_experts(keys, hp);
    hp.experts.n_ff = hp.n_ff[0];
    hp.recurrent.states.resize(static_cast<std::size_t>(hp.n_layer));
    for (std::size_t il = 0; il < hp.recurrent.states.size(); ++il)
        if (hp.n_head_kv[il] == 0) add_selective_states(hp, il);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::required, {.mixer = Mixer::own, .ffn = FeedForward::own},
                      [&](int il, LayerWeights& layer) {
                          if (hp.n_head_kv_of(il) > 0) bind_attention(binder, hp, il, layer);
                          else bind_normed_state_space(binder, hp, il, layer);
                          if (hp.experts.n > 0 && binder.exists(block_name(il, "ffn_gate_inp.weight")))
                              bind_experts(binder, hp, il, layer);
                          else bind_gated_ffn(binder, hp, il, layer);
                      });
}

}  // namespace tinfer::model::jamba

namespace tinfer::model {
const Family families::jamba{.recurrence = selective_state_space, .read_all = jamba::read, .bind_all = jamba::bind};
}  // namespace tinfer::model
