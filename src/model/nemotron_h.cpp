// SPDX-License-Identifier: MIT
// Nemotron-H, Nemotron Nano 2 and Nemotron 3 (arXiv:2504.03624, arXiv:2508.14444): a layer has one branch, Mamba-2's
// mixer, attention without positions, or a feed-forward of squared ReLU, dense or of experts, which may work on a
// shorter vector than the stream's.
#include "base/error.hpp"
#include "model/families.hpp"
#include "model/mamba2.hpp"

namespace tinfer::model {

namespace {

enum class Branch : std::uint8_t { mamba, attention, feed_forward };

Branch branch_of(const HParams& hp, std::size_t il) {
    if (hp.n_ff[il] > 0) return Branch::feed_forward;
    return hp.n_head_kv[il] > 0 ? Branch::attention : Branch::mamba;
}

HParams read_nemotron_h(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::none,
                             CommonKeys{.kinds = LayerKinds::may_lack_parts,
                                        .ff = FeedForwardKey::zero_allowed,
                                        .rms_eps_otherwise = "attention.layer_norm_epsilon"});
    hp.activation = Activation::relu_sqr;
    (void)keys.find_u32("rope.dimension_count");  // no effect: attention has no positions
    (void)keys.find_f32("rope.freq_base");
    (void)keys.find_bool("rope.scaling.finetuned");
    read_grouped_state_space(keys, hp);
    hp.recurrent.states.resize(static_cast<std::size_t>(hp.n_layer));
    for (std::size_t il = 0; il < hp.recurrent.states.size(); ++il) {
        if (hp.n_ff[il] > 0 && hp.n_head_kv[il] > 0)
            keys.bad("feed_forward_length", cat(hp.n_ff[il]),
                     cat("layer ", il, " has heads of keys and values too, so its kind is not clear"));
        if (branch_of(hp, il) == Branch::mamba) add_grouped_states(hp, il);
    }
    return hp;
}

Weights bind_nemotron_h(WeightBinder& binder, const HParams& hp,
                        const std::function<void(int, LayerWeights&)>& feed_forward) {
    return bind_stack(binder, hp, Head::tied_if_missing,
                      {.norms = BlockNorms::one, .mixer = Mixer::own, .ffn = FeedForward::own},
                      [&](int il, LayerWeights& layer) {
                          switch (branch_of(hp, static_cast<std::size_t>(il))) {
                              case Branch::mamba: return bind_grouped(binder, hp, il, layer, Bias::optional, true);
                              case Branch::attention:
                                  return bind_attention(binder, hp, il, layer, Bias::optional, Bias::optional);
                              case Branch::feed_forward: return feed_forward(il, layer);
                          }
                      });
}

// Σ_e w_e · Wdown_e·relu²(Wup_e·v) in the experts' own width, and the shared expert on h itself.
Tensor latent_experts(const BuildContext& b, const LayerWeights& w, Tensor h) {
    Graph& g = b.g;
    const Routing routing = route(b, w, h);
    g.set_part(Part::experts);
    const Tensor v = w.ffn_latent_down ? g.name(linear(b, w.ffn_latent_down, h), "ffn_latent") : h;
    Tensor y = routed_experts(b, w, v, routing);
    if (w.ffn_latent_up) y = g.name(linear(b, w.ffn_latent_up, y), "ffn_latent_out");
    if (!w.ffn_up_shexp) return y;
    const Tensor shared = shared_expert(b, w, h);
    g.set_part(Part::ffn);
    return g.name(g.add(y, shared), "ffn_out");
}

Tensor branch(const BuildContext& b, const Inputs& in, int il, Tensor h) {
    const LayerWeights& w = b.layer(il);
    switch (branch_of(b.hp, static_cast<std::size_t>(il))) {
        case Branch::mamba: return grouped_state_space(b, in, il, h);
        case Branch::attention: return self_attention(b, in, il, h);
        case Branch::feed_forward: break;
    }
    b.g.set_part(Part::ffn);
    return w.ffn_gate_inp ? latent_experts(b, w, h) : feed_forward(b, w, h);
}

}  // namespace

namespace nemotron_h {

HParams read(KeyReader& keys) {
    HParams hp = read_nemotron_h(keys);
    if (keys.u32("expert_count", 0) > 0)
        unsupported(keys.file(), hp.arch, "experts have an architecture of their own, nemotron_h_moe");
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_nemotron_h(binder, hp,
                           [&](int il, LayerWeights& layer) { bind_plain_ffn(binder, hp, il, layer, Bias::optional); });
}

void build(const BuildContext& b) { mixer_stack(b, branch); }

}  // namespace nemotron_h

const Family families::nemotron_h{
    .read_all = nemotron_h::read, .bind_all = nemotron_h::bind, .build_all = nemotron_h::build};

namespace nemotron_h_moe {

HParams read(KeyReader& keys) {
    HParams hp = read_nemotron_h(keys);
    hp.experts.gating = GatingFunc::sigmoid;
    read_layer_experts(keys, hp);
    require_experts(keys, hp);
    if (hp.experts.gating != GatingFunc::sigmoid)
        keys.bad("expert_gating_func", cat(static_cast<int>(hp.experts.gating)), "must be 2");
    hp.experts.n_ff_shared = positive_u32(keys, "expert_shared_feed_forward_length", 1u << 24);
    (void)keys.u32("expert_shared_count", 0);  // no effect: the width is that of all together
    hp.experts.n_latent = optional_width(keys, "moe_latent_size");
    for (std::size_t il = 0; il < static_cast<std::size_t>(hp.n_layer); ++il)
        if (branch_of(hp, il) == Branch::feed_forward && (hp.experts.used(il) == 0 || hp.experts.width(il) == 0))
            keys.bad("expert_used_count", "0", cat("layer ", il, " has experts"));
    return hp;
}

void bind_latent_experts(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w) {
    const auto name = [&](std::string_view role) { return block_name(il, role); };
    const std::int64_t e = hp.n_embd, f = hp.experts.width(static_cast<std::size_t>(il)), n = hp.experts.n;
    const std::int64_t inner = hp.experts.n_latent > 0 ? hp.experts.n_latent : e;
    w.ffn_gate_inp = binder.linear(name("ffn_gate_inp"), e, n);
    w.exp_probs_b = binder.vector(name("exp_probs_b.bias"), n);
    w.ffn_up_exps = binder.experts(name("ffn_up_exps"), inner, f, n);
    w.ffn_down_exps = binder.experts(name("ffn_down_exps"), f, inner, n);
    if (hp.experts.n_latent > 0) {
        w.ffn_latent_down = binder.linear(name("ffn_latent_down"), e, inner);
        w.ffn_latent_up = binder.linear(name("ffn_latent_up"), inner, e);
    }
    w.ffn_up_shexp = binder.linear(name("ffn_up_shexp"), e, hp.experts.n_ff_shared);
    w.ffn_down_shexp = binder.linear(name("ffn_down_shexp"), hp.experts.n_ff_shared, e);
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_nemotron_h(binder, hp,
                           [&](int il, LayerWeights& layer) { bind_latent_experts(binder, hp, il, layer); });
}

// A block that drafts has both branches, one behind the other.
void bind_draft_block(WeightBinder& binder, const HParams& hp, int il, LayerWeights& layer) {
    layer.attn_norm = binder.norm(block_name(il, "attn_norm"), {hp.n_embd});
    bind_attention(binder, hp, il, layer, Bias::optional, Bias::optional);
    layer.ffn_norm = binder.norm(block_name(il, "post_attention_norm"), {hp.n_embd});
    bind_latent_experts(binder, hp, il, layer);
}

void read_draft_keys(KeyReader& keys, HParams& hp) {
    hp.layer_norm_eps = positive_f32(keys, "attention.layer_norm_epsilon", {});
    for (int il = hp.draft.first; il < hp.draft.first + hp.draft.n; ++il) {
        const auto i = static_cast<std::size_t>(il);
        if (hp.n_head_kv[i] == 0 || hp.n_ff[i] == 0 || hp.experts.used(i) == 0 || hp.experts.width(i) == 0)
            keys.bad("attention.head_count_kv", cat(hp.n_head_kv[i]),
                     cat("block ", il, " drafts, and has attention and experts"));
    }
}

void build(const BuildContext& b) { mixer_stack(b, branch); }

}  // namespace nemotron_h_moe

const Family families::nemotron_h_moe{.ffn = latent_experts,
                                      .read_all = nemotron_h_moe::read,
                                      .bind_all = nemotron_h_moe::bind,
                                      .build_all = nemotron_h_moe::build,
                                      .draft = {.state = DraftBlocks::State::normed,
                                                .required_head_norm = "nextn.shared_head_norm",
                                                .head_layer_norm = true,
                                                .keys = nemotron_h_moe::read_draft_keys,
                                                .bind = nemotron_h_moe::bind_draft_block}};

}  // namespace tinfer::model
