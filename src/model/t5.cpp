// SPDX-License-Identifier: MIT
// T5 (arXiv:1910.10683): blocks of pre-norm attention and feed-forward that know positions by a learned bias of the
// scores alone, one a head and bucket of distances, shared by the layers of a side. Scores are not scaled. The encoder
// sees the whole text; a decoder sees its own tokens and, by a second attention, the encoder's result.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"
#include "model/kv_rotation.hpp"

namespace tinfer::model {

namespace {

// The feed-forward of T5 1.1 has a gate, that of the first release has none.
bool is_gated(const gguf::File& file, std::string_view side) {
    return file.find_tensor(cat(side, "blk.0.ffn_gate.weight")) != nullptr;
}

HParams read_side(KeyReader& keys, std::string_view side) {
    HParams hp = read_common(keys, RopeKind::none);
    (void)keys.find_f32("attention.layer_norm_epsilon");  // the same number under the name of another norm
    hp.attention.scale = keys.f32("attention.scale", 0.0f) != 0.0f ? hp.attention.scale : 1.0f;
    hp.activation = is_gated(keys.file(), side) ? Activation::gelu : Activation::relu;
    const std::uint32_t n_bucket = keys.require_u32("attention.relative_buckets_count");
    if (n_bucket < 4 || n_bucket > 255)
        keys.bad("attention.relative_buckets_count", cat(n_bucket), "must lie in 4 to 255");
    hp.attention.n_rel_bucket = static_cast<int>(n_bucket);
    const auto alike = [&](std::string_view key, const std::vector<int>& values) {
        for (const int n : values)
            if (n != values[0])
                keys.bad(key, cat(n), cat("must be ", values[0], " in every layer of '", escaped(hp.arch), "'"));
    };
    alike("attention.head_count", hp.n_head), alike("attention.head_count_kv", hp.n_head_kv),
        alike("feed_forward_length", hp.n_ff);
    return hp;
}

Linear bind_heads(WeightBinder& binder, const HParams& hp, std::string_view name, int n_head, int head_dim) {
    return binder.linear(name, hp.n_embd, std::int64_t{n_head} * head_dim);
}

Linear bind_heads_out(WeightBinder& binder, const HParams& hp, std::string_view name) {
    return binder.linear(name, std::int64_t{hp.n_head[0]} * hp.head_dim_v, hp.n_embd);
}

/// Norms, self-attention and feed-forward of one block.
LayerWeights bind_block(WeightBinder& binder, const HParams& hp, std::string_view side, int il) {
    const auto name = [&](std::string_view role) { return cat(side, block_name(il, role)); };
    LayerWeights w;
    w.attn_norm = binder.norm(name("attn_norm"), {hp.n_embd});
    w.attn_q = bind_heads(binder, hp, name("attn_q"), hp.n_head[0], hp.head_dim_k);
    w.attn_k = bind_heads(binder, hp, name("attn_k"), hp.n_head_kv[0], hp.head_dim_k);
    w.attn_v = bind_heads(binder, hp, name("attn_v"), hp.n_head_kv[0], hp.head_dim_v);
    w.attn_output = bind_heads_out(binder, hp, name("attn_o"));
    w.ffn_norm = binder.norm(name("ffn_norm"), {hp.n_embd});
    if (is_gated(binder.file(), side)) w.ffn_gate = binder.linear(name("ffn_gate"), hp.n_embd, hp.n_ff[0]);
    w.ffn_up = binder.linear(name("ffn_up"), hp.n_embd, hp.n_ff[0]);
    w.ffn_down = binder.linear(name("ffn_down"), hp.n_ff[0], hp.n_embd);
    return w;
}

Weights bind_side(WeightBinder& binder, const HParams& hp, std::string_view side) {
    Weights w;
    w.token_embd = binder.matrix("token_embd", {hp.n_embd, hp.n_vocab});
    w.output_norm = binder.norm(cat(side, "output_norm"), {hp.n_embd});
    w.attn_rel_b = binder.vectors(cat(side, "blk.0.attn_rel_b.weight"), {hp.n_head[0], hp.attention.n_rel_bucket});
    for (int il = 0; il < hp.n_layer; ++il) w.layers.push_back(bind_block(binder, hp, side, il));
    return w;
}

}  // namespace

namespace t5encoder {

HParams read(KeyReader& keys) {
    HParams hp = read_side(keys, "enc.");
    if (keys.boolean("attention.causal", false)) unsupported(keys.file(), hp.arch, "causal encoder not supported");
    hp.attention.causal = false;
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) { return bind_side(binder, hp, "enc."); }

}  // namespace t5encoder

const Family families::t5encoder{.read_all = t5encoder::read, .bind_all = t5encoder::bind};

namespace t5 {

namespace {

std::string cross_name(int il, std::string_view role) { return cat("dec.", block_name(il, cat("cross_attn_", role))); }

int decoder_layers(KeyReader& keys, const HParams& hp) {
    const std::uint32_t n = keys.u32("decoder_block_count", static_cast<std::uint32_t>(hp.n_layer));
    if (n == 0 || n > 1024) keys.bad("decoder_block_count", cat(n), "1 to 1024 layers");
    return static_cast<int>(n);
}

/// Wo · attend(Wq·h) over the keys and values that the encoder has left: all of them, wherever they stand.
Tensor cross_attention(const BuildContext& b, const graph::KvInputs& encoded, int il, Tensor h) {
    Graph& g = b.g;
    const auto i = static_cast<std::size_t>(il);
    const LayerWeights& w = b.w.layers[i];
    g.set_part(Part::attn);
    const AttentionParams params = attention_params(b, il);
    const Tensor heads = g.heads(g.name(linear(b, w.cross_attn_q, h), "cross_q"), params.n_head);
    const Tensor q = hadamard_keys(b, heads, params, "cross_q_hadamard");
    const Tensor v = g.cache(*b.cross[i].v), k = g.cache(*b.cross[i].k);
    const Tensor a = g.attention(q, k, v, encoded, params);
    const Tensor attended = undo_hadamard(b, a, params, "cross_attn", "cross_attn_rotated");
    g.set_part(Part::attn_out);
    return g.name(linear(b, w.cross_attn_output, attended), "cross_attn_out");
}

}  // namespace

HParams read(KeyReader& keys) {
    HParams hp = read_side(keys, "dec.");
    if (!hp.attention.causal) keys.bad("attention.causal", "false", "the decoder is causal");
    hp.n_layer = decoder_layers(keys, hp);
    for (std::vector<int>* values : {&hp.n_head, &hp.n_head_kv, &hp.n_ff})
        values->assign(static_cast<std::size_t>(hp.n_layer), int{values->front()});
    hp.decoder_start = keys.find_u32("decoder_start_token_id");
    if (hp.decoder_start && *hp.decoder_start >= static_cast<std::uint32_t>(hp.n_vocab))
        keys.bad("decoder_start_token_id", cat(*hp.decoder_start),
                 cat("must be below the size of the vocabulary, ", hp.n_vocab));
    hp.logit_scale = positive_f32(keys, "logit_scale", 1.0f);  // the paper's E^-0.5 of tied logits, for who wants it
    return hp;
}

HParams read_encoder(KeyReader& keys) {
    HParams hp = read_side(keys, "enc.");
    hp.attention.causal = false;
    hp.n_layer_cross = decoder_layers(keys, hp);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w = bind_side(binder, hp, "dec.");
    for (int il = 0; il < hp.n_layer; ++il) {
        LayerWeights& layer = w.layers[static_cast<std::size_t>(il)];
        layer.cross_attn_norm = binder.norm(cross_name(il, "norm"), {hp.n_embd});
        layer.cross_attn_q = bind_heads(binder, hp, cross_name(il, "q"), hp.n_head[0], hp.head_dim_k);
        layer.cross_attn_output = bind_heads_out(binder, hp, cross_name(il, "o"));
    }
    w.output.weight = binder.find_matrix("output", {hp.n_embd, hp.n_vocab});
    if (w.output.weight == nullptr) w.output.weight = w.token_embd;
    return w;
}

Weights bind_encoder(WeightBinder& binder, const HParams& hp) {
    Weights w = bind_side(binder, hp, "enc.");
    for (int il = 0; il < hp.n_layer_cross; ++il)
        w.cross.push_back({.k = bind_heads(binder, hp, cross_name(il, "k"), hp.n_head_kv[0], hp.head_dim_k),
                           .v = bind_heads(binder, hp, cross_name(il, "v"), hp.n_head_kv[0], hp.head_dim_v)});
    return w;
}

/// The encoder; then, of its result, the keys and values that each layer of the decoder will look at.
void build_encoder(const BuildContext& b) {
    Graph& g = b.g;
    const Inputs in = make_inputs(b);
    const Tensor x = sequential_layers(b, in);
    g.set_layer(kNoLayer);
    g.set_part(Part::head);
    const Tensor encoded = norm(b, b.w.output_norm, x, "enc_output");
    const AttentionParams params = attention_params(b, 0);
    for (std::size_t i = 0; i < b.w.cross.size(); ++i) {
        g.set_layer(static_cast<int>(i));
        g.set_part(Part::attn);
        const Tensor k = g.name(linear(b, b.w.cross[i].k, encoded), "cross_k"),
                     v = g.name(linear(b, b.w.cross[i].v, encoded), "cross_v");
        const Tensor key_rows = hadamard_keys(b, k, params, "cross_k_hadamard");
        g.name(g.kv_write(g.cache(*b.cross[i].k), key_rows, in.full.slots, params, false), "cross_k_write");
        const Tensor value_rows = hadamard_values(b, v, params, "cross_v_hadamard");
        g.name(g.kv_write(g.cache(*b.cross[i].v), value_rows, in.full.slots, params, true), "cross_v_write");
    }
}

/// x += attention(norm(x)), x += cross_attention(norm(x)), x += ffn(norm(x)).
void build(const BuildContext& b) {
    Graph& g = b.g;
    const Inputs in = make_inputs(b);
    const graph::KvInputs encoded{
        .table = g.input(graph::Input::cross_table, DType::i32, {4, b.shape.n_cross_entries, 1, 1}),
        .seqs = g.input(graph::Input::cross_seqs, DType::i32, {2, b.shape.n_cross_seqs, 1, 1}),
        .spans = g.input(graph::Input::cross_spans, DType::i32, {4, b.shape.n_tokens, 1, 1})};
    stream_stack(b, in, [&](int il, const LayerWeights& w, Tensor x) -> Tensor {
        Tensor a = self_attention(b, in, il, norm(b, w.attn_norm, x, "attn_norm"));
        if (writes_only(b, il)) return {};
        x = add_residual(b, x, a, "cross_inp");
        g.set_part(Part::attn_norm);
        a = cross_attention(b, encoded, il, norm(b, w.cross_attn_norm, x, "cross_attn_norm"));
        if (!keep_output_rows(b, in, il, {&a, &x})) return {};
        x = add_residual(b, x, a, "ffn_inp");
        g.set_part(Part::ffn_norm);
        const Tensor h = norm(b, w.ffn_norm, x, "ffn_norm");
        g.set_part(Part::ffn);
        return add_residual(b, x, feed_forward(b, w, h));
    });
}

}  // namespace t5

namespace {
constexpr Family kEncoder{.read_all = t5::read_encoder, .bind_all = t5::bind_encoder, .build_all = t5::build_encoder};
}

const Family families::t5{.read_all = t5::read, .bind_all = t5::bind, .build_all = t5::build, .encoder = &kEncoder};

}  // namespace tinfer::model
