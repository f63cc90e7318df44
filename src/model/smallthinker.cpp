// SPDX-License-Identifier: MIT
// SmallThinker (arXiv:2507.20984): the router of a block reads what enters the block, so that experts can be fetched
// while attention runs; experts are gated by ReLU. One layer of four sees everything and knows no positions, the others
// have a window.
#include <algorithm>

#include "base/error.hpp"
#include "model/families.hpp"

namespace tinfer::model::smallthinker {

namespace {

constexpr int kPeriod = 4;     // layers, of which the first has no positions
constexpr int kWindow = 4096;  // whatever size the file gives

void read_router_and_windows(KeyReader& keys, HParams& hp) {
    if (hp.experts.gating == GatingFunc::softmax_selected) keys.bad("expert_gating_func", "3", "must be 1 or 2");
    if (!read_window_behind_full(keys, hp, WindowKind::standard, kPeriod)) return;
    hp.windows.window.size = kWindow;
    for (int il = 0; il < hp.n_layer; ++il) hp.rope.layers.push_back(il % kPeriod != 0);
    read_window_base(keys, hp);
}

void build(const BuildContext& b) {
    Graph& g = b.g;
    const Inputs in = make_inputs(b);
    stream_stack(b, in, [&](int il, const LayerWeights& w, Tensor x) -> Tensor {
        Tensor a = self_attention(b, in, il, norm(b, w.attn_norm, x, "attn_norm"));
        if (!keep_output_rows(b, in, il, {&a, &x})) return {};
        const Routing routing = route(b, w, x);
        g.set_part(Part::attn_out);
        x = add_residual(b, x, a, "ffn_inp");
        g.set_part(Part::ffn_norm);
        const Tensor h = norm(b, w.ffn_norm, x, "ffn_norm");
        return add_residual(b, x, routed_experts(b, w, h, routing));
    });
}

}  // namespace

}  // namespace tinfer::model::smallthinker

namespace tinfer::model {
const Family families::smallthinker{
    .rope = RopeKind::neox,
    .common = {.ff = FeedForwardKey::optional},
    .activation = Activation::relu,
    .experts = {.count = ExpertKeys::Count::required, .sum = ExpertKeys::Sum::always},
    .keys = smallthinker::read_router_and_windows,
    .block = {.qkv_bias = Bias::optional, .ffn = FeedForward::experts},
    .build_all = smallthinker::build,
};
}  // namespace tinfer::model
