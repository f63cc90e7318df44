// SPDX-License-Identifier: MIT
// What a builder of graphs reads, and the registry of architectures (registry_table.cpp), the only place that maps an
// architecture's name to code.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "graph/graph.hpp"
#include "model/adapters.hpp"
#include "model/hparams.hpp"
#include "model/weights.hpp"

namespace tinfer::model {

/// What a graph depends on besides the model: the shape of one micro-batch.
struct BatchShape {
    std::int64_t n_tokens = 1;
    std::int64_t n_outputs = 1;        ///< rows that get logits or embeddings; 0 = none
    std::int64_t n_table_entries = 1;  ///< capacity of the kv_table input
    std::int64_t n_seqs = 1;           ///< capacity of the kv_seqs input
    bool from_embeddings = false;      ///< rows of n_embd floats instead of token ids
    bool want_logits = true, want_embeddings = false;
    Pooling pooling = Pooling::none;  ///< other than none: one vector per sequence
    bool window_pool = false;         ///< layers with a window have slots of their own
    std::int64_t n_pooled = 0;        ///< sequences that may get one
    bool whole_layers = false;        ///< the last layer computes all of its rows even in a run without outputs
    bool every_row = false;           ///< the last layer computes every row
    bool encodes = false;             ///< an encoder in front of a decoder: every row is kept, none is an output
    std::int64_t n_cross_entries = 1, n_cross_seqs = 1;  ///< capacities of cross_table and cross_seqs
    AdapterMask adapters = kAllAdapters;
    int draft_block = -1;  ///< of a draft head with a graph for each block: which; -1: all, without outputs
};

/// Of the value that a part leaves for the layers behind it.
inline constexpr std::string_view kHiddenRole = "result_hidden";

/// What a draft head reads of its target, of every token of a run.
struct Taps {
    /// streams: the stream in front of some blocks, side by side; of as many streams their mean. normed: what the
    /// output matrix reads. every_stream: all streams behind the last block.
    enum class Kind : std::uint8_t { none, streams, normed, every_stream };
    Kind kind = Kind::none;
    std::vector<int> blocks{};  ///< of `streams`; n_layer: behind the last
    std::int64_t width = 0;     ///< floats of a token
    /// Whether it needs every row of the last layer, not those of outputs alone.
    [[nodiscard]] bool read_end(int n_layer) const noexcept {
        if (kind != Kind::streams) return kind != Kind::none;
        return std::find(blocks.begin(), blocks.end(), n_layer) != blocks.end();
    }
};
inline constexpr std::size_t kMaxTaps = 32;

/// KV cache and recurrent states of a layer; null where it has none.
struct LayerMemory {
    const TensorInfo *k = nullptr, *v = nullptr;         ///< of attention
    const TensorInfo* index = nullptr;                   ///< keys of an indexer, one head
    std::array<const TensorInfo*, kMaxStates> states{};  ///< of recurrence, in the order of Recurrent::states
};

struct Family;  // model/family.hpp
struct GraphAdapters;

/// Everything a builder reads. It owns nothing.
struct BuildContext {
    graph::Graph& g;
    const HParams& hp;
    const Weights& w;
    BatchShape shape;
    RopeParams rope;                                            ///< effective in this context
    RopeParams rope_window;                                     ///< the same for windowed layers
    const TensorInfo* rope_factors = nullptr;                   ///< chosen once per context
    std::span<const LayerMemory> memory;                        ///< one per layer
    std::span<const LayerMemory> cross{};                       ///< per decoder layer: K and V of cross-attention
    bool hadamard_on_keys = false, hadamard_on_values = false;  ///< model/kv_rotation.hpp
    GraphAdapters* adapters = nullptr;                          ///< what is attached to the context; null: nothing
    const Family* drafting = nullptr;                           ///< of a draft head: whose blocks it has
    const Taps* taps = nullptr;                                 ///< what a draft head reads; null: nobody does
    std::array<graph::Tensor, kMaxTaps>* tapped = nullptr;      ///< filled by the builder, one for each tap
    /// Whether the last layer computes every row.
    [[nodiscard]] bool every_row() const noexcept {
        return shape.every_row || (taps != nullptr && taps->read_end(hp.n_layer));
    }
    [[nodiscard]] const LayerWeights& layer(int il) const noexcept { return w.layers[static_cast<std::size_t>(il)]; }
};

struct Architecture;  // model/family.hpp

/// The row for a name; throws unsupported_arch (known, not implemented) or unknown_arch, both listing what there is.
[[nodiscard]] const Architecture& find_architecture(const gguf::File& file, std::string_view name);
[[nodiscard]] std::span<const Architecture> registry() noexcept;

}  // namespace tinfer::model
