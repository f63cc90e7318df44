// SPDX-License-Identifier: MIT
// The functions that the files of this folder give the registry, one namespace per architecture.
#pragma once

#include "model/architecture.hpp"

namespace tinfer::model {

#define TINFER_ARCHITECTURE(name)                                                                                      \
    namespace name {                                                                                                   \
    HParams read(KeyReader& keys);                                                                                     \
    Weights bind(WeightBinder& binder, const HParams& hp);                                                             \
    void build(const BuildContext& context);                                                                           \
    }

TINFER_ARCHITECTURE(arcee)
TINFER_ARCHITECTURE(arctic)
TINFER_ARCHITECTURE(baichuan)
TINFER_ARCHITECTURE(bert)
TINFER_ARCHITECTURE(bitnet)
TINFER_ARCHITECTURE(bloom)
TINFER_ARCHITECTURE(chameleon)
TINFER_ARCHITECTURE(chatglm)
TINFER_ARCHITECTURE(codeshell)
TINFER_ARCHITECTURE(cohere2)
TINFER_ARCHITECTURE(command_r)
TINFER_ARCHITECTURE(dbrx)
TINFER_ARCHITECTURE(deci)
TINFER_ARCHITECTURE(deepseek)
TINFER_ARCHITECTURE(deepseek2)
TINFER_ARCHITECTURE(ernie4_5)
TINFER_ARCHITECTURE(exaone)
TINFER_ARCHITECTURE(exaone4)
TINFER_ARCHITECTURE(falcon)
TINFER_ARCHITECTURE(gemma)
TINFER_ARCHITECTURE(gemma2)
TINFER_ARCHITECTURE(gemma3)
TINFER_ARCHITECTURE(gemma_embedding)
TINFER_ARCHITECTURE(glm4)
TINFER_ARCHITECTURE(glm4moe)
TINFER_ARCHITECTURE(gpt2)
TINFER_ARCHITECTURE(gpt_oss)
TINFER_ARCHITECTURE(gptneox)
TINFER_ARCHITECTURE(granite)
TINFER_ARCHITECTURE(granitemoe)
TINFER_ARCHITECTURE(grok)
TINFER_ARCHITECTURE(internlm2)
TINFER_ARCHITECTURE(jais)
TINFER_ARCHITECTURE(jamba)
TINFER_ARCHITECTURE(jina_bert_v2)
TINFER_ARCHITECTURE(lfm2)
TINFER_ARCHITECTURE(llama)
TINFER_ARCHITECTURE(llama4)
TINFER_ARCHITECTURE(mamba)
TINFER_ARCHITECTURE(mamba2)
TINFER_ARCHITECTURE(minicpm)
TINFER_ARCHITECTURE(minicpm3)
TINFER_ARCHITECTURE(mpt)
TINFER_ARCHITECTURE(nemotron)
TINFER_ARCHITECTURE(nomic_bert)
TINFER_ARCHITECTURE(olmo)
TINFER_ARCHITECTURE(olmo2)
TINFER_ARCHITECTURE(olmoe)
TINFER_ARCHITECTURE(openelm)
TINFER_ARCHITECTURE(orion)
TINFER_ARCHITECTURE(phi2)
TINFER_ARCHITECTURE(phi3)
TINFER_ARCHITECTURE(phimoe)
TINFER_ARCHITECTURE(plamo)
TINFER_ARCHITECTURE(qwen)
TINFER_ARCHITECTURE(qwen2)
TINFER_ARCHITECTURE(qwen2moe)
TINFER_ARCHITECTURE(qwen2vl)
TINFER_ARCHITECTURE(qwen3)
TINFER_ARCHITECTURE(qwen3moe)
TINFER_ARCHITECTURE(qwen3next)
TINFER_ARCHITECTURE(refact)
TINFER_ARCHITECTURE(rwkv6)
TINFER_ARCHITECTURE(rwkv6qwen2)
TINFER_ARCHITECTURE(rwkv7)
TINFER_ARCHITECTURE(seed_oss)
TINFER_ARCHITECTURE(smollm3)
TINFER_ARCHITECTURE(stablelm)
TINFER_ARCHITECTURE(starcoder)
TINFER_ARCHITECTURE(starcoder2)
TINFER_ARCHITECTURE(t5)
TINFER_ARCHITECTURE(t5encoder)
TINFER_ARCHITECTURE(xverse)

#undef TINFER_ARCHITECTURE

namespace t5 {  // the encoder in front
HParams read_encoder(KeyReader& keys);
Weights bind_encoder(WeightBinder& binder, const HParams& hp);
void build_encoder(const BuildContext& context);
}  // namespace t5

}  // namespace tinfer::model
