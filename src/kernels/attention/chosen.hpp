// SPDX-License-Identifier: MIT
// Attention over lists of KV slots, and over entries of a compressed past with the newest tokens: the keys of 64 are
// brought together, then the heads that share them are worked as attention works a page. The order of operations is
// that of reference/sparse_attention.cpp and reference/compressed.cpp.
#pragma once

#include "kernels/attention/block.hpp"
#include "kernels/attention/gather.hpp"

namespace tinfer::kernels {

/// One token's heads of one KV head, or a part of them: a call as AttentionBlock wants it, whose span is set by hand,
/// and this thread's memory.
template <class Arch>
class ChosenBlock {
public:
    static constexpr int kTile = AttentionTile<Arch>::kSize;

    /// `sinks`: their slot of the call. Values may lie elsewhere and be of another type than V.
    ChosenBlock(const KernelCall& call, WorkSlice slice, int sinks, DType keys, DType values) noexcept
        : block_call_(with_span(call, sinks, keys, values)),
          memory_(reinterpret_cast<float*>(call.scratch(slice.thread))), scratch_(memory_, parameters(), rows(call)),
          block_(block_call_, scratch_) {}
    ChosenBlock(const ChosenBlock&) = delete;
    ChosenBlock& operator=(const ChosenBlock&) = delete;

    static std::int64_t rows(const StepShape& call) noexcept {
        const AttentionParams& p = call.params.attention;
        const std::int64_t per_kv = p.n_head / p.n_head_kv;
        return per_kv < kBlockRows ? per_kv : kBlockRows;
    }
    /// Floats in front of what a kernel gathers.
    static std::int64_t floats(const StepShape& call) noexcept {
        return (BlockScratch<Arch>::floats(call.params.attention, rows(call)) + 15) / 16 * 16;
    }
    /// Behind the block's own memory.
    [[nodiscard]] float* gathered() const noexcept { return memory_ + floats(block_call_); }

    /// Calls fn(token, KV head) for this thread's share of the units, the block being open for its heads.
    template <class Fn>
    void each_unit(WorkSlice slice, std::int64_t n_tokens, Fn fn) noexcept {
        const AttentionParams& p = parameters();
        const std::int64_t per_kv = p.n_head / p.n_head_kv, n_shared = n_tokens * p.n_head_kv;
        std::int64_t n_parts = (per_kv + kBlockRows - 1) / kBlockRows;
        if (n_shared < slice.n_threads) n_parts = slice.n_threads;  // one token, few KV heads
        if (n_parts > per_kv) n_parts = per_kv;
        const Range units = slice.share(n_shared * n_parts);
        for (std::int64_t unit = units.begin; unit < units.end; ++unit) {
            const std::int64_t token = unit / n_parts / p.n_head_kv, kv_head = unit / n_parts % p.n_head_kv;
            const std::int64_t begin = per_kv * (unit % n_parts) / n_parts,
                               end = per_kv * (unit % n_parts + 1) / n_parts;
            if (begin == end) continue;
            block_.open(token, 1, kv_head * per_kv + begin, static_cast<int>(end - begin), 1);
            fn(token, kv_head);
            for (int r = 0; r < block_.n_rows(); ++r)
                write_row(block_call_, block_.rows()[r], BlockScratch<Arch>::padded(p));
        }
    }
    /// What the block's rows see from now on: of a list or of a sequence. Its chunks are its own.
    void see(std::int64_t begin, std::int64_t end) noexcept {
        chunk_ = -1;
        block_.see(begin, end);
    }
    /// The next tile.
    void add(const AttentionTile<Arch>& tile, const std::byte* keys, const std::byte* (&values)[kTile]) noexcept {
        const std::int64_t chunk = tile.number / kChunkTiles;
        if (chunk != chunk_) close();
        if (chunk_ < 0) {
            clear_rows(block_.rows(), block_.n_rows(), BlockScratch<Arch>::padded(parameters()));
            chunk_ = chunk;
        }
        block_.add_gathered(tile, keys, values);
    }
    /// Behind the last tile of what is seen.
    void close() noexcept {
        if (chunk_ >= 0) close_chunk(block_.rows(), block_.n_rows(), BlockScratch<Arch>::padded(parameters()));
        chunk_ = -1;
    }

private:
    KernelCall with_span(const KernelCall& call, int sinks, DType keys, DType values) noexcept {
        KernelCall copy = call;
        copy.params.attention.max_bias = 0.0f;
        copy.operands[2].type = keys;
        copy.operands[3].type = values;
        copy.operands[6] = {};
        copy.operands[6].data = reinterpret_cast<std::byte*>(span_);  // the same for every token: no stride
        copy.operands[7] = call[sinks];
        copy.operands[8] = copy.operands[9] = {};
        return copy;
    }
    [[nodiscard]] const AttentionParams& parameters() const noexcept { return block_call_.params.attention; }

    std::int32_t span_[4] = {0, 0, 1, 0};
    const KernelCall block_call_;
    float* const memory_;
    const BlockScratch<Arch> scratch_;
    AttentionBlock<Arch> block_;
    std::int64_t chunk_ = -1;
};

/// Bytes for all threads of so many floats each.
template <class Arch>
std::uint64_t scratch_of_floats(std::int64_t floats, int n_threads) noexcept {
    return static_cast<std::uint64_t>((floats + 15) / 16 * 64) * static_cast<std::uint64_t>(n_threads);
}

template <class Arch>
std::uint64_t sparse_attention_scratch(const StepShape& call) noexcept {
    const std::int64_t keys = AttentionTile<Arch>::kSize * row_bytes(call[2].type, call.params.attention.head_dim_k);
    return scratch_of_floats<Arch>(ChosenBlock<Arch>::floats(call) + (keys + 3) / 4, call.n_threads);
}

template <class Arch>
void sparse_attention(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand& chosen = call[4];
    const AttentionParams& p = call.params.attention;
    ChosenBlock<Arch> block(call, slice, 5, call[2].type, call[3].type);
    auto* keys = reinterpret_cast<std::byte*>(block.gathered());
    const std::int64_t v_bytes = row_bytes(call[3].type, p.head_dim_v);
    block.each_unit(slice, call[1].ne[2], [&](std::int64_t token, std::int64_t kv_head) {
        const auto* list = chosen.template row<const std::int32_t>(chosen.ne[1] == 1 ? 0 : kv_head, token);
        std::int64_t n = 0;
        while (n < chosen.ne[0] && list[n] >= 0) ++n;
        block.see(0, n);
        AttentionTile<Arch> tile;
        for (std::int64_t first = 0; first < n; first += tile.kSize, ++tile.number) {
            const int count = n - first < tile.kSize ? static_cast<int>(n - first) : tile.kSize;
            tile.live = ~std::uint64_t{0} >> (tile.kSize - count);
            gather_keys<Arch>(call[2], kv_head, p.n_head_kv, p.head_dim_k, list + first, count, keys);
            const std::byte* row[AttentionTile<Arch>::kSize];
            for (int i = 0; i < tile.kSize; ++i)
                row[i] = call[3].data + v_row_offset(list[first + (i < count ? i : 0)], kv_head, p.n_head_kv, v_bytes);
            block.add(tile, keys, row);
        }
        block.close();
    });
}

/// Groups and rows of 64 keys as float32, and the same before they are widened.
template <class Arch>
std::uint64_t compressed_attention_scratch(const StepShape& call) noexcept {
    const std::int64_t keys = AttentionTile<Arch>::kSize * call.params.attention.head_dim_k;
    return scratch_of_floats<Arch>(ChosenBlock<Arch>::floats(call) + 3 * keys, call.n_threads);
}

/// Entries first, then tokens; keys are values.
template <class Arch>
void compressed_attention(const KernelCall& call, WorkSlice slice) noexcept {
    constexpr int kTile = AttentionTile<Arch>::kSize;
    const Operand &keys = call[2], &entries = call[3], &chosen = call[7];
    const std::int64_t d = call.params.attention.head_dim_k;
    ChosenBlock<Arch> block(call, slice, 8, DType::f32, DType::f32);
    float *groups = block.gathered(), *rows = groups + kTile * d, *narrow = rows + kTile * d;
    const auto add = [&](const AttentionTile<Arch>& tile) {
        const std::byte* row[kTile];
        for (int i = 0; i < kTile; ++i) row[i] = reinterpret_cast<const std::byte*>(rows + i * d);
        block.add(tile, reinterpret_cast<const std::byte*>(groups), row);
    };
    block.each_unit(slice, call[1].ne[2], [&](std::int64_t token, std::int64_t) {
        AttentionTile<Arch> tile;
        const auto* list = entries.present() ? chosen.template row<const std::int32_t>(0, token) : nullptr;
        std::int64_t n = 0;
        while (entries.present() && n < chosen.ne[0] && list[n] >= 0) ++n;
        block.see(0, n);
        for (std::int64_t first = 0; first < n; first += kTile, ++tile.number) {
            const int count = n - first < kTile ? static_cast<int>(n - first) : kTile;
            tile.live = ~std::uint64_t{0} >> (kTile - count);
            with_value_slots<Arch>(entries.type, [&](auto kind) {
                using KvSlot = decltype(kind);
                const std::int64_t bytes = row_bytes(entries.type, d);
                for (int i = 0; i < count; ++i) {
                    const std::byte* from = entries.data + v_row_offset(list[first + i], 0, 1, bytes);
                    float* group = groups + i / kGroup * kGroup * d + i % kGroup;
                    each_piece<Arch>(d, [&](std::int64_t c, int width) {
                        const auto piece =
                            width == 16 ? KvSlot::load_row(from, c, d) : KvSlot::load_row(from, c, d, width);
                        store_piece(piece, rows + i * d + c, width);
                        for (int l = 0; l < width; ++l) group[(c + l) * kGroup] = rows[i * d + c + l];
                    });
                }
            });
            add(tile);
        }
        block.close();

        const auto* span = call[6].template row<const std::int32_t>(token);
        const std::int64_t begin = span[1], end = span[0] < 0 ? span[1] : span[2];
        block.see(begin, end);
        if (begin >= end) return;
        TileIterator<Arch> tiles(call[4], call[5].template row<const std::int32_t>(span[0]), begin / kTile);
        while (tiles.next(tile) && tile.number * kTile < end) {
            const std::uint64_t visible = tile.visible(begin, end);
            if (visible == 0) continue;
            std::int32_t kv_slots[kTile] = {};
            const int first = __builtin_ctzll(visible);
            for (int i = 0; i < kTile; ++i)
                kv_slots[i] = static_cast<std::int32_t>(tile.kv_slot((visible >> i & 1) != 0 ? i : first));
            gather_keys<Arch>(keys, 0, 1, d, kv_slots, kTile, reinterpret_cast<std::byte*>(narrow));
            const std::int64_t group_bytes = kGroup * row_bytes(keys.type, d);
            for (int g = 0; g < kTile / kGroup; ++g)
                widen_group<Arch>(keys.type, reinterpret_cast<const std::byte*>(narrow) + g * group_bytes, d,
                                  groups + g * kGroup * d);
            rows_of_groups<Arch>(groups, kTile, d, rows);
            add(tile);
        }
        block.close();
    });
}

}  // namespace tinfer::kernels
