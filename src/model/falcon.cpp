// SPDX-License-Identifier: MIT
// Falcon (arXiv:2311.16867): attention and feed-forward in parallel, behind one layer norm (7B) or two (40B and
// larger), RoPE over whole heads, fused projections without biases, plain GELU.
#include "base/error.hpp"
#include "model/families.hpp"

namespace tinfer::model {

const Family families::falcon{
    .rope = RopeKind::neox,
    .common = {.norm = NormKind::layer},
    .full_rotation = true,
    .activation = Activation::gelu,
    .parallel = true,
    .keys =
        [](KeyReader& keys, HParams& hp) {
            if (const auto layout = keys.find_string("tensor_data_layout"); layout && *layout != "jploski")
                unsupported(keys.file(), hp.arch, cat("qkv layout '", escaped(*layout), "' not supported"));
        },
    .block = {.norms = BlockNorms::one, .norm_bias = Bias::required, .ffn = FeedForward::plain},
    .layer =
        [](WeightBinder& binder, const HParams& hp, int il, LayerWeights& layer) {
            const Norm second = binder.find_norm(block_name(il, "attn_norm_2"), {hp.n_embd}, Bias::required);
            if (!second) return;
            layer.ffn_norm = layer.attn_norm;  // by its place: "attn_norm" is then the feed-forward's
            layer.attn_norm = second;
        },
};

}  // namespace tinfer::model
