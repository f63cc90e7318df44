// SPDX-License-Identifier: MIT
// A hash of each tensor's bytes, and where each would lie: what can be said of weights without a model.
#pragma once

#include <cstdint>
#include <vector>

#include "gguf/file.hpp"
#include "tinfer/placement.hpp"

namespace tinfer::gguf {

/// XXH64 of each tensor's bytes, in directory order; what is not in memory is read in pieces.
[[nodiscard]] std::vector<std::uint64_t> tensor_hashes(const File& file, const ProgressFn& progress);
/// Where load_data would put each tensor, in the order in which it meets them.
[[nodiscard]] std::vector<WeightPlacement> placement(const File& file, bool use_mmap,
                                                     const PagingPlan* paging = nullptr);

}  // namespace tinfer::gguf
