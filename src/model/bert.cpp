// SPDX-License-Identifier: MIT
// BERT (arXiv:1810.04805) and those that follow it: Nomic BERT (arXiv:2402.01613) with rotated heads and a gated
// feed-forward, Jina BERT v2 (arXiv:2310.19923) with ALiBi to both sides. Encoders: every token sees every other, norms
// stand behind each branch, and there is no head but the classifier of a reranker.
#include <algorithm>

#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace {

HParams read_encoder(KeyReader& keys, RopeKind rope) {
    HParams hp = read_common(keys, rope, NormKind::layer);
    if (keys.boolean("attention.causal", false)) unsupported(keys.file(), hp.arch, "causal bert not supported");
    if (keys.file().find_tensor("blk.0.ffn_gate_inp.weight") != nullptr)
        unsupported(keys.file(), hp.arch, "expert bert not supported");
    hp.attention.causal = false;
    return hp;
}

/// The embedding's parts: words, the first row of the token types (pairs of texts are not told apart), their norm.
Weights bind_embedding(WeightBinder& binder, const HParams& hp) {
    Weights w;
    w.token_embd = binder.matrix("token_embd", {hp.n_embd, hp.n_vocab});
    if (const TensorInfo* types = binder.file().find_tensor("token_types.weight")) {
        const auto n_types = binder.file().find_u32("tokenizer.ggml.token_type_count");
        w.token_types = binder.matrix("token_types", {hp.n_embd, n_types ? std::int64_t{*n_types} : types->ne[1]});
    }
    w.token_embd_norm = binder.norm("token_embd_norm", {hp.n_embd}, Bias::required);
    w.layers.resize(static_cast<std::size_t>(hp.n_layer));
    return w;
}

/// The embedding, blocks with norms behind each branch, and the classifier, where there is one.
Weights bind_encoder(WeightBinder& binder, const HParams& hp, BlockParts parts) {
    parts.norms = BlockNorms::own;
    parts.norm_bias = Bias::required;
    Weights w = bind_embedding(binder, hp);
    bind_blocks(binder, hp, w, parts, [&](int il, LayerWeights& layer) {
        layer.attn_post_norm = binder.norm(block_name(il, "attn_output_norm"), {hp.n_embd}, Bias::required);
        layer.ffn_post_norm = binder.norm(block_name(il, "layer_output_norm"), {hp.n_embd}, Bias::required);
    });
    bind_classifier(binder, hp, w);
    return w;
}

/// x = norm(x + attention(x)), x = norm(x + ffn(x)): the order of the original transformer (arXiv:1706.03762 §3.1).
void post_norm_stack(const BuildContext& b) {
    Graph& g = b.g;
    const Inputs in = make_inputs(b);
    stream_stack(b, in, [&](int il, const LayerWeights& w, Tensor x) -> Tensor {
        Tensor a = self_attention(b, in, il, x);
        if (!keep_output_rows(b, in, il, {&a, &x})) return {};
        g.set_part(Part::attn_out);
        const Tensor sum = add_residual(b, x, a, "attn_sum");
        g.set_part(Part::attn_norm);
        Tensor h = norm(b, w.attn_post_norm, sum, "attn_post_norm");
        if (w.attn_norm_2) h = norm(b, w.attn_norm_2, add_residual(b, h, x, "attn_sum_2"), "attn_norm_2");
        g.set_part(Part::ffn);
        x = add_residual(b, h, feed_forward(b, w, h), "ffn_sum");
        g.set_part(Part::ffn_norm);
        return norm(b, w.ffn_post_norm, x, "ffn_post_norm");
    });
}

}  // namespace

namespace bert {

HParams read(KeyReader& keys) {
    HParams hp = read_encoder(keys, RopeKind::none);
    hp.activation = Activation::gelu;
    hp.n_pos_table = hp.n_ctx_train;
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w = bind_encoder(binder, hp, kBiasedBlock);
    w.position_embd = binder.matrix("position_embd", {hp.n_embd, hp.n_ctx_train});
    return w;
}

void build(const BuildContext& b) { post_norm_stack(b); }

}  // namespace bert

const Family families::bert{.read_all = bert::read, .bind_all = bert::bind, .build_all = bert::build};

namespace nomic_bert {

HParams read(KeyReader& keys) {
    (void)keys.require_u32("pooling_type");
    return read_encoder(keys, RopeKind::neox);
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_encoder(binder, hp, {.qkv_bias = Bias::optional, .out_bias = Bias::optional});
}

void build(const BuildContext& b) { post_norm_stack(b); }

}  // namespace nomic_bert

const Family families::nomic_bert{
    .read_all = nomic_bert::read, .bind_all = nomic_bert::bind, .build_all = nomic_bert::build};

namespace jina_bert_v2 {

HParams read(KeyReader& keys) {
    HParams hp = read_encoder(keys, RopeKind::none);
    hp.activation = Activation::gelu;
    hp.attention.max_alibi_bias = 8.0f;
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    BlockParts parts = kBiasedBlock;
    parts.head_norms = HeadNorms::whole_if_given;
    parts.ffn = FeedForward::fused;
    Weights w = bind_encoder(binder, hp, parts);
    for (int il = 0; il < hp.n_layer; ++il)
        w.layers[static_cast<std::size_t>(il)].attn_norm_2 =
            binder.find_norm(block_name(il, "attn_norm_2"), {hp.n_embd}, Bias::required);
    return w;
}

void build(const BuildContext& b) { post_norm_stack(b); }

}  // namespace jina_bert_v2

const Family families::jina_bert_v2{
    .read_all = jina_bert_v2::read, .bind_all = jina_bert_v2::bind, .build_all = jina_bert_v2::build};

namespace {

HParams read_rotated_bert(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox, NormKind::layer);
    (void)keys.file().require_u32("tokenizer.ggml.token_type_count");
    hp.attention.causal = false;  // whatever the file says
    hp.activation = Activation::gelu;
    return hp;
}

constexpr BlockParts kRotatedBert{
    .qkv_bias = Bias::optional, .out_bias = Bias::optional, .ffn = FeedForward::plain, .ffn_bias = Bias::optional};

}  // namespace

namespace jina_bert_v3 {

HParams read(KeyReader& keys) { return read_rotated_bert(keys); }
Weights bind(WeightBinder& binder, const HParams& hp) { return bind_encoder(binder, hp, kRotatedBert); }
void build(const BuildContext& b) { post_norm_stack(b); }

}  // namespace jina_bert_v3

const Family families::jina_bert_v3{
    .read_all = jina_bert_v3::read, .bind_all = jina_bert_v3::bind, .build_all = jina_bert_v3::build};

namespace nomic_bert_moe {

HParams read(KeyReader& keys) {
    HParams hp = read_rotated_bert(keys);
    hp.experts.layer_step = static_cast<int>(std::min(keys.require_u32("moe_every_n_layers"), 1u << 20));
    read_plain_experts(keys, hp);
    if (hp.experts.layer_step > 0) require_experts(keys, hp);
    if (hp.experts.gating != GatingFunc::softmax)
        keys.bad("expert_gating_func", cat(static_cast<int>(hp.experts.gating)), "must be 1");
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    BlockParts parts = kRotatedBert;
    parts.ffn = FeedForward::own;
    Weights w = bind_encoder(binder, hp, parts);
    for (int il = 0; il < hp.n_layer; ++il) {
        LayerWeights& layer = w.layers[static_cast<std::size_t>(il)];
        const std::int64_t e = hp.n_embd, f = hp.n_ff_of(il), n = hp.experts.n;
        if (hp.experts.layer_step == 0 || il % hp.experts.layer_step != 1) {
            bind_plain_ffn(binder, hp, il, layer, Bias::optional);
            continue;
        }
        layer.ffn_gate_inp = binder.linear(block_name(il, "ffn_gate_inp"), e, n);
        layer.ffn_up_exps = binder.experts(block_name(il, "ffn_up_exps"), e, f, n);
        layer.ffn_down_exps = binder.experts(block_name(il, "ffn_down_exps"), f, e, n);
    }
    return w;
}

void build(const BuildContext& b) { post_norm_stack(b); }

}  // namespace nomic_bert_moe

const Family families::nomic_bert_moe{
    .read_all = nomic_bert_moe::read, .bind_all = nomic_bert_moe::bind, .build_all = nomic_bert_moe::build};

}  // namespace tinfer::model
