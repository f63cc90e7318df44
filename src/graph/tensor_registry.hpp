// SPDX-License-Identifier: MIT
// The tensors of a context by their ids: those of the file, then the caches, then those of adapters; where inputs lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tinfer/tensor.hpp"

namespace tinfer::graph {

/// A view: what it shows belongs to file, layout and adapters.
struct TensorRegistry {
    std::span<const TensorInfo> weights;
    std::span<const TensorInfo> caches;  ///< then those of adapters, then what only a draft head has

    /// Also the id of the next tensor.
    [[nodiscard]] std::uint32_t size() const noexcept {
        return static_cast<std::uint32_t>(weights.size() + caches.size());
    }
    [[nodiscard]] const TensorInfo& operator[](std::uint32_t id) const noexcept {
        return id < weights.size() ? weights[id] : caches[id - weights.size()];
    }
};

/// Where an input of graphs lies.
struct InputPlace {
    std::string_view role;
    std::byte* data = nullptr;
};

}  // namespace tinfer::graph
