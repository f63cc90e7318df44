// SPDX-License-Identifier: MIT
// Llama 1–3 and everything stored under that name: Mistral, Mixtral, SmolLM, Yi, … (arXiv:2302.13971,
// arXiv:2401.04088). Pre-norm blocks with RMS norm, RoPE on neighbouring pairs, grouped-query attention, gated SiLU or
// experts.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::llama {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::norm);
    if (hp.n_rot != hp.head_dim_k)
        keys.bad("rope.dimension_count", cat(hp.n_rot), cat("must equal head size ", hp.head_dim_k, " for 'llama'"));
    hp.expert_weights_norm = true;
    read_experts(keys, hp);
    hp.n_ff_expert = hp.n_ff[0];
    read_window(keys, hp, WindowKind::standard, 0, 0);  // Mistral's first release: every layer slides
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    binder.refuse("blk.0.attn_q_norm.weight", "q/k norm variant not supported under this name");
    binder.refuse("blk.0.attn_sub_norm.weight", "bitnet-style scales not supported");
    for (const TensorInfo& tensor : binder.file().tensors())
        if (tensor.name.ends_with(".scale")) binder.unsupported("bitnet-style scales not supported");
    binder.refuse("blk.0.ffn_gate_shexp.weight", "shared experts not supported under this name");
    return bind_stack(binder, hp, Head::tied_if_missing, kBiasesAsGiven);
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace tinfer::model::llama
