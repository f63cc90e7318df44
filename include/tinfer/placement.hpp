// SPDX-License-Identifier: MIT
// Where each weight would lie, before anything is loaded.
//
//     for (const tinfer::WeightPlacement& weight : tinfer::weight_placement("model.gguf", {.use_mmap = false}))
//         std::cout << weight.tensor << ": " << to_string(weight.place) << ", " << weight.bytes << " bytes\n";
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinfer/export.hpp"
#include "tinfer/model.hpp"

namespace tinfer {

/// In the mapping of its file, or in a buffer that it is read into. There is no third: kernels read the blocks of a
/// file as they are, nothing is repacked.
enum class WeightPlace : std::uint8_t { mapped, read };
[[nodiscard]] TINFER_API std::string_view to_string(WeightPlace place) noexcept;

struct WeightPlacement {
    std::string tensor;
    DType type = DType::f32;
    std::uint64_t bytes = 0;
    WeightPlace place = WeightPlace::mapped;
    int file_index = 0;             ///< shard
    std::uint64_t offset = 0;       ///< where it begins: in the file when mapped, in the buffer when read
    std::uint64_t file_offset = 0;  ///< in the file
};

/// In the order in which loading meets them: shard after shard, by offset. No tensor data is touched. Throws what
/// ModelFile::open does.
[[nodiscard]] TINFER_API std::vector<WeightPlacement> weight_placement(const std::filesystem::path& path,
                                                                       const ModelOptions& options = {});
[[nodiscard]] TINFER_API std::vector<WeightPlacement> weight_placement(std::span<const std::filesystem::path> shards,
                                                                       const ModelOptions& options = {});

}  // namespace tinfer
