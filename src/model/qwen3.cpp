// SPDX-License-Identifier: MIT
// Qwen3 and Qwen3-MoE (arXiv:2505.09388): llama's block with half-split RoPE and RMS norms over each head of q and k
// before it; no biases. The expert form normalizes the chosen gate values.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace qwen3 {

HParams read(KeyReader& keys) { return read_common(keys, RopeKind::neox); }

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w = bind_stack(binder, hp, Head::tied_if_missing, {.head_norms = HeadNorms::shared});
    if (binder.exists("cls.output.weight")) bind_classifier(binder, hp, w);  // rerankers
    return w;
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace qwen3

namespace qwen3moe {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    hp.expert_weights_norm = true;
    read_experts(keys, hp);
    if (hp.n_expert == 0) keys.bad("expert_count", "0", "architecture 'qwen3moe' needs expert_count > 0");
    hp.n_ff_expert =
        expert_width(keys, "expert_feed_forward_length", static_cast<std::uint32_t>(hp.n_ff[0] / hp.n_expert_used));
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    for (int il = 0; il < hp.n_layer; ++il)
        if (!binder.exists(block_name(il, "ffn_gate_inp.weight")) && binder.exists(block_name(il, "ffn_gate.weight")))
            binder.unsupported(cat("mixed dense/expert layer ", il, " not supported"));
    return bind_stack(binder, hp, Head::tied_if_missing,
                      {.head_norms = HeadNorms::shared, .ffn = FeedForward::experts});
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace qwen3moe

}  // namespace tinfer::model
