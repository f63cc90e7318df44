// SPDX-License-Identifier: MIT
// BitNet b1.58 (arXiv:2402.17764): llama's block for matrices of −1, 0 and 1. What attention and the feed-forward give
// is normed once more before their last product, and a matrix may have one scale of its own, which the product is
// times.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::bitnet {

namespace {

void bind_scales(WeightBinder& binder, int il, LayerWeights& w) {
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

HParams read(KeyReader& keys) { return read_common(keys, RopeKind::neox); }

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::always_tied, {}, [&](int il, LayerWeights& layer) {
        const auto i = static_cast<std::size_t>(il);
        layer.attn_sub_norm =
            binder.norm(block_name(il, "attn_sub_norm"), {std::int64_t{hp.n_head[i]} * hp.head_dim_v});
        layer.ffn_sub_norm = binder.norm(block_name(il, "ffn_sub_norm"), {hp.n_ff[i]});
        bind_scales(binder, il, layer);
    });
}

}  // namespace tinfer::model::bitnet

namespace tinfer::model {
const Family families::bitnet{.read_all = bitnet::read, .bind_all = bitnet::bind};
}  // namespace tinfer::model
