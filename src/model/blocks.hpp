// SPDX-License-Identifier: MIT
// The building blocks that families share (architectures §2): inputs, norms, projections, attention, feed-forward,
// experts, head, and the two ways to stack them. What a block does follows from the hyper-parameters and from which
// weights a layer has; a family file names the weights and puts the blocks in the order of its paper.
#pragma once

#include <initializer_list>

#include "model/architecture.hpp"

namespace tinfer::model {

using graph::Graph;
using graph::Tensor;

/// Inputs of the layers that share a view of the past: those that see all of it, or those with a window.
struct AttentionInputs {
    Tensor slots;        ///< {T}: KV slots that K and V of each token are written to
    graph::KvInputs kv;  ///< what each token sees
    RopeParams rope;
    Tensor rope_table;  ///< {n_rot, T}; absent without RoPE
};

/// The graph inputs of a model, as far as it needs them.
struct Inputs {
    Tensor x;       ///< {n_embd, T}: rows of token_embd, or the caller's embeddings; of a part that begins behind the
                    ///< first layer {n, T}: what the layers before have left (handed())
    Tensor tokens;  ///< {T}: ids; absent for embeddings
    Tensor positions;  ///< {T}
    Tensor out_rows;   ///< {n_outputs}: rows of the micro-batch that are outputs
    AttentionInputs full, windowed;
    [[nodiscard]] const AttentionInputs& of(const HParams& hp, int il) const noexcept {
        return hp.is_windowed(il) ? windowed : full;
    }
    Tensor state_rows;  ///< {2, T}: rows of recurrent states; absent without them
};

/// Embedding, times its scale, plus token types and learned positions, normed, as far as the model has them; positions
/// and cache tables.
[[nodiscard]] Inputs make_inputs(const BuildContext& b);
/// Positions and cache tables alone, for rows that are no tokens.
[[nodiscard]] Inputs make_inputs_of_memory(const BuildContext& b);

/// Floats [offset, offset + n) of in.x of each token, where it is what the layers before a part have left; in.x itself
/// where it is all of them, and in a model that begins with the first layer.
[[nodiscard]] Tensor handed(const BuildContext& b, const Inputs& in, std::int64_t offset, std::int64_t n);
/// Where a part ends in front of the model's last layer: leaves these, {n, T} each, side by side for the layers behind,
/// as "result_hidden". Absent ones are left out. False where the last layer is there.
bool hand_over(const BuildContext& b, std::initializer_list<Tensor> streams);

/// A norm weight, bias or table as f32 (f16 and bf16 are widened by a step of their own). Absent for null.
[[nodiscard]] Tensor vector(Graph& g, const TensorInfo* weight);
/// {1, H} → {n, H}: the one number of each row, n times
[[nodiscard]] Tensor expand_rows(Graph& g, Tensor rows, std::int64_t n);
/// y = W x (+ b), W x times a scale where the map has one
[[nodiscard]] Tensor linear(const BuildContext& b, const Linear& map, Tensor x);
/// The same of the experts `ids` of each token, one matrix per expert: x {n_in, T} or {n_in, k, T} → {n_out, k, T}.
[[nodiscard]] Tensor expert_linear(const BuildContext& b, const Linear& map, Tensor x, Tensor ids,
                                   std::string_view name);
/// One matrix per head, each times its part of x: x {n_in, H, T} → {n_out, H, T}. Matrices may be stored as one.
[[nodiscard]] Tensor head_linear(const BuildContext& b, const TensorInfo& weight, Tensor x);
/// The model's kind of norm over ne[0], weights and biases as far as there are any; x itself where the layer has none.
[[nodiscard]] Tensor norm(const BuildContext& b, const Norm& w, Tensor x, std::string_view name);

// ---- attention

struct Qkv {
    Tensor q, k, v;
};  ///< {head_dim, n_head or n_head_kv, T}

[[nodiscard]] AttentionParams attention_params(const BuildContext& b, int il);
/// Projections, fused or split, clamped, split into heads, with norms of q and k (full width or per head) as far as
/// there are any. Not rotated.
[[nodiscard]] Qkv qkv(const BuildContext& b, int il, Tensor h);
/// attend(q, k, v), {head_dim_v · n_head, T}; writes k and v into the cache first; only that where writes_only().
/// `chosen`: the slots to attend to (Graph::select_keys); absent: all that are visible.
[[nodiscard]] Tensor cached_attention(const BuildContext& b, const Inputs& in, int il, const Qkv& x,
                                      Tensor chosen = {});
/// Whether a layer only has to write its K and V, or its states: the last one of a run without outputs, unless values
/// of it are kept.
[[nodiscard]] bool writes_only(const BuildContext& b, int il) noexcept;
/// The last layer that a graph runs.
[[nodiscard]] bool is_last(const BuildContext& b, int il) noexcept;
/// RoPE of q and k, by the angles of the layer.
void rotate(const BuildContext& b, const Inputs& in, int il, Qkv& x);
/// q of each token times the factor of Attention::temperature_scale, which grows with the position; q contiguous.
[[nodiscard]] Tensor scale_by_temperature(const BuildContext& b, const Inputs& in, Tensor q);
/// Wo · (cached_attention(q, k, v) ⊙ gate), with a norm before Wo where the layer has one. `gate`: of attention_gate.
[[nodiscard]] Tensor attention_out(const BuildContext& b, const Inputs& in, int il, const Qkv& x, Tensor gate = {});
/// σ(W_gate·h) or softplus, {n_head, T} or {head_dim_v · n_head, T}; absent where the layer has none.
[[nodiscard]] Tensor attention_gate(const BuildContext& b, int il, Tensor h);
/// a {head_dim_v · n_head, T} times a gate of as many values, or of one per head
[[nodiscard]] Tensor gate_heads(const BuildContext& b, Tensor a, Tensor gate);
/// x in heads, normed each by w, or as a whole where w is as wide
[[nodiscard]] Tensor norm_heads(const BuildContext& b, const Norm& w, Tensor x, int n_head, std::string_view name);
/// Wo · attend(rope(Wq·h), rope(Wk·h), Wv·h), with all that qkv() knows.
[[nodiscard]] Tensor self_attention(const BuildContext& b, const Inputs& in, int il, Tensor h);

// ---- feed-forward

[[nodiscard]] Tensor activate(Graph& g, Activation activation, Tensor x);
/// The number of the layer that these weights belong to; that of layers, which has no limits, for any others.
[[nodiscard]] std::size_t layer_of(const BuildContext& b, const LayerWeights& w);
/// Names of the two results of gated().
struct GatedNames {
    std::string_view activation, product;
};
/// act(gate) ⊙ up. With limit > 0, up is clamped to ±limit and the gate to at most limit, after its activation (before
/// it where HParams::gate_limits says so).
[[nodiscard]] Tensor gated(const BuildContext& b, Tensor gate, Tensor up, GatedNames names, float limit = 0);
/// Wdown · (act(Wgate·h) ⊙ (Wup·h)), with a norm before Wdown where there is one
[[nodiscard]] Tensor gated_ffn(const BuildContext& b, const Linear& gate, const Linear& up, const Linear& down,
                               Tensor h, const Norm& sub_norm = {}, float limit = 0);
/// What a router chooses for each token, {n_expert_used, T} each (architectures §2.9, steps 1–8).
struct Routing {
    Tensor ids, weights;
};
/// `ids`: the experts, where something else than the router chooses them.
[[nodiscard]] Routing route(const BuildContext& b, const LayerWeights& w, Tensor h, Tensor ids = {});
/// Σ_e w_e · FFN_e(x), in the router's order
[[nodiscard]] Tensor routed_experts(const BuildContext& b, const LayerWeights& w, Tensor x, const Routing& routing);
/// FFN_e(x) of the experts e of each token, {n_embd, k, T}.
[[nodiscard]] Tensor experts(const BuildContext& b, const LayerWeights& w, Tensor x, Tensor ids);
/// FFN_sh(h), gated or plain; times σ(one logit per token) where the shared expert has a gate (ffn_gate_inp_shexp).
[[nodiscard]] Tensor shared_expert(const BuildContext& b, const LayerWeights& w, Tensor h);
/// Σ_e w_e · FFN_e(h) over the chosen experts, in the router's order (architectures §2.9), plus shared experts.
[[nodiscard]] Tensor moe_ffn(const BuildContext& b, const LayerWeights& w, Tensor h, Tensor ids = {});
/// Experts, gated, fused gated or plain Wdown · act(Wup·h): whatever the layer has weights for.
[[nodiscard]] Tensor feed_forward(const BuildContext& b, const LayerWeights& w, Tensor h);

// ---- layers and head

/// Rows of x that are outputs; call it once the last layer has written its K and V. Absent for an absent x.
[[nodiscard]] Tensor output_rows(const BuildContext& b, const Inputs& in, Tensor x);
/// The same of several streams, in the last layer only; earlier layers, and an encoder in front of a decoder, keep all
/// rows. False where no row is left: then the graph ends here.
[[nodiscard]] bool keep_output_rows(const BuildContext& b, const Inputs& in, int il,
                                    std::initializer_list<Tensor*> streams);
/// x + residual_scale · y; x itself where y is absent (a layer without that part)
[[nodiscard]] Tensor add_residual(const BuildContext& b, Tensor x, Tensor y, std::string_view name = {});
/// The output of a layer, "l_out": every stack ends each layer here. A layer without parts returns its input, under
/// the name it had.
[[nodiscard]] Tensor end_layer(const BuildContext& b, Tensor x);
/// Final norm, output projection, its scale and cap, or a vector per sequence; marks "result_norm", "result_output" and
/// "result_pooled" as asked for.
void head(const BuildContext& b, Tensor x);

/// The stream in front of block il, which a draft head may read; il = n_layer: behind the last.
void tap_stream(const BuildContext& b, int il, Tensor x);

/// The loop over the layers, for all families: layer(il, w) builds one, and says whether the run goes on behind it.
template <class Layer>
bool each_layer(const BuildContext& b, Layer&& layer) {
    for (int il = b.hp.part.first; il < b.hp.end_layer(); ++il) {
        b.g.set_layer(il);
        b.g.set_part(Part::attn_norm);
        if (!layer(il, b.layer(il))) return false;
    }
    return true;
}

/// Layers of one residual stream: layer(il, w, x) gives what layer il makes of x, absent where the run ends there (it
/// does without outputs). Absent then, and where the model has more layers than are loaded; those get `beside`, too.
template <class Layer>
Tensor stream_layers(const BuildContext& b, Tensor x, Layer&& layer, const Tensor* beside = nullptr) {
    const bool whole = each_layer(b, [&](int il, const LayerWeights& w) {
        tap_stream(b, il, x);
        const Tensor y = layer(il, w, x);
        if (y) x = end_layer(b, y);
        return static_cast<bool>(y);
    });
    if (!whole || hand_over(b, {x, beside != nullptr ? *beside : Tensor{}})) return {};
    tap_stream(b, b.hp.n_layer, x);
    return x;
}

/// Those layers and the head.
template <class Layer>
void stream_stack(const BuildContext& b, const Inputs& in, Layer&& layer, const Tensor* beside = nullptr) {
    const Tensor first = beside != nullptr && *beside ? handed(b, in, 0, b.hp.n_embd) : in.x;
    if (const Tensor x = stream_layers(b, first, layer, beside)) head(b, x);
}

/// Attention, then feed-forward, each on the normed stream and added to it (arXiv:2302.13971 §2.2), with the norms
/// before and after a sub-layer that the layer has. attention(in, il, h), ffn(w, h); an absent result adds nothing.
/// Returns absent where the run has no outputs.
template <class Mix, class Ffn>
Tensor sequential_layer(const BuildContext& b, const Inputs& in, int il, Tensor x, Mix&& attention, Ffn&& ffn) {
    const LayerWeights& w = b.layer(il);
    // x += attention(norm(x))
    Tensor h = norm(b, w.attn_norm, x, "attn_norm");
    Tensor a = attention(in, il, h);
    if (!keep_output_rows(b, in, il, {&a, &x})) return {};
    b.g.set_part(Part::attn_out);
    x = add_residual(b, x, norm(b, w.attn_post_norm, a, "attn_post_norm"), "ffn_inp");

    // x += ffn(norm(x))
    b.g.set_part(Part::ffn_norm);
    h = norm(b, w.ffn_norm, x, "ffn_norm");
    b.g.set_part(Part::ffn);
    return add_residual(b, x, norm(b, w.ffn_post_norm, ffn(w, h), "ffn_post_norm"));
}
template <class Mix, class Ffn>
Tensor sequential_layers(const BuildContext& b, const Inputs& in, Mix&& attention, Ffn&& ffn) {
    return stream_layers(
        b, in.x, [&](int il, const LayerWeights&, Tensor x) { return sequential_layer(b, in, il, x, attention, ffn); });
}
[[nodiscard]] Tensor sequential_layers(const BuildContext& b,
                                       const Inputs& in);  ///< of self_attention and feed_forward
/// Those layers and the head.
template <class Mix, class Ffn>
void sequential_stack(const BuildContext& b, Mix&& attention, Ffn&& ffn) {
    if (const Tensor x = sequential_layers(b, make_inputs(b), attention, ffn)) head(b, x);
}
void sequential_stack(const BuildContext& b);

/// x += attention(norm(x)) + ffn(norm(x)): both from the same stream (GPT-J, PaLM: arXiv:2204.02311 §2). The
/// feed-forward shares attention's norm unless the layer has one of its own.
void parallel_stack(const BuildContext& b);
[[nodiscard]] Tensor parallel_layer(const BuildContext& b, const Inputs& in, int il, Tensor x);

}  // namespace tinfer::model
