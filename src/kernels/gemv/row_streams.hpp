// SPDX-License-Identifier: MIT
// How products of few columns read the rows of a run: streams of it side by side, and what is prefetched ahead of them.
#pragma once

#include <cstring>

#include "kernels/pack/job.hpp"
#include "kernels/quants/activation_q8.hpp"
#include "kernels/simd/prefetch.hpp"

namespace tinfer::kernels {

/// Rows that are read together: as many neighbours of each stream of a run, and what will follow in the place of each.
/// That is prefetched block by block, early enough for memory to answer. Each may be the first of PerLane rows that lie
/// one behind the other.
template <int N, int PerLane = 1>
struct RowGroup {
    static constexpr int kPerLane = PerLane, kRows = N * PerLane;
    static constexpr std::int64_t kPrefetchDistance =
        0;  ///< bytes ahead of groups that are always prefetched into L1; 0: of others
    const std::uint8_t* row[N];
    const std::byte* next[N];
    bool to_l1;  ///< into L1
    template <int Bytes>
    TINFER_INLINE void prefetch(int r, std::int64_t at) const {
        prefetch_lines<Bytes>(next[r] + at, to_l1);
    }
};

/// What follows the rows of a group is prefetched a few rows at a time, while their sub-blocks are multiplied: of what
/// is prefetched all at once, more than a processor has buffers for, much is dropped.
template <class Rows>
struct PrefetchAhead {
    const Rows* rows;  ///< null: nothing is
    std::int64_t at;
    /// Its share of sub-block j of n.
    template <int Bytes, int n>
    TINFER_INLINE void prefetch(int j) const noexcept {
        if (rows == nullptr) return;
        if constexpr (Rows::kRows < n) {
            constexpr int kEach = n / Rows::kRows;
            if (j % kEach == 0) rows->template prefetch<Bytes>(j / kEach, at);
        } else {
            constexpr int kRows = Rows::kRows / n;
#pragma GCC unroll 2
            for (int r = 0; r < kRows; ++r) rows->template prefetch<Bytes>(kRows * j + r, at);
        }
    }
};

/// The activations of n columns.
template <class Arch, class Format>
TINFER_INLINE void activations_of(const PanelJob& job, std::int64_t n, Activations* x) noexcept {
    constexpr DType kType = Format::kUnit == 256 ? DType::x8_256 : DType::x8_32;
    for (std::int64_t t = 0; t < n; ++t)
        x[t] = activation_parts<Arch>(kType, job.k, const_cast<std::byte*>(job.columns[t].x));
}

/// Streams of a run that groups of rows are read from: sixteen rows of one stream each meet memory evenly, as sixteen
/// of four streams do not (docs/kernels.md, 6).
template <class Arch, class Rows>
inline constexpr int kStreamsOf = Rows::kRows / Rows::kPerLane == 16 ? 16 : kStreams<Arch>;

/// Reads the rows of a run, group by group, and stores what they give for up to MostColumns columns.
template <class Arch, std::int64_t MostColumns>
struct RowStreams {
    /// The rows of a run, from `first` of each stream on.
    template <class Rows, class Product>
    static void for_each_group(const PanelJob& job, Product product, std::int64_t first = 0) noexcept {
        const StreamPlan<Rows> plan(job);
        first = run_even_groups(job, plan, first, product);
        for (; first < plan.length; first += StreamPlan<Rows>::kNeighbours) run_group(job, plan, first, product);
    }
    /// The same from the first on, as long as all of a group are there: where it ended.
    template <class Rows, class Product>
    static std::int64_t for_each_whole_group(const PanelJob& job, Product product) noexcept {
        const StreamPlan<Rows> plan(job);
        std::int64_t first = run_even_groups(job, plan, 0, product);
        for (; first + StreamPlan<Rows>::kNeighbours <= plan.whole; first += StreamPlan<Rows>::kNeighbours)
            run_group(job, plan, first, product);
        return first;
    }

private:
    /// Each stream is prefetched some bytes ahead: of short rows, which are read side by side, in whole rows. Behind
    /// its last ones comes its place in the run that follows.
    template <class Rows>
    struct StreamPlan {
        static constexpr int kNeighbours = Rows::kRows / kStreamsOf<Arch, Rows>;
        /// Eight streams or more at once are fetched by the processor itself as far as L2, so that a prefetch into L1
        /// is answered quickly.
        static constexpr std::int64_t kPrefetchDistance = kStreamsOf<Arch, Rows> >= 8 ? 512 : Rows::kPrefetchDistance;
        explicit StreamPlan(const PanelJob& job) noexcept
            : to_l1(kPrefetchDistance != 0 || job.processor.prefetch_to_l1),
              length((job.n_rows + kStreamsOf<Arch, Rows> - 1) / kStreamsOf<Arch, Rows>) {
            const std::int64_t distance = kStreams<Arch> == 4 && job.processor.prefetch_to_l1 ? 2048
                                          : kPrefetchDistance != 0                            ? kPrefetchDistance
                                                                                              : 512;
            early = std::max<std::int64_t>((distance + job.row_stride - 1) / job.row_stride, kNeighbours);
            bytes = kNeighbours == 1 ? std::min(early * job.row_stride, distance) : early * job.row_stride;
            whole = std::min(length, job.n_rows - (kStreamsOf<Arch, Rows> - 1) * length);
            even = job.ahead.begin == nullptr ? whole : std::min(whole, length - early);
        }
        bool to_l1;                 ///< into L1
        std::int64_t length;        ///< rows of a stream
        std::int64_t early, bytes;  ///< prefetch distance, in rows, and within a stream
        std::int64_t whole;         ///< rows that all streams have
        std::int64_t even;          ///< of these, those behind which others of their own stream are prefetched
    };

    /// Groups all of which are read alike: where they end.
    template <class Rows, class Product>
    static std::int64_t run_even_groups(const PanelJob& job, const StreamPlan<Rows>& plan, std::int64_t first,
                                        Product product) noexcept {
        constexpr int kNeighbours = StreamPlan<Rows>::kNeighbours, kPerStream = kNeighbours / Rows::kPerLane,
                      kPointers = kStreamsOf<Arch, Rows> * kPerStream;
        Rows rows;
        rows.to_l1 = plan.to_l1;
        for (int i = 0; i < kPointers; ++i) {
            const std::int64_t row = i / kPerStream * plan.length + first + i % kPerStream * Rows::kPerLane;
            rows.row[i] = reinterpret_cast<const std::uint8_t*>(job.w) + row * job.row_stride;
            rows.next[i] = job.w + row * job.row_stride + plan.bytes;
        }
        alignas(64) float results[MostColumns + 1][Rows::kRows];
        for (; first + kNeighbours <= plan.even; first += kNeighbours) {
            product(rows, results);
            store_whole<Rows>(job, first, plan.length, results);
            for (int i = 0; i < kPointers; ++i) {
                rows.row[i] += kNeighbours * job.row_stride;
                rows.next[i] += kNeighbours * job.row_stride;
            }
        }
        return first;
    }
    /// A group of which some rows may not be there: they are the last one.
    template <class Rows, class Product>
    [[gnu::noinline]] static void run_group(const PanelJob& job, const StreamPlan<Rows>& plan, std::int64_t first,
                                            Product product) noexcept {
        constexpr int kNeighbours = StreamPlan<Rows>::kNeighbours;
        constexpr int kOfOne = kStreamsOf<Arch, Rows> / kStreams<Arch>;  // streams that one of Ahead is cut into
        const std::int64_t length = plan.length,
                           ahead_rows = (job.ahead.stream_bytes / job.row_stride + kOfOne - 1) / kOfOne;
        const bool whole = first + kNeighbours <= plan.whole,
                   follows = first + plan.early + kNeighbours <= length || job.ahead.begin == nullptr;
        Rows rows;
        rows.to_l1 = plan.to_l1;
        for (int at = 0; at < Rows::kRows; at += Rows::kPerLane) {
            const std::int64_t s = at / kNeighbours, i = first + at % kNeighbours;
            const std::int64_t row = whole ? s * length + i : std::min<std::int64_t>(s * length + i, job.n_rows - 1);
            const std::byte* begin = job.w + row * job.row_stride;
            const bool inside = follows || i + plan.early < length;
            rows.row[at / Rows::kPerLane] = reinterpret_cast<const std::uint8_t*>(begin);
            rows.next[at / Rows::kPerLane] =
                inside ? begin + plan.bytes
                       : job.ahead.begin + (s * ahead_rows + i + plan.early - length) * job.row_stride;
        }
        alignas(64) float results[MostColumns + 1][Rows::kRows];
        product(rows, results);
        if (whole) return store_whole<Rows>(job, first, length, results);
        for (int s = 0; s < kStreamsOf<Arch, Rows>; ++s) {
            const std::int64_t row = s * length + first,
                               n = std::min<std::int64_t>({length - first, job.n_rows - row, kNeighbours});
            for (std::int64_t t = 0; t < job.n_columns && n > 0; ++t)
                store_few_results<Arch>(job, t, static_cast<int>(row), static_cast<int>(n),
                                        results[t] + s * kNeighbours);
        }
    }
    template <class Rows>
    static TINFER_INLINE void store_whole(const PanelJob& job, std::int64_t first, std::int64_t length,
                                          const float (*results)[Rows::kRows]) noexcept {
        constexpr int kNeighbours = Rows::kRows / kStreamsOf<Arch, Rows>;
        for (std::int64_t t = 0; t < job.n_columns; ++t) {
            const Column& column = job.columns[t];
            float* out = column.out + job.first_row + first;
            const float* addend = column.addend == nullptr ? nullptr : column.addend + job.first_row + first;
#pragma GCC unroll 8
            for (int s = 0; s < kStreamsOf<Arch, Rows>; ++s, out += length) {
                const float* of = results[t] + s * kNeighbours;
                if (addend == nullptr) std::memcpy(out, of, kNeighbours * sizeof(float));
                else
                    for (int i = 0; i < kNeighbours; ++i) out[i] = of[i] + addend[s * length + i];
            }
        }
    }
};

}  // namespace tinfer::kernels
