// SPDX-License-Identifier: MIT
// How a thread gets its share of a product: it claims chunks of rows, and each gives one job or several. The loop does
// not depend on the type of the weights, so every table has it twice (plain products, experts) and not once per format.
#pragma once

#include "kernels/matmul/columns.hpp"
#include "kernels/schedule.hpp"

namespace tinfer::kernels {

/// What the cut depends on of the route that the weights take with these columns.
struct ChunkShape {
    bool uses_gemv;                ///< a job may have any number of rows, and not only whole panels
    std::int64_t panel_rows;       ///< rows of a panel
    std::int64_t panels_together;  ///< panels of a chunk where reading is not most of the work
};

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

/// What a thread reads that begins these rows of matrix number `matrix` of a stack.
template <class Arch>
TINFER_INLINE Ahead ahead_in(const Operand& w, std::int64_t matrix, Range rows) noexcept {
    const std::byte* begin = w.data + matrix * w.nb[2] + rows.begin * w.nb[1];
    return ahead_at<Arch>(begin, rows.end - rows.begin, w.nb[1], end_of_matrix<Arch>(w, matrix));
}

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

/// The jobs of one thread, one after the other.
template <class Arch, class Columns>
class ChunkJobs {
public:
    [[gnu::noinline]] ChunkJobs(const KernelCall& call, WorkSlice slice, Columns& columns, ChunkShape shape,
                                std::byte* scratch) noexcept
        : call_(call), w_(call[1]), slice_(slice), columns_(columns), uses_gemv_(shape.uses_gemv),
          memory_bound_(columns.most() <= Arch::kMemoryBoundTokens),
          unit_(shape.uses_gemv ? kRowsTogether : shape.panel_rows), chunks_(cut(shape)) {
        job_.row_stride = w_.nb[1];
        job_.k = w_.ne[0];
        job_.processor = call.processor;
        job_.nontemporal = columns.most() > 0 && stores_nontemporal<Arch>(call[0], call[2], columns.columns[0].addend);
        job_.scratch = scratch;
        if (memory_bound_) next_ = slice_.claim(chunks_.count());
    }

    /// The next job, valid until the next call, or null where no chunk is left.
    [[gnu::noinline]] const PanelJob* next() noexcept {
        if (rows_.begin == rows_.end && !begin_chunk()) return nullptr;
        const Range rows{rows_.begin,
                         uses_gemv_ || !memory_bound_ ? rows_.end : std::min(rows_.begin + unit_, rows_.end)};
        rows_.begin = rows.end;
        job_.w = w_.data + matrix_ * w_.nb[2] + rows.begin * w_.nb[1];
        job_.n_rows = static_cast<int>(rows.end - rows.begin);
        job_.first_row = rows.begin;
        job_.ahead = ahead();
        return &job_;
    }

private:
    RowChunks<Arch> cut(const ChunkShape& shape) const noexcept {
        if (memory_bound_) return RowChunks<Arch>::to_read(w_, columns_.n_used, unit_, slice_.n_threads);
        const bool too_long =
            slice_.short_chunks && shape.panels_together * unit_ * columns_.most() * w_.ne[0] > kMaxMacsOfShort;
        return RowChunks<Arch>::to_multiply(w_, columns_.n_used, unit_, too_long ? 1 : shape.panels_together,
                                            slice_.n_threads);
    }
    bool begin_chunk() noexcept {
        chunk_ = memory_bound_ ? next_ : slice_.claim(chunks_.count());
        if (chunk_ == WorkQueue::kNoChunk) {
            if (job_.nontemporal) nontemporal_fence(Arch{});
            return false;
        }
        const RowRun run = chunks_.run(chunk_);
        matrix_ = columns_.matrix(run.matrix);
        rows_ = run.rows;
        const ColumnRange columns = columns_.of(run.matrix);
        job_.columns = columns.first;
        job_.n_columns = columns.n;
        job_.n_readable = columns_.readable();
        return true;
    }
    /// What this thread reads behind the job whose rows end where rows_ now begins.
    Ahead ahead() noexcept {
        if (!memory_bound_) {  // probably the panels are claimed in order
            return chunk_ + slice_.n_threads < chunks_.count() ? ahead_of_chunk(chunk_ + slice_.n_threads) : Ahead{};
        }
        if (rows_.begin < rows_.end)
            return ahead_in<Arch>(w_, matrix_, {rows_.begin, std::min(rows_.begin + unit_, rows_.end)});
        next_ = slice_.claim(chunks_.count());  // claimed before this chunk ends, so that its first rows are prefetched
        return next_ == WorkQueue::kNoChunk
                   ? begin_of_next_product<Arch>(call_, slice_.thread, columns_.matrix(0), columns_.n_used)
                   : ahead_of_chunk(next_);
    }
    Ahead ahead_of_chunk(std::int64_t chunk) const noexcept {
        RowChunks<Arch> later = chunks_;
        const RowRun run = later.run(chunk);
        return ahead_in<Arch>(w_, columns_.matrix(run.matrix), run.rows);
    }

    const KernelCall& call_;
    const Operand& w_;
    WorkSlice slice_;
    Columns& columns_;
    bool uses_gemv_, memory_bound_;
    std::int64_t unit_;
    RowChunks<Arch> chunks_;
    std::int64_t chunk_ = 0, next_ = 0;  ///< the chunk in work; where memory-bound, the one claimed behind it
    std::int64_t matrix_ = 0;            ///< of the stack, that the chunk belongs to
    Range rows_{};                       ///< of the chunk, those that no job had yet
    PanelJob job_{};
};

}  // namespace tinfer::kernels
