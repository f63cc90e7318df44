// SPDX-License-Identifier: MIT
// Attention as an online softmax, in the order that reference/attention.cpp states, cut into tasks. A task is a block
// of queries with the heads of one KV head; where these are too few to keep the threads busy, as for one token, the
// block is cut into runs of chunks as well: each leaves (m, l, o) per chunk in scratch, and whoever finishes the last
// of a block merges them in ascending order. How a call is cut never changes a bit.
#pragma once

#include "kernels/attention/block.hpp"

namespace tinfer::kernels {

/// How a call is cut into tasks. A unit is a block of tokens with the heads of a KV head, or with a part of them where
/// they are more than a block holds. Where few rows share a KV head, memory is what counts, and a unit takes the KV
/// heads of a page together, which lie side by side: what the processor fetches beyond one is then the next.
template <class Arch>
struct AttentionCut {
    std::int64_t tokens, n_blocks;   ///< of a block; blocks
    std::int64_t heads, n_parts;     ///< of a KV head in a unit; units that make up all of them
    std::int64_t kv_heads;           ///< of a unit; more than 1 only where n_parts = 1
    std::int64_t n_units, n_pieces;  ///< runs of chunks that a unit is cut into

    /// `short_tasks`: time is limited.
    AttentionCut(const KernelCall& call, int n_threads, bool short_tasks) noexcept {
        const AttentionParams& p = call.params.attention;
        const std::int64_t n_tokens = call[6].ne[1], per_kv = p.n_head / p.n_head_kv;
        const std::int64_t wanted = n_threads == 1 ? 1 : 4 * n_threads;
        heads = per_kv < kBlockRows ? per_kv : kBlockRows;
        n_parts = up(per_kv, heads);
        tokens = least(n_tokens, kBlockRows / heads);
        tokens = up(n_tokens, up(n_tokens, tokens));  // blocks of one size
        n_pieces = kv_heads = 1;
        if (n_tokens * per_kv <= kDirectQueries && !short_tasks) {
            const std::int64_t most = least(p.n_head_kv, kBlockRows / (n_tokens * per_kv));
            const std::int64_t n_chunks = n_threads == 1 ? 1 : max_chunks(call);
            kv_heads = up(p.n_head_kv, most);
            while (kv_heads < p.n_head_kv && kv_heads * n_chunks < wanted) ++kv_heads;
            kv_heads = up(p.n_head_kv, kv_heads);
        }
        count(p, n_tokens);
        if (n_units >= wanted) return;
        if (n_tokens * p.n_head <= most_split_rows(p) && n_units <= WorkQueue::kGroups)
            n_pieces = least(max_chunks(call), up(2 * wanted, n_units));
        while (n_pieces == 1 && tokens > 1 && tokens * heads > 2 * kTileQueries<Arch> && n_units < wanted)
            tokens = up(tokens, 2), count(p, n_tokens);
    }
    /// Rows that may have a place for every chunk.
    static std::int64_t most_split_rows(const AttentionParams& p) noexcept { return p.n_head > 64 ? p.n_head : 64; }

private:
    static std::int64_t up(std::int64_t a, std::int64_t b) noexcept { return (a + b - 1) / b; }
    static std::int64_t least(std::int64_t a, std::int64_t b) noexcept { return a < b ? a : b < 1 ? 1 : b; }
    void count(const AttentionParams& p, std::int64_t n_tokens) noexcept {
        n_blocks = up(n_tokens, tokens);
        n_units = n_blocks * up(p.n_head_kv, kv_heads) * n_parts;
    }
    static std::int64_t max_chunks(const KernelCall& call) noexcept {
        std::int64_t most = 1;
        for (std::int64_t t = 0; t < call[6].ne[1]; ++t) {
            const auto* span = call[6].template row<const std::int32_t>(t);
            const std::int64_t own = up(span[2], 256) - span[1] / 256;
            most = own > most ? own : most;
        }
        return most;
    }
};

/// Where the parts of a call's scratch lie: places {m, l, o} of every (token, head, chunk), then a block per thread.
/// Ordinals count tokens that a window has left behind, whose KV slots are given back: chunks are counted from the
/// first that a block sees, and n KV slots lie in at most (n + 510) / 256 of them, wherever the first of them stands.
template <class Arch>
struct AttentionScratch {
    std::int64_t place, n_chunks, places;  ///< floats of a place; chunks of a row; floats of all places
    std::int64_t rows, block;              ///< most rows of a block; floats of its memory

    explicit AttentionScratch(const StepShape& shape) noexcept {
        const AttentionParams& p = shape.params.attention;
        // What fewer tokens need fits, too: a plan is measured once, for the most.
        const std::int64_t all = shape[6].ne[1] * p.n_head, most = AttentionCut<Arch>::most_split_rows(p);
        const std::int64_t split_rows = all < most ? all : most;
        rows = all < kBlockRows ? all : kBlockRows;
        place = BlockScratch<Arch>::padded(p) + 16;
        n_chunks = (shape[2].ne[1] + 510) / 256;
        places = shape.n_threads == 1 ? 0 : split_rows * n_chunks * place;
        block = (BlockScratch<Arch>::floats(p, rows) + 15) / 16 * 16;
    }
};

template <class Arch>
std::uint64_t attention_scratch(const StepShape& shape) noexcept {
    const AttentionScratch<Arch> scratch(shape);
    const std::int64_t n = shape.n_threads, bytes = 4 * (scratch.places + n * scratch.block), unit = 64 * n;
    return static_cast<std::uint64_t>((bytes + unit - 1) / unit * unit);
}

template <class Arch>
class AttentionTasks {
public:
    AttentionTasks(const KernelCall& call, WorkSlice slice) noexcept
        : call_(call), params_(call.params.attention), slice_(slice), cut_(call, slice.n_threads, slice.short_chunks),
          layout_(call), places_(reinterpret_cast<float*>(call[kScratchSlot].data)),
          memory_(places_ + layout_.places + slice.thread * layout_.block, params_, layout_.rows) {}

    void run() noexcept {
        const std::int64_t n = cut_.n_units * cut_.n_pieces;
        for (std::int64_t task = slice_.claim(n); task != WorkQueue::kNoChunk; task = slice_.claim(n)) {
            const std::int64_t unit = task / cut_.n_pieces, piece = task % cut_.n_pieces;
            each_run(unit, [&](AttentionBlock<Arch>& block, const std::int32_t* sequence) {
                if (cut_.n_pieces == 1) attend(block, sequence);
                else attend_piece(block, sequence, piece);
            });
            if (cut_.n_pieces == 1 || !slice_.queue->finish(unit, cut_.n_pieces)) continue;
            each_run(unit, [&](AttentionBlock<Arch>& block, const std::int32_t*) { combine(block); });
        }
    }

private:
    /// The runs of a unit: consecutive tokens of one sequence. Later blocks come first: they see more, and small tasks
    /// fill the end.
    template <class Fn>
    void each_run(std::int64_t unit, Fn fn) noexcept {
        const std::int64_t per_kv = params_.n_head / params_.n_head_kv, per_block = cut_.n_units / cut_.n_blocks;
        const std::int64_t first = (cut_.n_blocks - 1 - unit / per_block) * cut_.tokens;
        const std::int64_t part = unit % cut_.n_parts * cut_.heads,
                           kv_head = unit % per_block / cut_.n_parts * cut_.kv_heads;
        const auto n_heads = static_cast<int>(least(per_kv - part, cut_.heads)),
                   n_kv = static_cast<int>(least(params_.n_head_kv - kv_head, cut_.kv_heads));
        const std::int64_t n_tokens = call_[6].ne[1];
        const std::int64_t end = first + cut_.tokens < n_tokens ? first + cut_.tokens : n_tokens;
        AttentionBlock<Arch> block(call_, memory_);
        for (std::int64_t t = first; t < end;) {
            const std::int32_t sequence = span(t)[0];
            std::int64_t next = t + 1;
            while (next < end && span(next)[0] == sequence) ++next;
            block.open(t, static_cast<int>(next - t), kv_head * per_kv + part, n_heads, n_kv);
            fn(block, sequence < 0 ? nullptr : call_[5].template row<const std::int32_t>(sequence));
            t = next;
        }
    }
    static std::int64_t least(std::int64_t a, std::int64_t b) noexcept { return a < b ? a : b; }
    [[nodiscard]] const std::int32_t* span(std::int64_t token) const noexcept {
        return call_[6].template row<const std::int32_t>(token);
    }
    /// `chunk`: of those that the row's block sees.
    [[nodiscard]] float* place(const AttentionRow<Arch>& row, std::int64_t chunk) const noexcept {
        return places_ + ((row.token * params_.n_head + row.head) * layout_.n_chunks + chunk) * layout_.place;
    }

    /// All chunks.
    void attend(AttentionBlock<Arch>& block, const std::int32_t* sequence) noexcept {
        const std::int64_t padded = BlockScratch<Arch>::padded(params_);
        AttentionRow<Arch>* rows = block.rows();
        block.for_each_tile(
            sequence, block.first_chunk(), block.end_chunk(),
            [&](std::int64_t) { clear_rows(rows, block.n_rows(), padded); },
            [&](std::int64_t) { close_chunk(rows, block.n_rows(), padded); });
        for (int r = 0; r < block.n_rows(); ++r) write_row(call_, rows[r], padded);
    }
    /// A run of the chunks, each left in its place. l < 0: nothing seen.
    void attend_piece(AttentionBlock<Arch>& block, const std::int32_t* sequence, std::int64_t piece) noexcept {
        const std::int64_t padded = BlockScratch<Arch>::padded(params_);
        const std::int64_t first = block.first_chunk(), n = block.end_chunk() - first;
        const std::int64_t begin = first + n * piece / cut_.n_pieces, end = first + n * (piece + 1) / cut_.n_pieces;
        AttentionRow<Arch>* rows = block.rows();
        for (std::int64_t chunk = begin; chunk < end; ++chunk)
            for (int r = 0; r < block.n_rows(); ++r) place(rows[r], chunk - first)[padded + 1] = -1.0f;
        block.for_each_tile(
            sequence, begin, end,
            [&](std::int64_t chunk) {
                for (int r = 0; r < block.n_rows(); ++r) {
                    rows[r].o = place(rows[r], chunk - first);
                    rows[r].clear(padded);
                }
            },
            [&](std::int64_t chunk) {
                for (int r = 0; r < block.n_rows(); ++r) {
                    float* tail = place(rows[r], chunk - first) + padded;
                    tail[0] = rows[r].m;
                    if (rows[r].seen) tail[1] = rows[r].l;
                }
            });
    }
    void combine(AttentionBlock<Arch>& block) noexcept {
        const std::int64_t padded = BlockScratch<Arch>::padded(params_);
        for (std::int64_t chunk = block.first_chunk(); chunk < block.end_chunk(); ++chunk) {
            RowMerges<Arch> merges(padded);
            for (int r = 0; r < block.n_rows(); ++r) {
                AttentionRow<Arch>& row = block.rows()[r];
                const float* o = place(row, chunk - block.first_chunk());
                if (o[padded + 1] < 0.0f) continue;
                if (row.any) {
                    merges.add(row, o[padded], o[padded + 1], o);
                    continue;
                }
                for (std::int64_t c = 0; c < padded; c += 16) f32x16<Arch>::load(o + c).store(row.whole_o + c);
                row.whole_m = o[padded];
                row.whole_l = o[padded + 1];
                row.any = true;
            }
        }
        for (int r = 0; r < block.n_rows(); ++r) write_row(call_, block.rows()[r], padded);
    }

    const KernelCall& call_;
    const AttentionParams& params_;
    const WorkSlice slice_;
    const AttentionCut<Arch> cut_;
    const AttentionScratch<Arch> layout_;
    float* const places_;
    const BlockScratch<Arch> memory_;
};

template <class Arch>
void attention(const KernelCall& call, WorkSlice slice) noexcept {
    AttentionTasks<Arch>(call, slice).run();
}

}  // namespace tinfer::kernels
