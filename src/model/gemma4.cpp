// SPDX-License-Identifier: MIT
// Gemma 4 (Google, 2026), its text: layers with a window have heads of another size than those that see everything; the
// small models have an input for each layer and layers that share keys and values, the larger ones experts beside a
// dense feed-forward.
#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "model/families.hpp"
#include "model/gemma_layers.hpp"

namespace tinfer::model::gemma4 {

namespace {

// Experts by a router that reads the stream normed without weights, times a vector; their outputs have a factor each.
Tensor experts_beside(const BuildContext& b, const LayerWeights& w, Tensor y) {
    Graph& g = b.g;
    g.set_part(Part::router);
    const Tensor bare = g.name(g.rms_norm(y, {}, b.hp.rms_eps), "router_norm");
    const Tensor scaled = g.scale(bare, 1.0f / std::sqrt(static_cast<float>(b.hp.n_embd)));
    Routing routing = route(b, w, g.name(g.mul(scaled, vector(g, w.router_scale)), "router_inp"));
    const std::array<std::int64_t, 4> ne = g.value(routing.ids).ne;
    if (w.expert_scales != nullptr) {
        const Tensor table = g.reshape(vector(g, w.expert_scales), {1, b.hp.experts.n, 1, 1});
        const Tensor ids = g.reshape(routing.ids, {ne[0] * ne[1], 1, 1, 1});
        const Tensor scales = g.reshape(g.name(g.get_rows(table, ids), "expert_scales"), ne);
        routing.weights = g.name(g.mul(routing.weights, scales), "ffn_moe_scaled");
    }
    g.set_part(Part::experts);
    const Tensor moe = routed_experts(b, w, norm(b, w.ffn_norm_exps, y, "ffn_norm_exps"), routing);
    return norm(b, w.expert_post_norm, moe, "ffn_post_norm_2");
}

Tensor ffn(const BuildContext& b, const LayerWeights& w, Tensor y) {
    Graph& g = b.g;
    g.set_part(Part::ffn_norm);
    const Tensor h = norm(b, w.ffn_norm, y, "ffn_norm");
    g.set_part(Part::ffn);
    const Tensor dense = gated_ffn(b, w.ffn_gate, w.ffn_up, w.ffn_down, h);
    if (!w.ffn_gate_inp) return dense;
    const Tensor first = norm(b, w.dense_post_norm, dense, "ffn_post_norm_1");
    const Tensor second = experts_beside(b, w, y);
    g.set_part(Part::ffn);
    return g.name(g.add(first, second), "ffn_sum");
}

}  // namespace

}  // namespace tinfer::model::gemma4

namespace tinfer::model {

HParams read_gemma4_blocks(KeyReader& keys, const CommonKeys& common) {
    HParams hp = read_common(keys, RopeKind::neox, common);
    hp.activation = Activation::gelu;
    hp.attention.scale = 1.0f;
    require_window_array(keys);
    read_window(keys, hp, WindowKind::standard, 0, 0);
    for (const bool windowed : {false, true}) {
        const int k = windowed && hp.windows.head_dim_k > 0 ? hp.windows.head_dim_k : hp.head_dim_k;
        const int v = windowed && hp.windows.head_dim_v > 0 ? hp.windows.head_dim_v : hp.head_dim_v;
        if (k != v)
            keys.bad(windowed ? "attention.value_length_swa" : "attention.value_length", cat(v),
                     cat("must be the size of keys ", k));
    }
    const int window_head = hp.windows.head_dim_k > 0 ? hp.windows.head_dim_k : hp.head_dim_k;
    const int n_rot = hp.rope.n_rot;
    hp.windows.n_rot = static_cast<int>(
        keys.u32("rope.dimension_count_swa", static_cast<std::uint32_t>(std::min(n_rot, window_head))));
    if (hp.windows.n_rot < 2 || hp.windows.n_rot % 2 != 0 || hp.windows.n_rot > window_head)
        keys.bad("rope.dimension_count_swa", cat(hp.windows.n_rot),
                 cat("must be even and at most the head size ", window_head));
    read_window_base(keys, hp, 10000.0f);
    hp.windows.rope_scaled = hp.windows.rope_factors = false;
    return hp;
}

}  // namespace tinfer::model

namespace tinfer::model::gemma4 {

HParams read(KeyReader& keys) {
    HParams hp = read_gemma4_blocks(keys, {.two_head_sizes = true, .shared_kv = true});
    hp.embd_scale = std::sqrt(static_cast<float>(hp.n_embd));
    hp.final_softcap = keys.f32("final_logit_softcapping", 30.0f);
    if (!(hp.final_softcap >= 0)) keys.bad("final_logit_softcapping", cat(hp.final_softcap), "must not be below 0");
    const std::uint32_t per_layer = keys.require_u32("embedding_length_per_layer_input");
    hp.n_per_layer = per_layer == 0 ? 0 : expert_width(keys, "embedding_length_per_layer_input", per_layer);
    const std::uint32_t n_shared = keys.u32("attention.shared_kv_layers", 0);
    if (n_shared >= static_cast<std::uint32_t>(hp.n_layer))
        keys.bad("attention.shared_kv_layers", cat(n_shared), cat("must be below block_count = ", hp.n_layer));
    share_last_layers(keys, hp, hp.n_layer - static_cast<int>(n_shared), "attention.shared_kv_layers");
    read_normalized_experts(keys, hp);
    if (hp.experts.n > 0) hp.experts.n_ff = required_expert_width(keys);
    else (void)keys.u32("expert_feed_forward_length", 0);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    const auto bind_beside = [&](int il, LayerWeights& w) {
        const auto name = [&](std::string_view role) { return block_name(il, role); };
        if (!binder.exists(name("ffn_gate_inp.weight"))) return;
        if (hp.experts.n == 0) binder.unsupported(cat("layer ", il, " has a router, and expert_count is 0"));
        bind_experts(binder, hp, il, w);
        w.router_scale = binder.vector(name("ffn_gate_inp.scale"), hp.n_embd);
        w.ffn_norm_exps = binder.norm(name("pre_ffw_norm_2"), {hp.n_embd});
        w.dense_post_norm = binder.norm(name("post_ffw_norm_1"), {hp.n_embd});
        w.expert_post_norm = binder.norm(name("post_ffw_norm_2"), {hp.n_embd});
        w.expert_scales = binder.find_vector(name("ffn_down_exps.scale"), hp.experts.n);
    };
    Weights w = bind_stack(binder, hp, Head::tied_if_missing, {.norms = BlockNorms::around, .mixer = Mixer::own},
                           [&](int il, LayerWeights& layer) {
                               bind_gemma_attention(binder, hp, il, layer, true);
                               bind_beside(il, layer);
                               if (hp.n_per_layer > 0) bind_layer_input(binder, hp, il, layer);
                               layer.out_scale = binder.find_vector(block_name(il, "layer_output_scale.weight"), 1);
                           });
    if (w.rope_freqs == nullptr) binder.missing("rope_freqs.weight");
    if (hp.n_per_layer > 0) bind_layer_inputs(binder, hp, w);
    return w;
}

void build(const BuildContext& b) {
    Graph& g = b.g;
    const Inputs in = make_inputs(b);
    Tensor u, rest;
    if (b.hp.n_per_layer > 0) {
        u = layer_inputs(b, in, b.hp.n_embd);
        rest = layer_inputs_behind(b, u);
    }
    SharedKv shared;
    const Tensor first = handed(b, in, 0, b.hp.n_embd);
    const auto layer = [&](int il, const LayerWeights& w, Tensor x) -> Tensor {
        Tensor a = gemma_attention(b, in, il, norm(b, w.attn_norm, x, "attn_norm"), shared);
        if (!keep_output_rows(b, in, il, {&a, &x, &u})) return {};
        g.set_part(Part::attn_out);
        x = add_residual(b, x, norm(b, w.attn_post_norm, a, "attn_post_norm"), "ffn_inp");
        x = add_residual(b, x, norm(b, w.ffn_post_norm, ffn(b, w, x), "ffn_post_norm"), "ffn_add");
        if (u) x = g.name(g.add(x, add_layer_input(b, w, il, x, u)), "inp_add");
        return w.out_scale == nullptr ? x : g.mul(x, vector(g, w.out_scale));
    };
    if (const Tensor x = stream_layers(b, first, layer, &rest)) head(b, x);
}

std::int64_t hidden_width(const HParams& hp, int il) { return hp.n_embd + layer_inputs_width(hp, il); }

}  // namespace tinfer::model::gemma4

namespace tinfer::model {
const Family families::gemma4{.read_all = gemma4::read,
                              .bind_all = gemma4::bind,
                              .build_all = gemma4::build,
                              .hidden_width = gemma4::hidden_width};
}  // namespace tinfer::model
