// SPDX-License-Identifier: MIT
// How products of few columns walk the rows of a run: streams of it side by side, and what is asked of memory ahead of them.
#pragma once

#include <cstring>

#include "kernels/ask_for.hpp"
#include "kernels/panel_job.hpp"
#include "kernels/quants/quantize_activation.hpp"

namespace tinfer::kernels {

/// Rows that are walked together: as many neighbours of each stream of a run, and what will follow in the place of each. That
/// is asked for block by block, early enough for memory to answer. Each may be the first of PerLane rows that lie one behind
/// the other.
template <int N, int PerLane = 1>
struct RowGroup {
    static constexpr int kPerLane = PerLane, kRows = N * PerLane;
    const std::uint8_t* row[N];
    const std::byte* next[N];
    bool near;   ///< into the first level of the caches
    template <int Bytes>
    TINFER_INLINE void ask(int r, std::int64_t at) const { ask_for<Bytes>(next[r] + at, near); }
};

/// What follows the rows of a group is asked for a few rows at a time, while their sub-blocks are multiplied: of what is asked for
/// all at once, more than a processor has buffers for, much is dropped.
template <class Rows>
struct AskAhead {
    const Rows* rows;   ///< null: nothing is
    std::int64_t at;
    /// Its share of sub-block j of n.
    template <int Bytes, int n>
    TINFER_INLINE void ask(int j) const noexcept {
        if (rows == nullptr) return;
        if constexpr (Rows::kRows < n) {
            constexpr int kEach = n / Rows::kRows;
            if (j % kEach == 0) rows->template ask<Bytes>(j / kEach, at);
        } else {
            constexpr int kRows = Rows::kRows / n;
#pragma GCC unroll 2
            for (int r = 0; r < kRows; ++r) rows->template ask<Bytes>(kRows * j + r, at);
        }
    }
};

/// The activations of n columns.
template <class Arch, class Format>
TINFER_INLINE void activations_of(const PanelJob<Arch>& job, std::int64_t n, Activations* x) noexcept {
    constexpr DType kType = Format::kUnit == 256 ? DType::x8_256 : DType::x8_32;
    for (std::int64_t t = 0; t < n; ++t) x[t] = activation_parts<Arch>(kType, job.k, const_cast<std::byte*>(job.columns[t].x));
}

/// Walks the rows of a run, group by group, and stores what they give for up to MostColumns columns.
template <class Arch, std::int64_t MostColumns>
struct RowWalk {
    /// The rows of a run, from `first` of each stream on.
    template <class Rows, class Product>
    static void walk(const PanelJob<Arch>& job, Product product, std::int64_t first = 0) noexcept {
        const std::int64_t length = rows_of_stream<Arch>(job.n_rows);
        for (; first < length; first += Rows::kRows / kStreams<Arch>) walk_group<Rows>(job, first, product);
    }
    /// The same from the first on, as long as all of a group are there: where it ended.
    template <class Rows, class Product>
    static std::int64_t walk_whole(const PanelJob<Arch>& job, Product product) noexcept {
        std::int64_t first = 0;
        for (; is_whole<Rows>(job, first); first += Rows::kRows / kStreams<Arch>) walk_group<Rows>(job, first, product);
        return first;
    }

private:
    /// How rows are asked for: near, into the first level. Eight streams at once are fetched by the processor itself as far as the
    /// second level, so that a near request is answered soon.
    static bool asks_near(const PanelJob<Arch>& job) noexcept { return kStreams<Arch> == 8 || job.asks_near; }
    /// Bytes of a stream that are asked for ahead.
    static std::int64_t notice(const PanelJob<Arch>& job) noexcept { return kStreams<Arch> == 8 || !job.asks_near ? 512 : 2048; }

    template <class Rows>
    static bool is_whole(const PanelJob<Arch>& job, std::int64_t first) noexcept {
        const std::int64_t length = rows_of_stream<Arch>(job.n_rows), end = first + Rows::kRows / kStreams<Arch>;
        return (kStreams<Arch> - 1) * length + end <= job.n_rows && end <= length;
    }
    /// Each stream is asked for some bytes ahead: of short rows, which are walked side by side, in whole rows. Behind its last
    /// ones comes its place in the run that follows.
    template <class Rows, class Product>
    static void walk_group(const PanelJob<Arch>& job, std::int64_t first, Product product) noexcept {
        constexpr int kNeighbours = Rows::kRows / kStreams<Arch>;
        const std::int64_t length = rows_of_stream<Arch>(job.n_rows);
        const std::int64_t early = std::max<std::int64_t>((notice(job) + job.row_stride - 1) / job.row_stride, kNeighbours);
        const bool whole = is_whole<Rows>(job, first);
        const bool follows = first + early + kNeighbours <= length || job.ahead.begin == nullptr;
        Rows rows;
        rows.near = asks_near(job);
        if (whole && follows) point_at_whole(job, first, length, early, rows);
        else point_at_some(job, first, length, early, whole, follows, rows);
        alignas(64) float results[MostColumns + 1][Rows::kRows];
        product(rows, results);
        for (int s = 0; s < kStreams<Arch>; ++s) {
            const std::int64_t row = s * length + first, n = whole ? kNeighbours : std::min(length - first, job.n_rows - row);
            for (std::int64_t t = 0; t < job.n_columns && n > 0; ++t) {
                const float* of = results[t] + s * kNeighbours;
                if (whole && job.columns[t].addend == nullptr) std::memcpy(job.columns[t].out + job.first_row + row, of, kNeighbours * sizeof(float));
                else store_few_results(job, t, static_cast<int>(row), static_cast<int>(std::min<std::int64_t>(n, kNeighbours)), of);
            }
        }
    }
    template <class Rows>
    static TINFER_INLINE void point_at_whole(const PanelJob<Arch>& job, std::int64_t first, std::int64_t length, std::int64_t early, Rows& rows) noexcept {
        constexpr int kNeighbours = Rows::kRows / kStreams<Arch>, kPerStream = kNeighbours / Rows::kPerLane;
        const std::int64_t step = Rows::kPerLane * job.row_stride;
        const std::int64_t ahead = kNeighbours == 1 ? std::min(early * job.row_stride, notice(job)) : early * job.row_stride;
        const std::byte* stream = job.w + first * job.row_stride;
#pragma GCC unroll 4
        for (int s = 0; s < kStreams<Arch>; ++s, stream += length * job.row_stride) {
            const std::byte* begin = stream;
#pragma GCC unroll 4
            for (int i = 0; i < kPerStream; ++i, begin += step) {
                rows.row[s * kPerStream + i] = reinterpret_cast<const std::uint8_t*>(begin);
                rows.next[s * kPerStream + i] = begin + ahead;
            }
        }
    }
    /// Rows that are not there are the last one.
    template <class Rows>
    [[gnu::noinline]] static void point_at_some(const PanelJob<Arch>& job, std::int64_t first, std::int64_t length, std::int64_t early,
                                                bool whole, bool follows, Rows& rows) noexcept {
        constexpr int kNeighbours = Rows::kRows / kStreams<Arch>;
        for (int at = 0; at < Rows::kRows; at += Rows::kPerLane) {
            const std::int64_t s = at / kNeighbours, i = first + at % kNeighbours;
            const std::int64_t row = whole ? s * length + i : std::min<std::int64_t>(s * length + i, job.n_rows - 1);
            const std::byte* begin = job.w + row * job.row_stride;
            const bool inside = follows || i + early < length;
            rows.row[at / Rows::kPerLane] = reinterpret_cast<const std::uint8_t*>(begin);
            rows.next[at / Rows::kPerLane] = inside ? begin + early * job.row_stride
                                                    : job.ahead.begin + s * job.ahead.stream_bytes + (i + early - length) * job.row_stride;
        }
    }
};

}  // namespace tinfer::kernels
