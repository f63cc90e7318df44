// SPDX-License-Identifier: MIT
// Products of weight rows and activation rows: mul_mat, mul_mat_add, mul_mat_id and mul_mat_heads (mul_mat_id without
// ids: row i of a token meets matrix i) of every weight type. A chunk of work is one or two panels of rows, or a run of
// rows (of one expert), against all its columns; chunks go to whichever thread comes first.
#pragma once

#include <cstring>
#include <utility>

#include "kernels/matmul/block_weights.hpp"
#include "kernels/matmul/float_weights.hpp"
#include "kernels/schedule.hpp"

namespace tinfer::kernels {

template <class Arch>
TINFER_INLINE std::uint64_t in_lines(std::uint64_t bytes) noexcept {
    return (bytes + 63) / 64 * 64;
}

/// Activations of one expert's columns side by side, for weights that read them so: each thread has its own. Zeros fill
/// the last sixteen.
template <class Arch, class Weights>
class GatheredRows {
public:
    static std::uint64_t scratch_bytes(const StepShape& shape) noexcept {
        const Operand &out = shape[0], &x = shape[2];
        return Weights::gathers(out.ne[1] * out.ne[2]) ? static_cast<std::uint64_t>(in_sixteens(out.ne[2])) * stride(x)
                                                       : 0;
    }
    GatheredRows(const KernelCall& call, std::byte* memory) noexcept
        : row_bytes_(static_cast<std::size_t>(row_bytes(call[2].type, call[2].ne[0]))), stride_(stride(call[2])),
          most_(call[0].ne[2]), memory_(memory) {}
    /// Copies the rows of n columns, which then point to the copies. A token that picked an expert twice is no reason
    /// to fail: too many columns stay where they are. How many rows may be read.
    std::int64_t gather(Column* columns, std::int64_t n) noexcept {
        if (!Weights::gathers(n) || n > most_) return n;
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
};

/// Per thread: the columns, then what the weights need. mul_mat_id has the experts' ranges of columns and the gathered
/// activations in between.
template <class Arch, class Weights>
std::uint64_t mul_mat_scratch(const StepShape& shape) noexcept {
    const std::int64_t n = shape[2].n_rows();
    const std::uint64_t each = in_lines<Arch>(static_cast<std::uint64_t>(n) * sizeof(Column)) +
                               in_lines<Arch>(Weights::scratch_bytes(n, shape[2].ne[0]));
    return each * static_cast<std::uint64_t>(shape.n_threads);
}
template <class Arch, class Weights>
std::uint64_t mul_mat_id_scratch(const StepShape& shape) noexcept {
    const std::int64_t n = shape[0].ne[1] * shape[0].ne[2], n_experts = shape[1].ne[2];
    const std::uint64_t each = in_lines<Arch>(static_cast<std::uint64_t>(n) * sizeof(Column)) +
                               in_lines<Arch>(static_cast<std::uint64_t>(2 * n_experts) * sizeof(std::int64_t)) +
                               GatheredRows<Arch, Weights>::scratch_bytes(shape) +
                               in_lines<Arch>(Weights::scratch_bytes(n, shape[2].ne[0]));
    return each * static_cast<std::uint64_t>(shape.n_threads);
}

/// Results of more than a megabyte are stored past the caches where they would push out the activations, which are read
/// again for every panel. Few activations stay, and whoever reads such results finds them nearer. What is added to
/// where it lies has been fetched anyway.
template <class Arch>
TINFER_INLINE bool stores_nontemporal(const Operand& out, const Operand& x, const float* added_to) noexcept {
    if (added_to == reinterpret_cast<const float*>(out.data)) return false;
    return out.n_rows() * out.ne[0] > (1 << 18) && x.n_rows() * x.nb[1] > (1 << 19);
}

/// One past the last weight of a matrix. Rows may lie apart: behind the last one nothing need be readable.
template <class Arch>
TINFER_INLINE const std::byte* end_of_matrix(const Operand& w, std::int64_t matrix) noexcept {
    return w.data + matrix * w.nb[2] + (w.ne[1] - 1) * w.nb[1] + row_bytes(w.type, w.ne[0]);
}

/// What a thread reads that turns to these rows of matrix number `matrix` of a stack.
template <class Arch>
TINFER_INLINE Ahead ahead_in(const Operand& w, std::int64_t matrix, Range rows) noexcept {
    const std::byte* begin = w.data + matrix * w.nb[2] + rows.begin * w.nb[1];
    return ahead_at<Arch>(begin, rows.end - rows.begin, w.nb[1], end_of_matrix<Arch>(w, matrix));
}

struct ColumnRange {
    const Column* first;
    std::int64_t n;
};

/// Columns of the one matrix of a plain product. Where the weights ask for blocks of them, the matrix is in use once
/// for each.
template <class Arch>
struct PlainColumns {
    Column* columns;
    std::int64_t n, block;
    std::int64_t n_used = n <= block ? 1 : (n + block - 1) / block;
    [[nodiscard]] static std::int64_t matrix(std::int64_t) noexcept { return 0; }
    [[nodiscard]] std::int64_t most() const noexcept { return n; }
    [[nodiscard]] std::int64_t readable() const noexcept { return n; }
    [[nodiscard]] ColumnRange of(std::int64_t i) const noexcept {
        return {columns + i * block, std::min(n - i * block, block)};
    }
};

/// Where thread number `thread` will probably begin in the product that follows this one, which uses n_used matrices of
/// a stack too, the first being number `matrix`, or one alone.
template <class Arch>
inline Ahead begin_of_next_product(const KernelCall& call, int thread, std::int64_t matrix,
                                   std::int64_t n_used) noexcept {
    if (call.next_product == 0) return {};
    const KernelCall& next = (&call)[call.next_product];
    const Operand &w = next[1], &x = next[2];
    const bool alone = w.ne[2] == 1;
    const bool memory_bound = (alone ? x.n_rows() : x.ne[2]) <= Arch::kMemoryBoundTokens;
    RowChunks<Arch> chunks =
        memory_bound ? RowChunks<Arch>::to_read(w, alone ? 1 : n_used, kRowsTogether, next.n_threads)
                     : RowChunks<Arch>::to_multiply(w, alone ? 1 : n_used, kRowsTogether, 1, next.n_threads);
    const RowRun run = chunks.run(std::min<std::int64_t>(thread, chunks.count() - 1));
    if (run.matrix != 0) return {};
    Ahead ahead = ahead_in<Arch>(w, alone ? 0 : matrix, run.rows);
    ahead.end = ahead.begin;  // of another step: it may only be prefetched
    return ahead;
}

/// Multiplies the matrices in use, each with its columns, chunk by chunk.
template <class Arch, class Weights, class Used>
void multiply_chunks(const KernelCall& call, WorkSlice slice, Used& used, std::byte* scratch) noexcept {
    const Operand& w = call[1];
    typename Weights::Session session;
    const bool nontemporal = used.most() > 0 && stores_nontemporal<Arch>(call[0], call[2], used.columns[0].addend);
    const bool memory_bound = used.most() <= Arch::kMemoryBoundTokens, runs = Weights::uses_gemv(used.most());
    const std::int64_t unit = runs ? kRowsTogether : Weights::panel_rows(used.most());
    std::int64_t together = Weights::panels_together(used.most());
    if (slice.short_chunks && together * unit * used.most() * w.ne[0] > kMostMacsOfShort) together = 1;
    RowChunks<Arch> chunks = memory_bound
                                 ? RowChunks<Arch>::to_read(w, used.n_used, unit, slice.n_threads)
                                 : RowChunks<Arch>::to_multiply(w, used.n_used, unit, together, slice.n_threads);
    const auto ahead_of_chunk = [&](std::int64_t chunk) {
        RowChunks<Arch> later = chunks;
        const RowRun run = later.run(chunk);
        return ahead_in<Arch>(w, used.matrix(run.matrix), run.rows);
    };
    for (std::int64_t chunk = slice.claim(chunks.count()), next = WorkQueue::kNoChunk; chunk != WorkQueue::kNoChunk;
         chunk = next) {
        const RowRun run = chunks.run(chunk);
        const std::int64_t matrix = used.matrix(run.matrix);
        const ColumnRange columns = used.of(run.matrix);
        for (std::int64_t first = run.rows.begin, end; first < run.rows.end; first = end) {
            end = runs || !memory_bound ? run.rows.end : std::min(first + unit, run.rows.end);
            Ahead ahead;
            if (!memory_bound) {  // panels go in turn, probably
                if (chunk + slice.n_threads < chunks.count()) ahead = ahead_of_chunk(chunk + slice.n_threads);
            } else if (end < run.rows.end) {
                ahead = ahead_in<Arch>(w, matrix, {end, std::min(end + unit, run.rows.end)});
            } else {  // claimed before this chunk ends, so that its first rows are prefetched in time
                next = slice.claim(chunks.count());
                ahead = next == WorkQueue::kNoChunk
                            ? begin_of_next_product<Arch>(call, slice.thread, used.matrix(0), used.n_used)
                            : ahead_of_chunk(next);
            }
            Weights::multiply(session, {w.data + matrix * w.nb[2] + first * w.nb[1], w.nb[1], w.ne[0],
                                        static_cast<int>(end - first), first, ahead, columns.first, columns.n,
                                        used.readable(), call.processor, nontemporal, scratch});
        }
        if (!memory_bound) next = slice.claim(chunks.count());
    }
    if (nontemporal) nontemporal_fence(Arch{});
}

template <class Arch, class Weights>
void mul_mat_add(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &x = call[2], &addend = call[3];
    std::byte* scratch = call.scratch(slice.thread);
    const std::int64_t n = x.n_rows();
    PlainColumns<Arch> used{reinterpret_cast<Column*>(scratch), n, Weights::block_columns(n, x.ne[0])};
    for (std::int64_t t = 0; t < used.n; ++t) {
        const float* added = nullptr;
        if (addend.present()) added = addend.template flat_row<const float>(addend.n_rows() == 1 ? 0 : t);
        used.columns[t] = {x.template flat_row<const std::byte>(t), out.template flat_row<float>(t), added};
    }
    scratch += in_lines<Arch>(static_cast<std::uint64_t>(used.n) * sizeof(Column));
    multiply_chunks<Arch, Weights>(call, slice, used, scratch);
}

template <class Arch, class Weights>
void mul_mat(const KernelCall& call, WorkSlice slice) noexcept {
    mul_mat_add<Arch, Weights>(call, slice);  // slot 3 is absent
}

/// Columns of the experts that have any, in ascending order of experts, tokens and slots.
template <class Arch>
struct ExpertColumns {
    Column* columns;
    std::int64_t* expert;  ///< [i]: number of the i-th expert in use
    std::int64_t* end;     ///< [i]: one past its last column
    std::int64_t n_used, most_columns;

    ExpertColumns(const KernelCall& call, std::byte* scratch) noexcept
        : columns(reinterpret_cast<Column*>(scratch)), n_used(0), most_columns(0) {
        const Operand &out = call[0], &w = call[1], &x = call[2], &ids = call[3];
        const std::int64_t n_experts = w.ne[2];
        expert = reinterpret_cast<std::int64_t*>(
            scratch + in_lines<Arch>(static_cast<std::uint64_t>(out.ne[1] * out.ne[2]) * sizeof(Column)));
        end = expert + n_experts;
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

private:
    template <class Fn>
    static void each_pick(const Operand& out, const Operand& ids, std::int64_t n_experts, Fn fn) noexcept {
        for (std::int64_t t = 0; t < out.ne[2]; ++t)
            for (std::int64_t i = 0; i < out.ne[1]; ++i) {
                const std::int64_t e = ids.present() ? ids.template row<const std::int32_t>(t)[i] : i;
                if (e >= 0 && e < n_experts) fn(i, t, e);
            }
    }
};

/// The same, with each expert's activations put side by side when its turn comes.
template <class Arch, class Weights>
struct GatheredColumns : ExpertColumns<Arch> {
    using ExpertColumns<Arch>::columns, ExpertColumns<Arch>::end;
    GatheredRows<Arch, Weights> rows;
    std::int64_t gathered = -1;   ///< the expert in use whose rows were gathered last
    std::int64_t n_readable = 0;  ///< of it

    GatheredColumns(const KernelCall& call, std::byte* scratch, std::byte* row_memory) noexcept
        : ExpertColumns<Arch>(call, scratch), rows(call, row_memory) {}
    [[nodiscard]] std::int64_t matrix(std::int64_t i) const noexcept { return this->expert[i]; }
    [[nodiscard]] std::int64_t most() const noexcept { return this->most_columns; }
    [[nodiscard]] std::int64_t readable() const noexcept { return n_readable; }  ///< of what of() gave last
    [[nodiscard]] ColumnRange of(std::int64_t i) noexcept {
        const std::int64_t begin = i == 0 ? 0 : end[i - 1], n = end[i] - begin;
        if (std::exchange(gathered, i) != i) n_readable = rows.gather(columns + begin, n);
        return {columns + begin, n};
    }
};

template <class Arch, class Weights>
void mul_mat_id(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &w = call[1];
    std::byte* scratch = call.scratch(slice.thread);
    std::byte* rows = scratch + in_lines<Arch>(static_cast<std::uint64_t>(out.ne[1] * out.ne[2]) * sizeof(Column)) +
                      in_lines<Arch>(static_cast<std::uint64_t>(2 * w.ne[2]) * sizeof(std::int64_t));
    GatheredColumns<Arch, Weights> used(call, scratch, rows);
    multiply_chunks<Arch, Weights>(call, slice, used, rows + GatheredRows<Arch, Weights>::scratch_bytes(call));
}

}  // namespace tinfer::kernels
