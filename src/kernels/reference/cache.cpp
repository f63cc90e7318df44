// SPDX-License-Identifier: MIT
// Reference: writing rows of K and V into KV slots of a cache, copying its pages and moving its KV slots.
#include <cstring>
#include <type_traits>

#include "base/dtype.hpp"
#include "kernels/attention/kv_layout.hpp"
#include "kernels/reference/kv_slot.hpp"
#include "kernels/reference/ops.hpp"

namespace tinfer::kernels::ref {

namespace {

/// Head h of token t of rows {d, n_head_kv, T} or {d·n_head_kv, T}.
const float* head_row(const Operand& rows, std::int64_t token, std::int64_t head, std::int64_t n_head,
                      std::int64_t d) noexcept {
    const bool by_head = rows.ne[0] == d && rows.ne[1] == n_head;
    return by_head ? rows.row<const float>(head, token) : rows.row<const float>(token) + head * d;
}

/// Calls row(token, x, d, put) for this thread's share of (token, head), where x are the head's channels and
/// put(channel, value) takes what the cache gets. KV slots of codes are quantized when a row is complete.
template <class Fn>
void write_kv_slots(const KernelCall& call, WorkSlice slice, Fn row) noexcept {
    const Operand &cache = call[0], &kv_slots = call[2];
    const AttentionParams& p = call.params.attention;
    const bool is_v = call.params.is_v != 0;
    const std::int64_t n_head = p.n_head_kv, d = is_v ? p.head_dim_v : p.head_dim_k, bytes = row_bytes(cache.type, d);
    const Range items = slice.share(kv_slots.ne[0] * n_head);
    auto* buffer = reinterpret_cast<float*>(call.scratch(slice.thread));
    for (std::int64_t i = items.begin; i < items.end; ++i) {
        const std::int64_t token = i / n_head, head = i % n_head, kv_slot = kv_slots.row<const std::int32_t>(0)[token];
        if (kv_slot < 0) continue;
        const float* x = head_row(call[1], token, head, n_head, d);
        if (is_coded<reference>(cache.type)) {
            row(token, x, d, [&](std::int64_t channel, float value) { buffer[channel] = value; });
            store_kv_slot<reference>(cache.type, is_v,
                                     cache.data + (is_v ? v_row_offset(kv_slot, head, n_head, bytes)
                                                        : k_group_offset(kv_slot, head, n_head, bytes)),
                                     d, kv_slot % kGroup, buffer);
        }
        with_kv_slot(cache.type, [&]<class KvSlot>(KvSlot) {
            auto* elements = reinterpret_cast<typename KvSlot::Stored*>(cache.data);
            const std::int64_t first = is_v ? v_index(kv_slot, head, n_head, d) : k_index(kv_slot, head, n_head, d);
            row(token, x, d, [&](std::int64_t channel, float value) {
                elements[first + channel * (is_v ? 1 : kGroup)] = KvSlot::store(value);
            });
        });
    }
}

}  // namespace

/// Each element rounded once to the cache's type, or quantized. A negative KV slot number is skipped.
void kv_write(const KernelCall& call, WorkSlice slice) noexcept {
    write_kv_slots(call, slice, [](std::int64_t, const float* x, std::int64_t d, auto put) {
        for (std::int64_t j = 0; j < d; ++j) put(j, x[j]);
    });
}

/// rope, then kv_write: the same bits as the two.
void rope_kv_write(const KernelCall& call, WorkSlice slice) noexcept {
    const RopeParams& params = call.params.rope;
    write_kv_slots(call, slice, [&](std::int64_t token, const float* x, std::int64_t d, auto put) {
        const auto* angles = call[3].row<const float>(token);
        for (std::int64_t p = 0; p < params.n_rot / 2; ++p) {
            const Pair at = pair_of(params, p);
            const Rotated rotated = rotate(x[at.a], x[at.c], angles, p);
            put(at.a, rotated.a);
            put(at.c, rotated.c);
        }
        for (std::int64_t j = params.n_rot; j < d; ++j) put(j, x[j]);
    });
}

/// Keys of a head as floats, the part from params.first rotated as rope does, stored again with one rounding: of the
/// pairs alone where KV slots are floats, of all channels where they are codes. Keys that went through
/// hadamard go through it before, which undoes it, and behind.
void key_shift(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &cache = call[0], &table = call[2], &kv_slots = call[3];
    const AttentionParams& p = call.params.attention;
    const RopeParams& rope = call.params.rope;
    const std::int64_t n_head = p.n_head_kv, d = p.head_dim_k, bytes = row_bytes(cache.type, d);
    const Range items = slice.share(kv_slots.ne[0] * n_head);
    auto* keys = reinterpret_cast<float*>(call.scratch(slice.thread));
    for (std::int64_t i = items.begin; i < items.end; ++i) {
        const std::int64_t head = i % n_head, kv_slot = kv_slots.row<const std::int32_t>(0)[i / n_head];
        if (kv_slot < 0) continue;
        std::byte* const group = cache.data + k_group_offset(kv_slot, head, n_head, bytes);
        const auto* angles = table.row<const float>(i / n_head);
        with_kv_slots(cache.type, [&]<class KvSlots>(KvSlots) {
            for (std::int64_t c = 0; c < d; ++c) keys[c] = KvSlots::key(group, kv_slot % kGroup, c, d);
        });
        const auto transform = [&] {
            const std::int64_t block = call.params.block;
            for (std::int64_t c = 0; block > 1 && c < d; c += block) hadamard_block(keys + c, block, keys + c);
        };
        transform();
        for (std::int64_t pair = 0; pair < rope.n_rot / 2; ++pair) {
            const Pair at = pair_of(rope, pair);
            float &a = keys[call.params.first + at.a], &c = keys[call.params.first + at.c];
            const Rotated rotated = rotate(a, c, angles, pair);
            a = rotated.a;
            c = rotated.c;
        }
        transform();
        if (is_coded<reference>(cache.type))
            store_kv_slot<reference>(cache.type, false, group, d, kv_slot % kGroup, keys);
        with_kv_slot(cache.type, [&]<class KvSlot>(KvSlot) {
            auto* elements = reinterpret_cast<typename KvSlot::Stored*>(group) + kv_slot % kGroup;
            for (std::int64_t c = call.params.first; c < call.params.first + rope.n_rot; ++c)
                elements[c * kGroup] = KvSlot::store(keys[c]);
        });
    }
}

/// Copies page `from` over page `to` for each pair; a page is contiguous in both layouts.
void kv_copy_page(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &to = call[0], &from = call[1], &pairs = call[2];
    const std::int64_t bytes = kPageSlots * row_bytes(to.type, to.ne[0]);
    const Range share = slice.share(pairs.ne[1]);
    for (std::int64_t i = share.begin; i < share.end; ++i) {
        const auto* pair = pairs.row<const std::int32_t>(i);
        if (pair[0] >= 0)
            std::memcpy(to.data + pair[1] * bytes, from.data + pair[0] * bytes, static_cast<std::size_t>(bytes));
    }
}

namespace {

/// Calls piece(offset, bytes) for the bytes of a KV slot in a head's group of K or row of V; offsets count from its
/// begin.
template <class Fn>
void for_each_piece(DType type, bool is_v, std::int64_t d, std::int64_t lane, Fn piece) noexcept {
    if (is_v) return piece(0, row_bytes(type, d));
    const auto column = [&](std::int64_t first, std::int64_t n, auto bytes) {  // bytes: a constant
        for (std::int64_t i = 0; i < n; ++i) piece(first + (i * kGroup + lane) * bytes, bytes);
    };
    constexpr std::integral_constant<std::int64_t, 2> two;
    constexpr std::integral_constant<std::int64_t, 4> four;
    if (type == DType::f32) return column(0, d, four);
    if (!is_coded<reference>(type)) return column(0, d, two);
    column(0, code_bytes(type, d) / 4, four);
    column(kGroup * code_bytes(type, d), d / kKvBlock, two);
}

}  // namespace

/// Bytes as they are, of any type; each thread makes all copies in the order of the list, for its share of the heads.
void kv_move(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &cache = call[0], &moves = call[2];
    const AttentionParams& p = call.params.attention;
    const bool is_v = call.params.is_v != 0;
    const std::int64_t n_head = p.n_head_kv, d = is_v ? p.head_dim_v : p.head_dim_k, bytes = row_bytes(cache.type, d);
    std::byte* const buffer = call.scratch(slice.thread);
    const auto begin_of = [&](std::int64_t kv_slot, std::int64_t head) {
        return cache.data +
               (is_v ? v_row_offset(kv_slot, head, n_head, bytes) : k_group_offset(kv_slot, head, n_head, bytes));
    };
    const Range heads = slice.share(n_head);
    for (std::int64_t head = heads.begin; head < heads.end; ++head)
        for (std::int64_t i = 0; i < moves.ne[1]; ++i) {
            const auto* move = moves.row<const std::int32_t>(i);
            if (move[2] == 0) break;
            for (std::int64_t k = 0; k < move[2]; ++k) {
                const std::int64_t from = move[0] < 0 ? -1 : move[0] + k, to = move[1] < 0 ? -1 : move[1] + k;
                std::byte* const source = from < 0 ? buffer : begin_of(from, head);
                std::byte* const target = to < 0 ? buffer : begin_of(to, head);
                // The buffer holds the pieces of a KV slot without gaps.
                const std::int64_t lane_from = from < 0 ? 0 : from % kGroup, lane_to = to < 0 ? 0 : to % kGroup;
                std::int64_t packed = 0;
                for_each_piece(cache.type, is_v, d, lane_from, [&](std::int64_t offset, auto n) {
                    const std::int64_t step = is_v ? 0 : (lane_to - lane_from) * n;
                    std::byte* const read = from < 0 ? source + packed : source + offset;
                    std::byte* const write = to < 0 ? target + packed : target + offset + step;
                    std::memmove(write, read, static_cast<std::size_t>(n));
                    packed += n;
                });
            }
        }
}

}  // namespace tinfer::kernels::ref
