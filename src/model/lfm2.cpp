// SPDX-License-Identifier: MIT
// LFM2 (Liquid AI), dense and with experts: most layers mix tokens by a short gated convolution, some by attention
// with norms on q and k; gated SiLU behind each. The last norm is stored under the name of an embedding norm.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/families.hpp"
#include "model/recurrent.hpp"

namespace tinfer::model {

namespace {

// [b | c | u] = W_in·h;  W_out·(c ⊙ conv(b ⊙ u))
Tensor gated_conv(const BuildContext& b, const Inputs& in, int il, Tensor h) {
    Graph& g = b.g;
    const StateSpaceWeights& w = b.layer(il).ssm;
    const std::int64_t n = b.hp.n_embd;
    g.set_part(Part::state);
    const Tensor bcu = g.name(linear(b, w.in, h), "conv_in");
    const Tensor gated = g.name(g.mul(g.view(bcu, 0, n), g.view(bcu, 2 * n, n)), "conv_gated");
    const Tensor mixed = short_conv(b, in, il, gated);
    if (writes_only(b, il)) return mixed;
    return g.name(linear(b, w.out, g.name(g.mul(mixed, g.view(bcu, n, n)), "conv_mixed")), "conv_out");
}

}  // namespace

namespace {

HParams read_lfm2(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox, NormKind::rms, LayerKinds::hybrid);
    hp.recurrent.ssm.n_conv = positive_u32(keys, "shortconv.l_cache", 256);
    if (hp.recurrent.ssm.n_conv < 2)
        keys.bad("shortconv.l_cache", cat(hp.recurrent.ssm.n_conv), "must lie in 2 to 256");
    hp.recurrent.states.resize(static_cast<std::size_t>(hp.n_layer));
    for (std::size_t il = 0; il < hp.recurrent.states.size(); ++il)
        if (hp.n_head_kv[il] == 0)
            hp.recurrent.states[il] = {{"conv_state", std::int64_t{hp.recurrent.ssm.n_conv - 1} * hp.n_embd}};
    return hp;
}

Weights bind_lfm2(WeightBinder& binder, const HParams& hp, FeedForward ffn) {
    if (binder.exists("dense_2.weight")) binder.unsupported("variant 'dense_2' not supported");
    const std::string_view norm = binder.exists("output_norm.weight") ? "output_norm" : "token_embd_norm";
    Weights w = bind_globals(binder, hp, Head::tied_if_missing, binder.norm(norm, {hp.n_embd}));
    bind_blocks(binder, hp, w, {.mixer = Mixer::own, .ffn = ffn}, [&](int il, LayerWeights& layer) {
        if (hp.n_head_kv_of(il) > 0) {
            bind_attention(binder, hp, il, layer);
            bind_head_norms(binder, hp, il, layer);
        } else {
            layer.ssm.in = binder.linear(block_name(il, "shortconv.in_proj"), hp.n_embd, 3 * std::int64_t{hp.n_embd});
            layer.ssm.conv =
                binder.vectors(block_name(il, "shortconv.conv.weight"), {hp.recurrent.ssm.n_conv, hp.n_embd});
            layer.ssm.out = binder.linear(block_name(il, "shortconv.out_proj"), hp.n_embd, hp.n_embd);
        }
        if (ffn == FeedForward::dense_or_experts) require_choice_bias(binder, il, layer);
    });
    return w;
}

void lfm2_stack(const BuildContext& b) {
    sequential_stack(
        b,
        [&](const Inputs& in, int il, Tensor h) {
            return b.hp.n_head_kv_of(il) > 0 ? self_attention(b, in, il, h) : gated_conv(b, in, il, h);
        },
        [&](const LayerWeights& w, Tensor h) { return feed_forward(b, w, h); });
}

}  // namespace

namespace lfm2 {

HParams read(KeyReader& keys) {
    HParams hp = read_lfm2(keys);
    read_window(keys, hp, WindowKind::standard, 0, 0);
    if (keys.u32("expert_count", 0) > 0) unsupported(keys.file(), hp.arch, "variant with experts not supported");
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) { return bind_lfm2(binder, hp, FeedForward::gated); }
void build(const BuildContext& b) { lfm2_stack(b); }

}  // namespace lfm2

const Family families::lfm2{.read_all = lfm2::read, .bind_all = lfm2::bind, .build_all = lfm2::build};

namespace lfm2moe {

HParams read(KeyReader& keys) {
    HParams hp = read_lfm2(keys);
    read_normalized_experts(keys, hp);
    require_experts(keys, hp);
    require_gating(keys);
    hp.experts.n_ff = required_expert_width(keys);
    if (hp.n_head[0] * hp.head_dim_k != hp.n_embd)
        keys.bad("attention.head_count", cat(hp.n_head[0]), "times the head size must be embedding_length");
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) { return bind_lfm2(binder, hp, FeedForward::dense_or_experts); }
void build(const BuildContext& b) { lfm2_stack(b); }

}  // namespace lfm2moe

const Family families::lfm2moe{.read_all = lfm2moe::read, .bind_all = lfm2moe::bind, .build_all = lfm2moe::build};

}  // namespace tinfer::model
