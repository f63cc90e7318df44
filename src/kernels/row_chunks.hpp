// SPDX-License-Identifier: MIT
// How the rows of a weight matrix are cut into chunks of work. With many columns a chunk is one panel. With few, reading is
// all there is: chunks begin long, because long runs of memory are read faster, and shrink towards the end, so that threads
// which do not begin or run alike still finish together (guided self-scheduling, doi:10.1109/TC.1987.5009495).
#pragma once

#include <algorithm>

#include "kernels/kernel.hpp"
#include "kernels/simd.hpp"

namespace tinfer::kernels {

inline constexpr std::int64_t kFewColumns = 4;          ///< with more, multiplying costs more than reading
inline constexpr std::int64_t kRowsTogether = 16;       ///< rows that products of few columns walk together
inline constexpr std::int64_t kLongestRun = 512 * 1024; ///< bytes of a chunk: about 30 µs of reading

/// What a thread will probably read next: from `begin` on, and for products of few columns from `second` on too. Up to `end`
/// it is of the step's own operands, which may be loaded before their turn; the rest may only be asked for.
struct Ahead {
    const std::byte* begin = nullptr;   ///< null: not known
    const std::byte* second = nullptr;
    const std::byte* end = nullptr;
};
/// Rows of a run that are walked as two streams, eight of each together; the second begins in the middle of them.
template <class Arch>
TINFER_INLINE std::int64_t rows_in_streams(std::int64_t n_rows) noexcept { return n_rows / kRowsTogether * kRowsTogether; }
/// What comes next where that is these rows of w.
template <class Arch>
TINFER_INLINE Ahead ahead_at(const std::byte* begin, std::int64_t n_rows, std::int64_t row_stride, const std::byte* end) noexcept {
    return {begin, begin + rows_in_streams<Arch>(n_rows) / 2 * row_stride, end};
}

template <class Arch>
class RowChunks {
public:
    /// `unit`: rows that a kernel walks together, the least a chunk may have.
    RowChunks(const Operand& w, std::int64_t n_columns, std::int64_t unit, int n_threads) noexcept
        : n_rows_(w.ne[1]), unit_(unit), n_units_((n_rows_ + unit - 1) / unit), shares_(2 * n_threads) {
        if (n_columns <= kFewColumns) most_ = std::max<std::int64_t>(kLongestRun / (unit * w.nb[1]), 1);
        for (std::int64_t at = 0; at < n_units_; at += units_of_chunk(at)) ++count_;
    }
    [[nodiscard]] std::int64_t count() const noexcept { return count_; }
    /// Rows of a chunk; chunks are asked for in ascending order.
    [[nodiscard]] Range rows(std::int64_t chunk) noexcept {
        for (; chunk_ < chunk; ++chunk_) begin_ += units_of_chunk(begin_);
        return {begin_ * unit_, std::min((begin_ + units_of_chunk(begin_)) * unit_, n_rows_)};
    }

private:
    [[nodiscard]] std::int64_t units_of_chunk(std::int64_t begin) const noexcept {
        return most_ == 1 ? 1 : std::clamp<std::int64_t>((n_units_ - begin) / shares_, 1, most_);
    }

    std::int64_t n_rows_, unit_, n_units_, shares_, most_ = 1, count_ = 0;
    std::int64_t chunk_ = 0, begin_ = 0;   ///< the chunk asked for last and its first unit
};

}  // namespace tinfer::kernels
