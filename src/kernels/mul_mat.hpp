// SPDX-License-Identifier: MIT
// Products of weight rows and activation rows: mul_mat, mul_mat_add, mul_mat_id and mul_mat_heads (mul_mat_id without ids:
// row i of a token meets matrix i) of every weight type. A chunk of work is a panel of rows or a run of them (of one expert)
// against all its columns; chunks go to whichever thread comes first.
#pragma once

#include <cstring>
#include <utility>

#include "kernels/float_product.hpp"
#include "kernels/product.hpp"
#include "kernels/row_chunks.hpp"

namespace tinfer::kernels {

template <class Arch>
TINFER_INLINE std::uint64_t in_lines(std::uint64_t bytes) noexcept { return (bytes + 63) / 64 * 64; }

/// Activations of one expert's columns side by side, for weights that read them so: each thread has its own.
template <class Arch, class Weights>
class GatheredRows {
public:
    static std::uint64_t scratch_bytes(const StepShape& shape) noexcept {
        const Operand &out = shape[0], &x = shape[2];
        return Weights::gathers(out.ne[1] * out.ne[2]) ? static_cast<std::uint64_t>(out.ne[2]) * stride(x) : 0;
    }
    GatheredRows(const KernelCall& call, std::byte* memory) noexcept
        : row_bytes_(static_cast<std::size_t>(row_bytes(call[2].type, call[2].ne[0]))), stride_(stride(call[2])),
          most_(call[0].ne[2]), memory_(memory) {}
    /// Copies the rows of n columns, which then point to the copies. A token that picked an expert twice is no reason to
    /// fail: too many columns stay where they are.
    void gather(Column<Arch>* columns, std::int64_t n) noexcept {
        if (!Weights::gathers(n) || n > most_) return;
        for (std::int64_t c = 0; c < n; ++c) {
            std::byte* row = memory_ + static_cast<std::uint64_t>(c) * stride_;
            std::memcpy(row, columns[c].x, row_bytes_);
            columns[c].x = row;
        }
    }

private:
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
    const std::uint64_t each = in_lines<Arch>(static_cast<std::uint64_t>(n) * sizeof(Column<Arch>))
        + in_lines<Arch>(Weights::scratch_bytes(n));
    return each * static_cast<std::uint64_t>(shape.n_threads);
}
template <class Arch, class Weights>
std::uint64_t mul_mat_id_scratch(const StepShape& shape) noexcept {
    const std::int64_t n = shape[0].ne[1] * shape[0].ne[2], n_experts = shape[1].ne[2];
    const std::uint64_t each = in_lines<Arch>(static_cast<std::uint64_t>(n) * sizeof(Column<Arch>)) +
                               in_lines<Arch>(static_cast<std::uint64_t>(2 * n_experts) * sizeof(std::int64_t)) +
                               GatheredRows<Arch, Weights>::scratch_bytes(shape) + in_lines<Arch>(Weights::scratch_bytes(n));
    return each * static_cast<std::uint64_t>(shape.n_threads);
}

/// Results of more than a megabyte are stored past the caches where they would push out the activations, which are read
/// again for every panel. Few activations stay, and whoever reads such results finds them nearer.
template <class Arch>
TINFER_INLINE bool stores_stream(const Operand& out, const Operand& x) noexcept {
    return out.n_rows() * out.ne[0] > (1 << 18) && x.n_rows() * x.nb[1] > (1 << 19);
}

/// One past the last weight of a matrix. Rows may lie apart: behind the last one nothing need be readable.
template <class Arch>
TINFER_INLINE const std::byte* end_of_matrix(const Operand& w, std::int64_t matrix) noexcept {
    return w.data + matrix * w.nb[2] + (w.ne[1] - 1) * w.nb[1] + row_bytes(w.type, w.ne[0]);
}

/// Rows first … end of matrix number `matrix` of a stack; `ahead`: what this thread will read next.
template <class Arch>
inline PanelJob<Arch> panel_job(const Operand& w, std::int64_t matrix, std::int64_t first, std::int64_t end, const Ahead& ahead,
                                const Column<Arch>* columns, std::int64_t n_columns, bool streams, std::byte* scratch) noexcept {
    return {w.data + first * w.nb[1] + matrix * w.nb[2], w.nb[1], w.ne[0], static_cast<int>(end - first), first, ahead,
            columns, n_columns, streams, scratch};
}

/// Where thread number `thread` will probably begin in the product that follows this one.
template <class Arch>
inline Ahead begin_of_next_product(const KernelCall& call, int thread) noexcept {
    if (call.next_product == 0) return {};
    const KernelCall& next = (&call)[call.next_product];
    const Operand& w = next[1];
    RowChunks<Arch> chunks(w, next[2].n_rows(), kRowsTogether, next.n_threads);
    const Range rows = chunks.rows(std::min<std::int64_t>(thread, chunks.count() - 1));
    const std::byte* begin = w.data + rows.begin * w.nb[1];
    return ahead_at<Arch>(begin, rows.end - rows.begin, w.nb[1], begin);
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
    [[maybe_unused]] const typename Weights::Session session;
    const bool streams = stores_stream<Arch>(out, x), few = n <= kFewColumns, runs = Weights::takes_runs(n);
    RowChunks<Arch> chunks(w, n, runs ? kRowsTogether : kPanelRows<Arch>, slice.n_threads);
    const std::byte* w_end = end_of_matrix<Arch>(w, 0);
    const auto ahead_in = [&](Range rows) { return ahead_at<Arch>(w.data + rows.begin * w.nb[1], rows.end - rows.begin, w.nb[1], w_end); };
    for (std::int64_t chunk = slice.claim(chunks.count()), next = WorkQueue::kNoChunk; chunk != WorkQueue::kNoChunk; chunk = next) {
        const Range rows = chunks.rows(chunk);
        for (std::int64_t first = rows.begin, end; first < rows.end; first = end) {
            end = runs ? rows.end : std::min(first + kPanelRows<Arch>, rows.end);
            const std::int64_t then = few ? end : first + slice.n_threads * kPanelRows<Arch>;   // panels go in turn, probably
            Ahead ahead;
            if (then < w.ne[1]) ahead = ahead_in({then, std::min(then + kPanelRows<Arch>, w.ne[1])});
            if (end == rows.end && few) {   // claimed before this chunk ends, so that its first rows are asked for in time
                next = slice.claim(chunks.count());
                ahead = next == WorkQueue::kNoChunk ? begin_of_next_product<Arch>(call, slice.thread) : ahead_in(chunks.rows(next));
            }
            Weights::multiply(panel_job<Arch>(w, 0, first, end, ahead, columns, n, streams, scratch));
        }
        if (!few) next = slice.claim(chunks.count());
    }
    if (streams) stream_fence(Arch{});
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
            + in_lines<Arch>(static_cast<std::uint64_t>(out.ne[1] * out.ne[2]) * sizeof(Column<Arch>)));
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
        for (std::int64_t e = 0, last = 0; e < n_experts; ++e) {   // experts in use move to the front
            if (end[e] == last) continue;
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

template <class Arch, class Weights>
void mul_mat_id(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand& w = call[1];
    const ExpertColumns<Arch> used(call, call.scratch(slice.thread));
    std::byte* scratch = reinterpret_cast<std::byte*>(used.expert)
        + in_lines<Arch>(static_cast<std::uint64_t>(2 * w.ne[2]) * sizeof(std::int64_t));
    GatheredRows<Arch, Weights> rows(call, scratch);
    scratch += GatheredRows<Arch, Weights>::scratch_bytes(call);
    std::int64_t gathered = -1;   // the expert in use whose rows were gathered last
    [[maybe_unused]] const typename Weights::Session session;
    const bool streams = stores_stream<Arch>(call[0], call[2]);
    const std::int64_t panels = (w.ne[1] + kPanelRows<Arch> - 1) / kPanelRows<Arch>, n_chunks = used.n_used * panels;
    const auto first_row = [&](std::int64_t chunk) { return chunk % panels * kPanelRows<Arch>; };
    for (std::int64_t chunk; (chunk = slice.claim(n_chunks)) != WorkQueue::kNoChunk;) {
        const std::int64_t i = chunk / panels, begin = i == 0 ? 0 : used.end[i - 1], first = first_row(chunk);
        const std::int64_t then = chunk + slice.n_threads;   // probably
        Ahead ahead;
        if (then < n_chunks) {
            const std::byte* matrix = w.data + used.expert[then / panels] * w.nb[2];
            const std::int64_t row = first_row(then), n_rows = std::min<std::int64_t>(kPanelRows<Arch>, w.ne[1] - row);
            ahead = ahead_at<Arch>(matrix + row * w.nb[1], n_rows, w.nb[1], end_of_matrix<Arch>(w, used.expert[then / panels]));
        }
        if (std::exchange(gathered, i) != i) rows.gather(used.columns + begin, used.end[i] - begin);
        Weights::multiply(panel_job<Arch>(w, used.expert[i], first, std::min(first + kPanelRows<Arch>, w.ne[1]), ahead,
            used.columns + begin, used.end[i] - begin, streams, scratch));
    }
    if (streams) stream_fence(Arch{});
}

}  // namespace tinfer::kernels
