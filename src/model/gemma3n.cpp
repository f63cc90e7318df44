// SPDX-License-Identifier: MIT
// Gemma 3n (Google, 2025), its text: Gemma 3's block on four streams, of which a layer computes one, predicts all and
// corrects them by what came out (AltUp, arXiv:2301.13310); a path of low rank beside attention (LAuReL,
// arXiv:2411.07501); feed-forwards of which most gates are cut off in the first layers; an input for each layer; keys
// and values shared by the last ones.
#include <array>
#include <cmath>

#include "base/error.hpp"
#include "model/families.hpp"
#include "model/gemma_layers.hpp"

namespace tinfer::model::gemma3n {

namespace {

// What files do not say.
constexpr int kStreams = 4, kLowRank = 64, kLayerInput = 256, kOwnLayers = 20, kSparseLayers = 10;
constexpr float kCap = 30.0f, kSparsity = 1.6448533535003662f;  // of deviations above the mean: 95 % are cut off
constexpr float kTiny = 1e-20f;

using StreamsOf = std::array<Tensor, kStreams>;

Tensor minus(Graph& g, Tensor a, Tensor b) { return g.add(a, g.scale(b, -1.0f)); }

// |x|, one number per row: ⟨x, x/|x|⟩
Tensor length(Graph& g, Tensor x) { return g.sum_rows(g.mul(x, g.l2_norm(x, kTiny, true))); }

Tensor together(Graph& g, const StreamsOf& x, int first) {
    Tensor out = x[static_cast<std::size_t>(first)];
    for (int i = first + 1; i < kStreams; ++i) out = g.concat(out, x[static_cast<std::size_t>(i)]);
    return g.heads(out, kStreams - first);
}

// The three matrices of a stack, each times its stream, as long as `like`.
StreamsOf mapped(const BuildContext& b, const TensorInfo& stack, const StreamsOf& x, Tensor like) {
    Graph& g = b.g;
    const Tensor y = g.name(head_linear(b, stack, together(g, x, 1)), "altup_map");
    const Tensor unit = g.l2_norm(y, kTiny, true);
    const std::int64_t n = b.hp.n_embd, n_rows = g.value(like).ne[1];
    const Tensor flat = g.reshape(unit, {n * (kStreams - 1), n_rows, 1, 1});
    StreamsOf out = x;
    for (int i = 1; i < kStreams; ++i)
        out[static_cast<std::size_t>(i)] = g.name(g.mul(g.view(flat, (i - 1) * n, n), like), "altup_stream");
    return out;
}

// tanh(W·norm(x)/n_embd), four numbers
Tensor route_streams(const BuildContext& b, const AltupWeights& w, Tensor x) {
    Graph& g = b.g;
    const Tensor normed = norm(b, w.router_norm, x, "altup_router_norm");
    const Tensor scaled = g.scale(normed, 1.0f / static_cast<float>(b.hp.n_embd));
    return g.name(g.tanh(g.name(linear(b, w.router, scaled), "altup_router")), "altup_modalities");
}

// P_j = X_j + Σ_i c[4j + i]·X_i
StreamsOf predict(const BuildContext& b, const AltupWeights& w, const StreamsOf& x) {
    Graph& g = b.g;
    const Tensor c = g.name(linear(b, w.predict, route_streams(b, w, x[0])), "altup_predict");
    const Tensor all = together(g, x, 0);
    StreamsOf out;
    for (int j = 0; j < kStreams; ++j) {
        const Tensor change = g.moe_sum(all, g.view(c, j * kStreams, kStreams));
        out[static_cast<std::size_t>(j)] = g.name(g.add(x[static_cast<std::size_t>(j)], change), "altup_predicted");
    }
    return out;
}

// X_j = P_j + (1 + c_j)·(r − P_0)
StreamsOf correct(const BuildContext& b, const AltupWeights& w, const StreamsOf& p, Tensor r) {
    Graph& g = b.g;
    const Tensor c = g.name(linear(b, w.correct, route_streams(b, w, r)), "altup_correct");
    const Tensor d = g.name(minus(g, r, p[0]), "altup_innovation");
    StreamsOf out;
    for (int j = 0; j < kStreams; ++j) {
        const Tensor moved = g.add(d, g.mul(d, g.view(c, j, 1)));
        out[static_cast<std::size_t>(j)] = g.name(g.add(p[static_cast<std::size_t>(j)], moved), "altup_corrected");
    }
    return out;
}

// relu(z − (mean + c·std)), the deviation with F − 1 below
Tensor cut_off(Graph& g, Tensor z) {
    const auto n = static_cast<float>(g.value(z).ne[0]);
    const Tensor mean = g.scale(g.sum_rows(z), 1.0f / n);
    const Tensor centred = g.add(z, g.scale(mean, -1.0f));
    const Tensor spread = g.scale(length(g, centred), kSparsity / std::sqrt(n - 1.0f));
    return g.name(g.relu(g.add(centred, g.scale(spread, -1.0f))), "ffn_cut_off");
}

Tensor ffn(const BuildContext& b, const LayerWeights& w, int il, Tensor h) {
    Graph& g = b.g;
    Tensor z = g.name(linear(b, w.ffn_gate, h), "ffn_gate");
    if (il < kSparseLayers) z = cut_off(g, z);
    const Tensor up = g.name(linear(b, w.ffn_up, h), "ffn_up");
    return g.name(linear(b, w.ffn_down, gated(b, z, up, {"ffn_gelu", "ffn_geglu"})), "ffn_out");
}

}  // namespace

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox, CommonKeys{.shared_kv = true});
    require_full_rotation(keys, hp);
    if (hp.n_layer <= kOwnLayers) keys.bad("block_count", cat(hp.n_layer), cat("must be at least ", kOwnLayers + 1));
    hp.activation = Activation::gelu;
    hp.embd_scale = std::sqrt(static_cast<float>(hp.n_embd));
    hp.attention.scale = 1.0f;
    hp.final_softcap = kCap;
    if (const float cap = keys.f32("final_logit_softcapping", kCap); cap != kCap)
        keys.bad("final_logit_softcapping", cat(cap), "must be 30");
    (void)keys.require_u32("attention.sliding_window");
    read_window(keys, hp, WindowKind::standard, 0, 5);
    read_window_base(keys, hp, 10000.0f);
    hp.windows.rope_scaled = false;
    hp.n_per_layer = kLayerInput;
    if (const std::uint32_t n = keys.u32("embedding_length_per_layer_input", kLayerInput); n != kLayerInput)
        keys.bad("embedding_length_per_layer_input", cat(n), cat("must be ", kLayerInput));
    const auto n_shared = static_cast<std::uint32_t>(hp.n_layer - kOwnLayers);
    if (const std::uint32_t n = keys.u32("attention.shared_kv_layers", n_shared); n != n_shared)
        keys.bad("attention.shared_kv_layers", cat(n), cat("must be ", n_shared));
    share_last_layers(keys, hp, kOwnLayers, "attention.sliding_window_pattern");
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    const std::int64_t e = hp.n_embd;
    Weights w = bind_globals(binder, hp);
    w.altup_proj = binder.matrix("altup_proj", {e, e, kStreams - 1});
    w.altup_unembd_proj = binder.matrix("altup_unembd_proj", {e, e, kStreams - 1});
    bind_layer_inputs(binder, hp, w);
    bind_blocks(binder, hp, w, {.norms = BlockNorms::around, .mixer = Mixer::own}, [&](int il, LayerWeights& layer) {
        const auto name = [&](std::string_view role) { return block_name(il, role); };
        bind_gemma_attention(binder, hp, il, layer, false);
        bind_layer_input(binder, hp, il, layer);
        AltupWeights& a = layer.altup;
        a.correct = binder.linear(name("altup_correct_coef"), kStreams, kStreams);
        a.correct_scale = binder.vector(name("altup_correct_scale.weight"), e);
        a.predict = binder.linear(name("altup_predict_coef"), kStreams, kStreams * kStreams);
        a.router = binder.linear(name("altup_router"), e, kStreams);
        a.router_norm = binder.norm(name("altup_router_norm"), {e});
        a.laurel_l = binder.linear(name("laurel_l"), e, kLowRank);
        a.laurel_r = binder.linear(name("laurel_r"), kLowRank, e);
        a.laurel_norm = binder.norm(name("laurel_post_norm"), {e});
    });
    return w;
}

std::int64_t hidden_width(const HParams& hp, int il) {
    return std::int64_t{kStreams} * hp.n_embd + layer_inputs_width(hp, il);
}

void build(const BuildContext& b) {
    Graph& g = b.g;
    const Inputs in = make_inputs(b);
    const std::int64_t e = b.hp.n_embd;
    Tensor u = layer_inputs(b, in, kStreams * e), rest = layer_inputs_behind(b, u);
    StreamsOf x{in.x, in.x, in.x, in.x};
    if (b.hp.begins_late())
        for (std::size_t i = 0; i < kStreams; ++i) x[i] = handed(b, in, static_cast<std::int64_t>(i) * e, e);
    else x = mapped(b, *b.w.altup_proj, x, length(g, in.x));
    SharedKv shared;
    const bool whole = each_layer(b, [&](int il, const LayerWeights& w) {
        StreamsOf p = predict(b, w.altup, x);
        const Tensor n = norm(b, w.attn_norm, p[0], "attn_norm");
        const Tensor low = linear(b, w.altup.laurel_r, g.name(linear(b, w.altup.laurel_l, n), "laurel_l"));
        Tensor side = g.add(n, norm(b, w.altup.laurel_norm, g.name(low, "laurel_r"), "laurel_norm"));
        Tensor a = gemma_attention(b, in, il, n, shared);
        if (!keep_output_rows(b, in, il, {&a, &side, &p[0], &p[1], &p[2], &p[3], &u})) return false;
        g.set_part(Part::attn_out);
        const Tensor attended = g.add(p[0], norm(b, w.attn_post_norm, a, "attn_post_norm"));
        const Tensor y = g.name(g.scale(g.add(attended, side), 1.0f / std::sqrt(2.0f)), "ffn_inp");
        g.set_part(Part::ffn_norm);
        const Tensor h = norm(b, w.ffn_norm, y, "ffn_norm");
        g.set_part(Part::ffn);
        const Tensor r = g.name(g.add(y, norm(b, w.ffn_post_norm, ffn(b, w, il, h), "ffn_post_norm")), "ffn_add");
        x = correct(b, w.altup, p, r);
        const Tensor scaled = g.mul(x[0], vector(g, w.altup.correct_scale));
        const Tensor more = add_layer_input(b, w, il, scaled, u);
        for (std::size_t j = 1; j < kStreams; ++j) x[j] = end_layer(b, g.add(x[j], more));
        return true;
    });
    if (!whole || hand_over(b, {x[0], x[1], x[2], x[3], rest})) return;
    g.set_layer(kNoLayer);
    g.set_part(Part::head);
    const StreamsOf y = mapped(b, *b.w.altup_unembd_proj, x, length(g, x[0]));
    const Tensor last = g.add(y[2], y[3]), first = g.add(y[0], y[1]);
    const Tensor sum = g.add(first, last);
    head(b, g.name(g.scale(sum, 0.25f), "altup_mean"));
}

}  // namespace tinfer::model::gemma3n

namespace tinfer::model {
const Family families::gemma3n{.read_all = gemma3n::read,
                               .bind_all = gemma3n::bind,
                               .build_all = gemma3n::build,
                               .hidden_width = gemma3n::hidden_width};
}  // namespace tinfer::model
