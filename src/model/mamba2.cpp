// SPDX-License-Identifier: MIT
// Mamba-2 (arXiv:2405.21060): a state space in heads, each with one decay; B and C serve groups of heads, the
// convolution runs over them too, and the output is gated before it is normed by groups.
#include "model/mamba2.hpp"
#include "base/error.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace {

std::int64_t conv_channels(const StateSpaceParams& s) { return s.n_inner + 2 * std::int64_t{s.n_group} * s.n_state; }

}  // namespace

Tensor grouped_state_space(const BuildContext& b, const Inputs& in, int il, Tensor h) {
    Graph& g = b.g;
    const StateSpaceParams& s = b.hp.recurrent.ssm;
    const StateSpaceWeights& w = b.layer(il).ssm;
    const std::int64_t n_head = s.n_rank, n_bc = std::int64_t{s.n_group} * s.n_state;
    g.set_part(Part::state);

    // [z | x B C | Δ] = W_in·h;  [x | B | C] ← silu(conv(x B C));  Δ ← softplus(Δ + b)
    const Tensor all = g.name(linear(b, w.in, h), "ssm_in");
    const Tensor xbc = g.name(g.silu(short_conv(b, in, il, g.view(all, s.n_inner, conv_channels(s)))), "conv_silu");
    const Tensor dt_bias = vector(g, w.dt_bias);
    const Tensor raw = g.add(g.view(all, s.n_inner + conv_channels(s), n_head), dt_bias);
    const Tensor dt = g.name(g.softplus(g.name(raw, "ssm_dt")), "ssm_delta");

    // per head: h ← h·exp(Δ·a) + Δ·x·B;  y = ⟨h, C⟩ + D·x
    const Tensor x = g.heads(g.view(xbc, 0, s.n_inner), n_head);
    const Tensor in_map = g.heads(g.view(xbc, s.n_inner, n_bc), s.n_group);
    const Tensor out_map = g.heads(g.view(xbc, s.n_inner + n_bc, n_bc), s.n_group);
    const Tensor skip = g.reshape(vector(g, w.d), {n_head, 1, 1, 1});
    const RecurrentState past = state(b, in, il, 1);
    Tensor y = g.name(g.selective_scan(x, dt, vector(g, w.a), in_map, out_map, skip, past), "ssm_scan");
    if (writes_only(b, il)) return y;

    // y ← norm by groups(silu(z) ⊙ y)
    const Tensor gate = g.name(g.silu(g.view(all, 0, s.n_inner)), "ssm_gate");
    y = g.name(g.mul(gate, g.reshape(y, g.value(gate).ne)), "ssm_gated");
    if (w.norm) {
        const std::int64_t n_in_group = s.n_inner / s.n_group;
        const Tensor weight = g.reshape(vector(g, w.norm.weight), {n_in_group, s.n_group, 1, 1});
        const Tensor normed = g.name(g.rms_norm(g.heads(y, s.n_group), weight, b.hp.rms_eps), "ssm_norm");
        y = g.reshape(normed, g.value(y).ne);
    }
    return g.name(linear(b, w.out, y), "ssm_out");
}

void read_grouped_state_space(KeyReader& keys, HParams& hp) {
    read_state_space(keys, hp);
    StateSpaceParams& s = hp.recurrent.ssm;
    s.n_group = positive_u32(keys, "ssm.group_count", 1u << 16);
    if (s.n_inner % s.n_rank != 0)
        keys.bad("ssm.time_step_rank", cat(s.n_rank), cat("must divide inner_size ", s.n_inner));
    if (s.n_rank % s.n_group != 0 || s.n_inner % s.n_group != 0)
        keys.bad("ssm.group_count", cat(s.n_group),
                 cat("must divide time_step_rank ", s.n_rank, " and inner_size ", s.n_inner));
}

void add_grouped_states(HParams& hp, std::size_t il) {
    const StateSpaceParams& s = hp.recurrent.ssm;
    hp.recurrent.states[il] = {{"conv_state", (s.n_conv - 1) * conv_channels(s)},
                               {"ssm_state", std::int64_t{s.n_state} * s.n_inner}};
}

void bind_grouped(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w, Bias conv, bool norm_required) {
    const StateSpaceParams& s = hp.recurrent.ssm;
    const auto name = [&](std::string_view role) { return block_name(il, role); };
    w.ssm.in = binder.linear(name("ssm_in"), hp.n_embd, s.n_inner + conv_channels(s) + s.n_rank);
    w.ssm.conv = binder.vectors(name("ssm_conv1d.weight"), {s.n_conv, conv_channels(s)});
    w.ssm.conv_bias = conv == Bias::required ? binder.vector(name("ssm_conv1d.bias"), conv_channels(s))
                                             : binder.find_vector(name("ssm_conv1d.bias"), conv_channels(s));
    w.ssm.dt_bias = binder.vector(name("ssm_dt.bias"), s.n_rank);
    w.ssm.a = binder.vectors(name("ssm_a"), {1, s.n_rank});
    w.ssm.d = binder.vectors(name("ssm_d"), {1, s.n_rank});
    // {n_inner/groups, groups}, in some files {n_inner}
    const TensorInfo* norm = binder.file().find_tensor(name("ssm_norm.weight"));
    if (norm != nullptr && norm->ne[0] == s.n_inner) w.ssm.norm = binder.norm(name("ssm_norm"), {s.n_inner});
    else w.ssm.norm = binder.find_norm(name("ssm_norm"), {s.n_inner / s.n_group, s.n_group});
    if (norm_required && !w.ssm.norm) binder.missing(name("ssm_norm.weight"));
    w.ssm.out = binder.linear(name("ssm_out"), s.n_inner, hp.n_embd);
}

namespace mamba2 {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::none, NormKind::rms, LayerKinds::recurrent);
    read_grouped_state_space(keys, hp);
    hp.recurrent.states.resize(static_cast<std::size_t>(hp.n_layer));
    for (std::size_t il = 0; il < hp.recurrent.states.size(); ++il) add_grouped_states(hp, il);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w = bind_globals(binder, hp);
    for (int il = 0; il < hp.n_layer; ++il) {
        LayerWeights& layer = w.layers[static_cast<std::size_t>(il)];
        layer.attn_norm = binder.norm(block_name(il, "attn_norm"), {hp.n_embd});
        bind_grouped(binder, hp, il, layer, Bias::required, false);
    }
    return w;
}

void build(const BuildContext& b) { mixer_stack(b, grouped_state_space); }

}  // namespace mamba2

const Family families::mamba2{.read_all = mamba2::read, .bind_all = mamba2::bind, .build_all = mamba2::build};

}  // namespace tinfer::model
