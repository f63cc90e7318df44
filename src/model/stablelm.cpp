// SPDX-License-Identifier: MIT
// StableLM (arXiv:2402.17834): layer norms with bias, RoPE on a quarter of each head, gated SiLU; in sequence, or (12B)
// in parallel behind one norm, with layer norms over each head of q and k.
#include "model/families.hpp"

namespace tinfer::model {

const Family families::stablelm{
    .rope = RopeKind::neox,
    .common = {.norm = NormKind::layer},
    .keys =
        [](KeyReader& keys, HParams& hp) {
            hp.parallel_residual = keys.file().find_tensor("blk.0.ffn_norm.weight") == nullptr;
            if (const auto said = keys.find_bool("use_parallel_residual"); said && *said != hp.parallel_residual)
                unsupported(keys.file(), hp.arch, "residual layout ambiguous");
        },
    .head = Head::required,
    .block = {.norms = BlockNorms::one,
              .norm_bias = Bias::required,
              .qkv_bias = Bias::optional,
              .head_norms = HeadNorms::per_head_if_given},
    .layer =
        [](WeightBinder& binder, const HParams& hp, int il, LayerWeights& layer) {
            if (!hp.parallel_residual)
                layer.ffn_norm = binder.norm(block_name(il, "ffn_norm"), {hp.n_embd}, Bias::required);
        },
};

}  // namespace tinfer::model
