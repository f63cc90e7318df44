// SPDX-License-Identifier: MIT
// MiniCPM (arXiv:2404.06395): llama's block with fixed factors on embeddings, branches and logits; long contexts by
// LongRoPE factors; some releases have experts. MiniCPM3 has latent attention in its place.
#include <cmath>

#include "base/error.hpp"
#include "model/families.hpp"
#include "model/mla.hpp"

namespace tinfer::model {

namespace minicpm3 {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    hp.embd_scale = 12.0f;
    hp.residual_scale = 1.4f / std::sqrt(static_cast<float>(hp.n_layer));
    hp.logit_scale = 256.0f / static_cast<float>(hp.n_embd);
    hp.attention.mla.n_lora_q = expert_width(keys, "attention.q_lora_rank", keys.require_u32("attention.q_lora_rank"));
    hp.attention.mla.n_lora_kv =
        expert_width(keys, "attention.kv_lora_rank", keys.require_u32("attention.kv_lora_rank"));
    if (hp.rope.n_rot >= hp.head_dim_k)
        keys.bad("rope.dimension_count", cat(hp.rope.n_rot), cat("must be below the head size ", hp.head_dim_k));
    if (const TensorInfo* output = keys.file().find_tensor("blk.0.attn_output.weight");
        output != nullptr && output->ne[0] % hp.n_head[0] == 0 && output->ne[0] / hp.n_head[0] <= 65536)
        hp.head_dim_v = static_cast<int>(output->ne[0] / hp.n_head[0]);  // not every file's value_length says it
    hp.attention.mla.head_dim_k = hp.head_dim_k;
    hp.attention.mla.head_dim_v = hp.head_dim_v;
    hp.n_head_kv = hp.n_head;
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    const auto attention = [&](int il, LayerWeights& layer) { bind_latent_attention(binder, hp, il, layer); };
    return bind_stack(binder, hp, Head::tied_if_missing, {.mixer = Mixer::own}, attention);
}

}  // namespace minicpm3

const Family families::minicpm3{.mixer = latent_attention, .read_all = minicpm3::read, .bind_all = minicpm3::bind};

}  // namespace tinfer::model
