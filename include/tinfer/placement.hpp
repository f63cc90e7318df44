// SPDX-License-Identifier: MIT
// Where weights lie. Chapters: places of weights, memory nodes.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinfer/base.hpp"
#include "tinfer/model.hpp"

// ================================================= places of weights =================================================
// Where each weight would lie, before anything is loaded.
//
//     for (const tinfer::WeightPlacement& weight : tinfer::weight_placement("model.gguf", {.use_mmap = false}))
//         std::cout << weight.tensor << ": " << to_string(weight.place) << ", " << weight.bytes << " bytes\n";
namespace tinfer {

/// In the mapping of its file; in a buffer that it is read into; or, of a model that is larger than
/// ModelOptions::memory_limit, at addresses that are there some of the time: of experts (`paged`) those that are in use
/// or often chosen, of other tensors (`streamed`) those that are next. Kernels read the blocks of a file as they are,
/// nothing is repacked.
enum class WeightPlace : std::uint8_t { mapped, read, paged, streamed };
[[nodiscard]] TINFER_API std::string_view to_string(WeightPlace place) noexcept;

struct WeightPlacement {
    std::string tensor;
    DType type = DType::f32;
    std::uint64_t bytes = 0;
    WeightPlace place = WeightPlace::mapped;
    int file_index = 0;             ///< shard
    std::uint64_t offset = 0;       ///< where it begins: in the buffer when read, else in the file
    std::uint64_t file_offset = 0;  ///< in the file
};

/// In the order in which loading meets them: shard after shard, by offset. No tensor data is touched. Throws what
/// ModelFile::open does, and with a memory limit or a part of the layers what Model::load does.
[[nodiscard]] TINFER_API std::vector<WeightPlacement> weight_placement(const std::filesystem::path& path,
                                                                       const ModelOptions& options = {});
[[nodiscard]] TINFER_API std::vector<WeightPlacement> weight_placement(std::span<const std::filesystem::path> shards,
                                                                       const ModelOptions& options = {});

/// How a model that is larger than its memory limit has fared since it was loaded, over all of its contexts. Units are
/// experts, or streamed tensors.
struct PagingCounts {
    std::uint64_t hits = 0, misses = 0;              ///< units that a step needed and found in memory, or did not find
    std::uint64_t bytes_read = 0;                    ///< of units
    double waited_s = 0;                             ///< steps waited for units
    std::uint64_t slot_bytes = 0;                    ///< room for units
    std::uint64_t used_bytes = 0;                    ///< of it
    std::uint64_t expert_bytes = 0;                  ///< of the largest unit
    bool is_direct = false;                          ///< reads pass the page cache by
    std::uint64_t ahead_used = 0, ahead_wasted = 0;  ///< units that were read ahead: needed then, or dropped before
    bool is_streamed = false;                        ///< units are tensors that every pass reads, in order
};
/// Nullopt where nothing of the model is paged. Any thread.
[[nodiscard]] TINFER_API std::optional<PagingCounts> paging_counts(const Model& model);

/// How often each expert of a layer was chosen by a step.
struct ExpertPicks {
    int layer = 0;
    std::vector<std::uint64_t> picks;  ///< by expert
    /// Of steps of one token behind another such step: picks, and those of them that the step before had made, too.
    std::uint64_t n_compared = 0, n_repeated = 0;
};
/// Since the model was loaded, over all of its contexts; empty where no experts are paged. Any thread.
[[nodiscard]] TINFER_API std::vector<ExpertPicks> expert_picks(const Model& model);
/// Lets a model begin warm: the experts that were picked most often (earlier, in expert_picks) are read into the room
/// for experts, by other threads, and count as picked. Nothing where no experts are paged; layers that are not there
/// are passed over. bad_parameter for another number of experts. Any thread.
TINFER_API void warm_experts(const Model& model, std::span<const ExpertPicks> picks);

}  // namespace tinfer

// =================================================== memory nodes ====================================================
// Memory nodes: on machines whose processors have memories of their own, pages lie where the thread that touches them
// first runs, and a model that one thread has loaded is far from all others.
//
//     const tinfer::InterleavedMemory interleaved;   // from here on, to the end of the scope
//     const auto model = tinfer::Model::load("model.gguf", {.populate = true});
//     std::cout << interleaved.text() << '\n';       // "1 memory node: nothing to interleave"
namespace tinfer {

/// While it lives, pages that the calling thread, and threads that it starts, are the first to touch lie on all nodes
/// in turn: weights that are read or faulted in, caches, scratch. What is in memory already stays where it is. The
/// destructor restores the calling thread's policy; it must run on the same thread. On machines with one node nothing
/// changes. No bit of any result depends on it.
class TINFER_API InterleavedMemory {
public:
    InterleavedMemory();
    ~InterleavedMemory();
    InterleavedMemory(const InterleavedMemory&) = delete;
    InterleavedMemory& operator=(const InterleavedMemory&) = delete;

    /// The nodes of this machine that have memory, ascending; {0} where the system lists none.
    [[nodiscard]] const std::vector<int>& nodes() const& noexcept { return nodes_; }
    [[nodiscard]] bool active() const noexcept { return is_set_; }
    /// What was done, or why nothing was: one line.
    [[nodiscard]] std::string text() const;
    const std::vector<int>& nodes() const&& = delete;

private:
    static constexpr int kMaxNodes = 1024;
    static constexpr int kWordBits = 8 * static_cast<int>(sizeof(unsigned long));
    std::vector<int> nodes_;
    std::array<unsigned long, kMaxNodes / kWordBits> before_{};
    int policy_before_ = 0;
    bool is_set_ = false;
    int error_ = 0;
};

}  // namespace tinfer
