// SPDX-License-Identifier: MIT
// What one chunk of a product computes: rows of weights, the columns that meet them, where results go, and what
// is prefetched meanwhile.
#pragma once

#include "kernels/kernel.hpp"
#include "kernels/pack/packed_panel.hpp"
#include "kernels/schedule.hpp"

namespace tinfer::kernels {

/// One activation row, where its products go, and what is added to them (or null).
struct Column {
    const std::byte* x;
    float* out;
    const float* addend;
};

/// The part of a product that one chunk computes: rows of weights, as many as the weights' panel_rows · panels_together
/// except in runs, against n columns.
struct PanelJob {
    const std::byte* w;  ///< first row
    std::int64_t row_stride, k;
    int n_rows;
    std::int64_t first_row;  ///< its number: where in a column's output the results begin
    Ahead ahead;             ///< behind these rows
    const Column* columns;
    std::int64_t n_columns;
    std::int64_t n_readable;  ///< as many rows of activations may be read where columns lie evenly; n_columns or more
    Processor processor;      ///< KernelCall
    bool nontemporal;         ///< results are too many for the caches: they are stored past them
    std::byte* scratch;
};

/// Writes the results of rows first … first + n, which are few, to column c.
template <class Arch>
TINFER_INLINE void store_few_results(const PanelJob& job, std::int64_t c, int first, int n,
                                     const float* results) noexcept {
    const Column& column = job.columns[c];
    float* out = column.out + job.first_row + first;
    const float* addend = column.addend == nullptr ? nullptr : column.addend + job.first_row + first;
    for (int r = 0; r < n; ++r) out[r] = addend == nullptr ? results[r] : results[r] + addend[r];
}
/// The same of a panel.
template <class Arch>
TINFER_INLINE void store_results(const PanelJob& job, std::int64_t c, int first, int n, const float* results) noexcept {
    const Column& column = job.columns[c];
    float* out = column.out + job.first_row + first;
    const float* addend = column.addend == nullptr ? nullptr : column.addend + job.first_row + first;
    int r = 0;
    for (; r + Arch::kLanes <= n; r += Arch::kLanes) {
        f32v<Arch> result = load_f32<Arch>(results + r);
        if (addend != nullptr) result = result + load_f32<Arch>(addend + r);
        if (job.nontemporal && reinterpret_cast<std::uintptr_t>(out + r) % (4 * Arch::kLanes) == 0)
            store_nontemporal(result, out + r, Arch{});
        else result.store_unaligned(out + r);
    }
    store_few_results<Arch>(job, c, first + r, n - r, results + r);
}

/// The results of n columns from `first` on, of all panels of the job: results[panel][column][row].
template <class Arch>
TINFER_INLINE void store_micro_tile(const PanelJob& job, std::int64_t first, int n, const float* results) noexcept {
    constexpr int kRows = kPanelRows<Arch>;
    if (job.n_rows % kRows != 0) {
        for (int row = 0; row < job.n_rows; row += kRows)
            for (int t = 0; t < n; ++t, results += kRows)
                store_results<Arch>(job, first + t, row, std::min(job.n_rows - row, kRows), results);
        return;
    }
    for (int t = 0; t < n; ++t, results += kRows) {
        const Column& column = job.columns[first + t];
        float* out = column.out + job.first_row;
        const float* addend = column.addend == nullptr ? nullptr : column.addend + job.first_row;
        const bool nontemporal = job.nontemporal && reinterpret_cast<std::uintptr_t>(out) % (4 * Arch::kLanes) == 0;
        const float* panel = results;
        for (int row = 0; row < job.n_rows; row += kRows, panel += n * kRows)
#pragma GCC unroll 2
            for (int r = 0; r < kRows; r += Arch::kLanes) {
                f32v<Arch> result = load_f32<Arch>(panel + r);
                if (addend != nullptr) result = result + load_f32<Arch>(addend + row + r);
                if (nontemporal) store_nontemporal(result, out + row + r, Arch{});
                else result.store_unaligned(out + row + r);
            }
    }
}

/// Prefetches the lines that results of columns first … first + n go to and those that are added to them: far apart,
/// and for every column others. In the last round over the columns that hides behind the products.
template <class Arch>
TINFER_INLINE void prefetch_results(const PanelJob& job, std::int64_t first, std::int64_t n) noexcept {
    for (const Column* column = job.columns + first; column != job.columns + first + n; ++column)
        for (int r = 0; r < job.n_rows; r += 16) {
            if (column->addend != nullptr) __builtin_prefetch(column->addend + job.first_row + r, 0, 2);
            if (!job.nontemporal) __builtin_prefetch(column->out + job.first_row + r, 1, 2);
        }
}

/// Prefetches what decoding k-block s will read of the job's rows, or behind the last whole k-block for what another
/// panel begins with, in n_shares shares. A few rows at a time: of what is prefetched all at once, more than a
/// processor has buffers for, much is dropped.
template <class Arch, class Format>
class KBlockPrefetch {
public:
    TINFER_INLINE KBlockPrefetch(const PanelJob& job, std::int64_t s, std::int64_t n_shares) noexcept
        : stride_(job.row_stride), n_rows_(job.n_rows), n_shares_(n_shares) {
        if ((s + 1) * kKBlock <= job.k) at_ = job.w + s * kBytes;
        else if (s * kKBlock >= job.k && job.ahead.begin != nullptr) at_ = job.ahead.begin;
        else n_rows_ = 0;
    }
    TINFER_INLINE void prefetch_share() noexcept {
        for (due_ += n_rows_; due_ >= n_shares_; due_ -= n_shares_, at_ += stride_) {
#pragma GCC unroll 8
            for (int line = 0; line < kBytes; line += 64) __builtin_prefetch(at_ + line, 0, kLevel);
            __builtin_prefetch(at_ + kBytes - 1, 0, kLevel);  // what the k-block ends in may be one line more
        }
    }

private:
    static constexpr int kBytes = kKBlockBytes<Format>;
    static constexpr int kLevel = Arch::kHasAmx ? 2 : 3;  ///< tiles of the matrix unit fill L1
    const std::byte* at_ = nullptr;
    std::int64_t stride_, n_rows_, n_shares_, due_ = 0;
};

/// Reads the next panel, if columns are not many and the panel is no large part of L2, in shares of which a
/// k-block takes so many.
template <class Arch>
TINFER_INLINE ReadAhead read_next_panel(const PanelJob& job, std::int64_t shares_per_k_block) noexcept {
    constexpr std::int64_t kMaxBytes = 256 * 1024;
    const std::int64_t bytes = job.n_rows * job.row_stride, n_k_blocks = (job.k + kKBlock - 1) / kKBlock;
    if (job.n_columns > Arch::kMemoryBoundTokens || bytes > kMaxBytes || job.ahead.begin == nullptr) return {};
    return {job.ahead, bytes, n_k_blocks * shares_per_k_block};
}

}  // namespace tinfer::kernels
