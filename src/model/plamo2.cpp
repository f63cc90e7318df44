// SPDX-License-Identifier: MIT
// PLaMo 2 (Preferred Networks, arXiv:2509.04897): attention and a state space take turns, each and the feed-forward
// normed behind its branch too. The state space has one decay per head, and its projection gives [z | u] for each head.
#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "model/families.hpp"
#include "model/recurrent.hpp"

namespace tinfer::model::plamo2 {

namespace {

int step_rank(const HParams& hp) { return std::max(64, hp.n_embd / 16); }

Tensor state_space(const BuildContext& b, const Inputs& in, int il, Tensor h) {
    Graph& g = b.g;
    const StateSpaceParams& s = b.hp.recurrent.ssm;
    const StateSpaceWeights& w = b.layer(il).ssm;
    const std::int64_t n_head = s.n_rank, size = s.n_inner / n_head, rank = step_rank(b.hp);
    const std::array<std::int64_t, 4> flat{s.n_inner, b.shape.n_tokens, 1, 1};
    g.set_part(Part::state);

    // per head [z | u];  u ← silu(conv(u));  [B | C | δ] = W_x·u, each normed;  Δ = softplus(W_dt·δ + b)
    const Tensor zu = g.heads(g.name(linear(b, w.in, h), "ssm_in"), n_head);
    const Tensor u0 = g.name(g.reshape(g.copy(g.view(zu, size, size)), flat), "ssm_u");
    const Tensor u = g.name(g.silu(short_conv(b, in, il, u0)), "conv_silu");
    const Tensor selected = g.name(linear(b, w.x, u), "ssm_x");
    const Tensor in_map = norm(b, w.b_norm, g.view(selected, 0, s.n_state), "ssm_b_norm");
    const Tensor out_map = norm(b, w.c_norm, g.view(selected, s.n_state, s.n_state), "ssm_c_norm");
    const Tensor low = norm(b, w.dt_norm, g.view(selected, 2 * std::int64_t{s.n_state}, rank), "ssm_dt_norm");
    const Tensor dt = g.name(g.softplus(g.name(linear(b, w.dt, low), "ssm_dt")), "ssm_delta");

    // per head: S ← S·exp(Δ·a) + Δ·u⊗B;  y = S·C + d·u;  W_out·(y ⊙ silu(z))
    const Tensor rate = g.reshape(vector(g, w.a), {1, n_head, 1, 1});
    const RecurrentState past = state(b, in, il, 1);
    const Tensor d = vector(g, w.d);
    const Tensor c_map = g.heads(out_map, 1), b_map = g.heads(in_map, 1), x = g.heads(u, n_head);
    const Tensor y = g.name(g.selective_scan(x, dt, rate, b_map, c_map, d, past), "ssm_scan");
    if (writes_only(b, il)) return y;
    const Tensor gate = g.name(g.silu(g.copy(g.view(zu, 0, size))), "ssm_gate");
    const Tensor gated = g.reshape(g.name(g.mul(y, gate), "ssm_gated"), flat);
    return g.name(linear(b, w.out, gated), "ssm_out");
}

void bind_state_space(WeightBinder& binder, const HParams& hp, int il, LayerWeights& layer) {
    const auto name = [&](std::string_view role) { return block_name(il, role); };
    const StateSpaceParams& s = hp.recurrent.ssm;
    StateSpaceWeights& w = layer.ssm;
    const int rank = step_rank(hp);
    w.in = binder.linear(name("ssm_in"), hp.n_embd, 2 * std::int64_t{s.n_inner});
    w.conv = binder.vectors(name("ssm_conv1d.weight"), {s.n_conv, s.n_inner});
    w.x = binder.linear(name("ssm_x"), s.n_inner, 2 * std::int64_t{s.n_state} + rank);
    w.dt = binder.linear(name("ssm_dt"), rank, s.n_rank, Bias::required);
    w.a = binder.vector(name("ssm_a"), s.n_rank);
    w.d = binder.vector(name("ssm_d"), s.n_rank);
    w.dt_norm = bare_norm(binder, name("ssm_dt_norm"), {rank});
    w.b_norm = bare_norm(binder, name("ssm_b_norm"), {s.n_state});
    w.c_norm = bare_norm(binder, name("ssm_c_norm"), {s.n_state});
    w.out = binder.linear(name("ssm_out"), s.n_inner, hp.n_embd);
}

void read_plamo2(KeyReader& keys, HParams& hp) {
    hp.attention.scale = 1.0f / std::sqrt(static_cast<float>(hp.head_dim_v));
    read_state_space(keys, hp);
    if (const std::uint32_t n = keys.require_u32("ssm.group_count"); n != 0)
        keys.bad("ssm.group_count", cat(n), "must be 0");
    const StateSpaceParams& s = hp.recurrent.ssm;
    if (s.n_inner % s.n_rank != 0)
        keys.bad("ssm.time_step_rank", cat(s.n_rank), cat("must divide inner_size ", s.n_inner));
    hp.recurrent.states.resize(static_cast<std::size_t>(hp.n_layer));
    for (std::size_t il = 0; il < hp.recurrent.states.size(); ++il)
        if (hp.n_head_kv[il] == 0) add_selective_states(hp, il);
}

void bind_layer(WeightBinder& binder, const HParams& hp, int il, LayerWeights& layer) {
    bind_bare_post_norms(binder, hp, il, layer);
    if (hp.n_head_kv_of(il) == 0) return bind_state_space(binder, hp, il, layer);
    layer.attn_q_norm = binder.norm(block_name(il, "attn_q_norm"), {hp.head_dim_k, hp.n_head_of(il)});
    layer.attn_k_norm = binder.norm(block_name(il, "attn_k_norm"), {hp.head_dim_k, hp.n_head_kv_of(il)});
}

}  // namespace

}  // namespace tinfer::model::plamo2

namespace tinfer::model {
const Family families::plamo2{
    .rope = RopeKind::neox,
    .common = {.kinds = LayerKinds::hybrid},
    .keys = plamo2::read_plamo2,
    .block = {.ffn = FeedForward::fused},
    .layer = plamo2::bind_layer,
    .recurrence = plamo2::state_space,
};
}  // namespace tinfer::model
