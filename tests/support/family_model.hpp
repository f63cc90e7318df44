// SPDX-License-Identifier: MIT
// Small random models of attention families that no golden case covers, and a straight-line evaluation of them in double
// precision: one token after another, loops as the formulas stand (architectures §2), sharing nothing with the library.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "support/gguf_writer.hpp"

namespace tinfer::test {

/// Before token number `at`, positions [begin, end) are forgotten.
struct RemovedRange { int at = -1, begin = 0, end = 0; };

/// What one family does, in the words of the page. Sizes are those of every model here.
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
    bool gated = true, fused_gate = false;        ///< ffn_up of 2F rows, the gate's first
    bool parallel = false;                        ///< attention and feed-forward behind one norm
    bool fused_qkv = false, qkv_bias = false, out_bias = false, ffn_bias = false, head_bias = false;
    bool head_norms = false;                      ///< over each head of q and k
    bool wide_norms = false;                      ///< over all of q and of k
    bool norm_per_head = false;                   ///< weights of head_norms are {head_dim, n_head}
    bool act_scales = false;                      ///< the activation is divided by them
    double attn_scale = 0.25, embd_scale = 1, residual_scale = 1, logit_scale = 1;
    bool learned_positions = false, embd_norm = false;
    double alibi = 0, clamp = 0;
    bool tied = false;
    int n_expert = 0, n_expert_used = 0;
    bool fused_experts = false;                   ///< gate and up of an expert in one matrix
    std::string ffn_norm = "ffn_norm";
    int n_layer = 2;
    int n_ff_key_factor = 1;                      ///< the key says so many times F
    std::vector<int> heads{4, 4}, kv_heads{2, 2}, ff{96, 96};   ///< per layer; the first for all where they agree
    std::vector<std::pair<std::string, GgufValue>> keys{};      ///< further ones, with their prefix

    static constexpr int kEmbd = 64, kHeadDim = 16, kVocab = 96, kContext = 256;
    static constexpr float kEps = 2e-3f;

    /// `type`: of every matrix whose rows are whole blocks of 32; other than f32, the weights are random blocks of that type, and evaluate() cannot read them.
    [[nodiscard]] GgufWriter writer(DType type = DType::f32) const;
    /// Logits {vocab, tokens} in double, from the tensors of a file that writer() made.
    [[nodiscard]] std::vector<double> evaluate(const GgufWriter& file, const std::vector<int>& tokens, RemovedRange removed = {}) const;
};

/// A small deepseek2 with latents that are absorbed, or written out per head, and every kind of routing; for bits and
/// traces, in any type whose blocks hold 32 values.
[[nodiscard]] GgufWriter latent_model(DType type, bool absorbed);

/// One example of every architecture without golden data, and variants of files that golden cases do not show.
[[nodiscard]] const std::vector<Family>& small_families();

}  // namespace tinfer::test
