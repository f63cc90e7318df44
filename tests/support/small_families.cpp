// SPDX-License-Identifier: MIT
// The families that support/family_model.cpp writes and evaluates: a row each, in the words of the page.
#include "support/family_model.hpp"

namespace tinfer::test {

const std::vector<Family>& small_families() {
    using F = Family;
    using K = F::NormKind;
    using R = F::Rope;
    using A = F::Act;
    static const std::vector<Family> list = [] {
        std::vector<Family> out{
            {.arch = "arcee", .act = A::relu_sqr, .gated = false},
            {.arch = "arctic", .n_expert = 5, .n_expert_used = 2, .dense_beside_experts = true},
            {.arch = "baichuan"},
            {.arch = "bitnet", .rope = R::neox, .sub_norms = true, .scales = true, .tied = true},
            {.arch = "chameleon", .head_norms = true, .norm_per_head = true, .head_layer_norms = true, .head_norm_bias = true, .norms_behind = true,
             .suppressed_begin = 4, .suppressed_end = F::kVocab, .keys = {{"chameleon.swin_norm", {true}}}},
            {.arch = "chatglm", .n_rot = 8, .fused_gate = true, .fused_qkv = true, .qkv_bias = true},
            {.arch = "codeshell", .norm = K::layer, .norm_bias = true, .rope = R::neox, .act = A::gelu, .gated = false, .fused_qkv = true,
             .qkv_bias = true, .out_bias = true, .ffn_bias = true},
            {.arch = "dbrx", .norm = K::layer, .rope = R::neox, .fused_qkv = true, .clamp = 0.8, .n_expert = 5, .n_expert_used = 2,
             .ffn_norm = "attn_output_norm", .keys = {{"dbrx.attention.clamp_kqv", {0.8f}}}},
            {.arch = "deci", .qkv_bias = true, .n_layer = 4, .heads = {4, 4, 0, 6}, .kv_heads = {2, 0, 0, 3}, .ff = {96, 64, 112, 0}},
            {.arch = "ernie4_5"},
            {.arch = "exaone", .rope = R::neox},
            {.arch = "grok", .rope = R::neox, .act = A::gelu, .attn_post_norm = "attn_output_norm", .ffn_post_norm = "layer_output_norm", .attn_scale = 0.2,
             .embd_scale = 3, .logit_scale = 0.5773502691896257, .attn_cap = 2, .n_expert = 5, .n_expert_used = 2, .expert_shares_sum_to_one = false,
             .keys = {{"grok.embedding_scale", {3.0f}}, {"grok.attention.output_scale", {0.2f}}, {"grok.attn_logit_softcapping", {2.0f}}}},
            {.arch = "jais", .norm = K::layer, .norm_bias = true, .rope = R::none, .fused_qkv = true, .qkv_bias = true, .out_bias = true, .ffn_bias = true,
             .attn_scale = 1.0 / 16, .alibi = 8, .kv_heads = {4, 4}},
            {.arch = "nemotron", .norm = K::layer, .norm_bias = true, .rope = R::neox, .n_rot = 8, .act = A::relu_sqr, .gated = false},
            {.arch = "olmo", .norm = K::layer, .norm_weight = false, .clamp = 0.7, .tied = true, .keys = {{"olmo.attention.clamp_kqv", {0.7f}}}},
            {.arch = "openelm", .rope = R::neox, .fused_qkv = true, .head_norms = true, .tied = true, .heads = {4, 6}, .kv_heads = {2, 3}, .ff = {64, 112}},
            {.arch = "orion", .norm = K::layer, .norm_bias = true},
            {.arch = "phimoe", .norm = K::layer, .norm_bias = true, .rope = R::neox, .qkv_bias = true, .out_bias = true, .head_bias = true,
             .n_expert = 4, .n_expert_used = 2},
            {.arch = "plamo", .parallel = true},
            {.arch = "qwen", .rope = R::neox, .fused_qkv = true, .qkv_bias = true, .n_ff_key_factor = 2},
            {.arch = "qwen2vl", .rope = R::neox, .qkv_bias = true, .keys = {{"qwen2vl.rope.dimension_sections", {GgufWriter::array_of<std::int32_t>({2, 3, 3, 0})}}}},
            {.arch = "refact", .rope = R::none, .alibi = 8, .heads = {6, 6}, .kv_heads = {1, 1}},
            {.arch = "rwkv6qwen2", .rope = R::none, .qkv_bias = true, .linear_attention = true},
            {.arch = "seed_oss", .rope = R::neox, .qkv_bias = true, .ffn_norm = "post_attention_norm"},
            {.arch = "starcoder", .norm = K::layer, .norm_bias = true, .rope = R::none, .act = A::gelu, .gated = false, .fused_qkv = true,
             .qkv_bias = true, .out_bias = true, .ffn_bias = true, .learned_positions = true, .tied = true, .kv_heads = {1, 1}},
            {.arch = "xverse"},
        };
        // what files of these architectures may hold and golden cases do not
        const auto also = [&](Family f) { out.push_back(std::move(f)); };
        also({.arch = "llama", .fused_qkv = true, .qkv_bias = true});
        also({.arch = "llama", .n_expert = 5, .n_expert_used = 2, .fused_experts = true});
        also({.arch = "mpt", .norm = K::layer, .norm_bias = true, .rope = R::none, .act = A::gelu, .gated = false, .fused_qkv = true, .qkv_bias = true,
              .out_bias = true, .ffn_bias = true, .wide_norms = true, .act_scales = true, .learned_positions = true, .alibi = 4, .clamp = 0.9,
              .heads = {6, 6}, .kv_heads = {6, 6}, .keys = {{"mpt.attention.max_alibi_bias", {4.0f}}, {"mpt.attention.clamp_kqv", {0.9f}}}});
        also({.arch = "command-r", .norm = K::layer, .parallel = true, .qkv_bias = true, .head_norms = true, .norm_per_head = true, .logit_scale = 0.25,
              .tied = true, .keys = {{"command-r.logit_scale", {0.25f}}}});
        also({.arch = "granite", .qkv_bias = true, .out_bias = true, .ffn_bias = true, .logit_scale = 0.5, .keys = {{"granite.logit_scale", {2.0f}}}});
        also({.arch = "granite", .rope = R::none, .embd_scale = 3, .residual_scale = 0.5, .logit_scale = 0.5, .tied = true,
              .keys = {{"granite.logit_scale", {2.0f}}, {"granite.embedding_scale", {3.0f}}, {"granite.residual_scale", {0.5f}},
                       {"granite.rope.scaling.finetuned", {false}}}});
        also({.arch = "bitnet", .rope = R::neox, .sub_norms = true, .tied = true});
        also({.arch = "chameleon", .head_norms = true, .norm_per_head = true, .head_layer_norms = true, .tied = true, .suppressed_begin = 4,
              .suppressed_end = F::kVocab});
        also({.arch = "deci", .n_layer = 4, .heads = {0, 4, 4, 4}, .kv_heads = {0, 4, 1, 0}, .ff = {64, 0, 96, 96}});
        also({.arch = "grok", .rope = R::neox, .act = A::gelu, .attn_post_norm = "attn_output_norm", .ffn_post_norm = "layer_output_norm",
              .attn_scale = 0.08838834764831845, .embd_scale = 78.38367176906169, .logit_scale = 0.25, .attn_cap = 30, .tied = true, .n_expert = 4,
              .n_expert_used = 2, .keys = {{"grok.expert_weights_norm", {true}}, {"grok.logit_scale", {0.25f}}}});
        also({.arch = "rwkv6qwen2", .rope = R::none, .linear_attention = true, .kv_heads = {4, 4}});
        also({.arch = "phi3", .norm_bias = true, .rope = R::neox, .n_rot = 12, .head_bias = true});
        also({.arch = "bloom", .norm = K::layer, .norm_bias = true, .rope = R::none, .act = A::gelu, .gated = false, .fused_qkv = true, .qkv_bias = true,
              .out_bias = true, .ffn_bias = true, .embd_norm = true, .alibi = 8, .tied = true, .heads = {5, 5}, .kv_heads = {5, 5}});
        also({.arch = "stablelm", .norm = K::layer, .norm_bias = true, .rope = R::neox, .n_rot = 4, .parallel = true, .qkv_bias = true});
        Family deep{.arch = "baichuan", .rope = R::none, .alibi = 8, .n_layer = 40};   // 13B: 40 layers mean ALiBi
        deep.heads.assign(40, 5), deep.kv_heads.assign(40, 5), deep.ff.assign(40, 32);
        out.push_back(deep);
        return out;
    }();
    return list;
}

}  // namespace tinfer::test
