// SPDX-License-Identifier: MIT
// StableLM (arXiv:2402.17834): layer norms with bias, RoPE on a quarter of each head, gated SiLU; in sequence, or (12B)
// in parallel behind one norm, with layer norms over each head of q and k.
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::stablelm {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox, NormKind::layer);
    hp.parallel_residual = keys.file().find_tensor("blk.0.ffn_norm.weight") == nullptr;
    if (const auto said = keys.find_bool("use_parallel_residual"); said && *said != hp.parallel_residual)
        unsupported(keys.file(), hp.arch, "residual layout ambiguous");
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::required,
                      {.norms = hp.parallel_residual ? BlockNorms::one : BlockNorms::before,
                       .norm_bias = Bias::required,
                       .qkv_bias = Bias::optional,
                       .head_norms = HeadNorms::per_head_if_given});
}

void build(const BuildContext& b) { b.hp.parallel_residual ? parallel_stack(b) : sequential_stack(b); }

}  // namespace tinfer::model::stablelm

namespace tinfer::model {
const Family families::stablelm{.read_all = stablelm::read, .bind_all = stablelm::bind, .build_all = stablelm::build};
}  // namespace tinfer::model
