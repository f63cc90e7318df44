// SPDX-License-Identifier: MIT
// DeepSeek V3.2 and GLM-5 (arXiv:2512.02556): latent attention over the tokens that an indexer ranks best. Mistral 4 is
// DeepSeek V3 without an indexer, whose queries grow warmer with the position.
#include <algorithm>

#include "base/error.hpp"
#include "model/families.hpp"
#include "model/mla.hpp"

namespace tinfer::model {

namespace {

constexpr std::uint32_t kLongContext = 1048576;  // from here on files of GLM leave some layers without an indexer

HParams read_split_deepseek(KeyReader& keys, GatingFunc gating) {
    HParams hp = read_common(keys, RopeKind::norm, CommonKeys{.ff = FeedForwardKey::optional});
    read_split_latent(keys, hp);
    hp.experts.gating = gating;
    read_experts(keys, hp);
    require_experts(keys, hp);
    if (hp.experts.gating == GatingFunc::softmax_selected) keys.bad("expert_gating_func", "3", "must be 1 or 2");
    hp.experts.n_ff = required_expert_width(keys);
    hp.experts.n_ff_shared = shared_width(keys, hp);
    for (int il = 0; il < std::min(hp.experts.n_layer_dense, hp.n_layer); ++il)
        if (hp.n_ff_of(il) == 0)
            keys.bad("feed_forward_length", "0", cat("layer ", il, " is dense, and needs a width"));
    return hp;
}

Weights bind_split_deepseek(WeightBinder& binder, const HParams& hp, Head head) {
    return bind_stack(binder, hp, head, {.mixer = Mixer::own, .ffn = FeedForward::dense_or_experts},
                      [&](int il, LayerWeights& layer) {
                          bind_latent_attention(binder, hp, il, layer);
                          bind_indexer(binder, hp, il, layer);
                      });
}

void latent_stack(const BuildContext& b) {
    Tensor chosen;
    sequential_stack(
        b,
        [&](const Inputs& in, int il, Tensor h) {
            return latent_attention(b, in, il, h, b.hp.attention.indexer.n_head > 0 ? &chosen : nullptr);
        },
        [&](const LayerWeights& w, Tensor h) { return feed_forward(b, w, h); });
}

void require_low_rank(KeyReader& keys, const HParams& hp) {
    if (hp.attention.mla.n_lora_q == 0)
        keys.bad("attention.q_lora_rank", "0", "must be above 0: the indexer reads that latent");
}

}  // namespace

namespace mistral4 {

HParams read(KeyReader& keys) {
    HParams hp = read_split_deepseek(keys, GatingFunc::softmax);
    share_yarn_magnitude(keys, hp);
    read_temperature(keys, hp, "attention.temperature_length");
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) { return bind_split_deepseek(binder, hp, Head::tied_if_missing); }
void build(const BuildContext& b) { latent_stack(b); }

}  // namespace mistral4

const Family families::mistral4{.read_all = mistral4::read, .bind_all = mistral4::bind, .build_all = mistral4::build};

namespace deepseek32 {

HParams read(KeyReader& keys) {
    HParams hp = read_split_deepseek(keys, GatingFunc::softmax);
    require_gating(keys);
    share_yarn_magnitude(keys, hp);
    require_low_rank(keys, hp);
    read_indexer(keys, hp, true);
    (void)keys.find_per_layer("attention.indexer.types",
                              static_cast<std::size_t>(hp.n_layer + hp.n_layer_draft));  // no effect
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) { return bind_split_deepseek(binder, hp, Head::required); }
void build(const BuildContext& b) { latent_stack(b); }

}  // namespace deepseek32

const Family families::deepseek32{.mixer = latent_attention,  // of blocks that draft: dense
                                  .read_all = deepseek32::read,
                                  .bind_all = deepseek32::bind,
                                  .build_all = deepseek32::build,
                                  .draft = {.state = DraftBlocks::State::normed, .bind = bind_latent_block}};

namespace glm_dsa {

HParams read(KeyReader& keys) {
    HParams hp = read_split_deepseek(keys, GatingFunc::sigmoid);
    require_low_rank(keys, hp);
    read_indexer(keys, hp, false);
    (void)keys.find_per_layer("rope.dimension_sections", 4);  // no effect
    if (!read_indexer_types(keys, hp) && static_cast<std::uint32_t>(hp.n_ctx_train) >= kLongContext)
        for (int il = 0; il < hp.n_layer; ++il)
            hp.attention.indexer.layers[static_cast<std::size_t>(il)] = il < 2 || (il - 2) % 4 == 0;
    if (!hp.attention.indexer.layers[0]) keys.bad("attention.indexer.types", "0", "layer 0 must have an indexer");
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) { return bind_split_deepseek(binder, hp, Head::required); }
void build(const BuildContext& b) { latent_stack(b); }

}  // namespace glm_dsa

const Family families::glm_dsa{.mixer = latent_attention,
                               .read_all = glm_dsa::read,
                               .bind_all = glm_dsa::bind,
                               .build_all = glm_dsa::build,
                               .draft = {.state = DraftBlocks::State::normed, .bind = bind_latent_block}};

}  // namespace tinfer::model
