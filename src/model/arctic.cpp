// SPDX-License-Identifier: MIT
// Arctic (Snowflake, 2024): llama's block with a narrow dense feed-forward, and beside it 128 experts that read the
// stream as it came into the layer, so that their weights can travel while attention is at work ("dense-MoE hybrid").
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::arctic {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::norm);
    hp.experts.weights_norm = true;
    read_experts(keys, hp);
    if (hp.experts.n == 0) keys.bad("expert_count", "0", "architecture 'arctic' needs expert_count > 0");
    hp.experts.n_ff = hp.n_ff[0];  // the dense part is as wide as the stream
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::tied_if_missing, {.ffn = FeedForward::experts},
                      [&](int il, LayerWeights& layer) {
                          layer.ffn_norm_exps = binder.norm(block_name(il, "ffn_norm_exps"), {hp.n_embd});
                          layer.ffn_gate = binder.linear(block_name(il, "ffn_gate"), hp.n_embd, hp.n_embd);
                          layer.ffn_up = binder.linear(block_name(il, "ffn_up"), hp.n_embd, hp.n_embd);
                          layer.ffn_down = binder.linear(block_name(il, "ffn_down"), hp.n_embd, hp.n_embd);
                      });
}

void build(const BuildContext& b) {
    Graph& g = b.g;
    const Inputs in = make_inputs(b);
    stream_stack(b, in, [&](int il, const LayerWeights& w, Tensor x) -> Tensor {
        // y = x + attention(norm(x))
        Tensor a = self_attention(b, in, il, norm(b, w.attn_norm, x, "attn_norm"));
        if (!keep_output_rows(b, in, il, {&a, &x})) return {};
        g.set_part(Part::attn_out);
        const Tensor y = add_residual(b, x, a, "ffn_inp");

        // x = y + ffn(norm(y)) + experts(norm(x))
        g.set_part(Part::ffn_norm);
        const Tensor dense = norm(b, w.ffn_norm, y, "ffn_norm"), routed = norm(b, w.ffn_norm_exps, x, "ffn_norm_exps");
        g.set_part(Part::ffn);
        const Tensor z = add_residual(b, y, gated_ffn(b, w.ffn_gate, w.ffn_up, w.ffn_down, dense), "ffn_dense");
        return add_residual(b, z, moe_ffn(b, w, routed));
    });
}

}  // namespace tinfer::model::arctic

namespace tinfer::model {
const Family families::arctic{.read_all = arctic::read, .bind_all = arctic::bind, .build_all = arctic::build};
}  // namespace tinfer::model
