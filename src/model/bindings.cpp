// SPDX-License-Identifier: MIT
#include "model/bindings.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace tinfer::model {

Weights bind_globals(WeightBinder& binder, const HParams& hp, Head head, Bias norm_bias) {
    return bind_globals(binder, hp, head, binder.norm("output_norm", {hp.n_embd}, norm_bias));
}

Weights bind_globals(WeightBinder& binder, const HParams& hp, Head head, const Norm& output_norm) {
    Weights w;
    w.token_embd = binder.matrix("token_embd", {hp.n_embd, hp.n_vocab});
    w.output_norm = output_norm;
    if (head != Head::always_tied) w.output.weight = binder.find_matrix("output", {hp.n_embd, hp.n_vocab});
    if (w.output.weight == nullptr)
        w.output.weight = head == Head::required ? binder.matrix("output", {hp.n_embd, hp.n_vocab}) : w.token_embd;
    if (hp.rope.kind == RopeKind::none) {
        binder.ignore("rope_freqs.weight");
    } else {
        const int n_pair = (hp.windows.rope_factors ? std::max(hp.rope.n_rot, hp.windows.n_rot) : hp.rope.n_rot) / 2;
        w.rope_freqs = binder.find_factors("rope_freqs.weight", n_pair);
        w.rope_factors_long = binder.find_factors("rope_factors_long.weight", n_pair);
        w.rope_factors_short = binder.find_factors("rope_factors_short.weight", n_pair);
        const bool one_alone = (w.rope_factors_long == nullptr) != (w.rope_factors_short == nullptr);
        if (one_alone ||
            (hp.rope.scaling == RopeScaling::longrope && w.rope_factors_long == nullptr && w.rope_freqs == nullptr))
            binder.missing(w.rope_factors_long == nullptr ? "rope_factors_long.weight" : "rope_factors_short.weight");
    }
    binder.ignore_blocks(hp.n_layer, hp.n_layer + hp.n_layer_draft);
    w.layers.resize(static_cast<std::size_t>(hp.n_layer));
    return w;
}

void bind_attention(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w, Bias qkv, Bias out) {
    const auto i = static_cast<std::size_t>(il);
    const std::int64_t n_q = std::int64_t{hp.n_head[i]} * hp.head_k(il),
                       n_k = std::int64_t{hp.n_head_kv[i]} * hp.head_k(il);
    const std::int64_t n_v = std::int64_t{hp.n_head_kv[i]} * hp.head_v(il),
                       n_o = std::int64_t{hp.n_head[i]} * hp.head_v(il);
    w.attn_qkv = binder.find_linear(block_name(il, "attn_qkv"), hp.n_embd, n_q + n_k + n_v, qkv);
    if (!w.attn_qkv) {
        w.attn_q = binder.linear(block_name(il, "attn_q"), hp.n_embd, n_q, qkv);
        w.attn_k = binder.linear(block_name(il, "attn_k"), hp.n_embd, n_k, qkv);
        w.attn_v = binder.linear(block_name(il, "attn_v"), hp.n_embd, n_v, qkv);
    }
    w.attn_output = binder.linear(block_name(il, "attn_output"), n_o, hp.n_embd, out);
}

void bind_head_norms(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w) {
    w.attn_q_norm = binder.norm(block_name(il, "attn_q_norm"), {hp.head_k(il)});
    w.attn_k_norm = binder.norm(block_name(il, "attn_k_norm"), {hp.head_k(il)});
}

void bind_gated_ffn(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w, Bias bias) {
    const std::int64_t n_ff = hp.n_ff_of(il);
    w.ffn_gate = binder.linear(block_name(il, "ffn_gate"), hp.n_embd, n_ff, bias);
    bind_plain_ffn(binder, hp, il, w, bias);
}

void bind_fused_ffn(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w, Bias down) {
    const std::int64_t n_ff = hp.n_ff_of(il);
    const TensorInfo* up = binder.file().find_tensor(block_name(il, "ffn_up.weight"));
    const bool split = binder.exists(block_name(il, "ffn_gate.weight")) || (up != nullptr && up->ne[1] == n_ff);
    if (split) w.ffn_gate = binder.linear(block_name(il, "ffn_gate"), hp.n_embd, n_ff);
    w.ffn_up = binder.linear(block_name(il, "ffn_up"), hp.n_embd, split ? n_ff : 2 * n_ff);
    w.ffn_down = binder.linear(block_name(il, "ffn_down"), n_ff, hp.n_embd, down);
}

void bind_classifier(WeightBinder& binder, const HParams& hp, Weights& w) {
    const auto classes = [&](std::string_view name) {  // as many as the tensor has rows
        const TensorInfo* tensor = binder.file().find_tensor(name);
        return tensor == nullptr ? 0 : tensor->ne[1];
    };
    w.cls_output = binder.find_linear("cls.output", hp.n_embd, classes("cls.output.weight"), Bias::optional);
    w.cls = binder.find_linear("cls", hp.n_embd, w.cls_output ? hp.n_embd : classes("cls.weight"), Bias::optional);
}

void bind_plain_ffn(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w, Bias bias) {
    const std::int64_t n_ff = hp.n_ff_of(il);
    w.ffn_up = binder.linear(block_name(il, "ffn_up"), hp.n_embd, n_ff, bias);
    w.ffn_down = binder.linear(block_name(il, "ffn_down"), n_ff, hp.n_embd, bias);
}

void refuse_factors(const WeightBinder& binder) {
    for (const char* const name : {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"})
        binder.refuse(name, "RoPE factors not supported under this name");
}

Norm bare_norm(WeightBinder& binder, std::string_view name, WeightBinder::Shape shape) {
    if (binder.exists(cat(name, ".weight"))) return binder.norm(name, shape);
    return {.weight = binder.vectors(name, shape), .present = true};
}

void bind_bare_post_norms(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w) {
    w.attn_post_norm = bare_norm(binder, block_name(il, "post_attention_norm"), {hp.n_embd});
    w.ffn_post_norm = bare_norm(binder, block_name(il, "post_ffw_norm"), {hp.n_embd});
}

void bind_attention_gate(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w) {
    const std::int64_t n_head = hp.n_head_of(il);
    const TensorInfo* gate = binder.file().find_tensor(block_name(il, "attn_gate.weight"));
    const bool per_head = gate != nullptr && gate->ne[1] == n_head;
    w.attn_gate = binder.linear(block_name(il, "attn_gate"), hp.n_embd, per_head ? n_head : n_head * hp.head_v(il));
}

namespace {

void bind_block_norms(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w, const BlockParts& parts) {
    const auto norm = [&](std::string_view role) {
        return binder.norm(block_name(il, role), {hp.n_embd}, parts.norm_bias);
    };
    const BlockNorms norms = parts.norms;
    if (norms == BlockNorms::before || norms == BlockNorms::one || norms == BlockNorms::around)
        w.attn_norm = norm("attn_norm");
    if (norms == BlockNorms::before || norms == BlockNorms::around) w.ffn_norm = norm(parts.ffn_norm);
    if (norms == BlockNorms::after || norms == BlockNorms::around) {
        w.attn_post_norm = norm("post_attention_norm");
        w.ffn_post_norm = norm("post_ffw_norm");
    }
    if (norms == BlockNorms::bare) w.attn_norm = w.ffn_norm = Norm{.present = true};
}

void bind_norms_of_heads(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w, const BlockParts& parts) {
    const auto i = static_cast<std::size_t>(il);
    const int size = hp.head_k(il), n_q = hp.n_head[i], n_k = hp.n_head_kv[i];
    const std::string q = block_name(il, "attn_q_norm"), k = block_name(il, "attn_k_norm");
    const auto if_given = [&](WeightBinder::Shape of_q, WeightBinder::Shape of_k, Bias bias = Bias::none) {
        w.attn_q_norm = binder.find_norm(q, of_q, bias);
        w.attn_k_norm = binder.find_norm(k, of_k, bias);
    };
    switch (parts.head_norms) {
        case HeadNorms::none: break;
        case HeadNorms::shared: bind_head_norms(binder, hp, il, w); break;
        case HeadNorms::shared_if_given: if_given({size}, {size}); break;
        case HeadNorms::per_head:
            w.attn_q_norm = binder.norm(q, {size, n_q}, Bias::optional);
            w.attn_k_norm = binder.norm(k, {size, n_k}, Bias::optional);
            break;
        case HeadNorms::per_head_if_given: if_given({size, n_q}, {size, n_k}); break;
        case HeadNorms::whole:
            w.attn_q_norm = binder.norm(q, {n_q * size});
            w.attn_k_norm = binder.norm(k, {n_k * size});
            break;
        case HeadNorms::whole_if_given: if_given({n_q * size}, {n_k * size}, parts.norm_bias); break;
    }
}

void bind_feed_forward(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w, const BlockParts& parts) {
    switch (parts.ffn) {
        case FeedForward::gated: bind_gated_ffn(binder, hp, il, w, parts.ffn_bias); break;
        case FeedForward::fused: bind_fused_ffn(binder, hp, il, w, parts.ffn_bias); break;
        case FeedForward::plain: bind_plain_ffn(binder, hp, il, w, parts.ffn_bias); break;
        case FeedForward::experts: bind_experts(binder, hp, il, w, parts.ffn_bias); break;
        case FeedForward::experts_if_any:
            if (hp.experts.n > 0) bind_experts(binder, hp, il, w);
            else bind_gated_ffn(binder, hp, il, w, parts.ffn_bias);
            break;
        case FeedForward::dense_or_experts: bind_dense_or_experts(binder, hp, il, w); break;
        case FeedForward::by_router: bind_by_router(binder, hp, il, w); break;
        case FeedForward::own: break;
    }
}

}  // namespace

void bind_block(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w, const BlockParts& parts) {
    bind_block_norms(binder, hp, il, w, parts);
    if (parts.mixer == Mixer::attention && hp.n_head_kv_of(il) > 0)
        bind_attention(binder, hp, il, w, parts.qkv_bias, parts.out_bias);
    if (hp.n_head_kv_of(il) > 0) bind_norms_of_heads(binder, hp, il, w, parts);
    bind_feed_forward(binder, hp, il, w, parts);
}

void bind_blocks(WeightBinder& binder, const HParams& hp, Weights& w, const BlockParts& parts, const OwnParts& own) {
    for (int il = 0; il < hp.n_layer; ++il) {
        LayerWeights& layer = w.layers[static_cast<std::size_t>(il)];
        bind_block(binder, hp, il, layer, parts);
        if (own) own(il, layer);
    }
}

Weights bind_stack(WeightBinder& binder, const HParams& hp, Head head, const BlockParts& parts, const OwnParts& own) {
    const bool bare = parts.norms == BlockNorms::bare;
    const Norm last = bare ? Norm{.present = true} : binder.norm("output_norm", {hp.n_embd}, parts.norm_bias);
    Weights w = bind_globals(binder, hp, head, last);
    bind_blocks(binder, hp, w, parts, own);
    return w;
}

}  // namespace tinfer::model
