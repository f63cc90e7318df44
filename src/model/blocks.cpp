// SPDX-License-Identifier: MIT
#include "model/blocks.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "base/error.hpp"
#include "model/adapters.hpp"
#include "model/kv_rotation.hpp"

namespace tinfer::model {

namespace {

constexpr int kFarthestBucket = 128;  // T5 (arXiv:1910.10683 §2.1): all farther distances share a bias

// Positions (learned embedding, RoPE table) and the tables of the cache.
void add_attention_inputs(const BuildContext& b, Inputs& in) {
    Graph& g = b.g;
    const BatchShape& s = b.shape;
    const Tensor positions = in.positions = g.input(graph::Input::positions, DType::i32, {s.n_tokens, 1, 1, 1});
    if (b.w.position_embd != nullptr && !b.hp.begins_late())
        in.x = g.name(g.add(in.x, g.name(g.get_rows(g.weight(*b.w.position_embd), positions), "pos_embd")),
                      "inp_positioned");
    AttentionInputs& full = in.full;
    full.slots = g.input(graph::Input::kv_slots, DType::i32, {s.n_tokens, 1, 1, 1});
    full.kv.table = g.input(graph::Input::kv_table, DType::i32, {4, s.n_table_entries, 1, 1});
    full.kv.seqs = g.input(graph::Input::kv_seqs, DType::i32, {2, s.n_seqs, 1, 1});
    full.kv.spans = g.input(graph::Input::kv_spans, DType::i32, {4, s.n_tokens, 1, 1});
    const auto holder = std::ranges::find_if(b.memory, [](const LayerMemory& m) { return m.k != nullptr; });
    if (b.hp.attention.reads_positions() && holder != b.memory.end())
        full.kv.positions = g.input(graph::Input::kv_positions, DType::i32, {holder->k->ne[1], 1, 1, 1});
    if (b.w.attn_rel_b != nullptr)
        full.kv.bias =
            g.name(g.relative_bias(vector(g, b.w.attn_rel_b), kFarthestBucket, !b.hp.attention.causal), "attn_bias");
    const bool rotates = b.hp.rope.kind != RopeKind::none;
    const Tensor factors = rotates && b.rope_factors != nullptr ? g.weight(*b.rope_factors) : Tensor{};
    full.rope = b.rope;
    if (rotates) full.rope_table = g.name(g.rope_table(positions, b.rope, factors), "rope_table");
    if (!b.hp.has_windowed_layers()) return;

    in.windowed = full;
    if (s.window_pool) {
        in.windowed.slots = g.input(graph::Input::kv_slots_window, DType::i32, {s.n_tokens, 1, 1, 1});
        in.windowed.kv.table = g.input(graph::Input::kv_table_window, DType::i32, {4, s.n_table_entries, 1, 1});
    }
    in.windowed.kv.spans = g.input(graph::Input::kv_spans_window, DType::i32, {4, s.n_tokens, 1, 1});
    if (rotates && b.hp.windows.rotate_otherwise()) {
        in.windowed.rope = b.rope_window;
        const Tensor window_factors = b.hp.windows.rope_factors ? factors : Tensor{};
        in.windowed.rope_table = g.name(g.rope_table(positions, b.rope_window, window_factors), "rope_table_window");
    }
}

}  // namespace

Inputs make_inputs(const BuildContext& b) {
    Graph& g = b.g;
    const BatchShape& s = b.shape;
    g.set_layer(kNoLayer);
    g.set_part(Part::embed);
    Inputs in;
    const bool late = b.hp.begins_late();
    if (late) {
        in.x = g.input(graph::Input::hidden, DType::f32, {b.hp.part.n_in, s.n_tokens, 1, 1});
        if (!s.from_embeddings && b.hp.attention.compress.n_hash_layer > b.hp.part.first)
            in.tokens = g.input(graph::Input::tokens, DType::i32, {s.n_tokens, 1, 1, 1});
    } else if (s.from_embeddings) {
        in.x = g.input(graph::Input::embeddings, DType::f32, {b.hp.n_embd, s.n_tokens, 1, 1});
    } else {
        in.tokens = g.input(graph::Input::tokens, DType::i32, {s.n_tokens, 1, 1, 1});
        const Tensor rows = g.get_rows(g.weight(*b.w.token_embd), in.tokens);
        in.x = g.name(adapt_rows(b, *b.w.token_embd, in.tokens, rows), "inp_embd");
        if (b.hp.embd_scale != 1.0f) in.x = g.name(g.scale(in.x, b.hp.embd_scale), "inp_scaled");
    }
    if (b.w.token_types != nullptr && !late) {  // always row 0: a batch does not mark the second text of a pair
        const Tensor types = g.input(graph::Input::types, DType::i32, {s.n_tokens, 1, 1, 1});
        in.x = g.name(g.add(in.x, g.name(g.get_rows(g.weight(*b.w.token_types), types), "type_embd")), "inp_typed");
    }
    if (b.hp.has_attention()) add_attention_inputs(b, in);
    if (!late) in.x = norm(b, b.w.token_embd_norm, in.x, "inp_norm");
    if (b.hp.has_states()) in.state_rows = g.input(graph::Input::state_rows, DType::i32, {2, s.n_tokens, 1, 1});
    if (s.n_outputs > 0 && !b.every_row())
        in.out_rows = g.input(graph::Input::out_rows, DType::i32, {s.n_outputs, 1, 1, 1});
    return in;
}

Tensor handed(const BuildContext& b, const Inputs& in, std::int64_t offset, std::int64_t n) {
    Graph& g = b.g;
    if (!b.hp.begins_late() || n == b.hp.part.n_in) return in.x;
    return g.name(g.copy(g.view(in.x, offset, n)), "hidden");
}

bool hand_over(const BuildContext& b, std::initializer_list<Tensor> streams) {
    if (!b.hp.ends_early()) return false;
    Graph& g = b.g;
    g.set_layer(kNoLayer);
    g.set_part(Part::head);
    Tensor all;
    bool joined = false;
    for (const Tensor one : streams) {
        if (!one) continue;
        joined = static_cast<bool>(all);
        all = all ? g.concat(all, one) : one;
    }
    g.output(g.name(joined ? all : g.copy(all), kHiddenRole));
    TINFER_ASSERT(g.value(all).ne[0] == b.hp.part.n_out);
    return true;
}

Inputs make_inputs_of_memory(const BuildContext& b) {
    b.g.set_layer(kNoLayer);
    b.g.set_part(Part::embed);
    Inputs in;
    add_attention_inputs(b, in);
    return in;
}

namespace {

Tensor norm_of_kind(const BuildContext& b, NormKind kind, const Norm& w, Tensor x, std::string_view name) {
    if (!w) return x;
    Graph& g = b.g;
    const Tensor weight = vector(g, w.weight), bias = vector(g, w.bias);
    if (kind == NormKind::layer) return g.name(g.layer_norm(x, weight, bias, b.hp.layer_norm_eps), name);
    const Tensor y = g.name(g.rms_norm(x, weight, w.eps > 0 ? w.eps : b.hp.rms_eps), name);
    return bias ? g.name(g.add(y, bias), name) : y;
}

}  // namespace

Tensor norm(const BuildContext& b, const Norm& w, Tensor x, std::string_view name) {
    return norm_of_kind(b, b.hp.norm, w, x, name);
}

// ---- attention ------------------------------------------------------------------------------------------------------

AttentionParams attention_params(const BuildContext& b, int il) {
    const auto i = static_cast<std::size_t>(il);
    return {.n_head = b.hp.n_head[i],
            .n_head_kv = b.hp.n_head_kv[i],
            .head_dim_k = b.hp.head_k(il),
            .head_dim_v = b.hp.head_v(il),
            .scale = b.hp.attention.scale_window > 0 && b.hp.is_windowed(il) ? b.hp.attention.scale_window
                                                                             : b.hp.attention.scale,
            .softcap = b.hp.attention.softcap,
            .max_bias = b.hp.attention.max_alibi_bias};
}

Tensor norm_heads(const BuildContext& b, const Norm& w, Tensor x, int n_head, std::string_view name) {
    const bool full = w && w.weight->ne[0] == b.g.value(x).ne[0] && n_head > 1;
    if (full) return b.g.heads(norm_of_kind(b, b.hp.attention.head_norm, w, x, name), n_head);
    return norm_of_kind(b, b.hp.attention.head_norm, w, b.g.heads(x, n_head), name);
}

Qkv qkv(const BuildContext& b, int il, Tensor h) {
    Graph& g = b.g;
    const LayerWeights& w = b.layer(il);
    const AttentionParams p = attention_params(b, il);
    const auto clamped = [&](Tensor x) {
        return b.hp.attention.qkv_clamp > 0 ? g.clamp(x, -b.hp.attention.qkv_clamp, b.hp.attention.qkv_clamp) : x;
    };
    Qkv out;
    if (w.attn_qkv) {
        const std::int64_t n_q = std::int64_t{p.n_head} * p.head_dim_k, n_k = std::int64_t{p.n_head_kv} * p.head_dim_k;
        const Tensor all = g.name(clamped(linear(b, w.attn_qkv, h)), "qkv");
        out = {g.view(all, 0, n_q), g.view(all, n_q, n_k),
               g.view(all, n_q + n_k, std::int64_t{p.n_head_kv} * p.head_dim_v)};
    } else {
        out.q = g.name(clamped(linear(b, w.attn_q, h)), "q");
        out.k = g.name(clamped(linear(b, w.attn_k, h)), "k");
        out.v = g.name(clamped(linear(b, w.attn_v, h)), "v");
    }
    const bool later = b.hp.attention.head_norms_behind_rope;
    out.q = norm_heads(b, later ? Norm{} : w.attn_q_norm, out.q, p.n_head, "q_norm");
    out.k = norm_heads(b, later ? Norm{} : w.attn_k_norm, out.k, p.n_head_kv, "k_norm");
    out.v = g.heads(out.v, p.n_head_kv);
    return out;
}

bool writes_only(const BuildContext& b, int il) noexcept {
    return is_last(b, il) && b.shape.n_outputs == 0 && !b.shape.encodes && !b.shape.whole_layers && !b.every_row();
}

bool is_last(const BuildContext& b, int il) noexcept { return b.hp.draft.alone || il == b.hp.n_layer - 1; }

Tensor cached_attention(const BuildContext& b, const Inputs& in, int il, const Qkv& x, Tensor chosen) {
    Graph& g = b.g;
    const auto i = static_cast<std::size_t>(il);
    const LayerWeights& w = b.w.layers[i];
    const AttentionParams params = attention_params(b, il);
    const AttentionInputs& view = in.of(b.hp, il);
    const Tensor k = hadamard_keys(b, x.k, params, "k_hadamard"), v = hadamard_values(b, x.v, params, "v_hadamard");
    const Tensor keys = g.name(g.kv_write(g.cache(*b.memory[i].k), k, view.slots, params, false), "cache_k_write");
    const Tensor values = g.name(g.kv_write(g.cache(*b.memory[i].v), v, view.slots, params, true), "cache_v_write");
    if (writes_only(b, il)) return keys;
    const Tensor q = hadamard_keys(b, x.q, params, "q_hadamard"), sinks = vector(g, w.attn_sinks);
    const Tensor a = chosen ? g.sparse_attention(q, keys, values, chosen, params, sinks)
                            : g.attention(q, keys, values, view.kv, params, sinks);
    return undo_hadamard(b, a, params, "attn", "attn_rotated");
}

Tensor self_attention(const BuildContext& b, const Inputs& in, int il, Tensor h) {
    Graph& g = b.g;
    g.set_part(Part::attn);
    Qkv x = qkv(b, il, h);
    rotate(b, in, il, x);
    if (b.hp.attention.temperature_scale != 0.0f) x.q = scale_by_temperature(b, in, x.q);
    if (b.hp.attention.head_norms_behind_rope) {
        const LayerWeights& w = b.layer(il);
        x.q = norm_of_kind(b, b.hp.attention.head_norm, w.attn_q_norm, x.q, "q_norm");
        x.k = norm_of_kind(b, b.hp.attention.head_norm, w.attn_k_norm, x.k, "k_norm");
    }
    return attention_out(b, in, il, x, writes_only(b, il) ? Tensor{} : attention_gate(b, il, h));
}

Tensor scale_by_temperature(const BuildContext& b, const Inputs& in, Tensor q) {
    Graph& g = b.g;
    const std::array<std::int64_t, 4> ne = g.value(q).ne;
    const Tensor factor =
        g.name(g.log_temperature(in.positions, b.hp.attention.temperature_scale, b.hp.attention.temperature_length, 0),
               "attn_temperature");
    return g.heads(g.name(g.mul(g.reshape(q, {ne[0] * ne[1], ne[2], 1, 1}), factor), "q_scaled"), ne[1]);
}

Tensor attention_gate(const BuildContext& b, int il, Tensor h) {
    Graph& g = b.g;
    const LayerWeights& w = b.layer(il);
    if (!w.attn_gate) return {};
    const Tensor z = g.name(linear(b, w.attn_gate, h), "attn_gate_logit");
    return g.name(b.hp.attention.gate == GateKind::sigmoid ? g.sigmoid(z) : g.softplus(z), "attn_gate");
}

Tensor gate_heads(const BuildContext& b, Tensor a, Tensor gate) {
    Graph& g = b.g;
    const std::array<std::int64_t, 4> flat = g.value(a).ne;
    const std::int64_t n = g.value(gate).ne[0];
    if (n == flat[0]) return g.name(g.mul(a, gate), "attn_gated");
    const Tensor per_head = g.reshape(gate, {1, n, flat[1], 1});
    return g.reshape(g.name(g.mul(g.heads(a, n), per_head), "attn_gated"), flat);
}

Tensor attention_out(const BuildContext& b, const Inputs& in, int il, const Qkv& x, Tensor gate) {
    Graph& g = b.g;
    const LayerWeights& w = b.layer(il);
    Tensor a = cached_attention(b, in, il, x);
    if (writes_only(b, il)) return a;
    g.set_part(Part::attn_out);
    if (gate) a = gate_heads(b, a, gate);
    const Tensor y = g.name(linear(b, w.attn_output, norm(b, w.attn_sub_norm, a, "attn_sub_norm")), "attn_out");
    return b.hp.attention.out_scale == 1.0f ? y : g.name(g.scale(y, b.hp.attention.out_scale), "attn_out_scaled");
}

// ---- feed-forward ---------------------------------------------------------------------------------------------------

namespace {
constexpr float kSwigluLimit = 7.0f;  // of gpt-oss: gate ≤ 7, |up| ≤ 7
}

Tensor activate(Graph& g, Activation activation, Tensor x) {
    switch (activation) {
        case Activation::silu: return g.silu(x);
        case Activation::gelu: return g.gelu(x);
        case Activation::relu: return g.relu(x);
        case Activation::relu_sqr: {
            const Tensor y = g.name(g.relu(x), "ffn_relu");
            return g.mul(y, y);
        }
        case Activation::swiglu_clamped: {  // z · σ(1.702 z), z ≤ 7: gated() does the rest
            const Tensor z = g.name(g.clamp(x, std::numeric_limits<float>::lowest(), kSwigluLimit), "ffn_clamped");
            return g.mul(z, g.name(g.sigmoid(g.name(g.scale(z, 1.702f), "ffn_scaled")), "ffn_sigmoid"));
        }
    }
    return x;
}

std::size_t layer_of(const BuildContext& b, const LayerWeights& w) {
    const LayerWeights* const first = b.w.layers.data();
    const bool inside = !std::less<>()(&w, first) && std::less<>()(&w, first + b.w.layers.size());
    return inside ? static_cast<std::size_t>(&w - first) : b.w.layers.size();
}

Tensor gated(const BuildContext& b, Tensor gate, Tensor up, GatedNames names, float limit) {
    Graph& g = b.g;
    constexpr float kNoLimit = 1e-6f, kLowest = std::numeric_limits<float>::lowest();
    const bool limited = limit > kNoLimit, before = b.hp.gate_limits.before;
    if (limited && before) gate = g.name(g.clamp(gate, kLowest, limit), "ffn_gate_limited");
    Tensor z = g.name(activate(g, b.hp.activation, gate), names.activation);
    if (limited && !before) z = g.name(g.clamp(z, kLowest, limit), "ffn_act_limited");
    if (limited) up = g.name(g.clamp(up, -limit, limit), "ffn_up_limited");
    if (b.hp.activation != Activation::swiglu_clamped) return g.name(g.mul(z, up), names.product);
    up = g.name(g.clamp(up, -kSwigluLimit, kSwigluLimit), "ffn_up_clamped");  // z ⊙ (up + 1)
    return g.name(g.add(g.name(g.mul(z, up), "ffn_times_up"), z), names.product);
}

namespace {

GatedNames gated_names(Activation activation) noexcept {
    switch (activation) {
        case Activation::silu: return {"ffn_silu", "ffn_swiglu"};
        case Activation::gelu: return {"ffn_gelu", "ffn_geglu"};
        default: return {"ffn_act", "ffn_gated"};
    }
}

}  // namespace

Tensor gated_ffn(const BuildContext& b, const Linear& gate, const Linear& up, const Linear& down, Tensor h,
                 const Norm& sub_norm, float limit) {
    Graph& g = b.g;
    const Tensor z = g.name(linear(b, gate, h), "ffn_gate");
    const Tensor y = gated(b, z, g.name(linear(b, up, h), "ffn_up"), gated_names(b.hp.activation), limit);
    return g.name(linear(b, down, norm(b, sub_norm, y, "ffn_sub_norm")), "ffn_out");
}

namespace {

// Without a gate of its own: gate and up in one matrix, or Wdown · act(Wup·h).
Tensor ungated_ffn(const BuildContext& b, const Linear& up_map, const Linear& down, Tensor h, const TensorInfo* scales,
                   float limit) {
    Graph& g = b.g;
    const Tensor up = g.name(linear(b, up_map, h), "ffn_up");
    const std::int64_t n_ff = down.weight->ne[0];
    if (g.value(up).ne[0] == 2 * n_ff) {
        const Tensor right = g.view(up, n_ff, n_ff), left = g.view(up, 0, n_ff);
        return g.name(linear(b, down, gated(b, left, right, gated_names(b.hp.activation), limit)), "ffn_out");
    }
    Tensor y = g.name(activate(g, b.hp.activation, up), "ffn_act");
    if (scales != nullptr) y = g.name(g.div(y, vector(g, scales)), "ffn_act_scaled");
    return g.name(linear(b, down, y), "ffn_out");
}

}  // namespace

Tensor shared_expert(const BuildContext& b, const LayerWeights& w, Tensor h) {
    Graph& g = b.g;
    g.set_part(Part::shared_expert);
    const float limit = GateLimits::of(b.hp.gate_limits.dense, layer_of(b, w));
    const Tensor shared = w.ffn_gate_shexp
                              ? gated_ffn(b, w.ffn_gate_shexp, w.ffn_up_shexp, w.ffn_down_shexp, h, {}, limit)
                              : ungated_ffn(b, w.ffn_up_shexp, w.ffn_down_shexp, h, nullptr, limit);
    if (!w.ffn_gate_inp_shexp) return shared;
    const Tensor gate = g.name(g.sigmoid(g.name(linear(b, w.ffn_gate_inp_shexp, h), "shexp_logit")), "shexp_gate");
    return g.name(g.mul(shared, gate), "shexp_out");
}

Tensor feed_forward(const BuildContext& b, const LayerWeights& w, Tensor h) {
    if (w.ffn_gate_inp) return moe_ffn(b, w, h);
    const float limit = GateLimits::of(b.hp.gate_limits.dense, layer_of(b, w));
    if (w.ffn_gate) return gated_ffn(b, w.ffn_gate, w.ffn_up, w.ffn_down, h, w.ffn_sub_norm, limit);
    return ungated_ffn(b, w.ffn_up, w.ffn_down, h, w.ffn_act_scales, limit);
}

// ---- layers and head ------------------------------------------------------------------------------------------------

Tensor output_rows(const BuildContext& b, const Inputs& in, Tensor x) {
    if (!x) return x;
    const Tensor rows = b.g.get_rows(x, in.out_rows);
    return b.g.name(rows, "out_rows");
}

bool keep_output_rows(const BuildContext& b, const Inputs& in, int il, std::initializer_list<Tensor*> streams) {
    if (!is_last(b, il) || b.shape.encodes || b.every_row()) return true;
    if (b.shape.n_outputs == 0) return false;
    for (Tensor* const rows : streams) *rows = output_rows(b, in, *rows);
    return true;
}

Tensor add_residual(const BuildContext& b, Tensor x, Tensor y, std::string_view name) {
    if (!y) return x;
    if (b.hp.residual_scale != 1.0f) y = b.g.name(b.g.scale(y, b.hp.residual_scale), "residual");
    const Tensor sum = b.g.add(x, y);
    return name.empty() ? sum : b.g.name(sum, name);
}

Tensor end_layer(const BuildContext& b, Tensor x) {
    x = add_direction(b, x);
    return b.g.value(x).layer == b.g.layer() ? b.g.name(x, "l_out") : x;
}

namespace {

// One vector per sequence. A mean takes all rows: their sums go from run to run. What is taken of one row is that row.
void pool(const BuildContext& b, Tensor h) {
    Graph& g = b.g;
    g.set_part(Part::pool);
    if (b.shape.pooling == Pooling::mean) {
        const Tensor rows = g.input(graph::Input::pool_rows, DType::i32, {b.shape.n_outputs, 1, 1, 1});
        const Tensor before = g.input(graph::Input::pool_sums, DType::f32, {b.hp.n_embd, b.shape.n_pooled, 1, 1});
        const Tensor counts = g.input(graph::Input::pool_counts, DType::f32, {1, b.shape.n_pooled, 1, 1});
        const Tensor sums = g.name(g.segment_sum(h, rows, before), "pool_sums_after");
        g.output(sums);
        h = g.div(sums, counts);
    }
    if (b.shape.pooling ==
        Pooling::rank) {  // a hidden layer and scores, or one of them; of scores alone a distribution
        const bool hidden = static_cast<bool>(b.w.cls), scores = static_cast<bool>(b.w.cls_output);
        if (hidden) h = g.name(linear(b, b.w.cls, h), "cls");
        if (hidden && b.w.cls_norm) h = norm(b, b.w.cls_norm, g.name(g.gelu(h), "cls_gelu"), "cls_norm");
        else if (hidden && scores) h = g.name(g.tanh(h), "cls_tanh");
        if (scores) h = linear(b, b.w.cls_output, h);
        if (!hidden) h = g.softmax(g.name(h, "cls_scores"));
    }
    g.output(g.name(h, "result_pooled"));
}

// The lowest float in place of the logits of some ids; a NaN stays one.
Tensor suppress(Graph& g, Tensor logits, TokenRange ids) {
    constexpr float kLowest = std::numeric_limits<float>::lowest();
    const std::int64_t n = g.value(logits).ne[0];
    Tensor out = g.clamp(g.view(logits, ids.begin, ids.end - ids.begin), kLowest, kLowest);
    if (ids.begin > 0) out = g.concat(g.view(logits, 0, ids.begin), out);
    if (ids.end < n) out = g.concat(out, g.view(logits, ids.end, n - ids.end));
    return out;
}

}  // namespace

void tap_stream(const BuildContext& b, int il, Tensor x) {
    if (b.taps == nullptr || b.taps->kind != Taps::Kind::streams) return;
    for (std::size_t i = 0; i < b.taps->blocks.size(); ++i)
        if (b.taps->blocks[i] == il) (*b.tapped)[i] = x;
}

void head(const BuildContext& b, Tensor x) {
    Graph& g = b.g;
    g.set_layer(kNoLayer);
    g.set_part(Part::head);
    const bool every_row = b.every_row(), taps_normed = b.taps != nullptr && b.taps->kind == Taps::Kind::normed;
    if (taps_normed) {
        x = norm(b, b.w.output_norm, x, "norm_of_all");
        (*b.tapped)[0] = x;
    }
    if (every_row) {
        if (b.shape.n_outputs == 0) return;
        x = g.name(g.get_rows(x, g.input(graph::Input::out_rows, DType::i32, {b.shape.n_outputs, 1, 1, 1})),
                   "out_rows");
    }
    const bool is_normed = !b.w.output_norm || taps_normed;
    const Tensor h = is_normed ? g.name(x, "result_norm") : norm(b, b.w.output_norm, x, "result_norm");
    if (b.shape.pooling != Pooling::none) return pool(b, h);
    if (b.shape.want_embeddings) g.output(h);
    if (!b.shape.want_logits) return;
    Tensor logits = linear(b, b.w.output, h);
    if (b.hp.logit_scale != 1.0f) logits = g.scale(logits, b.hp.logit_scale);
    if (const float c = b.hp.final_softcap; c > 0) logits = g.scale(g.tanh(g.scale(logits, 1.0f / c)), c);
    if (b.hp.suppressed.begin < b.hp.suppressed.end) logits = suppress(g, logits, b.hp.suppressed);
    g.output(g.name(logits, "result_output"));
}

Tensor sequential_layers(const BuildContext& b, const Inputs& in) {
    return sequential_layers(
        b, in, [&](const Inputs& inputs, int il, Tensor h) { return self_attention(b, inputs, il, h); },
        [&](const LayerWeights& w, Tensor h) { return feed_forward(b, w, h); });
}

void sequential_stack(const BuildContext& b) {
    if (const Tensor x = sequential_layers(b, make_inputs(b))) head(b, x);
}

Tensor parallel_layer(const BuildContext& b, const Inputs& in, int il, Tensor x) {
    Graph& g = b.g;
    const LayerWeights& w = b.layer(il);
    Tensor h = norm(b, w.attn_norm, x, "attn_norm");
    Tensor a = self_attention(b, in, il, h);
    Tensor none;
    if (!keep_output_rows(b, in, il, {&a, &x, w.ffn_norm ? &none : &h})) return {};
    g.set_part(Part::ffn_norm);
    if (w.ffn_norm) h = norm(b, w.ffn_norm, x, "ffn_norm");
    g.set_part(Part::ffn);
    return add_residual(b, x, g.name(g.add(a, feed_forward(b, w, h)), "branches"));
}

void parallel_stack(const BuildContext& b) {
    const Inputs in = make_inputs(b);
    stream_stack(b, in, [&](int il, const LayerWeights&, Tensor x) { return parallel_layer(b, in, il, x); });
}

}  // namespace tinfer::model
