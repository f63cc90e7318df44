// SPDX-License-Identifier: MIT
// LFM2 (Liquid AI), dense and with experts: most layers mix tokens by a short gated convolution, some by attention
// with norms on q and k; gated SiLU behind each. The last norm is stored under the name of an embedding norm.
#include "base/error.hpp"
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
    const Tensor u = g.view(bcu, 2 * n, n), gate = g.view(bcu, 0, n);
    const Tensor gated = g.name(g.mul(gate, u), "conv_gated");
    const Tensor mixed = short_conv(b, in, il, gated);
    if (writes_only(b, il)) return mixed;
    return g.name(linear(b, w.out, g.name(g.mul(mixed, g.view(bcu, n, n)), "conv_mixed")), "conv_out");
}

void read_conv(KeyReader& keys, HParams& hp) {
    int& n_conv = hp.recurrent.ssm.n_conv;
    n_conv = positive_u32(keys, "shortconv.l_cache", 256);
    if (n_conv < 2) keys.bad("shortconv.l_cache", cat(n_conv), "must lie in 2 to 256");
    hp.recurrent.states.resize(static_cast<std::size_t>(hp.n_layer));
    for (std::size_t il = 0; il < hp.recurrent.states.size(); ++il)
        if (hp.n_head_kv[il] == 0) hp.recurrent.states[il] = {{"conv_state", std::int64_t{n_conv - 1} * hp.n_embd}};
}

void bind_conv(WeightBinder& binder, const HParams& hp, int il, LayerWeights& layer) {
    if (hp.n_head_kv_of(il) > 0) return;
    const std::int64_t n = hp.n_embd;
    layer.ssm.in = binder.linear(block_name(il, "shortconv.in_proj"), n, 3 * n);
    layer.ssm.conv = binder.vectors(block_name(il, "shortconv.conv.weight"), {hp.recurrent.ssm.n_conv, n});
    layer.ssm.out = binder.linear(block_name(il, "shortconv.out_proj"), n, n);
}

Weights bind_lfm2(WeightBinder& binder, const HParams& hp) {
    if (binder.exists("dense_2.weight")) binder.unsupported("variant 'dense_2' not supported");
    const std::string_view norm = binder.exists("output_norm.weight") ? "output_norm" : "token_embd_norm";
    Weights w = bind_globals(binder, hp, Head::tied_if_missing, binder.norm(norm, {hp.n_embd}));
    const FeedForward ffn = hp.experts.n > 0 ? FeedForward::dense_or_experts : FeedForward::gated;
    bind_blocks(binder, hp, w, {.head_norms = HeadNorms::shared, .ffn = ffn}, [&](int il, LayerWeights& layer) {
        bind_conv(binder, hp, il, layer);
        if (hp.experts.n > 0) require_choice_bias(binder, il, layer);
    });
    return w;
}

}  // namespace

const Family families::lfm2{
    .rope = RopeKind::neox,
    .common = {.kinds = LayerKinds::hybrid},
    .keys =
        [](KeyReader& keys, HParams& hp) {
            read_conv(keys, hp);
            read_window(keys, hp, WindowKind::standard, 0, 0);
            if (keys.u32("expert_count", 0) > 0)
                unsupported(keys.file(), hp.arch, "variant with experts not supported");
        },
    .recurrence = gated_conv,
    .bind_all = bind_lfm2,
};

const Family families::lfm2moe{
    .rope = RopeKind::neox,
    .common = {.kinds = LayerKinds::hybrid},
    .experts = {.count = ExpertKeys::Count::required, .sum = ExpertKeys::Sum::always, .gating_given = true},
    .keys =
        [](KeyReader& keys, HParams& hp) {
            read_conv(keys, hp);
            if (hp.n_head[0] * hp.head_dim_k != hp.n_embd)
                keys.bad("attention.head_count", cat(hp.n_head[0]), "times the head size must be embedding_length");
        },
    .recurrence = gated_conv,
    .bind_all = bind_lfm2,
};

}  // namespace tinfer::model
