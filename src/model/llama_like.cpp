// SPDX-License-Identifier: MIT
// Models whose forward pass is llama's block but for one thing: InternLM 2 (arXiv:2403.17297), XVERSE and ERNIE 4.5
// (Baidu, 2025; without experts) as it stands; EXAONE 3 (arXiv:2408.03541) with half-split RoPE; Orion
// (arXiv:2401.12246) with layer norms; Baichuan (arXiv:2309.10305), whose larger model has ALiBi, as has Refact; PLaMo
// with both branches behind one norm.
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace internlm2 {

HParams read(KeyReader& keys) { return read_common(keys, RopeKind::norm); }
Weights bind(WeightBinder& binder, const HParams& hp) { return bind_stack(binder, hp, Head::required); }
void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace internlm2

namespace exaone {

HParams read(KeyReader& keys) { return read_common(keys, RopeKind::neox); }
Weights bind(WeightBinder& binder, const HParams& hp) { return bind_stack(binder, hp, Head::tied_if_missing); }
void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace exaone

namespace xverse {

HParams read(KeyReader& keys) { return read_common(keys, RopeKind::norm); }
Weights bind(WeightBinder& binder, const HParams& hp) { return bind_stack(binder, hp, Head::required); }
void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace xverse

namespace ernie4_5 {

HParams read(KeyReader& keys) { return read_common(keys, RopeKind::norm); }
Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::tied_if_missing, kBiasesAsGiven);
}
void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace ernie4_5

namespace orion {

HParams read(KeyReader& keys) { return read_common(keys, RopeKind::norm, NormKind::layer); }
Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::required, {.norm_bias = Bias::required});
}
void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace orion

namespace baichuan {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::norm);
    if (hp.n_layer != 40) return hp;
    hp.rope = RopeKind::none;  // 13B, told apart by its depth
    hp.max_alibi_bias = 8.0f;
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) { return bind_stack(binder, hp, Head::required); }
void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace baichuan

namespace refact {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::none);
    hp.max_alibi_bias = 8.0f;
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) { return bind_stack(binder, hp, Head::tied_if_missing); }
void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace refact

namespace plamo {

HParams read(KeyReader& keys) { return read_common(keys, RopeKind::norm); }

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::required, {.norms = BlockNorms::one});
}

void build(const BuildContext& b) { parallel_stack(b); }

}  // namespace plamo

}  // namespace tinfer::model
