// SPDX-License-Identifier: MIT
// Encodes the tensors of a file in other types: the work of `tinfer quantize`, and of what measures types.
#pragma once

#include <tinfer/tinfer.hpp>

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace tinfer::app {

/// Mean squares of what columns are multiplied with, by tensor.
using Importance = std::map<std::string, tinfer::ImportanceColumns, std::less<>>;

[[nodiscard]] Importance importance_by_name(tinfer::ImportanceFile file);

/// Takes pieces of an encoded tensor, in order.
using TakeBytes = std::function<void(std::span<const std::byte>)>;

/// Encodes tensors row by row on a number of threads. The bytes do not depend on it.
class TensorEncoder {
public:
    TensorEncoder(int n_threads, tinfer::QuantizeSearch search, const Importance* importance)
        : n_threads_(n_threads), search_(search), importance_(importance) {}

    /// Reads a tensor piece by piece, encodes it as `type` (its own: checks that it is finite) and hands it on. Throws
    /// Error naming the tensor, row and
    /// column of what cannot be encoded; cancelled after an interrupt. `progress` takes bytes of the source.
    void encode(const tinfer::ModelFile& file, const tinfer::TensorInfo& tensor, tinfer::DType type,
                const TakeBytes& take, const std::function<void(std::uint64_t)>& progress = {}) const;

private:
    struct Columns;
    [[nodiscard]] Columns columns_of(const tinfer::TensorInfo& tensor, tinfer::DType type) const;

    int n_threads_;
    tinfer::QuantizeSearch search_;
    const Importance* importance_;
};

/// The processors that this process may use.
[[nodiscard]] int default_threads();

}  // namespace tinfer::app
