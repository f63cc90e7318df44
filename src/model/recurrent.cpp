// SPDX-License-Identifier: MIT
#include "model/recurrent.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace tinfer::model {

RecurrentState state(const BuildContext& b, const Inputs& in, int il, std::size_t k) {
    return {b.g.cache(*b.memory[static_cast<std::size_t>(il)].states[k]), in.state_rows};
}

Tensor short_conv(const BuildContext& b, const Inputs& in, int il, Tensor x) {
    const StateSpaceWeights& w = b.layer(il).ssm;
    const RecurrentState past = state(b, in, il, 0);
    const Tensor bias = vector(b.g, w.conv_bias), taps = vector(b.g, w.conv);
    return b.g.name(b.g.causal_conv(x, taps, bias, past), "conv");
}

void read_state_space(KeyReader& keys, HParams& hp) {
    hp.recurrent.ssm.n_conv = positive_u32(keys, "ssm.conv_kernel", 256);
    if (hp.recurrent.ssm.n_conv < 2) keys.bad("ssm.conv_kernel", cat(hp.recurrent.ssm.n_conv), "must lie in 2 to 256");
    hp.recurrent.ssm.n_inner = positive_u32(keys, "ssm.inner_size", 1u << 24);
    hp.recurrent.ssm.n_state = positive_u32(keys, "ssm.state_size", 1u << 16);
    hp.recurrent.ssm.n_rank = positive_u32(keys, "ssm.time_step_rank", 1u << 24);
}

std::vector<bool> read_recurrent_layers(KeyReader& keys, const HParams& hp, std::uint32_t interval) {
    interval = keys.u32("full_attention_interval", interval);
    if (interval == 0) keys.bad("full_attention_interval", "0", "must be above 0");
    std::vector<bool> out;
    for (int il = 0; il < hp.n_layer; ++il) out.push_back((static_cast<std::uint32_t>(il) + 1) % interval != 0);
    constexpr std::string_view kLayers = "attention.recurrent_layers";
    if (keys.note(kLayers) && !keys.file().is_array(keys.full(kLayers)))
        keys.bad(kLayers, "one value", "must be an array, one per layer");
    if (const auto given = keys.find_layer_flags(kLayers, hp.n_layer + hp.n_layer_draft))
        std::copy_n(given->begin(), out.size(), out.begin());
    return out;
}

// ---- the selective state space --------------------------------------------------------------------------------------

void add_selective_states(HParams& hp, std::size_t il) {
    const StateSpaceParams& s = hp.recurrent.ssm;
    hp.recurrent.states[il] = {{"conv_state", std::int64_t{s.n_conv - 1} * s.n_inner},
                               {"ssm_state", std::int64_t{s.n_state} * s.n_inner}};
}

void bind_selective(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w) {
    const auto name = [&](std::string_view role) { return block_name(il, role); };
    const StateSpaceParams& s = hp.recurrent.ssm;
    w.attn_norm = binder.norm(name("attn_norm"), {hp.n_embd});
    w.ssm.in = binder.linear(name("ssm_in"), hp.n_embd, 2 * std::int64_t{s.n_inner});
    w.ssm.conv = binder.vectors(name("ssm_conv1d.weight"), {s.n_conv, s.n_inner});
    w.ssm.conv_bias = binder.vector(name("ssm_conv1d.bias"), s.n_inner);
    w.ssm.x = binder.linear(name("ssm_x"), s.n_inner, s.n_rank + 2 * std::int64_t{s.n_state});
    w.ssm.dt = binder.linear(name("ssm_dt"), s.n_rank, s.n_inner, WeightBinder::Bias::required);
    w.ssm.a = binder.vectors(name("ssm_a"), {s.n_state, s.n_inner});
    w.ssm.d = binder.vector(name("ssm_d"), s.n_inner);
    w.ssm.out = binder.linear(name("ssm_out"), s.n_inner, hp.n_embd);
    // Either all three norms have weights, or, where the model norms at all, none of them has.
    const bool weighted = binder.exists(name("ssm_dt_norm.weight")) || binder.exists(name("ssm_b_norm.weight")) ||
                          binder.exists(name("ssm_c_norm.weight"));
    if (weighted) {
        w.ssm.dt_norm = binder.norm(name("ssm_dt_norm"), {s.n_rank});
        w.ssm.b_norm = binder.norm(name("ssm_b_norm"), {s.n_state});
        w.ssm.c_norm = binder.norm(name("ssm_c_norm"), {s.n_state});
    } else if (s.norms) {
        w.ssm.dt_norm = w.ssm.b_norm = w.ssm.c_norm = Norm{.present = true};
    }
}

Tensor selective_state_space(const BuildContext& b, const Inputs& in, int il, Tensor h) {
    Graph& g = b.g;
    const StateSpaceParams& s = b.hp.recurrent.ssm;
    const StateSpaceWeights& w = b.layer(il).ssm;
    g.set_part(Part::state);

    // [u | z] = W_in·h;  c = silu(conv(u))
    const Tensor uz = g.name(linear(b, w.in, h), "ssm_in");
    const Tensor c = g.name(g.silu(short_conv(b, in, il, g.view(uz, 0, s.n_inner))), "conv_silu");

    // [δ | B | C] = W_x·c;  Δ = softplus(W_dt·δ + b)
    const Tensor selected = g.name(linear(b, w.x, c), "ssm_x");
    const Tensor low = norm(b, w.dt_norm, g.view(selected, 0, s.n_rank), "ssm_dt_norm");
    const Tensor in_map = norm(b, w.b_norm, g.view(selected, s.n_rank, s.n_state), "ssm_b_norm");
    const Tensor out_map = norm(b, w.c_norm, g.view(selected, s.n_rank + s.n_state, s.n_state), "ssm_c_norm");
    const Tensor dt = g.name(g.softplus(g.name(linear(b, w.dt, low), "ssm_dt")), "ssm_delta");

    // h ← h·exp(Δ·a) + Δ·c·B;  y = ⟨h, C⟩ + D·c, every channel a head of its own
    const RecurrentState past = state(b, in, il, 1);
    const Tensor d = vector(g, w.d), c_map = g.heads(out_map, 1), b_map = g.heads(in_map, 1);
    const Tensor a = vector(g, w.a), x = g.heads(c, s.n_inner);
    const Tensor y = g.name(g.selective_scan(x, dt, a, b_map, c_map, d, past), "ssm_scan");
    if (writes_only(b, il)) return y;

    // W_out·(silu(z) ⊙ y)
    const Tensor gate = g.name(g.silu(g.view(uz, s.n_inner, s.n_inner)), "ssm_gate");
    const Tensor gated = g.name(g.mul(gate, g.reshape(y, g.value(gate).ne)), "ssm_gated");
    return g.name(linear(b, w.out, gated), "ssm_out");
}

// ---- models of nothing else -----------------------------------------------------------------------------------------

void mixer_stack(const BuildContext& b, Tensor (&mixer)(const BuildContext&, const Inputs&, int, Tensor)) {
    const Inputs in = make_inputs(b);
    stream_stack(b, in, [&](int il, const LayerWeights& w, Tensor x) -> Tensor {
        const Tensor h = norm(b, w.attn_norm, x, "attn_norm");
        Tensor y = mixer(b, in, il, h);
        if (!keep_output_rows(b, in, il, {&y, &x})) return {};
        return add_residual(b, x, y);
    });
}

}  // namespace tinfer::model
