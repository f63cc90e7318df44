// SPDX-License-Identifier: MIT
// Falcon (arXiv:2311.16867): attention and feed-forward in parallel, behind one layer norm (7B) or two (40B and
// larger), RoPE over whole heads, fused projections without biases, plain GELU.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::falcon {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox, NormKind::layer);
    if (hp.rope.n_rot != hp.head_dim_k)
        keys.bad("rope.dimension_count", cat(hp.rope.n_rot),
                 cat("must equal head size ", hp.head_dim_k, " for 'falcon'"));
    if (const auto layout = keys.find_string("tensor_data_layout"); layout && *layout != "jploski")
        unsupported(keys.file(), hp.arch, cat("qkv layout '", escaped(*layout), "' not supported"));
    hp.activation = Activation::gelu;
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    const BlockParts parts{.norms = BlockNorms::one, .norm_bias = Bias::required, .ffn = FeedForward::plain};
    return bind_stack(binder, hp, Head::tied_if_missing, parts, [&](int il, LayerWeights& layer) {
        const Norm second = binder.find_norm(block_name(il, "attn_norm_2"), {hp.n_embd}, Bias::required);
        if (!second) return;
        layer.ffn_norm = layer.attn_norm;  // by its place: "attn_norm" is then the feed-forward's
        layer.attn_norm = second;
    });
}

void build(const BuildContext& b) { parallel_stack(b); }

}  // namespace tinfer::model::falcon

namespace tinfer::model {
const Family families::falcon{.read_all = falcon::read, .bind_all = falcon::bind, .build_all = falcon::build};
}  // namespace tinfer::model
