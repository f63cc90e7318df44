// SPDX-License-Identifier: MIT
// DeepSeek V2, V3 and R1 (arXiv:2405.04434, arXiv:2412.19437), and what is stored under their name: latent attention,
// some dense layers in front, many experts chosen by softmax or by sigmoid with a bias and within groups, shared
// experts.
#include <cmath>

#include "base/error.hpp"
#include "base/math.hpp"
#include "model/families.hpp"
#include "model/mla.hpp"

namespace tinfer::model::deepseek2 {

namespace {

// Files since 2025 hold the matrices of the latent split, and the sizes of heads under keys of their own: key_length
// and value_length are then those of the cache (architectures §5.10).
void read_latent_sizes(KeyReader& keys, HParams& hp) {
    const gguf::File& file = keys.file();
    const auto head_dim_k = keys.find_u32("attention.key_length_mla"),
               head_dim_v = keys.find_u32("attention.value_length_mla");
    const bool is_split = has_role(file, "attn_k_b.weight");
    if (is_split != head_dim_k.has_value() || is_split != head_dim_v.has_value())
        unsupported(file, hp.arch, "tensor layout and attention.*_mla keys disagree");
    hp.attention.mla.absorbed = is_split;
    hp.attention.mla.head_dim_k = is_split ? expert_width(keys, "attention.key_length_mla", 0) : hp.head_dim_k;
    hp.attention.mla.head_dim_v = is_split ? expert_width(keys, "attention.value_length_mla", 0) : hp.head_dim_v;
    hp.attention.mla.n_lora_kv =
        expert_width(keys, "attention.kv_lora_rank", keys.require_u32("attention.kv_lora_rank"));
    if (const std::uint32_t rank = keys.u32("attention.q_lora_rank", 0); rank > 0)
        hp.attention.mla.n_lora_q = expert_width(keys, "attention.q_lora_rank", rank);
    if (hp.rope.n_rot >= hp.attention.mla.head_dim_k)
        keys.bad("rope.dimension_count", cat(hp.rope.n_rot),
                 cat("must be below the head size ", hp.attention.mla.head_dim_k));
    if (hp.attention.mla.n_lora_q > 0 && has_role(file, "attn_q.weight"))
        keys.bad("attention.q_lora_rank", cat(hp.attention.mla.n_lora_q), "the file has attn_q, which means 0");
    if (!is_split) return;
    if (hp.head_dim_k != hp.attention.mla.n_lora_kv + hp.rope.n_rot || hp.head_dim_v != hp.attention.mla.n_lora_kv ||
        hp.n_head_kv[0] != 1)
        unsupported(file, hp.arch, "tensor layout and attention.*_mla keys disagree");
}

// μ²/sqrt(dn + dr): YaRN's correction of magnitudes, moved from the rotation into the scores.
float attention_scale(const HParams& hp) {
    const double factor = 1.0 / static_cast<double>(hp.rope.freq_scale),
                 a = static_cast<double>(hp.rope.yarn_log_multiplier);
    const double mu = factor > 1.0 ? 1.0 + a * math::log(factor) : 1.0;
    return static_cast<float>(mu * mu / std::sqrt(static_cast<double>(hp.attention.mla.head_dim_k)));
}

}  // namespace

HParams read(KeyReader& keys) {
    if (keys.find_u32("attention.indexer.top_k") || keys.find_u32("attention.indexer.head_count"))
        unsupported(keys.file(), keys.arch(), "sparse attention indexer not supported");
    HParams hp = read_common(keys, RopeKind::norm);
    hp.rope.yarn_log_multiplier = keys.f32("rope.scaling.yarn_log_multiplier", 0.0f);
    read_latent_sizes(keys, hp);
    if (hp.attention.mla.absorbed) read_temperature(keys, hp, "attention.temperature_length");  // Mistral Large 3
    if (keys.f32("attention.scale", 0.0f) == 0.0f) hp.attention.scale = attention_scale(hp);
    if (hp.rope.yarn_log_multiplier < 0 || !std::isfinite(hp.attention.scale))
        keys.bad("rope.scaling.yarn_log_multiplier", cat(hp.rope.yarn_log_multiplier),
                 "must be 0 or more, and leave the scale of scores finite");
    // Files of 47 and 48 blocks (GLM-4.7-Flash, Moonlight's kin) leave the gating out and mean sigmoid.
    const bool has_bias = has_role(keys.file(), "exp_probs_b.bias");
    if (has_bias && (hp.n_layer == 47 || hp.n_layer == 48)) hp.experts.gating = GatingFunc::sigmoid;
    read_experts(keys, hp);
    if (hp.experts.n == 0) hp.experts.n_layer_dense = hp.n_layer;
    if (hp.experts.gating == GatingFunc::softmax_selected)
        unsupported(keys.file(), hp.arch, "router function 3 not supported");
    if (hp.experts.n > 0)
        hp.experts.n_ff =
            expert_width(keys, "expert_feed_forward_length", keys.require_u32("expert_feed_forward_length"));
    if (hp.experts.n > 0) hp.experts.n_ff_shared = shared_width(keys, hp);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    const auto attention = [&](int il, LayerWeights& layer) { bind_latent_attention(binder, hp, il, layer); };
    return bind_stack(binder, hp, Head::required, {.mixer = Mixer::own, .ffn = FeedForward::dense_or_experts},
                      attention);
}

}  // namespace tinfer::model::deepseek2

namespace tinfer::model {
const Family families::deepseek2{.mixer = latent_attention,
                                 .read_all = deepseek2::read,
                                 .bind_all = deepseek2::bind,
                                 .draft = {.state = DraftBlocks::State::normed,
                                           .keys = [](KeyReader&, HParams& hp) { hp.attention.temperature_scale = 0; },
                                           .supports =
                                               [](const HParams& hp) {
                                                   return hp.attention.mla.absorbed && hp.attention.mla.n_lora_q > 0 &&
                                                          hp.experts.n > 0;
                                               },
                                           .bind = bind_latent_block}};
}  // namespace tinfer::model
