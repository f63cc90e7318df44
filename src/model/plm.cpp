// SPDX-License-Identifier: MIT
// PLM (arXiv:2503.12167): latent attention with one matrix for keys and values of all heads, and a feed-forward that
// squares its ReLU; the head is always the embedding.
#include "base/error.hpp"
#include "model/families.hpp"
#include "model/mla.hpp"

namespace tinfer::model::plm {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::norm);
    hp.activation = Activation::relu_sqr;
    hp.attention.mla = {.n_lora_kv = positive_u32(keys, "attention.kv_lora_rank", 1u << 24),
                        .head_dim_k = hp.head_dim_k,
                        .head_dim_v = hp.head_dim_v};
    if (hp.rope.n_rot >= hp.head_dim_k)
        keys.bad("rope.dimension_count", cat(hp.rope.n_rot), cat("must be below the head size ", hp.head_dim_k));
    for (std::size_t il = 0; il < hp.n_head.size(); ++il)
        if (hp.n_head_kv[il] != hp.n_head[il])
            keys.bad("attention.head_count_kv", cat(hp.n_head_kv[il]), cat("must be head_count ", hp.n_head[il]));
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    binder.ignore("output.weight");
    return bind_stack(binder, hp, Head::always_tied, {.mixer = Mixer::own, .ffn = FeedForward::plain},
                      [&](int il, LayerWeights& layer) { bind_latent_attention(binder, hp, il, layer); });
}

}  // namespace tinfer::model::plm

namespace tinfer::model {
const Family families::plm{.mixer = latent_attention, .read_all = plm::read, .bind_all = plm::bind};
}  // namespace tinfer::model
