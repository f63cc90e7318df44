// SPDX-License-Identifier: MIT
// BitNet b1.58 (arXiv:2402.17764): llama's block for matrices of −1, 0 and 1. What attention and the feed-forward give
// is normed once more before their last product, and a matrix may have one scale of its own, which the product is
// times.
#include "base/error.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace {

void bind_scales_and_norms(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w) {
    w.attn_sub_norm = binder.norm(block_name(il, "attn_sub_norm"), {std::int64_t{hp.n_head_of(il)} * hp.head_dim_v});
    w.ffn_sub_norm = binder.norm(block_name(il, "ffn_sub_norm"), {hp.n_ff_of(il)});
    struct Scaled {
        Linear& map;
        std::string_view role;
    };
    for (const auto& [map, role] : {Scaled{w.attn_q, "attn_q"},
                                    {w.attn_k, "attn_k"},
                                    {w.attn_v, "attn_v"},
                                    {w.attn_qkv, "attn_qkv"},
                                    {w.attn_output, "attn_output"},
                                    {w.ffn_gate, "ffn_gate"},
                                    {w.ffn_up, "ffn_up"},
                                    {w.ffn_down, "ffn_down"}})
        if (map) map.scale = binder.find_vector(block_name(il, cat(role, ".scale")), 1);
}

}  // namespace

const Family families::bitnet{.rope = RopeKind::neox, .head = Head::always_tied, .layer = bind_scales_and_norms};

}  // namespace tinfer::model
