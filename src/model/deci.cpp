// SPDX-License-Identifier: MIT
// Deci's models and Nvidia's Llama-Nemotron (arXiv:2411.19146): llama after a search of what each layer can do without.
// Heads and widths differ by layer; attention may have become one matrix, or nothing, and so may the feed-forward.
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::deci {

// Head counts tell the three kinds of layer apart: with KV heads, with query heads alone (one matrix), without either.
HParams read(KeyReader& keys) { return read_common(keys, RopeKind::norm, NormKind::rms, LayerKinds::may_lack_parts); }

Weights bind(WeightBinder& binder, const HParams& hp) {
    constexpr BlockParts kOwn{.norms = BlockNorms::own, .mixer = Mixer::own, .ffn = FeedForward::own};
    return bind_stack(binder, hp, Head::tied_if_missing, kOwn, [&](int il, LayerWeights& layer) {
        const auto i = static_cast<std::size_t>(il);
        if (hp.n_head[i] > 0) layer.attn_norm = binder.norm(block_name(il, "attn_norm"), {hp.n_embd});
        if (hp.n_head_kv[i] > 0) bind_attention(binder, hp, il, layer, Bias::optional, Bias::optional);
        else if (hp.n_head[i] > 0)
            layer.attn_output = binder.linear(block_name(il, "attn_output"), hp.n_embd, hp.n_embd);
        if (hp.n_ff[i] == 0) return;
        layer.ffn_norm = binder.norm(block_name(il, "ffn_norm"), {hp.n_embd});
        bind_gated_ffn(binder, hp, il, layer, Bias::optional);
    });
}

// Attention; one matrix in its place; or nothing.
Tensor mix_tokens(const BuildContext& b, const Inputs& in, int il, Tensor h) {
    if (b.hp.n_head_kv_of(il) > 0) return self_attention(b, in, il, h);
    if (b.hp.n_head_of(il) == 0) return {};
    b.g.set_part(Part::attn_out);
    return b.g.name(linear(b, b.layer(il).attn_output, h), "attn_out");
}

Tensor ffn(const BuildContext& b, const LayerWeights& w, Tensor h) {
    return w.ffn_down ? feed_forward(b, w, h) : Tensor{};
}

}  // namespace tinfer::model::deci

namespace tinfer::model {
const Family families::deci{
    .mixer = deci::mix_tokens, .ffn = deci::ffn, .read_all = deci::read, .bind_all = deci::bind};
}  // namespace tinfer::model
