// SPDX-License-Identifier: MIT
// The building blocks that families share (architectures §2): inputs, linear maps, attention, feed-forward, experts, head.
// A family file puts them in the order of its paper.
#pragma once

#include "model/architecture.hpp"

namespace tinfer::model {

using graph::Graph;
using graph::Tensor;

/// Inputs of the layers that share a view of the past: those that see all of it, or those with a window.
struct AttentionInputs {
    Tensor cells;         ///< {T}: where K and V of each token go
    graph::KvInputs kv;   ///< what each token sees
    RopeParams rope;
    Tensor rope_table;    ///< {n_rot, T}
};

/// The graph inputs of an attention model.
struct Inputs {
    Tensor x;             ///< {n_embd, T}: rows of token_embd, or the caller's embeddings
    Tensor out_rows;      ///< {n_outputs}: rows of the micro-batch that are outputs
    AttentionInputs full, windowed;
    [[nodiscard]] const AttentionInputs& of(const HParams& hp, int il) const noexcept { return hp.is_windowed(il) ? windowed : full; }
};

[[nodiscard]] Inputs make_inputs(const BuildContext& b);

/// A norm weight, bias or table as f32 (f16 and bf16 are widened by a step of their own).
[[nodiscard]] Tensor vector(Graph& g, const TensorInfo* weight);
/// y = W x (+ b)
[[nodiscard]] Tensor linear(Graph& g, const Linear& map, Tensor x);

/// Wo · attend(rope(Wq·h), rope(Wk·h), Wv·h), with per-head RMS norms of q and k before RoPE, a window, a soft cap and sinks
/// where the layer has them, and without RoPE where it has none.
[[nodiscard]] Tensor self_attention(const BuildContext& b, const Inputs& in, int il, Tensor h);

/// Wdown · (silu(Wgate·h) ⊙ (Wup·h))
[[nodiscard]] Tensor gated_ffn(Graph& g, const Linear& gate, const Linear& up, const Linear& down, Tensor h);
/// Σ_e w_e · FFN_e(h) over the chosen experts, in the router's order (architectures §2.9).
[[nodiscard]] Tensor moe_ffn(const BuildContext& b, const LayerWeights& w, Tensor h);

/// Rows of x that are outputs; call it once the last layer has written its K and V.
[[nodiscard]] Tensor output_rows(const BuildContext& b, const Inputs& in, Tensor x);
/// Final norm and output projection; marks "result_norm" and "result_output" as asked for.
void head(const BuildContext& b, Tensor x);

/// The block of pre-norm transformers (arXiv:2302.13971 §2.2) from first layer to head; `ffn` maps the normed stream.
template <class Ffn>
void pre_norm_stack(const BuildContext& b, Ffn&& ffn) {
    Graph& g = b.g;
    const Inputs in = make_inputs(b);
    Tensor x = in.x;
    for (int il = 0; il < b.hp.n_layer; ++il) {
        const LayerWeights& w = b.w.layers[static_cast<std::size_t>(il)];
        g.set_layer(il);

        // x += Wo · attend(…)(h)   with h = rms_norm(x)
        g.set_part(Part::attn_norm);
        Tensor h = g.name(g.rms_norm(x, vector(g, w.attn_norm), b.hp.rms_eps), "attn_norm");
        Tensor a = self_attention(b, in, il, h);
        if (il == b.hp.n_layer - 1) {
            if (b.shape.n_outputs == 0) return;   // K and V are written: nothing else is asked for
            a = output_rows(b, in, a);
            x = output_rows(b, in, x);
        }
        g.set_part(Part::attn_out);
        x = g.name(g.add(x, a), "ffn_inp");

        // x += FFN(h)   with h = rms_norm(x)
        g.set_part(Part::ffn_norm);
        h = g.name(g.rms_norm(x, vector(g, w.ffn_norm), b.hp.rms_eps), "ffn_norm");
        g.set_part(Part::ffn);
        x = g.name(g.add(x, ffn(w, h)), "l_out");
    }
    head(b, x);
}

// ---- binding what the blocks above read
void bind_attention(WeightBinder& binder, const HParams& hp, int il, WeightBinder::Bias qkv, WeightBinder::Bias out, LayerWeights& w);
void bind_dense_ffn(WeightBinder& binder, const HParams& hp, int il, WeightBinder::Bias bias, LayerWeights& w);
void bind_experts(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w);
[[nodiscard]] Weights bind_globals(WeightBinder& binder, const HParams& hp, bool tied_allowed = true);

}  // namespace tinfer::model
