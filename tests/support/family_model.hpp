// SPDX-License-Identifier: MIT
// Small random models of attention families without golden cases, and a direct evaluation in double precision: token by
// token, loops as in the formulas (architectures §2), sharing no code with the library.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "support/gguf_writer.hpp"

namespace tinfer::test {

/// Before token number `at`, positions [begin, end) are forgotten.
struct RemovedRange {
    int at = -1, begin = 0, end = 0;
};

/// The features of a family, in the terms of docs/architectures.md. Sizes are the same for all models here.
struct Family {
    enum class NormKind { rms, layer };
    enum class Rope { none, norm, neox };
    enum class Act { silu, gelu, relu_sqr };

    std::string arch;
    NormKind norm = NormKind::rms;
    bool norm_bias = false, norm_weight = true;
    Rope rope = Rope::norm;
    int n_rot = 16;
    Act act = Act::silu;
    bool gated = true, fused_gate = false;  ///< ffn_up of 2F rows, the gate's first
    bool parallel = false;                  ///< attention and feed-forward share one norm
    bool fused_qkv = false, qkv_bias = false, out_bias = false, ffn_bias = false, head_bias = false;
    bool head_norms = false;     ///< over each head of q and k
    bool wide_norms = false;     ///< over all of q and of k
    bool norm_per_head = false;  ///< weights of head_norms are {head_dim, n_head}
    bool head_layer_norms = false,
         head_norm_bias = false;                    ///< head_norms are layer norms, eps 1e-5, whatever `norm` is
    bool norms_behind = false;                      ///< norms on the outputs of the branches, none on their inputs
    std::string attn_post_norm{}, ffn_post_norm{};  ///< names of additional norms after the branches
    bool sub_norms = false;                         ///< before attn_output and before ffn_down
    bool scales = false;                            ///< one per matrix of a layer
    bool linear_attention = false;                  ///< after RWKV-6's token shift, instead of softmax
    bool act_scales = false;                        ///< divisors of the activation
    double attn_scale = 0.25, embd_scale = 1, residual_scale = 1, logit_scale = 1;
    bool learned_positions = false, embd_norm = false;
    double alibi = 0, clamp = 0, attn_cap = 0;
    bool tied = false;
    int n_expert = 0, n_expert_used = 0;
    bool expert_shares_sum_to_one = true;
    bool dense_beside_experts = false;  ///< as wide as the stream; the experts read a norm of the layer's input
    bool fused_experts = false;         ///< gate and up of an expert in one matrix
    std::string ffn_norm = "ffn_norm";
    int n_layer = 2, n_vocab = kVocab;
    int suppressed_begin = 0, suppressed_end = 0;  ///< tokens whose logits are the lowest float
    int n_ff_key_factor = 1;                       ///< the key contains this multiple of F
    std::vector<int> heads{4, 4}, kv_heads{2, 2},
        ff{96, 96};  ///< per layer; 0 KV heads: one matrix for attention, 0 heads: none, 0 ff: none
    std::vector<std::pair<std::string, GgufValue>> keys{};  ///< additional keys, with their prefix

    static constexpr int kEmbd = 64, kHeadDim = 16, kVocab = 96, kContext = 256, kMixRank = 8, kDecayRank = 12;
    static constexpr float kEps = 2e-3f;

    /// `type`: of every matrix whose rows are whole blocks of 32; other than f32, the weights are random blocks of that
    /// type, and evaluate() cannot read them.
    [[nodiscard]] GgufWriter writer(DType type = DType::f32) const;
    /// Logits {vocab, tokens} in double precision, from the tensors of a file made by writer().
    [[nodiscard]] std::vector<double> evaluate(const GgufWriter& file, const std::vector<int>& tokens,
                                               RemovedRange removed = {}) const;
};

/// A small deepseek2 with latents that are absorbed, or written out per head, and every kind of routing; for bits and
/// traces, in any type whose blocks hold 32 values.
[[nodiscard]] GgufWriter latent_model(DType type, bool absorbed);

/// One example of every architecture without golden data, and variants of files that golden cases do not cover.
[[nodiscard]] const std::vector<Family>& small_families();

}  // namespace tinfer::test
