// SPDX-License-Identifier: MIT
// Kimi K3 (2026): Kimi Linear's layers with residuals that are mixed out of what entered every so many layers
// (attention residuals), a bounded gated activation, and experts that work on a shorter vector than the stream's.
#include <algorithm>

#include "base/error.hpp"
#include "model/families.hpp"
#include "model/kimi_delta.hpp"

namespace tinfer::model::kimi_k3 {

namespace {

// β·tanh(g/β)·σ(g) ⊙ λ·tanh(u/λ); u alone where λ is not above 0
Tensor situ(const BuildContext& b, Tensor gate, Tensor up) {
    Graph& g = b.g;
    const float beta = b.hp.situ_beta, linear_beta = b.hp.situ_linear_beta;
    const Tensor bounded = g.scale(g.tanh(g.scale(gate, 1.0f / beta)), beta);
    const Tensor z = g.name(g.mul(bounded, g.sigmoid(gate)), "ffn_act");
    if (linear_beta > 0) up = g.scale(g.tanh(g.scale(up, 1.0f / linear_beta)), linear_beta);
    return g.name(g.mul(z, up), "ffn_gated");
}

Tensor situ_ffn(const BuildContext& b, const Linear& gate, const Linear& up, const Linear& down, Tensor h) {
    Graph& g = b.g;
    const Tensor z = g.name(linear(b, gate, h), "ffn_gate"), u = g.name(linear(b, up, h), "ffn_up");
    return g.name(linear(b, down, situ(b, z, u)), "ffn_out");
}

Tensor ffn(const BuildContext& b, const LayerWeights& w, Tensor h) {
    Graph& g = b.g;
    if (!w.ffn_gate_inp) return situ_ffn(b, w.ffn_gate, w.ffn_up, w.ffn_down, h);
    const Routing routing = route(b, w, h);
    g.set_part(Part::experts);
    const Tensor v = w.ffn_latent_down ? g.name(linear(b, w.ffn_latent_down, h), "ffn_latent") : h;
    const auto each = [&](const Linear& map, Tensor x, std::string_view name) {
        return expert_linear(b, map, x, routing.ids, name);
    };
    const Tensor up = each(w.ffn_up_exps, v, "ffn_moe_up"), gate = each(w.ffn_gate_exps, v, "ffn_moe_gate");
    const Tensor product = situ(b, gate, up);
    Tensor y = g.name(g.moe_sum(each(w.ffn_down_exps, product, "ffn_moe_down"), routing.weights), "ffn_moe_out");
    y = norm(b, w.ffn_latent_norm, y, "ffn_latent_norm");
    if (w.ffn_latent_up) y = g.name(linear(b, w.ffn_latent_up, y), "ffn_latent_out");
    if (!w.ffn_up_shexp) return y;
    g.set_part(Part::shared_expert);
    const Tensor shared = situ_ffn(b, w.ffn_gate_shexp, w.ffn_up_shexp, w.ffn_down_shexp, h);
    g.set_part(Part::ffn);
    return g.name(g.add(y, shared), "ffn_out");
}

/// What entered every so many layers: {n · n_embd, T}, and the score of each, {n, T}.
struct Bank {
    Tensor rows;
    std::int64_t n = 0;
};

// softmax over the bank and x of ⟨norm(·), w⟩, then the weighted sum of the raw vectors
Tensor mix(const BuildContext& b, const Bank& bank, const TensorInfo* score, Tensor x) {
    Graph& g = b.g;
    if (bank.n == 0) return x;
    const std::int64_t n = bank.n + 1, n_rows = g.value(x).ne[1];
    const Tensor all = g.name(g.concat(bank.rows, x), "bank_all");
    const Tensor weight = vector(g, score);
    const Tensor normed = g.rms_norm(g.heads(all, n), weight, b.hp.rms_eps);
    const Tensor scores = g.reshape(g.name(g.sum_rows(normed), "bank_scores"), {n, n_rows, 1, 1});
    const Tensor weights = g.name(g.softmax(scores), "bank_weights");
    return g.name(g.moe_sum(g.heads(all, n), weights), "bank_mix");
}

Tensor branch(const BuildContext& b, const Inputs& in, int il, Tensor h) {
    const Decay decay = b.hp.recurrent.decay_lower_bound < 0 ? Decay::bounded_negative : Decay::open;
    return is_delta_layer(b.hp, il) ? kimi_delta(b, in, il, h, decay) : latent_attention(b, in, il, h);
}

}  // namespace

HParams read(KeyReader& keys) {
    HParams hp = read_kimi(keys);
    hp.rope.kind = RopeKind::none;
    require_gating(keys);
    hp.n_residual_block = static_cast<int>(std::min(keys.require_u32("attn_res.block_size"), 1u << 20));
    hp.situ_beta = positive_f32(keys, "activation.situ_beta", {});
    hp.situ_linear_beta = keys.require_f32("activation.situ_linear_beta");
    hp.recurrent.decay_lower_bound = keys.f32("kda.gate_lower_bound", 0.0f);
    if (hp.recurrent.decay_lower_bound > 0)
        keys.bad("kda.gate_lower_bound", cat(hp.recurrent.decay_lower_bound), "must be below 0");
    hp.experts.n_latent = optional_width(keys, "expert_latent_length");
    hp.experts.n_ff_shared = shared_width(keys, hp.experts.n_ff, 1);
    if (hp.experts.n_ff_shared == 0) hp.experts.n_ff_shared = hp.experts.n_ff;
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    const std::int64_t e = hp.n_embd, f = hp.experts.n_ff, n = hp.experts.n;
    const auto bind_ffn = [&](int il, LayerWeights& w) {
        const auto name = [&](std::string_view role) { return block_name(il, role); };
        if (!hp.experts.stand_in(il)) return bind_gated_ffn(binder, hp, il, w);
        const std::int64_t inner = hp.experts.n_latent > 0 ? hp.experts.n_latent : e;
        w.ffn_gate_inp = binder.linear(name("ffn_gate_inp"), e, n);
        for (const char* const role : {"exp_probs_b.bias", "exp_probs_b"})
            if (w.exp_probs_b == nullptr) w.exp_probs_b = binder.find_vector(name(role), n);
        require_choice_bias(binder, il, w);
        w.ffn_gate_exps = binder.experts(name("ffn_gate_exps"), inner, f, n);
        w.ffn_up_exps = binder.experts(name("ffn_up_exps"), inner, f, n);
        w.ffn_down_exps = binder.experts(name("ffn_down_exps"), f, inner, n);
        if (hp.experts.n_latent > 0) {
            w.ffn_latent_down = binder.linear(name("ffn_routed_down"), e, inner);
            w.ffn_latent_up = binder.linear(name("ffn_routed_up"), inner, e);
            w.ffn_latent_norm = binder.find_norm(name("ffn_routed_norm"), {inner});
        }
        if (!binder.exists(name("ffn_up_shexp.weight"))) return;
        w.ffn_gate_shexp = binder.linear(name("ffn_gate_shexp"), e, hp.experts.n_ff_shared);
        w.ffn_up_shexp = binder.linear(name("ffn_up_shexp"), e, hp.experts.n_ff_shared);
        w.ffn_down_shexp = binder.linear(name("ffn_down_shexp"), hp.experts.n_ff_shared, e);
    };
    Weights w = bind_stack(
        binder, hp, Head::required, {.mixer = Mixer::own, .ffn = FeedForward::own}, [&](int il, LayerWeights& layer) {
            bind_ffn(il, layer);
            if (hp.n_residual_block > 0) {
                layer.attn_score = binder.vector(block_name(il, "attn_res_score.weight"), e);
                layer.ffn_score = binder.vector(block_name(il, "ffn_res_score.weight"), e);
            }
            if (is_delta_layer(hp, il))
                return bind_kimi_delta(binder, hp, il, layer,
                                       {.gate = Rank::full, .gate_name = "ssm_g", .flat_rates = true});
            binder.refuse(block_name(il, "attn_kv_b.weight"), "joined matrices of the latent not supported");
            HParams own = hp;  // q in one step or in two, as the layer has it
            if (!binder.exists(block_name(il, "attn_q_a_norm.weight"))) own.attention.mla.n_lora_q = 0;
            bind_latent_attention(binder, own, il, layer);
            const std::int64_t n_head = hp.n_head_of(il);
            layer.attn_gate = binder.find_linear(block_name(il, "attn_gate"), e, n_head * hp.attention.mla.head_dim_v);
        });
    if (hp.n_residual_block > 0) w.output_score = binder.vector("output_res_score.weight", e);
    return w;
}

std::int64_t bank_size(const HParams& hp, int il) {
    const int every = hp.n_residual_block;
    return every > 0 ? (il + every - 1) / every : 0;
}

std::int64_t hidden_width(const HParams& hp, int il) { return hp.n_embd * (1 + bank_size(hp, il)); }

// m = mix(x); every so many layers x joins the bank and the stream begins anew with y = branch(norm(m)), else x += y;
// x += ffn(norm(mix(x)))
void build(const BuildContext& b) {
    Graph& g = b.g;
    const Inputs in = make_inputs(b);
    const int every = b.hp.n_residual_block;
    const std::int64_t e = b.hp.n_embd;
    Tensor x = handed(b, in, 0, e);
    Bank bank;
    if (b.hp.begins_late()) bank.n = bank_size(b.hp, b.hp.part.first);
    if (bank.n > 0) bank.rows = handed(b, in, e, bank.n * e);
    const bool whole = each_layer(b, [&](int il, const LayerWeights& w) {
        const Tensor h = norm(b, w.attn_norm, mix(b, bank, w.attn_score, x), "attn_norm");
        const bool joins = every > 0 && il % every == 0;
        if (joins) {
            bank.rows = bank.n == 0 ? x : g.name(g.concat(bank.rows, x), "bank");
            ++bank.n;
        }
        Tensor y = branch(b, in, il, h);
        Tensor none;
        if (!keep_output_rows(b, in, il, {&y, &x, bank.n > 0 ? &bank.rows : &none})) return false;
        g.set_part(Part::attn_out);
        x = joins ? y : add_residual(b, x, y, "ffn_inp");
        g.set_part(Part::ffn_norm);
        const Tensor z = norm(b, w.ffn_norm, mix(b, bank, w.ffn_score, x), "ffn_norm");
        g.set_part(Part::ffn);
        x = end_layer(b, add_residual(b, x, ffn(b, w, z)));
        return true;
    });
    if (!whole || hand_over(b, {x, bank.rows})) return;
    g.set_layer(kNoLayer);
    g.set_part(Part::head);
    head(b, mix(b, bank, b.w.output_score, x));
}

}  // namespace tinfer::model::kimi_k3

namespace tinfer::model {
const Family families::kimi_k3{.read_all = kimi_k3::read,
                               .bind_all = kimi_k3::bind,
                               .build_all = kimi_k3::build,
                               .hidden_width = kimi_k3::hidden_width};
}  // namespace tinfer::model
