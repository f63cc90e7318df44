// SPDX-License-Identifier: MIT
// Qwen (arXiv:2309.16609), Qwen2 and Qwen2-MoE (arXiv:2407.10671): llama's block with half-split RoPE and biases on q,
// k, v; the expert form adds a shared expert behind a sigmoid gate of its own. The text of Qwen2-VL is Qwen2, and so is
// Seed-OSS (ByteDance, 2025) but for the name of a norm.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace qwen {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    for (int& n_ff : hp.n_ff) {  // the key counts gate and up together
        if (n_ff % 2 != 0) keys.bad("feed_forward_length", cat(n_ff), "must be even: gate and up together");
        n_ff /= 2;
    }
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::required, {.qkv_bias = Bias::required});
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace qwen

namespace qwen2 {

HParams read(KeyReader& keys) { return read_common(keys, RopeKind::neox); }

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w = bind_stack(binder, hp, Head::tied_if_missing, {.qkv_bias = Bias::required});
    w.output.bias = binder.find_vector("output.bias", hp.n_vocab);
    return w;
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace qwen2

namespace qwen2vl {

// Text stands at (p, p, p, 0): the first three sections turn it as one, and there must be no fourth.
HParams read(KeyReader& keys) {
    const auto sections = keys.find_per_layer("rope.dimension_sections", 4);
    if (!sections)
        fail(ErrorCode::missing_key, cat(keys.file().name(), ": metadata: missing required key '",
                                         keys.full("rope.dimension_sections"), "' (architecture 'qwen2vl')"));
    HParams hp = qwen2::read(keys);
    std::uint64_t n_pairs = 0;
    for (const std::uint32_t n : *sections) n_pairs += n;
    if ((*sections)[3] != 0 || n_pairs == 0 || n_pairs > static_cast<std::uint64_t>(hp.n_rot / 2))
        keys.bad("rope.dimension_sections", cat(n_pairs, " pairs, ", (*sections)[3], " of them in a fourth section"),
                 cat("must be 1 to ", hp.n_rot / 2, " pairs in three sections"));
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) { return qwen2::bind(binder, hp); }
void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace qwen2vl

namespace seed_oss {

HParams read(KeyReader& keys) { return read_common(keys, RopeKind::neox); }

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::tied_if_missing,
                      {.ffn_norm = "post_attention_norm", .qkv_bias = Bias::required});
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace seed_oss

namespace qwen2moe {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    read_experts(keys, hp);
    if (hp.n_expert == 0) keys.bad("expert_count", "0", "architecture 'qwen2moe' needs expert_count > 0");
    const auto n_ff = static_cast<std::uint32_t>(hp.n_ff[0]);
    hp.n_ff_expert =
        expert_width(keys, "expert_feed_forward_length", n_ff / static_cast<std::uint32_t>(hp.n_expert_used));
    hp.n_ff_shared = expert_width(keys, "expert_shared_feed_forward_length", n_ff);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    const auto gate = [&](int il, LayerWeights& layer) {
        layer.ffn_gate_inp_shexp = binder.linear(block_name(il, "ffn_gate_inp_shexp"), hp.n_embd, 1);
    };
    return bind_stack(binder, hp, Head::required, {.qkv_bias = Bias::required, .ffn = FeedForward::experts}, gate);
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace qwen2moe

}  // namespace tinfer::model
