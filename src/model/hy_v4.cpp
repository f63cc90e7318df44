// SPDX-License-Identifier: MIT
// Hy4 (Tencent, 2026): several residual streams around latent attention with sinks, gates and an indexer; experts.
#include "base/error.hpp"
#include "model/families.hpp"
#include "model/mla.hpp"
#include "model/streams.hpp"

namespace tinfer::model::hy_v4 {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::norm, CommonKeys{.ff = FeedForwardKey::optional});
    read_split_latent(keys, hp);
    if (hp.attention.mla.n_lora_q == 0) keys.bad("attention.q_lora_rank", "0", "must be above 0");
    read_streams(keys, hp);
    hp.streams.magnitude = keys.require_f32("hyper_connection.magnitude");
    if (hp.streams.magnitude < 0)
        keys.bad("hyper_connection.magnitude", cat(hp.streams.magnitude), "must not be below 0");
    read_experts(keys, hp);
    require_experts(keys, hp);
    require_gating(keys);
    hp.experts.n_ff = required_expert_width(keys);
    hp.experts.n_ff_shared = shared_width(keys, hp);
    hp.gate_limits = {.routed = layer_limits(keys, hp, "swiglu_clamp_exp"), .dense = {}, .before = true};
    (void)layer_limits(keys, hp, "swiglu_clamp_shexp");  // no effect
    if (keys.u32("attention.indexer.top_k", 0) > 0) {
        read_indexer(keys, hp, false);
        hp.attention.indexer.first = hp.attention.indexer.head_dim - hp.rope.n_rot;
        hp.attention.indexer.eps = hp.rms_eps;
        if (hp.attention.indexer.first <= 0)
            keys.bad("attention.indexer.key_length", cat(hp.attention.indexer.head_dim),
                     cat("must be above ", hp.rope.n_rot));
        if (!read_indexer_types(keys, hp)) (void)keys.require_u32("attention.indexer.types");
        if (!hp.attention.indexer.layers[0]) keys.bad("attention.indexer.types", "0", "layer 0 must have an indexer");
    } else {
        (void)keys.find_u32("attention.indexer.head_count");  // no effect
        (void)keys.find_u32("attention.indexer.key_length");
        (void)keys.find_per_layer("attention.indexer.types", static_cast<std::size_t>(hp.n_layer + hp.n_layer_draft));
    }
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    const std::int64_t n = hp.streams.n;
    Weights w = bind_globals(binder, hp, Head::required);
    w.output_streams = bind_streams(binder, hp, "output_hc", n, 1);
    bind_blocks(binder, hp, w, {.mixer = Mixer::own, .ffn = FeedForward::dense_or_experts},
                [&](int il, LayerWeights& layer) {
                    const std::int64_t n_head = hp.n_head_of(il);
                    bind_latent_attention(binder, hp, il, layer);
                    bind_indexer(binder, hp, il, layer);
                    layer.attn_sinks = binder.vector(block_name(il, "attn_sinks.weight"), n_head);
                    layer.attn_gate =
                        binder.linear(block_name(il, "attn_gate"), hp.n_embd, n_head * hp.attention.mla.head_dim_v);
                    layer.attn_streams = bind_streams(binder, hp, block_name(il, "hc_attn"), 2 * n, 2);
                    layer.ffn_streams = bind_streams(binder, hp, block_name(il, "hc_ffn"), 2 * n, 2);
                });
    return w;
}

void build(const BuildContext& b) {
    Graph& g = b.g;
    const Inputs in = make_inputs(b);
    Streams s{b.hp.begins_late() ? in.x : repeated(g, in.x, b.hp.streams.n), {}, {}};
    Tensor chosen;
    const bool whole = each_layer(b, [&](int il, const LayerWeights& w) {
        Tensor h = norm(b, w.attn_norm, mix_streams(b, w.attn_streams, s), "attn_norm");
        Tensor a = latent_attention(b, in, il, h, b.hp.attention.indexer.n_head > 0 ? &chosen : nullptr);
        if (!keep_output_rows(b, in, il, {&a, &s.x, &s.write})) return false;
        g.set_part(Part::attn_out);
        write_streams(b, s, a);
        g.set_part(Part::ffn_norm);
        h = norm(b, w.ffn_norm, mix_streams(b, w.ffn_streams, s), "ffn_norm");
        g.set_part(Part::ffn);
        write_streams(b, s, feed_forward(b, w, h));
        return true;
    });
    if (!whole || hand_over(b, {s.x})) return;
    g.set_layer(kNoLayer);
    g.set_part(Part::head);
    head(b, mix_streams(b, b.w.output_streams, s));
}

}  // namespace tinfer::model::hy_v4

namespace tinfer::model {
const Family families::hy_v4{.read_all = hy_v4::read, .bind_all = hy_v4::bind, .build_all = hy_v4::build};
}  // namespace tinfer::model
