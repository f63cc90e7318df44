// SPDX-License-Identifier: MIT
// Where each weight would lie, before anything is loaded.
//
//     for (const tinfer::WeightPlacement& weight : tinfer::weight_placement("model.gguf", {.use_mmap = false}))
//         std::cout << weight.tensor << ": " << to_string(weight.place) << ", " << weight.bytes << " bytes\n";
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinfer/export.hpp"
#include "tinfer/model.hpp"

namespace tinfer {

/// In the mapping of its file; in a buffer that it is read into; or, of the experts of a model that is larger than
/// ModelOptions::memory_limit, at addresses of which parts are there (`paged`). Kernels read the blocks of a file as
/// they are, nothing is repacked.
enum class WeightPlace : std::uint8_t { mapped, read, paged };
[[nodiscard]] TINFER_API std::string_view to_string(WeightPlace place) noexcept;

struct WeightPlacement {
    std::string tensor;
    DType type = DType::f32;
    std::uint64_t bytes = 0;
    WeightPlace place = WeightPlace::mapped;
    int file_index = 0;             ///< shard
    std::uint64_t offset = 0;       ///< where it begins: in the file when mapped or paged, in the buffer when read
    std::uint64_t file_offset = 0;  ///< in the file
};

/// In the order in which loading meets them: shard after shard, by offset. No tensor data is touched. Throws what
/// ModelFile::open does, and with a memory limit or a part of the layers what Model::load does.
[[nodiscard]] TINFER_API std::vector<WeightPlacement> weight_placement(const std::filesystem::path& path,
                                                                       const ModelOptions& options = {});
[[nodiscard]] TINFER_API std::vector<WeightPlacement> weight_placement(std::span<const std::filesystem::path> shards,
                                                                       const ModelOptions& options = {});

/// How a model that is larger than its memory limit has fared since it was loaded, over all of its contexts.
struct PagingCounts {
    std::uint64_t hits = 0, misses = 0;  ///< experts that a step chose and found in memory, or did not find
    std::uint64_t bytes_read = 0;        ///< of experts
    double waited_s = 0;                 ///< steps waited for experts
    std::uint64_t slot_bytes = 0;        ///< room for experts
    std::uint64_t used_bytes = 0;        ///< of it
    std::uint64_t expert_bytes = 0;      ///< of the largest expert
    bool is_direct = false;              ///< reads pass the page cache by
};
/// Nullopt where nothing of the model is paged. Any thread.
[[nodiscard]] TINFER_API std::optional<PagingCounts> paging_counts(const Model& model);

}  // namespace tinfer
