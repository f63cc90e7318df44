// SPDX-License-Identifier: MIT
// What a context has attached, as graphs read it. The products with weights (linear.cpp), the lookup of token rows
// and the end of a layer ask here; families know nothing of adapters.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.hpp"

namespace tinfer::model {

struct BuildContext;

/// The matrices of one weight, under ids of the context's registry.
struct AdapterPair {
    std::uint32_t base = 0;  ///< TensorInfo::id of the weight
    const TensorInfo *a = nullptr, *b = nullptr;
    bool lookup = false;
    bool used = false;  ///< by the last graphs that were built
};

/// One adapter that takes part.
struct GraphAdapter {
    std::vector<AdapterPair> pairs;  ///< ascending by base
    float alpha = 0;                 ///< 0: none
    bool everywhere = true;          ///< in all sequences, with `scale`; else rows and scales are inputs
    float scale = 1;
    /// Rows of a micro-batch or of its outputs: roles of the inputs, and those of the graph that is built.
    struct Rows {
        std::string rows_role, scales_role;
        graph::Tensor rows{}, scales{};
    };
    std::array<Rows, 2> of;  ///< tokens, outputs
    [[nodiscard]] AdapterPair* find(std::uint32_t base) noexcept;
};

/// Which adapters of some sequences take part in a graph: one bit per entry of GraphAdapters::list; entries from 63 on
/// share the last bit. Adapters of all sequences always take part.
using AdapterMask = std::uint64_t;
inline constexpr AdapterMask kAllAdapters = ~AdapterMask{0};
[[nodiscard]] constexpr AdapterMask mask_of(std::size_t number) noexcept {
    return AdapterMask{1} << (number < 63 ? number : 63);
}

/// All of them, and the directions of control vectors. Graphs of one state have one structure, whatever their size.
struct GraphAdapters {
    std::vector<GraphAdapter> list;
    std::vector<const TensorInfo*> directions;  ///< {n_layer}, or none: null where a layer has none
    std::vector<int> n_ends;                    ///< {n_layer}, with directions: how often the graph ended each
    /// Some adapter belongs to some sequences.
    [[nodiscard]] bool has_rows() const noexcept;
    void start_graph() noexcept;
    void forget_use() noexcept;
};

/// y, which is W x, plus what adapters add. `w` was multiplied as linear, expert_linear or head_linear does.
[[nodiscard]] graph::Tensor adapt_linear(const BuildContext& b, const TensorInfo& w, graph::Tensor x, graph::Tensor y);
[[nodiscard]] graph::Tensor adapt_experts(const BuildContext& b, const TensorInfo& w, graph::Tensor x,
                                          graph::Tensor ids, graph::Tensor y);
[[nodiscard]] graph::Tensor adapt_heads(const BuildContext& b, const TensorInfo& w, graph::Tensor x, graph::Tensor y);
/// y, the rows `ids` of the embedding matrix.
[[nodiscard]] graph::Tensor adapt_rows(const BuildContext& b, const TensorInfo& w, graph::Tensor ids, graph::Tensor y);
/// The output of the layer, plus its direction.
[[nodiscard]] graph::Tensor add_direction(const BuildContext& b, graph::Tensor x);

}  // namespace tinfer::model
