// SPDX-License-Identifier: MIT
// Qwen3.8-Flash-Next (2026): the layers of Qwen3.5 between residual streams with gates of low rank in place of norms;
// sparse attention by blocks; rows that the hashes of n-grams choose, added in one layer.
#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "gguf/integer_bits.hpp"
#include "model/bindings.hpp"
#include "model/families.hpp"
#include "model/mla.hpp"
#include "model/qwen3next.hpp"
#include "model/recurrent.hpp"
#include "model/streams.hpp"

namespace tinfer::model::qwen4exp {

namespace {

constexpr std::size_t kDeltaStates = 2;  // of a delta net; those of n-grams follow
constexpr float kLeastScore = 1e-6f;

/// Each stream's RMS norm times its weights, {n · n_embd, T}.
Tensor stream_norms(const BuildContext& b, const TensorInfo* weight, Tensor x, std::string_view name) {
    Graph& g = b.g;
    const Tensor w = g.reshape(vector(g, weight), {b.hp.n_embd, b.hp.streams.n, 1, 1});
    const Tensor normed = g.rms_norm(g.heads(x, b.hp.streams.n), w, b.hp.rms_eps);
    return g.name(g.reshape(normed, g.value(x).ne), name);
}

/// ν: the normed streams; h = (1/n)·Σ ν_s ⊙ σ(up·silu(down·ν / n)); write = 2·σ(inject·ν / n)
Tensor mix(const BuildContext& b, const LowRankStreamWeights& w, Streams& s) {
    Graph& g = b.g;
    const int n = b.hp.streams.n, n_embd = b.hp.n_embd;
    const float share = 1.0f / static_cast<float>(n);
    const Tensor normed = stream_norms(b, w.norm, s.x, "stream_norm");
    const Tensor low = g.silu(g.scale(g.name(linear(b, w.down, normed), "stream_down"), share));
    const Tensor gate = g.name(g.sigmoid(g.name(linear(b, w.up, low), "stream_up")), "stream_gate");
    const Tensor read = g.mul(normed, gate);
    Tensor sum = g.view(read, 0, n_embd);
    for (int i = 1; i < n; ++i) sum = g.add(sum, g.view(read, i * n_embd, n_embd));
    if (w.inject)
        s.write = g.name(g.scale(g.sigmoid(g.scale(g.name(linear(b, w.inject, normed), "stream_inject"), share)), 2.0f),
                         "stream_write");
    return g.name(g.scale(sum, share), "stream_mixed");
}

void write(const BuildContext& b, Streams& s, Tensor y) {
    Graph& g = b.g;
    const Tensor all = repeated(g, y, b.hp.streams.n);
    const Tensor factors = g.reshape(s.write, {1, b.hp.streams.n, g.value(y).ne[1], 1});
    const Tensor part = g.mul(g.heads(all, b.hp.streams.n), factors);
    s.x = g.name(g.add(s.x, g.reshape(part, g.value(s.x).ne)), "streams");
}

/// X_s += v_s + silu(conv(norm(v))_s); v_s = σ(√score_s)·(W_value·e), score_s = ⟨norm(W_key·e)_s, norm(X)_s⟩ / √n_embd,
/// e the rows that the last tokens' ids choose.
void add_ngrams(const BuildContext& b, const Inputs& in, int il, Streams& s) {
    Graph& g = b.g;
    const NgramParams& p = b.hp.ngram;
    const NgramWeights& w = b.layer(il).ngram;
    const std::int64_t n_tokens = b.shape.n_tokens;
    const int n = b.hp.streams.n;
    g.set_part(Part::embed);
    const Tensor ids = g.input(graph::Input::ngram_ids, DType::i32, {n_tokens, 1, 1, 1});
    const Tensor constants =
        g.input(graph::Input::ngram_constants, DType::i32, {2, static_cast<std::int64_t>(p.constants.size()), 1, 1});
    const Tensor rows =
        g.name(g.ngram_rows(ids, constants, p.n, p.end_id, state(b, in, il, kDeltaStates)), "ngram_rows");
    const Tensor flat = g.reshape(rows, {p.n_row() * n_tokens, 1, 1, 1});
    const Tensor e =
        g.reshape(g.name(g.get_rows(g.weight(*b.w.ngram_embd), flat), "ngram_embd"), {b.hp.n_embd, n_tokens, 1, 1});
    const Tensor key = stream_norms(b, w.norm_key, g.name(linear(b, w.key, e), "ngram_key"), "ngram_key_norm");
    const Tensor query = stream_norms(b, w.norm_query, s.x, "ngram_query_norm");
    const Tensor dots = g.sum_rows(g.heads(g.mul(key, query), n));
    const Tensor score = g.name(g.scale(dots, 1.0f / std::sqrt(static_cast<float>(b.hp.n_embd))), "ngram_score");
    const Tensor gate = g.name(g.sigmoid(g.signed_sqrt(score, kLeastScore)), "ngram_gate");
    const Tensor value = repeated(g, g.name(linear(b, w.value, e), "ngram_value"), n);
    const Tensor v = g.name(g.reshape(g.mul(g.heads(value, n), gate), g.value(s.x).ne), "ngram_gated");
    const RecurrentState past = state(b, in, il, kDeltaStates + 1);
    const Tensor taps = vector(g, w.conv), normed = stream_norms(b, w.norm_conv, v, "ngram_conv_norm");
    const Tensor mixed = g.name(g.causal_conv(normed, taps, {}, past, p.n), "ngram_conv");
    const Tensor written = g.silu(mixed);
    s.x = g.name(g.add(g.add(s.x, v), written), "streams");
}

/// The slots of the blocks that an indexer ranks best, and of those that are not whole yet: a block's key is the mean
/// of its tokens', rotated as its first token, and lies in the slot of its last one.
Tensor choose_blocks(const BuildContext& b, const Inputs& in, int il, Tensor h) {
    Graph& g = b.g;
    const auto i = static_cast<std::size_t>(il);
    const IndexerWeights& w = b.w.layers[i].indexer;
    const IndexerParams& p = b.hp.attention.indexer;
    const int ratio = b.hp.attention.compress.ratios[i];
    const AttentionParams params{.n_head = p.n_head, .n_head_kv = 1, .head_dim_k = p.head_dim};
    g.set_part(Part::attn);
    const RecurrentState block = state(b, in, il, 0);
    const Tensor k = g.name(linear(b, w.k, h), "index_k");
    const Tensor mean = g.compress_keys(k, {}, {}, in.positions, ratio, false, block);
    RopeParams of_first = b.rope;
    of_first.offset = 1 - ratio;
    const Tensor table = g.name(g.rope_table(in.positions, of_first), "rope_table_block");
    const Tensor normed = norm(b, w.k_norm, g.heads(g.name(mean, "index_mean"), 1), "index_k_norm");
    const Tensor ik = g.name(g.rope(normed, table, of_first), "index_k_rope");
    const TensorInfo& cache = *b.memory[i].index;
    const Tensor keys = g.name(g.kv_write(g.cache(cache), ik, in.full.slots, params, false), "cache_index_write");
    if (writes_only(b, il)) return keys;
    const Tensor q = norm(b, w.q_norm, g.heads(g.name(linear(b, w.q, h), "index_q"), p.n_head), "index_q_norm");
    const Tensor iq = g.name(g.rope(q, in.full.rope_table, b.rope), "index_q_rope");
    const std::int64_t n_most = std::max<std::int64_t>(cache.ne[1] / ratio, 1);
    return g.name(g.select_keys(iq, keys, {}, in.full.kv, params,
                                {.k = static_cast<int>(std::min<std::int64_t>(p.top_k / ratio, n_most)),
                                 .block = ratio,
                                 .whole_blocks = true}),
                  "index_choice");
}

LowRankStreamWeights bind_low_rank(WeightBinder& binder, const HParams& hp, std::string_view prefix, bool writes) {
    const std::int64_t width = std::int64_t{hp.streams.n} * hp.n_embd;
    LowRankStreamWeights w;
    w.norm = binder.stream_vector(cat(prefix, "_norm.weight"), hp.n_embd, hp.streams.n);
    w.down = binder.linear(cat(prefix, "_down"), width, hp.streams.n_rank);
    w.up = binder.linear(cat(prefix, "_up"), hp.streams.n_rank, width);
    if (writes) w.inject = binder.linear(cat(prefix, "_inject"), width, hp.streams.n);
    return w;
}

void bind_ngrams(WeightBinder& binder, const HParams& hp, Weights& w) {
    const NgramParams& p = hp.ngram;
    if (p.layer < 0) return;
    const std::int64_t width = std::int64_t{hp.streams.n} * hp.n_embd;
    const auto name = [&](std::string_view role) { return block_name(p.layer, role); };
    NgramWeights& n = w.layers[static_cast<std::size_t>(p.layer)].ngram;
    n.key = binder.linear(name("ple_key"), hp.n_embd, width);
    n.value = binder.linear(name("ple_value"), hp.n_embd, hp.n_embd);
    n.norm_key = binder.stream_vector(name("ple_norm_key.weight"), hp.n_embd, hp.streams.n);
    n.norm_query = binder.stream_vector(name("ple_norm_query.weight"), hp.n_embd, hp.streams.n);
    n.norm_conv = binder.stream_vector(name("ple_norm_conv.weight"), hp.n_embd, hp.streams.n);
    n.conv = binder.vectors(name("ple_conv1d.weight"), {p.n_conv, width});
    const TensorInfo* table = binder.file().find_tensor("per_layer_token_embd.weight");
    if (table == nullptr) binder.missing("per_layer_token_embd.weight");
    w.ngram_embd = binder.matrix("per_layer_token_embd", {p.width, table->ne[1]});
    for (std::size_t row = 0; row < static_cast<std::size_t>(p.n_row()); ++row) {
        const auto size = p.constants[static_cast<std::size_t>(p.n) + row],
                   offset = p.constants[static_cast<std::size_t>(p.n + p.n_row()) + row];
        if (offset + size > static_cast<std::uint64_t>(table->ne[1]))
            fail(ErrorCode::bad_tensor_shape,
                 cat(binder.file().name(), ": tensor 'per_layer_token_embd.weight': has ", table->ne[1],
                     " rows, and ple.head_offsets and ple.head_vocab_sizes ask for ", offset + size));
    }
}

void read_constants(KeyReader& keys, NgramParams& p, std::string_view key, std::size_t n, bool zero_allowed) {
    const auto array = keys.note(key) ? keys.file().find_array(keys.full(key)) : std::nullopt;
    if (!array) {
        (void)keys.require_u32(key);
        keys.bad(key, "one value", "must be an array");
    }
    if (array->size() < n) keys.bad(key, cat(array->size(), " elements"), cat("needs ", n));
    for (std::size_t i = 0; i < n; ++i) {
        const std::uint64_t bits = gguf::integer_bits(*array, i);
        const bool negative = array->element_type() != gguf::ValueType::u64 && array->integer(i) < 0;
        if (negative || (bits == 0 && !zero_allowed))
            keys.bad(key, negative ? cat(array->integer(i)) : cat(bits),
                     zero_allowed ? "must not be below 0" : "must be above 0");
        p.constants.push_back(bits);
    }
}

void read_ngrams(KeyReader& keys, HParams& hp) {
    constexpr std::string_view kLayers = "ple.layers";
    const auto layers = keys.note(kLayers) ? keys.file().find_array(keys.full(kLayers)) : std::nullopt;
    NgramParams& p = hp.ngram;
    if (!layers) {
        for (const char* const key : {"ple.ngram_size", "ple.heads_per_ngram", "ple.conv_kernel", "ple.eos_token_id",
                                      "ple.layer_multipliers", "ple.head_offsets", "ple.head_vocab_sizes"})
            if (keys.note(key)) keys.bad(key, "given", "needs ple.layers");
        (void)keys.note("ple.image_token_id");
        (void)keys.find_u32("embedding_length_per_layer_input");  // no effect
        return;
    }
    if (layers->size() != 1) keys.bad(kLayers, cat(layers->size(), " elements"), "must name one layer");
    const std::int64_t layer = layers->integer(0);
    if (layer < 0 || layer >= hp.n_layer || hp.n_head_kv[static_cast<std::size_t>(layer)] > 0)
        keys.bad(kLayers, cat(layer), "must be a layer with a delta net");
    p.layer = static_cast<int>(layer);
    p.n = positive_u32(keys, "ple.ngram_size", 16);
    if (p.n < 2) keys.bad("ple.ngram_size", cat(p.n), "must lie in 2 to 16");
    p.n_head = positive_u32(keys, "ple.heads_per_ngram", 256);
    p.width = positive_u32(keys, "embedding_length_per_layer_input", 1u << 24);
    p.n_conv = positive_u32(keys, "ple.conv_kernel", 256);
    if (p.n_conv < 2) keys.bad("ple.conv_kernel", cat(p.n_conv), "must lie in 2 to 256");
    if (std::int64_t{p.n_row()} * p.width != hp.n_embd)
        keys.bad("embedding_length_per_layer_input", cat(p.width),
                 cat("times (ngram_size - 1)·heads_per_ngram must be ", hp.n_embd));
    const auto id = [&](std::string_view key, std::uint32_t value) {
        if (value >= static_cast<std::uint32_t>(hp.n_vocab))
            keys.bad(key, cat(value), cat("must be below ", hp.n_vocab));
        return static_cast<std::int32_t>(value);
    };
    p.end_id = id("ple.eos_token_id", keys.require_u32("ple.eos_token_id"));
    p.image_id = id("ple.image_token_id", keys.u32("ple.image_token_id", 0));
    if (p.image_id == 0) p.image_id = p.end_id;
    if (hp.n_vocab >= (1 << 24)) keys.bad("vocab_size", cat(hp.n_vocab), "must be below 2^24");
    const auto n_row = static_cast<std::size_t>(p.n_row());
    read_constants(keys, p, "ple.layer_multipliers", static_cast<std::size_t>(p.n), false);
    read_constants(keys, p, "ple.head_vocab_sizes", n_row, false);
    read_constants(keys, p, "ple.head_offsets", n_row, true);
    for (std::size_t i = static_cast<std::size_t>(p.n); i < p.constants.size(); ++i)
        if (p.constants[i] > (std::uint64_t{1} << 30))
            keys.bad("ple.head_vocab_sizes", cat(p.constants[i]), "sizes and offsets must be at most 2^30");
    auto& states = hp.recurrent.states[static_cast<std::size_t>(layer)];
    states.push_back({"ngram_state", p.n - 1});
    states.push_back({"ngram_conv_state", std::int64_t{p.n_conv - 1} * p.n * hp.streams.n * hp.n_embd});
}

void read_sparse_attention(KeyReader& keys, HParams& hp) {
    IndexerParams& x = read_indexer_sizes(keys, hp);
    const auto n = static_cast<std::size_t>(hp.n_layer);
    const auto ratios =
        keys.find_per_layer("attention.compress_ratios", n + static_cast<std::size_t>(hp.n_layer_draft));
    for (std::size_t il = 0; il < n; ++il) {
        const std::uint32_t ratio = ratios && hp.n_head_kv[il] > 0 ? (*ratios)[il] : 0;
        if (ratio > static_cast<std::uint32_t>(x.top_k))
            keys.bad("attention.compress_ratios", cat(ratio), cat("must be at most indexer.top_k = ", x.top_k));
        hp.attention.compress.ratios.push_back(static_cast<int>(ratio));
        x.layers.push_back(ratio > 0);
        if (ratio > 0) hp.recurrent.states[il] = {{"index_state", std::int64_t{ratio} * x.head_dim}};
    }
}

}  // namespace

HParams read(KeyReader& keys) {
    HParams hp = read_qwen35(keys);
    hp.streams.n = positive_u32(keys, "hyper_connection.count", 64);
    if (hp.streams.n < 2) keys.bad("hyper_connection.count", cat(hp.streams.n), "must lie in 2 to 64");
    hp.streams.n_rank = positive_u32(keys, "hyper_connection.low_rank", 1u << 24);
    (void)keys.find_f32("hyper_connection.epsilon");  // no effect
    read_normalized_experts(keys, hp);
    require_experts(keys, hp);
    hp.experts.n_ff = required_expert_width(keys);
    hp.experts.n_ff_shared =
        expert_width(keys, "expert_shared_feed_forward_length", keys.require_u32("expert_shared_feed_forward_length"));
    read_sparse_attention(keys, hp);
    read_ngrams(keys, hp);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w = bind_globals(binder, hp, Head::tied_if_missing, Norm{});
    w.output_low_rank = bind_low_rank(binder, hp, "output_hc", false);
    const BlockParts parts{.norms = BlockNorms::own, .mixer = Mixer::own, .ffn = FeedForward::experts};
    bind_blocks(binder, hp, w, parts, [&](int il, LayerWeights& layer) {
        const auto name = [&](std::string_view role) { return block_name(il, role); };
        layer.attn_low_rank = bind_low_rank(binder, hp, name("hc_attn"), true);
        layer.ffn_low_rank = bind_low_rank(binder, hp, name("hc_ffn"), true);
        layer.ffn_gate_inp_shexp = binder.linear(name("ffn_gate_inp_shexp"), hp.n_embd, 1);
        if (hp.n_head_kv_of(il) == 0) return bind_delta_net(binder, hp, il, layer);
        bind_gated_attention(binder, hp, il, layer);
        const std::int64_t n = hp.attention.indexer.n_head, d = hp.attention.indexer.head_dim;
        layer.indexer.q = binder.linear(name("indexer.q_proj"), hp.n_embd, n * d);
        layer.indexer.k = binder.linear(name("indexer.k_proj"), hp.n_embd, d);
        layer.indexer.q_norm = binder.norm(name("indexer.q_norm"), {d});
        layer.indexer.k_norm = binder.norm(name("indexer.k_norm"), {d});
    });
    bind_ngrams(binder, hp, w);
    return w;
}

void build(const BuildContext& b) {
    Graph& g = b.g;
    const Inputs in = make_inputs(b);
    Streams s{b.hp.begins_late() ? in.x : repeated(g, in.x, b.hp.streams.n), {}, {}};
    const bool whole = each_layer(b, [&](int il, const LayerWeights& w) {
        const auto i = static_cast<std::size_t>(il);
        if (il == b.hp.ngram.layer) add_ngrams(b, in, il, s);
        g.set_part(Part::attn_norm);
        Tensor h = mix(b, w.attn_low_rank, s);
        Tensor a = b.hp.n_head_kv[i] == 0            ? delta_net(b, in, il, h, true)
                   : b.hp.attention.indexer.is_in(i) ? gated_attention(b, in, il, h, choose_blocks(b, in, il, h))
                                                     : gated_attention(b, in, il, h);
        if (!keep_output_rows(b, in, il, {&a, &s.x, &s.write})) return false;
        g.set_part(Part::attn_out);
        write(b, s, a);
        g.set_part(Part::ffn_norm);
        h = mix(b, w.ffn_low_rank, s);
        g.set_part(Part::ffn);
        write(b, s, feed_forward(b, w, h));
        return true;
    });
    if (!whole || hand_over(b, {s.x})) return;
    g.set_layer(kNoLayer);
    g.set_part(Part::head);
    head(b, mix(b, b.w.output_low_rank, s));
}

}  // namespace tinfer::model::qwen4exp

namespace tinfer::model {
const Family families::qwen4exp{.read_all = qwen4exp::read, .bind_all = qwen4exp::bind, .build_all = qwen4exp::build};
}  // namespace tinfer::model
