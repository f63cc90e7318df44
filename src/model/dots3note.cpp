// SPDX-License-Identifier: MIT
// dots 3 note (2026): latent attention of two sizes; layers with a window have the smaller latent, the others an
// indexer. The rotated part of a key is normed, and each head has a gate.
#include "base/error.hpp"
#include "model/families.hpp"
#include "model/mla.hpp"

namespace tinfer::model::dots3note {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::norm, CommonKeys{.ff = FeedForwardKey::optional, .two_head_sizes = true});
    require_window_array(keys);
    read_window(keys, hp, WindowKind::standard, 0, 0);
    (void)keys.require_f32("rope.freq_base_swa");
    read_window_base(keys, hp);
    if (const std::uint32_t n = keys.u32("rope.dimension_count_swa", static_cast<std::uint32_t>(hp.rope.n_rot));
        n != static_cast<std::uint32_t>(hp.rope.n_rot))
        keys.bad("rope.dimension_count_swa", cat(n), cat("must be rope.dimension_count ", hp.rope.n_rot));
    read_split_latent(keys, hp, hp.has_windowed_layers());
    if (hp.attention.mla.n_lora_q == 0) keys.bad("attention.q_lora_rank", "0", "must be above 0");
    read_indexer(keys, hp, true);
    if (hp.attention.indexer.head_dim % 64 != 0)
        keys.bad("attention.indexer.key_length", cat(hp.attention.indexer.head_dim), "must be a multiple of 64");
    if (!read_indexer_types(keys, hp)) (void)keys.require_u32("attention.indexer.types");
    for (int il = 0; il < hp.n_layer; ++il)
        if (hp.attention.indexer.layers[static_cast<std::size_t>(il)] == hp.is_windowed(il))
            keys.bad("attention.indexer.types", hp.is_windowed(il) ? "1" : "0",
                     cat("layer ", il, ": layers without a window have an indexer, and no others"));
    read_experts(keys, hp);
    require_experts(keys, hp);
    require_gating(keys);
    hp.experts.n_ff = required_expert_width(keys);
    hp.experts.n_ff_shared = shared_width(keys, hp);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::tied_if_missing, {.mixer = Mixer::own, .ffn = FeedForward::dense_or_experts},
                      [&](int il, LayerWeights& layer) {
                          bind_latent_attention(binder, hp, il, layer);
                          bind_indexer(binder, hp, il, layer);
                          layer.attn_k_norm = binder.norm(block_name(il, "attn_k_norm"), {hp.rope.n_rot});
                          layer.attn_gate = binder.linear(block_name(il, "attn_gate"), hp.n_embd, hp.n_head_of(il));
                          require_choice_bias(binder, il, layer);
                      });
}

void build(const BuildContext& b) {
    sequential_stack(
        b,
        [&](const Inputs& in, int il, Tensor h) {
            Tensor chosen;  // every layer without a window has its own
            return latent_attention(b, in, il, h, b.hp.is_windowed(il) ? nullptr : &chosen);
        },
        [&](const LayerWeights& w, Tensor h) { return feed_forward(b, w, h); });
}

}  // namespace tinfer::model::dots3note

namespace tinfer::model {
const Family families::dots3note{
    .read_all = dots3note::read, .bind_all = dots3note::bind, .build_all = dots3note::build};
}  // namespace tinfer::model
