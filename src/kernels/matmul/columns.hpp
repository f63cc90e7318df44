// SPDX-License-Identifier: MIT
// The columns of a product: the activation rows that meet each matrix, and where their results go. A plain product has
// one matrix that meets all rows; a product with experts has a stack of them, and each meets the rows that picked it.
// Nothing here depends on the type of the weights, so every table has it once.
#pragma once

#include <cstring>
#include <utility>

#include "kernels/pack/job.hpp"

namespace tinfer::kernels {

template <class Arch>
TINFER_INLINE std::uint64_t in_lines(std::uint64_t bytes) noexcept {
    return (bytes + 63) / 64 * 64;
}

/// Whether the route that n columns take reads activations faster where they lie side by side.
using GathersFn = bool(std::int64_t n_columns) noexcept;

struct ColumnRange {
    const Column* first;
    std::int64_t n;
};

/// Columns of the one matrix of a plain product. Where the weights ask for blocks of them, the matrix is in use once
/// for each.
template <class Arch>
struct PlainColumns {
    Column* columns;
    std::int64_t n, block, n_used;

    /// `scratch` has room for the columns; each block has up to `most_of_block`.
    [[gnu::noinline]] PlainColumns(const KernelCall& call, std::byte* scratch, std::int64_t most_of_block) noexcept
        : columns(reinterpret_cast<Column*>(scratch)), n(call[2].n_rows()), block(most_of_block),
          n_used(n <= block ? 1 : (n + block - 1) / block) {
        const Operand &out = call[0], &x = call[2], &addend = call[3];
        for (std::int64_t t = 0; t < n; ++t) {
            const float* added = nullptr;
            if (addend.present()) added = addend.template flat_row<const float>(addend.n_rows() == 1 ? 0 : t);
            columns[t] = {x.template flat_row<const std::byte>(t), out.template flat_row<float>(t), added};
        }
    }
    [[nodiscard]] static std::uint64_t scratch_bytes(const StepShape& shape) noexcept {
        return in_lines<Arch>(static_cast<std::uint64_t>(shape[2].n_rows()) * sizeof(Column));
    }
    [[nodiscard]] static std::int64_t matrix(std::int64_t) noexcept { return 0; }
    [[nodiscard]] std::int64_t most() const noexcept { return n; }
    [[nodiscard]] std::int64_t readable() const noexcept { return n; }
    [[nodiscard]] ColumnRange of(std::int64_t i) const noexcept {
        return {columns + i * block, std::min(n - i * block, block)};
    }
};

/// Activations of one expert's columns side by side, for weights that read them so: each thread has its own. Zeros fill
/// the last sixteen.
template <class Arch>
class GatheredRows {
public:
    static std::uint64_t scratch_bytes(const StepShape& shape, GathersFn& gathers) noexcept {
        const Operand &out = shape[0], &x = shape[2];
        return gathers(out.ne[1] * out.ne[2]) ? static_cast<std::uint64_t>(in_sixteens(out.ne[2])) * stride(x) : 0;
    }
    GatheredRows(const KernelCall& call, std::byte* memory, GathersFn& gathers) noexcept
        : row_bytes_(static_cast<std::size_t>(row_bytes(call[2].type, call[2].ne[0]))), stride_(stride(call[2])),
          most_(call[0].ne[2]), memory_(memory), gathers_(&gathers) {}
    /// Copies the rows of n columns, which then point to the copies. A token that picked an expert twice is no reason
    /// to fail: too many columns stay where they are. How many rows may be read.
    std::int64_t gather(Column* columns, std::int64_t n) noexcept {
        if (!gathers_(n) || n > most_) return n;
        for (std::int64_t c = 0; c < n; ++c) {
            std::byte* row = memory_ + static_cast<std::uint64_t>(c) * stride_;
            std::memcpy(row, columns[c].x, row_bytes_);
            columns[c].x = row;
        }
        const std::int64_t all = in_sixteens(n);
        std::memset(memory_ + static_cast<std::uint64_t>(n) * stride_, 0,
                    static_cast<std::uint64_t>(all - n) * stride_);
        return all;
    }

private:
    static std::int64_t in_sixteens(std::int64_t n) noexcept { return (n + 15) / 16 * 16; }
    static std::uint64_t stride(const Operand& x) noexcept {
        return in_lines<Arch>(static_cast<std::uint64_t>(row_bytes(x.type, x.ne[0])));
    }
    std::size_t row_bytes_;
    std::uint64_t stride_;
    std::int64_t most_;
    std::byte* memory_;
    GathersFn* gathers_;
};

/// Columns of the experts that have any, in ascending order of experts, tokens and slots. Each expert's activations are
/// put side by side when it is multiplied, where its route gathers them.
template <class Arch>
struct ExpertColumns {
    Column* columns;
    std::int64_t* expert;  ///< [i]: number of the i-th expert in use
    std::int64_t* end;     ///< [i]: one past its last column
    std::int64_t n_used = 0, most_columns = 0;
    GatheredRows<Arch> rows;
    std::int64_t gathered = -1;   ///< the expert in use whose rows were gathered last
    std::int64_t n_readable = 0;  ///< of it

    /// `scratch` holds the columns, the experts' ranges and the gathered rows.
    [[gnu::noinline]] ExpertColumns(const KernelCall& call, std::byte* scratch, GathersFn& gathers) noexcept
        : columns(reinterpret_cast<Column*>(scratch)),
          expert(reinterpret_cast<std::int64_t*>(scratch + column_bytes(call))), end(expert + call[1].ne[2]),
          rows(call, scratch + column_bytes(call) + range_bytes(call), gathers) {
        const Operand &out = call[0], &w = call[1], &x = call[2], &ids = call[3];
        const std::int64_t n_experts = w.ne[2];
        // Counting sort: end[e] = number of columns of expert e, then where they begin, then where they end.
        for (std::int64_t e = 0; e < n_experts; ++e) end[e] = 0;
        each_pick(out, ids, n_experts, [&](std::int64_t, std::int64_t, std::int64_t e) { ++end[e]; });
        std::int64_t begin = 0;
        for (std::int64_t e = 0; e < n_experts; ++e) {
            const std::int64_t count = end[e];
            end[e] = begin;
            begin += count;
        }
        each_pick(out, ids, n_experts, [&](std::int64_t i, std::int64_t t, std::int64_t e) {
            columns[end[e]++] = {x.template row<const std::byte>(x.ne[1] == 1 ? 0 : i, t),
                                 out.template row<float>(i, t), nullptr};
        });
        for (std::int64_t e = 0, last = 0; e < n_experts; ++e) {  // experts in use move to the front
            if (end[e] == last) continue;
            most_columns = std::max(most_columns, end[e] - last);
            last = end[e];
            expert[n_used] = e;
            end[n_used++] = last;
        }
    }
    [[nodiscard]] static std::uint64_t scratch_bytes(const StepShape& shape, GathersFn& gathers) noexcept {
        return column_bytes(shape) + range_bytes(shape) + GatheredRows<Arch>::scratch_bytes(shape, gathers);
    }
    [[nodiscard]] std::int64_t matrix(std::int64_t i) const noexcept { return expert[i]; }
    [[nodiscard]] std::int64_t most() const noexcept { return most_columns; }
    [[nodiscard]] std::int64_t readable() const noexcept { return n_readable; }  ///< of what of() gave last
    [[nodiscard]] ColumnRange of(std::int64_t i) noexcept {
        const std::int64_t begin = i == 0 ? 0 : end[i - 1], n = end[i] - begin;
        if (std::exchange(gathered, i) != i) n_readable = rows.gather(columns + begin, n);
        return {columns + begin, n};
    }

private:
    static std::uint64_t column_bytes(const StepShape& shape) noexcept {
        return in_lines<Arch>(static_cast<std::uint64_t>(shape[0].ne[1] * shape[0].ne[2]) * sizeof(Column));
    }
    static std::uint64_t range_bytes(const StepShape& shape) noexcept {
        return in_lines<Arch>(static_cast<std::uint64_t>(2 * shape[1].ne[2]) * sizeof(std::int64_t));
    }
    template <class Fn>
    static void each_pick(const Operand& out, const Operand& ids, std::int64_t n_experts, Fn fn) noexcept {
        for (std::int64_t t = 0; t < out.ne[2]; ++t)
            for (std::int64_t i = 0; i < out.ne[1]; ++i) {
                const std::int64_t e = ids.present() ? ids.template row<const std::int32_t>(t)[i] : i;
                if (e >= 0 && e < n_experts) fn(i, t, e);
            }
    }
};

}  // namespace tinfer::kernels
