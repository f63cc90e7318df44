// SPDX-License-Identifier: MIT
// The families that have a file of their own, each a constant there; all others are rows of the registry alone.
#pragma once

#include "model/family.hpp"

namespace tinfer::model::families {

extern const Family afmoe, apertus, arctic, arwkv7, bailingmoe3, bert, bitnet, chameleon, cohere2moe, deci, deepseek2,
    deepseek32, deepseek4, dots3note, falcon, falcon_h1, gemma_embedding, gemma2, gemma3, gemma3n, gemma4, glm_dsa,
    granite, granite_swa, granitehybrid, granitemoe, graniteswitch, grok, grovemoe, hrm_text, hunyuan_dense,
    hunyuan_moe, hunyuan_vl, hy_v4, jamba, jina_bert_v2, jina_bert_v3, kimi_k3, kimi_linear, lfm2, lfm2moe, llama,
    llama4, mamba, mamba2, minicpm3, minimax_01, minimax_m3, mistral4, modern_bert, muse_glimmer, nanbeige, nemotron_h,
    nemotron_h_moe, neo_bert, nomic_bert, nomic_bert_moe, plamo2, plm, qwen35, qwen35moe, qwen3next, qwen4exp, rwkv6,
    rwkv6qwen2, rwkv7, smallthinker, stablelm, step35, t5, t5encoder, talkie;

}  // namespace tinfer::model::families
