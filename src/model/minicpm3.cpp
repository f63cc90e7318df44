// SPDX-License-Identifier: MIT
// MiniCPM3 (arXiv:2404.06395): MiniCPM's fixed factors on embeddings, branches and logits, and latent attention.
#include <cmath>

#include "base/error.hpp"
#include "model/families.hpp"
#include "model/mla.hpp"

namespace tinfer::model {

namespace {

void read_minicpm3(KeyReader& keys, HParams& hp) {
    hp.embd_scale = 12.0f;
    hp.residual_scale = 1.4f / std::sqrt(static_cast<float>(hp.n_layer));
    hp.logit_scale = 256.0f / static_cast<float>(hp.n_embd);
    MlaSizes& m = hp.attention.mla;
    m.n_lora_q = expert_width(keys, "attention.q_lora_rank", keys.require_u32("attention.q_lora_rank"));
    m.n_lora_kv = expert_width(keys, "attention.kv_lora_rank", keys.require_u32("attention.kv_lora_rank"));
    if (hp.rope.n_rot >= hp.head_dim_k)
        keys.bad("rope.dimension_count", cat(hp.rope.n_rot), cat("must be below the head size ", hp.head_dim_k));
    if (const TensorInfo* output = keys.file().find_tensor("blk.0.attn_output.weight");
        output != nullptr && output->ne[0] % hp.n_head[0] == 0 && output->ne[0] / hp.n_head[0] <= 65536)
        hp.head_dim_v = static_cast<int>(output->ne[0] / hp.n_head[0]);  // not every file's value_length says it
    m.head_dim_k = hp.head_dim_k;
    m.head_dim_v = hp.head_dim_v;
    hp.n_head_kv = hp.n_head;
}

}  // namespace

const Family families::minicpm3{.rope = RopeKind::neox,
                                .keys = read_minicpm3,
                                .block = {.mixer = Mixer::own},
                                .layer = bind_latent_attention,
                                .mixer = latent_attention};

}  // namespace tinfer::model
