// SPDX-License-Identifier: MIT
// PLM (arXiv:2503.12167): latent attention with one matrix for keys and values of all heads, and a feed-forward that
// squares its ReLU; the head is always the embedding.
#include "base/error.hpp"
#include "model/families.hpp"
#include "model/mla.hpp"

namespace tinfer::model {

namespace {

void read_plm(KeyReader& keys, HParams& hp) {
    hp.attention.mla = {.n_lora_kv = positive_u32(keys, "attention.kv_lora_rank", 1u << 24),
                        .head_dim_k = hp.head_dim_k,
                        .head_dim_v = hp.head_dim_v};
    if (hp.rope.n_rot >= hp.head_dim_k)
        keys.bad("rope.dimension_count", cat(hp.rope.n_rot), cat("must be below the head size ", hp.head_dim_k));
    for (int il = 0; il < hp.n_layer; ++il)
        if (hp.n_head_kv_of(il) != hp.n_head_of(il))
            keys.bad("attention.head_count_kv", cat(hp.n_head_kv_of(il)), cat("must be head_count ", hp.n_head_of(il)));
}

}  // namespace

const Family families::plm{
    .activation = Activation::relu_sqr,
    .keys = read_plm,
    .head = Head::always_tied,
    .block = {.mixer = Mixer::own, .ffn = FeedForward::plain},
    .check = [](WeightBinder& binder, const HParams&) { binder.ignore("output.weight"); },
    .layer = bind_latent_attention,
    .mixer = latent_attention,
};

}  // namespace tinfer::model
