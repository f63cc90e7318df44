// SPDX-License-Identifier: MIT
// Heads that propose all tokens of a draft in one pass over masked places: DFlash (arXiv:2602.06036), whose memory is
// filled from the target's layers; DSpark, which corrects each place by the token chosen in front of it; DFlash 2,
// which convolves along the block and chooses a path through the best tokens of each place. For DeepSeek V4 the blocks
// are that model's, of several streams.
#include <algorithm>

#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/deepseek4.hpp"
#include "model/draft_files.hpp"
#include "model/kv_rotation.hpp"
#include "model/streams.hpp"

namespace tinfer::model {

namespace {

constexpr Family kDflash{.build_all = build_dflash};
constexpr std::uint32_t kMaxBlock = 64;

// Graphs behind the fill of the memory: the pass over a block, and what a choice between its rows needs.
enum DflashGraph : int { kPass = 0, kChoice = 1 };

Activation read_activation(KeyReader& keys) {
    constexpr std::string_view kKey = "hidden_activation";
    const auto name = keys.find_string(kKey).value_or("silu");
    if (name == "silu") return Activation::silu;
    if (name == "gelu" || name == "gelu_pytorch_tanh") return Activation::gelu;
    keys.bad(kKey, cat("'", escaped(name), "'"), "must be silu, gelu or gelu_pytorch_tanh");
}

Token read_mask(const gguf::File& file, const HParams& hp) {
    constexpr std::string_view kKey = "tokenizer.ggml.mask_token_id";
    const auto id = file.find_u32(kKey);
    if (!id) fail(ErrorCode::missing_key, cat(file.name(), ": metadata: missing required key '", kKey, "'"));
    if (*id >= static_cast<std::uint32_t>(hp.n_vocab))
        fail(ErrorCode::bad_key, cat(file.name(), ": metadata: key '", kKey, "' = ", *id,
                                     " is invalid: must be below the ", hp.n_vocab, " tokens"));
    return Token{static_cast<std::int32_t>(*id)};
}

HParams read_dflash(KeyReader& keys, DraftModel& head) {
    const bool has_streams = keys.u32("hyper_connection.count", 0) > 0;
    HParams hp = has_streams ? deepseek4::read_without_groups(keys) : read_common(keys, RopeKind::neox);
    head.looks_ahead = !keys.boolean("attention.causal", false);
    hp.attention.causal = true;  // its memory is
    hp.embd_scale = keys.f32("embedding_scale", 1.0f);
    if (!has_streams) {
        hp.activation = read_activation(keys);
        read_window(keys, hp, WindowKind::standard, 0, 0);
        (void)keys.find_per_layer("rope.dimension_sections", 4);  // of images: text turns as without
    }
    head.n_max = positive_u32(keys, "block_size", kMaxBlock);
    head.mask = read_mask(keys.file(), hp);
    return hp;
}

void read_dspark(KeyReader& keys, DraftModel& head) {
    head.kind = DraftKind::dspark;
    head.from_anchor = keys.boolean("sample_from_anchor", true);
    (void)keys.find_bool("has_confidence_head");
}

void read_dflash2(KeyReader& keys, DraftModel& head, HParams& hp) {
    head.kind = DraftKind::dflash2;
    if (hp.streams.n > 0)
        unsupported(keys.file(), keys.arch(), "a choice of paths over several streams is not supported");
    hp.draft.n_conv = positive_u32(keys, "conv_kernel_size", 64);
    hp.draft.conv_group = positive_u32(keys, "conv_group_size", 1u << 24);
    if (hp.n_embd % hp.draft.conv_group != 0)
        keys.bad("conv_group_size", cat(hp.draft.conv_group), cat("must divide embedding_length ", hp.n_embd));
    hp.draft.n_rank = positive_u32(keys, "selector_rank", 1u << 24);
    head.top_k = positive_u32(keys, "selector_top_k", static_cast<std::uint32_t>(hp.n_vocab));
    hp.logit_scale = positive_f32(keys, "logit_scale", 1.0f);
    hp.final_softcap = keys.f32("final_logit_softcapping", 0.0f);
}

void bind_dflash_layer(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w) {
    const auto name = [&](std::string_view role) { return block_name(il, role); };
    const auto i = static_cast<std::size_t>(il);
    const std::int64_t e = hp.n_embd, n_head = hp.n_head[i], n_kv = hp.n_head_kv[i], d = hp.head_dim_k;
    w.attn_norm = binder.norm(name("attn_norm"), {e});
    w.attn_q = binder.linear(name("attn_q"), e, n_head * d);
    w.attn_k = binder.linear(name("attn_k"), e, n_kv * d);
    w.attn_v = binder.find_linear(name("attn_v"), e, n_kv * d);
    w.attn_output = binder.linear(name("attn_output"), n_head * d, e);
    bind_head_norms(binder, hp, il, w);
    w.attn_post_norm = binder.find_norm(name("post_attention_norm"), {e});
    w.attn_sinks = binder.find_vector(name("attn_sinks.weight"), n_head);
    w.ffn_norm = binder.norm(name("ffn_norm"), {e});
    bind_gated_ffn(binder, hp, il, w);
    w.ffn_post_norm = binder.find_norm(name("post_ffw_norm"), {e});
    w.out_scale = binder.find_vector(name("layer_output_scale.weight"), 1);
    if (hp.draft.n_conv == 0) return;
    const std::int64_t k = hp.draft.n_conv, n_group = e / hp.draft.conv_group;
    w.nextn.attn_conv = {binder.vectors(name("attn_conv_base"), {e, k, 2}),
                         binder.linear(name("attn_conv_proj"), e, 2 * k * n_group)};
    w.nextn.ffn_conv = {binder.vectors(name("ffn_conv_base"), {e, k, 2}),
                        binder.linear(name("ffn_conv_proj"), e, 2 * k * n_group)};
}

void bind_choice(WeightBinder& binder, DraftModel& head) {
    HParams& hp = head.bound.hp;
    DraftWeights& w = head.bound.weights.draft;
    const std::int64_t e = hp.n_embd, v = hp.n_vocab;
    if (head.kind == DraftKind::dspark) {
        const TensorInfo* first = binder.file().find_tensor("markov_w1.weight");
        const std::int64_t rank = first->ne[0], n_rows = hp.draft.n_logits > 0 ? hp.draft.n_logits : v;
        w.predecessor = binder.matrix("markov_w1", {rank, v});
        w.markov = binder.linear("markov_w2", rank, n_rows);
        w.markov.scale = binder.find_vector("markov_w2.scale", 1);
        w.confidence = binder.find_linear("conf_proj", e + rank, 1, Bias::optional);
        hp.draft.n_choice = n_rows + e;
    }
    if (head.kind == DraftKind::dflash2) {
        const std::int64_t rank = hp.draft.n_rank;
        w.selector = binder.linear("selector_hidden", e, rank);
        w.predecessor = binder.matrix("selector_predecessor", {rank, v});
        w.successor = binder.matrix("selector_successor", {rank, v});
    }
}

}  // namespace

DraftModel bind_dflash(std::shared_ptr<gguf::File> file, const BoundModel& target, const ModelOptions& options) {
    constexpr std::size_t kMaxLayers = kMaxTaps;
    DraftModel head;
    head.kind = DraftKind::dflash;
    head.bound.file = file;
    head.bound.family = &kDflash;
    KeyReader keys(*file);
    HParams hp = read_dflash(keys, head);
    check_target_width(*file, hp.n_embd, target);
    head.taps = {.kind = Taps::Kind::streams, .blocks = read_target_layers(keys, target, 1, kMaxLayers)};
    head.taps.width = static_cast<std::int64_t>(head.taps.blocks.size()) * hp.n_embd;
    hp.draft = {.n_state = head.taps.width, .first = 0, .n = 1};
    if (file->find_tensor("markov_w1.weight") != nullptr) read_dspark(keys, head);
    else if (file->find_tensor("selector_hidden.weight") != nullptr) read_dflash2(keys, head, hp);
    if (head.kind != DraftKind::dflash) hp.draft.n = 2;
    head.bound.hp = hp;
    keys.check_unknown(options);
    check_target_vocabulary(*file, hp, target);

    WeightBinder binder(*file, keys.arch());
    Weights& w = head.bound.weights;
    find_token_ids(binder, head);
    w.draft.fc = binder.linear("fc", head.taps.width, hp.n_embd);
    w.draft.fc_norm = binder.norm("enc.output_norm", {hp.n_embd});
    w.output_norm = binder.norm("output_norm", {hp.n_embd});
    w.rope_freqs = binder.find_factors("rope_freqs.weight", hp.rope.n_rot / 2);
    w.token_embd = find_embedding(binder, head, target);
    w.output = find_output(binder, head, target, true);
    w.layers.resize(static_cast<std::size_t>(hp.n_layer));
    const auto bind_layer = hp.streams.n > 0 ? deepseek4::bind_any_block : bind_dflash_layer;
    for (int il = 0; il < hp.n_layer; ++il) bind_layer(binder, hp, il, w.layers[static_cast<std::size_t>(il)]);
    if (hp.streams.n > 0) w.output_streams = bind_streams(binder, hp, "output_hc", hp.streams.n, 1);
    bind_choice(binder, head);
    binder.finish(options);
    head.way = DraftModel::Way::pass;
    if (!head.from_anchor) --head.n_max;  // the first row only holds the token that was drawn
    return head;
}

// ---- the graphs -----------------------------------------------------------------------------------------------------

namespace {

Tensor values_of(const BuildContext& b, const LayerWeights& w, Tensor h, Tensor k) {
    Graph& g = b.g;
    if (w.attn_v) return g.heads(g.name(linear(b, w.attn_v, h), "v"), g.value(k).ne[1]);
    return norm(b, Norm{.present = true}, k, "v_norm");
}

// Keys and values of states of the target: no norm in front of them.
void fill_memory(const BuildContext& b) {
    Graph& g = b.g;
    const Inputs in = make_inputs_of_memory(b);
    const Tensor states = g.input(graph::Input::states, DType::f32, {b.hp.draft.n_state, b.shape.n_tokens, 1, 1});
    g.set_part(Part::embed);
    const Tensor h = norm(b, b.w.draft.fc_norm, g.name(linear(b, b.w.draft.fc, states), "fc"), "fc_norm");
    if (b.hp.streams.n > 0) return deepseek4::write_keys(b, in, h);
    each_layer(b, [&](int il, const LayerWeights& w) {
        g.set_part(Part::attn);
        const AttentionParams p = attention_params(b, il);
        const auto i = static_cast<std::size_t>(il);
        const AttentionInputs& view = in.of(b.hp, il);
        const Tensor raw = g.heads(g.name(linear(b, w.attn_k, h), "k"), p.n_head_kv);
        Qkv x{{}, norm(b, w.attn_k_norm, raw, "k_norm"), values_of(b, w, h, raw)};
        x.k = g.name(g.rope(x.k, view.rope_table, view.rope), "k_rope");
        x.k = hadamard_keys(b, x.k, p, "k_hadamard");
        x.v = hadamard_values(b, x.v, p, "v_hadamard");
        g.name(g.kv_write(g.cache(*b.memory[i].k), x.k, view.slots, p, false), "cache_k_write");
        g.name(g.kv_write(g.cache(*b.memory[i].v), x.v, view.slots, p, true), "cache_v_write");
        return true;
    });
}

/// x in place t becomes Σ_τ (base_τ + c_τ(t)) ⊙ x in place t − τ; nothing stands in front of place 0.
Tensor convolve(const BuildContext& b, const ConvWeights& w, int side, Tensor coefficients, Tensor x) {
    if (w.base == nullptr) return x;
    Graph& g = b.g;
    const std::int64_t e = b.hp.n_embd, n = g.value(x).ne[1], n_group = e / b.hp.draft.conv_group,
                       k = b.hp.draft.n_conv;
    const Tensor flat = g.reshape(x, {e * n, 1, 1, 1});
    const Tensor bases = g.reshape(vector(g, w.base), {e * k * 2, 1, 1, 1});
    Tensor sum;
    for (std::int64_t t = 0; t < std::min(k, n); ++t) {
        Tensor moved = x;
        if (t > 0) {
            const Tensor zeros = g.scale(g.copy(g.view(flat, 0, e * t)), 0.0f);
            moved = g.reshape(g.concat(zeros, g.view(flat, 0, e * (n - t))), {e, n, 1, 1});
        }
        const std::int64_t at = side * k + t;
        const Tensor base = g.reshape(g.copy(g.view(bases, at * e, e)), {e, 1, 1, 1});
        const Tensor c = g.reshape(g.copy(g.view(coefficients, at * n_group, n_group)), {1, n_group, n, 1});
        const Tensor own = g.reshape(g.mul(g.heads(moved, n_group), c), {e, n, 1, 1});
        const Tensor part = g.add(g.mul(moved, base), own);
        sum = sum ? g.add(sum, part) : part;
    }
    return g.name(sum, "draft_conv");
}

Tensor attention_of_block(const BuildContext& b, const Inputs& in, int il, Tensor h) {
    Graph& g = b.g;
    const LayerWeights& w = b.layer(il);
    const AttentionParams p = attention_params(b, il);
    g.set_part(Part::attn);
    const Tensor raw = g.heads(g.name(linear(b, w.attn_k, h), "k"), p.n_head_kv);
    Qkv x{norm_heads(b, w.attn_q_norm, g.name(linear(b, w.attn_q, h), "q"), p.n_head, "q_norm"),
          norm(b, w.attn_k_norm, raw, "k_norm"), values_of(b, w, h, raw)};
    rotate(b, in, il, x);
    return attention_out(b, in, il, x);
}

/// The rows of a block behind all layers, those that are outputs.
Tensor rows_of_block(const BuildContext& b, const Inputs& in) {
    Graph& g = b.g;
    Tensor x = in.x;
    each_layer(b, [&](int il, const LayerWeights& w) {
        const auto coefficients = [&](const ConvWeights& conv, Tensor h) {
            return conv.base != nullptr ? g.name(linear(b, conv.proj, h), "draft_conv_proj") : Tensor{};
        };
        Tensor h = norm(b, w.attn_norm, x, "attn_norm");
        Tensor c = coefficients(w.nextn.attn_conv, h);
        Tensor a = attention_of_block(b, in, il, convolve(b, w.nextn.attn_conv, 0, c, h));
        a = convolve(b, w.nextn.attn_conv, 1, c, a);
        x = add_residual(b, x, norm(b, w.attn_post_norm, a, "attn_post_norm"), "ffn_inp");
        g.set_part(Part::ffn_norm);
        h = norm(b, w.ffn_norm, x, "ffn_norm");
        g.set_part(Part::ffn);
        c = coefficients(w.nextn.ffn_conv, h);
        const Tensor y =
            convolve(b, w.nextn.ffn_conv, 1, c, feed_forward(b, w, convolve(b, w.nextn.ffn_conv, 0, c, h)));
        x = add_residual(b, x, norm(b, w.ffn_post_norm, y, "ffn_post_norm"));
        if (w.out_scale != nullptr) x = g.mul(x, vector(g, w.out_scale));
        x = end_layer(b, x);
        return true;
    });
    g.set_layer(kNoLayer);
    g.set_part(Part::head);
    return output_rows(b, in, x);
}

void pass_over_block(const BuildContext& b) {
    Graph& g = b.g;
    const Inputs in = make_inputs(b);
    const bool has_streams = b.hp.streams.n > 0;
    const Tensor x = has_streams ? deepseek4::run_blocks(b, in, in.x) : rows_of_block(b, in);
    const Tensor s = norm(b, b.w.output_norm, x, "result_norm");
    const Tensor read = has_streams ? x : s;  // what the confidence is of
    g.output(g.name(b.w.draft.selector ? linear(b, b.w.draft.selector, s) : g.copy(read), "draft_state"));
    Tensor logits = linear(b, b.w.output, s);
    if (b.hp.logit_scale != 1.0f) logits = g.scale(logits, b.hp.logit_scale);
    if (const float c = b.hp.final_softcap; c > 0) logits = g.scale(g.tanh(g.scale(logits, 1.0f / c)), c);
    g.output(g.name(logits, "result_output"));
}

// DSpark: a row's logits, corrected by the token in front of it, and how sure the head is. DFlash 2: what the tokens
// are as predecessors and as successors.
void prepare_choice(const BuildContext& b) {
    Graph& g = b.g;
    const DraftWeights& w = b.w.draft;
    const std::int64_t n_tokens = b.shape.n_tokens;
    g.set_layer(kNoLayer);
    g.set_part(Part::head);
    const Tensor tokens = g.input(graph::Input::tokens, DType::i32, {n_tokens, 1, 1, 1});
    const Tensor before = g.name(g.get_rows(g.weight(*w.predecessor), tokens), "draft_predecessor");
    if (w.successor != nullptr) {
        const Tensor after = g.name(g.get_rows(g.weight(*w.successor), tokens), "draft_successor");
        return g.output(g.name(g.concat(before, after), "draft_state"));
    }
    const std::int64_t n_logits = b.hp.draft.n_choice - b.hp.n_embd;
    const Tensor given = g.input(graph::Input::states, DType::f32, {b.hp.draft.n_choice, n_tokens, 1, 1});
    const Tensor bias = g.name(linear(b, w.markov, before), "draft_markov");
    g.output(g.name(g.add(g.view(given, 0, n_logits), bias), "result_output"));
    if (!w.confidence) return;
    const Tensor joined = g.concat(g.view(given, n_logits, b.hp.n_embd), before);
    g.output(g.name(g.sigmoid(g.name(linear(b, w.confidence, joined), "draft_confidence")), "draft_state"));
}

}  // namespace

void build_dflash(const BuildContext& b) {
    if (b.shape.n_outputs == 0) return fill_memory(b);
    b.shape.draft_block == kChoice ? prepare_choice(b) : pass_over_block(b);
}

}  // namespace tinfer::model
