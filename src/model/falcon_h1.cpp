// SPDX-License-Identifier: MIT
// Falcon-H1 (arXiv:2507.22448): attention and Mamba-2's mixer side by side behind one norm, then a gated feed-forward.
// The factors of its published form are in the weights.
#include "base/error.hpp"
#include "model/families.hpp"
#include "model/mamba2.hpp"

namespace tinfer::model {

namespace {

Tensor attention_beside_mamba2(const BuildContext& b, const Inputs& in, int il, Tensor h) {
    const Tensor a = self_attention(b, in, il, h);
    const Tensor y = grouped_state_space(b, in, il, h);
    return writes_only(b, il) ? y : b.g.name(b.g.add(a, y), "branches");
}

}  // namespace

const Family families::falcon_h1{
    .rope = RopeKind::neox,
    .full_rotation = true,
    .keys =
        [](KeyReader& keys, HParams& hp) {
            read_grouped_state_space(keys, hp);
            hp.recurrent.states.resize(static_cast<std::size_t>(hp.n_layer));
            for (std::size_t il = 0; il < hp.recurrent.states.size(); ++il) add_grouped_states(hp, il);
        },
    .block = {.norms = BlockNorms::one, .qkv_bias = Bias::optional},
    .check = [](WeightBinder& binder, const HParams&) { refuse_factors(binder); },
    .layer =
        [](WeightBinder& binder, const HParams& hp, int il, LayerWeights& layer) {
            layer.ffn_norm = bare_norm(binder, block_name(il, "ffn_norm"), {hp.n_embd});
            bind_grouped(binder, hp, il, layer, Bias::optional, false);
        },
    .mixer = attention_beside_mamba2,
};

}  // namespace tinfer::model
