// SPDX-License-Identifier: MIT
// Llama 1–3 and everything stored under that name: Mistral, Mixtral, SmolLM, Yi, … (arXiv:2302.13971,
// arXiv:2401.04088). Pre-norm blocks with RMS norm, RoPE on neighbouring pairs, grouped-query attention, gated SiLU or
// experts.
#include "model/families.hpp"

namespace tinfer::model {

namespace {

void refuse_variants_of_llama(WeightBinder& binder, const HParams&) {
    binder.refuse("blk.0.attn_q_norm.weight", "q/k norm variant not supported under this name");
    binder.refuse("blk.0.attn_sub_norm.weight", "bitnet-style scales not supported");
    for (const TensorInfo& tensor : binder.file().tensors())
        if (tensor.name.ends_with(".scale")) binder.unsupported("bitnet-style scales not supported");
    binder.refuse("blk.0.ffn_gate_shexp.weight", "shared experts not supported under this name");
}

}  // namespace

const Family families::llama{
    .full_rotation = true,
    .experts = {.count = ExpertKeys::Count::optional,
                .sum = ExpertKeys::Sum::normalized,
                .width = ExpertKeys::Width::dense},
    .keys =
        [](KeyReader& keys, HParams& hp) {
            read_window(keys, hp, WindowKind::standard, 0, 0);  // Mistral's first release: every layer slides
        },
    .block = kBiasesAsGiven,
    .check = refuse_variants_of_llama,
};

}  // namespace tinfer::model
