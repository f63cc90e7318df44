// SPDX-License-Identifier: MIT
// A panel of rows of float weights times its columns. Few columns meet the file's rows directly. With many, a slice of K
// of the panel is widened once, and columns pass it in groups: a group's activations lie in the first level while all rows
// of half a panel meet them, and each of its sums, sixteen lanes wide, waits in scratch from slice to slice. The order of
// additions in every lane is that of the direct way, so are the bits.
#pragma once

#include "kernels/float_tile.hpp"
#include "kernels/product.hpp"

namespace tinfer::kernels {

template <class Arch, DType Type>
struct FloatWeights {
    static constexpr DType kType = Type;
    struct Session {};
    static constexpr bool takes_runs(std::int64_t) noexcept { return false; }
    static constexpr bool gathers(std::int64_t) noexcept { return false; }

    /// The widened slice and the sums of a block of columns, where columns are many.
    static std::uint64_t scratch_bytes(std::int64_t n_columns) noexcept { return n_columns < kMany ? 0 : sizeof(Scratch); }

    static void multiply(const PanelJob<Arch>& job) noexcept {
        if (job.n_columns < kMany) return multiply_directly(job);
        for (std::int64_t first = 0; first < job.n_columns; first += kBlock)
            multiply_block(job, first, static_cast<int>(std::min<std::int64_t>(job.n_columns - first, kBlock)));
    }

private:
    static constexpr int kRows = kFloatRows<Arch>, kColumns = kFloatColumns<Arch>, kPanel = kPanelRows<Arch>;
    static constexpr int kHalf = kPanel / 2;             ///< rows whose widened slice stays in the first level
    static constexpr int kMany = 3 * kColumns;           ///< with fewer, widening costs more than it saves
    static constexpr int kBlock = 260 / kColumns * kColumns;   ///< columns whose sums stay in the second level

    struct alignas(64) Scratch {
        float w[kPanel][kFloatSlice];
        float sums[kBlock / kColumns][kPanel / kRows][kColumns][kRows][16];   ///< lanes of [group][rows][column][row]
    };

    static void multiply_directly(const PanelJob<Arch>& job) noexcept {
        for (int row = 0; row < job.n_rows; row += kRows)
            for (std::int64_t first = 0; first < job.n_columns; first += kColumns) {
                const int n_rows = std::min(job.n_rows - row, kRows);
                const int n = static_cast<int>(std::min<std::int64_t>(job.n_columns - first, kColumns));
                const std::byte* w[kRows];
                const float* x[kColumns];
                for (int r = 0; r < kRows; ++r) w[r] = row_of(job, row + r);
                for (int c = 0; c < n; ++c) x[c] = column_of(job, first + c);
                float results[kColumns][kRows];
                run_float_tile<Arch, Type>(w, x, job.k, n, results);
                for (int c = 0; c < n; ++c) store_results(job, first + c, row, n_rows, results[c]);
            }
    }

    /// Rows behind the last are the last again; their results are not stored.
    static const std::byte* row_of(const PanelJob<Arch>& job, int r) noexcept {
        return job.w + std::min(r, job.n_rows - 1) * job.row_stride;
    }
    static const float* column_of(const PanelJob<Arch>& job, std::int64_t c) noexcept {
        return reinterpret_cast<const float*>(job.columns[c].x);
    }

    static void multiply_block(const PanelJob<Arch>& job, std::int64_t first, int n) noexcept {
        auto& scratch = *reinterpret_cast<Scratch*>(job.scratch);
        for (std::int64_t at = 0; at < job.k; at += kFloatSlice) {
            const int n_k = static_cast<int>(std::min<std::int64_t>(job.k - at, kFloatSlice));
            for (int r = 0; r < std::min(job.n_rows, kPanel); ++r)
                widen_slice<Arch, Type>(row_of(job, r) + at * kFloatBytes<Type>, n_k, scratch.w[r]);
            for (int half = 0; half < job.n_rows; half += kHalf)
                for (int c = 0; c < n; c += kColumns)
                    multiply_group(job, first + c, std::min(n - c, kColumns), at, n_k, half, scratch.sums[c / kColumns], scratch);
        }
        for (int c = 0; c < n; ++c) {
            alignas(64) float results[kPanel];
            const auto& group = scratch.sums[c / kColumns];
            for (int r = 0; r < job.n_rows; ++r) results[r] = fold(f32x16<Arch>::load(group[r / kRows][c % kColumns][r % kRows]));
            store_results(job, first + c, 0, job.n_rows, results);
        }
    }

    /// Columns first … first + n at one slice of half a panel.
    static void multiply_group(const PanelJob<Arch>& job, std::int64_t first, int n, std::int64_t at, int n_k, int half,
                               float (&sums)[kPanel / kRows][kColumns][kRows][16], const Scratch& scratch) noexcept {
        const float *x[kColumns], *next[kColumns];
        for (int c = 0; c < kColumns; ++c) {
            x[c] = column_of(job, first + std::min(c, n - 1)) + at;
            next[c] = column_of(job, std::min(first + kColumns + c, job.n_columns - 1)) + at;
        }
        for (int row = half, tile = 0; row < std::min(half + kHalf, job.n_rows); row += kRows, ++tile) {
            const float* w[kRows];
            for (int r = 0; r < kRows; ++r) w[r] = scratch.w[std::min(row + r, job.n_rows - 1)];
            run_float_slice<Arch>(w, x, n_k, n, at == 0, sums[row / kRows], next[tile % kColumns], next[(tile + 4) % kColumns]);
        }
    }
};

}  // namespace tinfer::kernels
