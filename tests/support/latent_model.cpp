// SPDX-License-Identifier: MIT
// A file of deepseek2: latent attention, absorbed or not, and grouped experts.
#include "support/family_model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "support/random_blocks.hpp"

namespace tinfer::test {

GgufWriter latent_model(DType type, bool absorbed) {
    constexpr std::int64_t e = 64, n_head = 4, n_nope = 32, n_rot = 16, n_latent = 64, head_dim_v = 32, n_lora_q = 32,
                           n_expert = 8, ff = 32;
    GgufWriter w;
    Random random(5);
    const auto key = [&](const char* name, std::uint32_t value) { w.kv(std::string("deepseek2.") + name, value); };
    const auto matrix = [&](const std::string& name, std::vector<std::int64_t> ne) {
        std::int64_t rows = 1;
        for (std::size_t i = 1; i < ne.size(); ++i) rows *= ne[i];
        w.tensor(name + ".weight", type, ne, random_weights(type, ne[0], rows, random.bits(), Extremes::none));
    };
    const auto vector = [&](const std::string& name, std::int64_t n) {
        std::vector<float> x(static_cast<std::size_t>(n));
        for (float& value : x) value = 1.0f + 0.2f * random.normal();
        w.tensor(name, DType::f32, {n}, x);
    };
    w.kv("general.architecture", "deepseek2")
        .kv("general.quantization_version", 2u)
        .kv("tokenizer.ggml.model", "no_vocab");
    for (const auto& [name, value] : {std::pair{"vocab_size", 96u},
                                      {"block_count", 2u},
                                      {"embedding_length", 64u},
                                      {"context_length", 256u},
                                      {"feed_forward_length", 96u},
                                      {"attention.head_count", 4u},
                                      {"attention.head_count_kv", absorbed ? 1u : 4u},
                                      {"attention.q_lora_rank", 32u},
                                      {"attention.kv_lora_rank", 64u},
                                      {"rope.dimension_count", 16u},
                                      {"attention.key_length", absorbed ? 80u : 48u},
                                      {"attention.value_length", absorbed ? 64u : 32u},
                                      {"leading_dense_block_count", 1u},
                                      {"expert_count", 8u},
                                      {"expert_used_count", 3u},
                                      {"expert_group_count", 4u},
                                      {"expert_group_used_count", 2u},
                                      {"expert_feed_forward_length", 32u},
                                      {"expert_shared_count", 1u},
                                      {"expert_gating_func", 2u}})
        key(name, value);
    if (absorbed) key("attention.key_length_mla", 48), key("attention.value_length_mla", 32);
    w.kv("deepseek2.attention.layer_norm_rms_epsilon", 2e-3f)
        .kv("deepseek2.expert_weights_norm", true)
        .kv("deepseek2.expert_weights_scale", 2.5f);
    matrix("token_embd", {e, 96}), matrix("output", {e, 96}), vector("output_norm.weight", e);
    for (int il = 0; il < 2; ++il) {
        const std::string blk = "blk." + std::to_string(il) + ".";
        vector(blk + "attn_norm.weight", e), vector(blk + "ffn_norm.weight", e);
        matrix(blk + "attn_q_a", {e, n_lora_q}), vector(blk + "attn_q_a_norm.weight", n_lora_q),
            matrix(blk + "attn_q_b", {n_lora_q, n_head * (n_nope + n_rot)});
        matrix(blk + "attn_kv_a_mqa", {e, n_latent + n_rot}), vector(blk + "attn_kv_a_norm.weight", n_latent);
        if (absorbed)
            matrix(blk + "attn_k_b", {n_nope, n_latent, n_head}),
                matrix(blk + "attn_v_b", {n_latent, head_dim_v, n_head});
        else matrix(blk + "attn_kv_b", {n_latent, n_head * (n_nope + head_dim_v)});
        matrix(blk + "attn_output", {n_head * head_dim_v, e});
        if (il == 0) {
            matrix(blk + "ffn_gate", {e, 96}), matrix(blk + "ffn_up", {e, 96}), matrix(blk + "ffn_down", {96, e});
            continue;
        }
        matrix(blk + "ffn_gate_inp", {e, n_expert}), vector(blk + "exp_probs_b.bias", n_expert);
        matrix(blk + "ffn_gate_exps", {e, ff, n_expert}), matrix(blk + "ffn_up_exps", {e, ff, n_expert}),
            matrix(blk + "ffn_down_exps", {ff, e, n_expert});
        matrix(blk + "ffn_gate_shexp", {e, ff}), matrix(blk + "ffn_up_shexp", {e, ff}),
            matrix(blk + "ffn_down_shexp", {ff, e});
    }
    return w;
}

}  // namespace tinfer::test
