// SPDX-License-Identifier: MIT
// The choice of an indexer for one query and list: which keys have to be scored, and which KV slots the scores choose.
// Tables compute scores in their own ways; everything else is here, once.
#pragma once

#include <cstdint>

#include "kernels/kernel.hpp"

namespace tinfer::kernels {

/// Tokens that a query of select_keys may see: a sequence has no more than there are KV slots, and without keys a list
/// of all blocks has room for them. Always inlined, as below.
[[nodiscard, gnu::always_inline]] inline std::int64_t most_visible(const StepShape& shape) noexcept {
    return shape[2].present() ? shape[2].ne[1] : (shape[0].ne[0] + 1) * shape.params.block;
}

class KeySelection {
public:
    /// `group`: which list, where heads have their own. Works in the thread's scratch (scratch_keys).
    KeySelection(const KernelCall& call, WorkSlice slice, std::int64_t token, std::int64_t group) noexcept;

    // Always inlined: files compiled for different instruction sets must share no function.
    /// KV slots whose keys have to be scored: none where all tokens are chosen anyway, or where there are no keys.
    [[nodiscard, gnu::always_inline]] std::int64_t n_scored() const noexcept { return n_scored_; }
    [[nodiscard, gnu::always_inline]] const std::int32_t* scored() const noexcept { return scored_; }
    /// Their scores, to be filled.
    [[nodiscard, gnu::always_inline]] float* scores() const noexcept { return scores_; }
    /// Writes the list: KV slots in ascending ordinals, then −1.
    void list() noexcept;

private:
    [[nodiscard]] std::int64_t choose(std::int64_t n, std::int64_t k, std::int64_t first_local) noexcept;
    [[nodiscard]] std::int64_t list_tokens(std::int32_t* list) noexcept;
    [[nodiscard]] std::int64_t list_blocks(std::int32_t* list) noexcept;
    [[nodiscard]] std::int64_t list_whole_blocks(std::int32_t* list) noexcept;
    [[nodiscard]] std::int64_t block_of(std::int64_t i) const noexcept;

    const KernelCall& call_;
    const std::int64_t token_, group_;
    float* scores_;
    std::int32_t *kv_slots_, *order_;  ///< those visible; places among the candidates
    const std::int32_t* scored_;
    std::int64_t n_ = 0, n_scored_ = 0;
};

}  // namespace tinfer::kernels
