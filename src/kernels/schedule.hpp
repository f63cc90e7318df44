// SPDX-License-Identifier: MIT
// How the rows of a weight matrix are cut into chunks of work. They begin long and shrink towards the end, so that
// threads which do not begin or run alike still finish together (guided self-scheduling, doi:10.1109/TC.1987.5009495).
// With many columns a chunk is the panels that share one pass over the activations, or one. With less, reading is most
// of it, and long runs of memory are read faster. What comes next is read ahead of its use: where it lies, and how it
// is read meanwhile.
#pragma once

#include <algorithm>

#include "kernels/kernel.hpp"
#include "kernels/simd/vec.hpp"

namespace tinfer::kernels {

inline constexpr std::int64_t kRowsTogether = 16;        ///< rows of the shortest run
inline constexpr std::int64_t kLongestRun = 512 * 1024;  ///< bytes of a chunk: about 30 µs of reading
inline constexpr std::int64_t kShortestRun = 64 * 1024;  ///< bytes: the least that it shrinks to, but in small matrices
/// Multiply-adds of a chunk of several panels, at most, with a deadline: half a millisecond.
inline constexpr std::int64_t kMaxMacsOfShort = 1 << 26;

/// What a thread will probably read next: from `begin` on, and for products straight from rows in each stream of a run.
/// Up to `end` it is of the step's own operands, which may be loaded before their use; the rest may only be
/// prefetched.
struct Ahead {
    const std::byte* begin = nullptr;  ///< null: not known
    std::int64_t stream_bytes = 0;     ///< from one stream to the next
    const std::byte* end = nullptr;
};
/// Rows of a run are read as so many streams, the first row of each together, then the second, …; the last one may be
/// shorter. Where eight rows go together they are of eight: two neighbours of four streams were read a third slower.
template <class Arch>
inline constexpr std::int64_t kStreams = Arch::kStreams;
template <class Arch>
TINFER_INLINE std::int64_t rows_of_stream(std::int64_t n_rows) noexcept {
    return (n_rows + kStreams<Arch> - 1) / kStreams<Arch>;
}
/// What comes next where that is these rows of w.
template <class Arch>
TINFER_INLINE Ahead ahead_at(const std::byte* begin, std::int64_t n_rows, std::int64_t row_stride,
                             const std::byte* end) noexcept {
    return {begin, rows_of_stream<Arch>(n_rows) * row_stride, end};
}

/// Reads what comes next while a panel is worked, for products of so few columns that reading counts: in ascending
/// order, because the processor's own prefetcher follows that, and a line or two at a time, because a processor has few
/// buffers for lines on their way and can do nothing else once it waits for many of them.
class ReadAhead {
public:
    TINFER_INLINE ReadAhead() noexcept {}  ///< reads nothing
    /// `bytes` from ahead.begin on in n_shares calls.
    TINFER_INLINE ReadAhead(const Ahead& ahead, std::int64_t bytes, std::int64_t n_shares) noexcept
        : at_(ahead.begin), own_end_(ahead.end), end_(ahead.begin + bytes), share_(bytes / n_shares + 1) {}
    [[nodiscard]] TINFER_INLINE bool reads() const noexcept { return share_ != 0; }
    TINFER_INLINE void read_share() noexcept {
        if (share_ == 0) return;  // all there is to it with many columns
        due_ += share_;
        for (; due_ >= 64 && at_ < end_; due_ -= 64, at_ += 64) {
            __builtin_prefetch(at_ + (at_ < own_end_ ? kEarlier : 0), 0, 2);
            if (at_ < own_end_) static_cast<void>(*reinterpret_cast<const volatile std::byte*>(at_));
        }
    }

private:
    static constexpr std::int64_t kEarlier = 2560;
    const std::byte *at_ = nullptr, *own_end_ = nullptr, *end_ = nullptr;
    std::int64_t share_ = 0, due_ = 0;
};

/// Rows of one of the matrices that a product multiplies; `matrix` counts those, not all of a stack.
struct RowRun {
    std::int64_t matrix;
    Range rows;
};

template <class Arch>
class RowChunks {
public:
    /// Of n_matrices matrices as w's, one behind the other, where reading is most of the work. `unit`: rows that a
    /// kernel reads together, the least a chunk may have. No chunk has rows of two matrices.
    [[nodiscard]] static RowChunks to_read(const Operand& w, std::int64_t n_matrices, std::int64_t unit,
                                           int n_threads) noexcept {
        const std::int64_t bytes = unit * w.nb[1];
        RowChunks chunks(w, n_matrices, unit, n_threads, std::max<std::int64_t>(kLongestRun / bytes, 1));
        chunks.least_ = std::max<std::int64_t>(std::min(chunks.end_ / (2 * n_threads), kShortestRun / bytes), 1);
        chunks.count_chunks();
        return chunks;
    }
    /// The same where it is not: of up to `together` units.
    [[nodiscard]] static RowChunks to_multiply(const Operand& w, std::int64_t n_matrices, std::int64_t unit,
                                               std::int64_t together, int n_threads) noexcept {
        RowChunks chunks(w, n_matrices, unit, n_threads == 1 ? 1 : 2 * n_threads, together);
        chunks.count_chunks();
        return chunks;
    }
    [[nodiscard]] std::int64_t count() const noexcept { return count_; }
    /// Rows of a chunk. Chunks are requested in ascending order; to look further ahead, ask a copy.
    [[nodiscard]] RowRun run(std::int64_t chunk) noexcept {
        if (most_ == 1) begin_ = chunk_ = chunk;
        for (; chunk_ < chunk; ++chunk_) begin_ += units_of_chunk(begin_);
        const std::int64_t matrix = begin_ / n_units_, first = begin_ - matrix * n_units_;
        return {matrix, {first * unit_, std::min((first + units_of_chunk(begin_)) * unit_, n_rows_)}};
    }

private:
    RowChunks(const Operand& w, std::int64_t n_matrices, std::int64_t unit, std::int64_t shares,
              std::int64_t most) noexcept
        : n_rows_(w.ne[1]), unit_(unit), n_units_((n_rows_ + unit - 1) / unit), end_(n_matrices * n_units_),
          shares_(shares), most_(most) {}
    void count_chunks() noexcept {
        if (most_ == 1) count_ = end_;
        else
            for (std::int64_t at = 0; at < end_; at += units_of_chunk(at)) ++count_;
    }
    [[nodiscard]] std::int64_t units_of_chunk(std::int64_t begin) const noexcept {
        const std::int64_t units = std::min(std::max((end_ - begin) / shares_, least_), most_);
        return std::min(units, n_units_ - (end_ == n_units_ ? begin : begin % n_units_));
    }

    std::int64_t n_rows_, unit_, n_units_;
    std::int64_t end_;            ///< units of all matrices
    std::int64_t shares_, most_;  ///< a chunk is one share of what is left, between least_ and most_
    std::int64_t least_ = 1, count_ = 0;
    std::int64_t chunk_ = 0, begin_ = 0;  ///< the chunk requested last and its first unit
};

}  // namespace tinfer::kernels
