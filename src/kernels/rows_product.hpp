// SPDX-License-Identifier: MIT
// Products of few columns, straight from the rows of the file: which rows are walked together, and what is asked of memory
// ahead of them.
#pragma once

#include <cstring>

#include "kernels/panel_job.hpp"
#include "kernels/quants/quantize_activation.hpp"
#include "kernels/rows_avx512_blocks.hpp"
#include "kernels/rows_turned.hpp"
#include "kernels/rows_unpacked.hpp"

namespace tinfer::kernels {

/// The activations of n columns.
template <class Arch, class Format>
TINFER_INLINE void activations_of(const PanelJob<Arch>& job, std::int64_t n, Activations* x) noexcept {
    constexpr DType kType = Format::kUnit == 256 ? DType::x8_256 : DType::x8_32;
    for (std::int64_t t = 0; t < n; ++t) x[t] = activation_parts<Arch>(kType, job.k, const_cast<std::byte*>(job.columns[t].x));
}

#if defined(__AVX512VNNI__)
/// Straight from the rows: a token by rows as they lie, several by rows turned, in one pass or two. More of them are better met
/// by panels, which are decoded once.
template <class Arch, class Format>
struct RowsProduct {
    /// Formats of which even the second of two passes of eight is faster than panels are.
    static constexpr bool kTwoPasses = Format::kType == DType::q4_k || Format::kType == DType::q6_k || Format::kType == DType::iq4_xs ||
        Format::kType == DType::q8_0;
    static constexpr std::int64_t kMostColumns = kTwoPasses ? 16 : 12;

    static void multiply(const PanelJob<Arch>& job) noexcept {
        Activations x[kMostColumns + 1];
        activations_of<Arch, Format>(job, job.n_columns, x);
        x[job.n_columns] = x[0];   // a pass may take one token more than there are
        if constexpr (Format::kUnit == 256) {
            if (job.n_columns > 1) return multiply_turned(job, x);
            walk<FourRows>(job, [&](const FourRows& rows, float (*results)[4]) {
                multiply_super_rows<Arch, Format>(rows, job.k / 256, x[0], results[0]);
            });
        } else {
            if (job.n_columns > 2) return multiply_turned(job, x);
            if (job.n_columns == 2) return multiply_blocks<2>(job, x);
            if constexpr (!WholeBlocks<Format>::kAlwaysSixteen)
                if (job.row_stride >= kLongRow)
                    return walk<FourRows>(job, [&](const FourRows& rows, float (*results)[4]) {
                        multiply_four_block_rows<Arch, Format>(rows, job.k / 32, x[0], results[0]);
                    });
            multiply_blocks<1>(job, x);
        }
    }

private:
    template <int T>
    static void multiply_blocks(const PanelJob<Arch>& job, const Activations* x) noexcept {
        const std::int64_t n_blocks = job.k / 32;
        const auto product = [&]<class Rows>(const Rows& rows, float (*results)[Rows::kRows]) {
            multiply_block_rows<Arch, Format, T>(rows, n_blocks, x, results);
        };
        const bool has_half_groups = n_blocks % 4 == 2, lies_dense = job.row_stride == n_blocks * Format::kBlockBytes;
        const std::int64_t first = has_half_groups && lies_dense ? walk_whole<SixteenPairs>(job, product) : 0;
        walk<SixteenRows>(job, product, first);
    }
    static void multiply_turned(const PanelJob<Arch>& job, const Activations* x) noexcept {
        constexpr int kTokens = kTurnedTokens<Format>;
        const std::int64_t n_passes = (job.n_columns + kTokens - 1) / kTokens;
        walk<SixteenRows>(job, [&](const SixteenRows& rows, float (*results)[16]) {
            for (std::int64_t pass = 0, first = 0, n; pass < n_passes; ++pass, first += n) {   // of even size
                n = (job.n_columns - first + n_passes - pass - 1) / (n_passes - pass);
                multiply_pass<kTokens>(rows, job.k, static_cast<int>(n), x + first, pass == 0, results + first);
            }
        });
    }
    /// T: even where it is more than eight.
    template <int T>
    static void multiply_pass(const SixteenRows& rows, std::int64_t k, int n, const Activations* x, bool asks, float (*results)[16]) noexcept {
        constexpr int kLess = T > 8 ? T - 2 : T - 1;
        if constexpr (kLess > 1)
            if (n <= kLess) return multiply_pass<kLess>(rows, k, n, x, asks, results);
        multiply_turned_rows<Arch, Format, T>(rows, k, x, asks, results);
    }

    static constexpr std::int64_t kNotice = 2048;     ///< bytes of a stream that memory wants to be asked ahead
    static constexpr std::int64_t kLongRow = 1024;    ///< bytes of a row that make a stream of its own

    /// The rows of a run, from `first` of each stream on.
    template <class Rows, class Product>
    static void walk(const PanelJob<Arch>& job, Product product, std::int64_t first = 0) noexcept {
        const std::int64_t length = rows_of_stream<Arch>(job.n_rows);
        for (; first < length; first += Rows::kRows / kStreams) walk_group<Rows>(job, first, product);
    }
    /// The same from the first on, as long as all of a group are there: where it ended.
    template <class Rows, class Product>
    static std::int64_t walk_whole(const PanelJob<Arch>& job, Product product) noexcept {
        std::int64_t first = 0;
        for (; is_whole<Rows>(job, first); first += Rows::kRows / kStreams) walk_group<Rows>(job, first, product);
        return first;
    }
    template <class Rows>
    static bool is_whole(const PanelJob<Arch>& job, std::int64_t first) noexcept {
        const std::int64_t length = rows_of_stream<Arch>(job.n_rows), end = first + Rows::kRows / kStreams;
        return (kStreams - 1) * length + end <= job.n_rows && end <= length;
    }
    /// Each stream is asked for kNotice bytes ahead: of short rows, which are walked side by side, in whole rows. Behind its last
    /// ones comes its place in the run that follows.
    template <class Rows, class Product>
    static void walk_group(const PanelJob<Arch>& job, std::int64_t first, Product product) noexcept {
        constexpr int kNeighbours = Rows::kRows / kStreams;
        const std::int64_t length = rows_of_stream<Arch>(job.n_rows);
        const std::int64_t early = std::max<std::int64_t>((kNotice + job.row_stride - 1) / job.row_stride, kNeighbours);
        const bool whole = is_whole<Rows>(job, first);
        const bool follows = first + early + kNeighbours <= length || job.ahead.begin == nullptr;
        Rows rows;
        if (whole && follows) point_at_whole(job, first, length, early, rows);
        else point_at_some(job, first, length, early, whole, follows, rows);
        alignas(64) float results[kMostColumns + 1][Rows::kRows];
        product(rows, results);
        for (int s = 0; s < kStreams; ++s) {
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
        constexpr int kNeighbours = Rows::kRows / kStreams, kPerStream = kNeighbours / Rows::kPerLane;
        const std::int64_t step = Rows::kPerLane * job.row_stride;
        const std::int64_t ahead = kNeighbours == 1 ? std::min(early * job.row_stride, kNotice) : early * job.row_stride;
        const std::byte* stream = job.w + first * job.row_stride;
#pragma GCC unroll 4
        for (int s = 0; s < kStreams; ++s, stream += length * job.row_stride) {
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
        constexpr int kNeighbours = Rows::kRows / kStreams;
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
#endif

#if defined(__AVX2__)
/// Straight from the rows, unpacked block by block: a token, of super-blocks two. With more, panels are unpacked once.
template <class Arch, class Format>
struct UnpackedRowsProduct {
    static constexpr std::int64_t kMostColumns = Format::kUnit == 256 ? 2 : 1;
    static void multiply(const PanelJob<Arch>& job) noexcept {
        if (kMostColumns == 1 || job.n_columns == 1) multiply_columns<1>(job);
        else multiply_columns<kMostColumns>(job);
    }

private:
    template <int T>
    static void multiply_columns(const PanelJob<Arch>& job) noexcept {
        Activations x[T];
        activations_of<Arch, Format>(job, T, x);
        const auto row = [&](int r) { return reinterpret_cast<const std::uint8_t*>(job.w + std::min(r, job.n_rows - 1) * job.row_stride); };
        if constexpr (Format::kUnit == 256) {
            for (int r = 0; r < job.n_rows; ++r) {
                float results[T];
                multiply_unpacked_row<Arch, Format, T>(row(r), job.k, x, results);
                for (int t = 0; t < T; ++t) store_results(job, t, r, 1, &results[t]);
            }
        } else {
            static_assert(T == 1);
            for (int first = 0; first < job.n_rows; first += 8) {
                const EightBlocks rows = {row(first), row(first + 1), row(first + 2), row(first + 3),
                    row(first + 4), row(first + 5), row(first + 6), row(first + 7)};
                alignas(32) float results[8];
                multiply_eight_unpacked_rows<Arch, Format>(rows, job.k, x[0], results);
                store_results(job, 0, first, std::min(8, job.n_rows - first), results);
            }
        }
    }
};
#endif

}  // namespace tinfer::kernels
