// SPDX-License-Identifier: MIT
// Encoders with norms before each branch: ModernBERT (arXiv:2412.13663), two layers of three with a window to both
// sides and angles of their own; NeoBERT (arXiv:2502.19587); EuroBERT (arXiv:2503.05500), llama's block without a mask.
// llama-embed is llama's block too, with a mask where the file says so.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace {

Weights without_head(Weights w) {
    w.output = {};
    return w;
}

HParams read_bidirectional(KeyReader& keys, RopeKind rope, NormKind norm) {
    HParams hp = read_common(keys, rope, norm);
    hp.attention.causal = false;  // whatever the file says
    return hp;
}

}  // namespace

namespace modern_bert {

HParams read(KeyReader& keys) {
    HParams hp = read_bidirectional(keys, RopeKind::neox, NormKind::layer);
    const std::string_view activation = keys.find_string("hidden_activation").value_or("gelu");
    if (activation != "gelu" && activation != "silu")
        keys.bad("hidden_activation", cat("'", escaped(activation), "'"), "must be gelu or silu");
    hp.activation = activation == "silu" ? Activation::silu : Activation::gelu;
    if (read_window_behind_full(keys, hp, WindowKind::symmetric, 3)) hp.windows.rope_scaled = false;
    read_window_base(keys, hp, 10000.0f);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w = bind_globals(binder, hp, Head::always_tied);
    w.output = {};
    w.token_embd_norm = binder.norm("token_embd_norm", {hp.n_embd});
    bind_blocks(binder, hp, w, {.norms = BlockNorms::own, .ffn = FeedForward::fused}, [&](int il, LayerWeights& layer) {
        if (il > 0) layer.attn_norm = binder.norm(block_name(il, "attn_norm"), {hp.n_embd});
        layer.ffn_norm = binder.norm(block_name(il, "ffn_norm"), {hp.n_embd});
    });
    bind_classifier(binder, hp, w);
    if (w.cls) w.cls_norm = binder.find_norm("cls.norm", {hp.n_embd});
    return w;
}

}  // namespace modern_bert

const Family families::modern_bert{.read_all = modern_bert::read, .bind_all = modern_bert::bind};

namespace neo_bert {

HParams read(KeyReader& keys) { return read_bidirectional(keys, RopeKind::norm, NormKind::rms); }

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w = without_head(bind_globals(binder, hp, Head::always_tied, binder.norm("enc.output_norm", {hp.n_embd})));
    bind_blocks(binder, hp, w, {.ffn = FeedForward::fused});
    bind_classifier(binder, hp, w);
    return w;
}

}  // namespace neo_bert

const Family families::neo_bert{.read_all = neo_bert::read, .bind_all = neo_bert::bind};

namespace eurobert {

HParams read(KeyReader& keys) { return read_bidirectional(keys, RopeKind::neox, NormKind::rms); }

Weights bind(WeightBinder& binder, const HParams& hp) {
    return without_head(bind_stack(binder, hp, Head::always_tied, {.qkv_bias = Bias::optional}));
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace eurobert

namespace llama_embed {

HParams read(KeyReader& keys) { return read_common(keys, RopeKind::norm); }

Weights bind(WeightBinder& binder, const HParams& hp) {
    return without_head(bind_stack(binder, hp, Head::tied_if_missing, {.qkv_bias = Bias::optional}));
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace llama_embed

}  // namespace tinfer::model
