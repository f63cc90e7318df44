// SPDX-License-Identifier: MIT
// Products of weight rows and activation rows: mul_mat, mul_mat_add and mul_mat_id of every weight type. A chunk of
// work is one panel of rows (of one expert) against all its columns; chunks go to whichever thread comes first.
#pragma once

#include "kernels/float_tile.hpp"
#include "kernels/kernel.hpp"
#include "kernels/tile.hpp"

namespace tinfer::kernels {

/// One activation row, where its products go, and what is added to them (or null).
template <class Arch>
struct Column {
    const std::byte* x;
    float* out;
    const float* addend;
};

/// The part of a product that one chunk computes: n_rows ≤ kPanelRows rows of weights against n columns.
template <class Arch>
struct PanelJob {
    const std::byte* w;              ///< first row
    std::int64_t row_stride, k;
    int n_rows;
    std::int64_t first_row;          ///< its number: where in a column's output the results begin
    const Column<Arch>* columns;
    std::int64_t n_columns;
    std::byte* scratch;
};

/// Writes the results of rows first … first + n of a panel to column c.
template <class Arch>
inline void store_results(const PanelJob<Arch>& job, std::int64_t c, int first, int n, const float* results) noexcept {
    const Column<Arch>& column = job.columns[c];
    float* out = column.out + job.first_row + first;
    if (column.addend == nullptr) {
        std::memcpy(out, results, static_cast<std::size_t>(n) * sizeof(float));
        return;
    }
    const float* addend = column.addend + job.first_row + first;
    for (int r = 0; r < n; ++r) out[r] = results[r] + addend[r];
}

/// Weights in a block format: the panel is decoded slice by slice of K, and each slice meets all columns while it is in
/// L1. Unfinished sums rest in scratch, one accumulator per output: acc[column][row].
template <class Arch, class Format>
struct BlockWeights {
    static constexpr DType kType = Format::kType;
    using Class = panel_class<Arch, Format>;
    using Slice = PanelSlice<Arch, Class>;
    static constexpr int kBias = CodeRoute<Arch, Format>::kBias;
    static constexpr int kBlocksPerSlice = kSlice / Format::kBlockElems;

    static std::uint64_t scratch_bytes(std::int64_t n_columns) noexcept {
        return sizeof(Slice) + static_cast<std::uint64_t>(n_columns) * kPanelRows<Arch> * sizeof(float);
    }

    static void decode(const PanelJob<Arch>& job, std::int64_t s, int n_units, Slice& slice) noexcept {
        const auto* rows = reinterpret_cast<const std::uint8_t*>(job.w) + s * kBlocksPerSlice * Format::kBlockBytes;
        if constexpr (Format::kUnit == 256) {
            decode_super_blocks<Arch, Format, Class>(rows, job.row_stride, job.n_rows, slice);
        } else {
            decode_blocks<Arch, Format, Class>(rows, job.row_stride, job.n_rows, n_units, slice);
        }
    }

    static void multiply(const PanelJob<Arch>& job) noexcept {
        auto& slice = *reinterpret_cast<Slice*>(job.scratch);
        auto* acc = reinterpret_cast<float*>(job.scratch + sizeof(Slice));
        for (std::int64_t i = 0; i < job.n_columns * kPanelRows<Arch>; ++i) acc[i] = 0.0f;

        for (std::int64_t s = 0; s * kSlice < job.k; ++s) {
            const int n_units = static_cast<int>(job.k - s * kSlice < kSlice ? (job.k - s * kSlice) / 32 : kSlice / 32);
            decode(job, s, n_units, slice);
            for (std::int64_t first = 0; first < job.n_columns; first += Arch::kTileTokens) {
                const std::int64_t left = job.n_columns - first;
                const int n = static_cast<int>(left < Arch::kTileTokens ? left : Arch::kTileTokens);
                TokenSlice<Arch, Class> tokens;
                for (int t = 0; t < n; ++t) point_at(tokens, t, job.columns[first + t].x, job.k, s, n_units, kBias);
                run_tile(slice, tokens, n, n_units, acc + first * kPanelRows<Arch>);
            }
        }
        for (std::int64_t c = 0; c < job.n_columns; ++c)
            store_results(job, c, 0, job.n_rows, acc + c * kPanelRows<Arch>);
    }
};

/// Weights in float types, multiplied straight from the file's rows.
template <class Arch, DType Type>
struct FloatWeights {
    static constexpr DType kType = Type;
    static std::uint64_t scratch_bytes(std::int64_t) noexcept { return 0; }

    static void multiply(const PanelJob<Arch>& job) noexcept {
        constexpr int kRows = kFloatRows<Arch>, kColumns = kFloatColumns<Arch>;
        for (int row = 0; row < job.n_rows; row += kRows)
            for (std::int64_t first = 0; first < job.n_columns; first += kColumns) {
                const int n_rows = job.n_rows - row < kRows ? job.n_rows - row : kRows;
                const int n = static_cast<int>(job.n_columns - first < kColumns ? job.n_columns - first : kColumns);
                const std::byte* w[kRows];
                const float* x[kColumns];
                for (int r = 0; r < kRows; ++r) w[r] = job.w + (row + (r < n_rows ? r : n_rows - 1)) * job.row_stride;
                for (int c = 0; c < n; ++c) x[c] = reinterpret_cast<const float*>(job.columns[first + c].x);
                float results[kColumns][kRows];
                run_float_tile<Arch, Type>(w, x, job.k, n, results);
                for (int c = 0; c < n; ++c) store_results(job, first + c, row, n_rows, results[c]);
            }
    }
};

// ---- Kernels --------------------------------------------------------------------------------------------------------

template <class Arch>
TINFER_INLINE std::uint64_t in_lines(std::uint64_t bytes) noexcept { return (bytes + 63) / 64 * 64; }

/// Per thread: the columns, then what the weights need. mul_mat_id has the experts' ranges of columns in between.
template <class Arch, class Weights>
std::uint64_t mul_mat_scratch(const StepShape& shape) noexcept {
    const std::int64_t n = shape[2].n_rows();
    const std::uint64_t each = in_lines<Arch>(static_cast<std::uint64_t>(n) * sizeof(Column<Arch>))
        + in_lines<Arch>(Weights::scratch_bytes(n));
    return each * static_cast<std::uint64_t>(shape.n_threads);
}
template <class Arch, class Weights>
std::uint64_t mul_mat_id_scratch(const StepShape& shape) noexcept {
    const std::int64_t n = shape[3].ne[0] * shape[3].ne[1], n_experts = shape[1].ne[2];
    const std::uint64_t each = in_lines<Arch>(static_cast<std::uint64_t>(n) * sizeof(Column<Arch>)) +
                               in_lines<Arch>(static_cast<std::uint64_t>(2 * n_experts) * sizeof(std::int64_t)) +
                               in_lines<Arch>(Weights::scratch_bytes(n));
    return each * static_cast<std::uint64_t>(shape.n_threads);
}

/// Rows of panel `p` of matrix number `matrix` of a stack.
template <class Arch>
inline PanelJob<Arch> panel_job(const Operand& w, std::int64_t matrix, std::int64_t p, const Column<Arch>* columns,
                                std::int64_t n_columns, std::byte* scratch) noexcept {
    const std::int64_t first = p * kPanelRows<Arch>, left = w.ne[1] - first;
    const int n_rows = static_cast<int>(left < kPanelRows<Arch> ? left : kPanelRows<Arch>);
    return {w.data + first * w.nb[1] + matrix * w.nb[2], w.nb[1], w.ne[0], n_rows, first, columns, n_columns, scratch};
}
template <class Arch>
TINFER_INLINE std::int64_t n_panels(const Operand& w) noexcept {
    return (w.ne[1] + kPanelRows<Arch> - 1) / kPanelRows<Arch>;
}

template <class Arch, class Weights>
void mul_mat_add(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &w = call[1], &x = call[2], &addend = call[3];
    const std::int64_t n = x.n_rows();
    std::byte* scratch = call.scratch(slice.thread);
    auto* columns = reinterpret_cast<Column<Arch>*>(scratch);
    for (std::int64_t t = 0; t < n; ++t) {
        const float* added = nullptr;
        if (addend.present()) added = addend.template flat_row<const float>(addend.n_rows() == 1 ? 0 : t);
        columns[t] = {x.template flat_row<const std::byte>(t), out.template flat_row<float>(t), added};
    }
    scratch += in_lines<Arch>(static_cast<std::uint64_t>(n) * sizeof(Column<Arch>));
    const std::int64_t n_chunks = n_panels<Arch>(w);
    for (std::int64_t p; (p = slice.claim(n_chunks)) != WorkQueue::kNoChunk;)
        Weights::multiply(panel_job<Arch>(w, 0, p, columns, n, scratch));
}

template <class Arch, class Weights>
void mul_mat(const KernelCall& call, WorkSlice slice) noexcept {
    mul_mat_add<Arch, Weights>(call, slice);   // slot 3 is absent
}

/// Columns of the experts that have any, in ascending order of experts, tokens and slots.
template <class Arch>
struct ExpertColumns {
    Column<Arch>* columns;
    std::int64_t* expert;            ///< [i]: number of the i-th expert in use
    std::int64_t* end;               ///< [i]: one past its last column
    std::int64_t n_used;

    ExpertColumns(const KernelCall& call, std::byte* scratch) noexcept
        : columns(reinterpret_cast<Column<Arch>*>(scratch)), n_used(0) {
        const Operand &out = call[0], &w = call[1], &x = call[2], &ids = call[3];
        const std::int64_t n_experts = w.ne[2];
        expert = reinterpret_cast<std::int64_t*>(scratch
            + in_lines<Arch>(static_cast<std::uint64_t>(ids.ne[0] * ids.ne[1]) * sizeof(Column<Arch>)));
        end = expert + n_experts;
        // Counting sort: end[e] = number of columns of expert e, then where they begin, then where they end.
        for (std::int64_t e = 0; e < n_experts; ++e) end[e] = 0;
        each_pick(ids, n_experts, [&](std::int64_t, std::int64_t, std::int32_t e) { ++end[e]; });
        std::int64_t begin = 0;
        for (std::int64_t e = 0; e < n_experts; ++e) {
            const std::int64_t count = end[e];
            end[e] = begin;
            begin += count;
        }
        each_pick(ids, n_experts, [&](std::int64_t i, std::int64_t t, std::int32_t e) {
            columns[end[e]++] = {x.template row<const std::byte>(x.ne[1] == 1 ? 0 : i, t),
                out.template row<float>(i, t), nullptr};
        });
        for (std::int64_t e = 0, last = 0; e < n_experts; ++e) {   // experts in use move to the front
            if (end[e] == last) continue;
            last = end[e];
            expert[n_used] = e;
            end[n_used++] = last;
        }
    }

private:
    template <class Fn>
    static void each_pick(const Operand& ids, std::int64_t n_experts, Fn fn) noexcept {
        for (std::int64_t t = 0; t < ids.ne[1]; ++t)
            for (std::int64_t i = 0; i < ids.ne[0]; ++i) {
                const std::int32_t e = ids.template row<const std::int32_t>(t)[i];
                if (e >= 0 && e < n_experts) fn(i, t, e);
            }
    }
};

template <class Arch, class Weights>
void mul_mat_id(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand& w = call[1];
    const ExpertColumns<Arch> used(call, call.scratch(slice.thread));
    std::byte* scratch = reinterpret_cast<std::byte*>(used.expert)
        + in_lines<Arch>(static_cast<std::uint64_t>(2 * w.ne[2]) * sizeof(std::int64_t));
    const std::int64_t panels = n_panels<Arch>(w), n_chunks = used.n_used * panels;
    for (std::int64_t chunk; (chunk = slice.claim(n_chunks)) != WorkQueue::kNoChunk;) {
        const std::int64_t i = chunk / panels, begin = i == 0 ? 0 : used.end[i - 1];
        Weights::multiply(panel_job<Arch>(w, used.expert[i], chunk % panels, used.columns + begin, used.end[i] - begin,
            scratch));
    }
}

}  // namespace tinfer::kernels
