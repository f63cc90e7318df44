// SPDX-License-Identifier: MIT
// What layers with a state have in common: the rows of the state that a token reads and writes, pieces of sixteen
// floats with their padding, and blocks of rows of a head. A block stays in L1 while all tokens pass over it, in order,
// so that a prompt reads and writes its state once; orders of operations as in reference/recurrent.cpp.
#pragma once

#include "kernels/attention/microkernels.hpp"
#include "kernels/elementwise/norm.hpp"

namespace tinfer::kernels {

inline constexpr int kStateBlock = 16;   ///< rows of a block: as many as one vector has lanes
inline constexpr int kUsualWidth = 128;  ///< of a head or of a channel's state; loops over it are compiled unrolled

/// The part of a state's rows that begins at `first`, n floats, of one token. `from` is never null: where a sequence
/// begins, what it will write is zeros first.
struct StateStep {
    const float* from;
    float* to;
    bool begins;
};
template <class Arch>
TINFER_INLINE StateStep state_step(const Operand& state, const Operand& rows, std::int64_t token, std::int64_t first,
                                   std::int64_t n) noexcept {
    const auto* row = rows.template row<const std::int32_t>(token);
    float* to = state.template row<float>(row[1]) + first;
    if (row[0] >= 0) return {state.template row<const float>(row[0]) + first, to, false};
    for (std::int64_t i = 0; i < n; ++i) to[i] = 0.0f;
    return {to, to, true};
}

/// Prefetches n floats that the next token reads: its rows lie far from those of this one.
TINFER_INLINE void prefetch_floats(const float* p, std::int64_t n) noexcept {
    for (std::int64_t i = 0; i < n; i += 16) __builtin_prefetch(p + i);
}

/// A piece whose lanes from n on are zeros, whatever they were.
template <class Arch>
TINFER_INLINE f32x16<Arch> trimmed(const f32x16<Arch>& x, int n) noexcept {
    if (n == 16) return x;
    alignas(64) float lanes[16];
    x.store(lanes);
    for (int l = n; l < 16; ++l) lanes[l] = 0.0f;
    return f32x16<Arch>::load(lanes);
}

/// Calls fn(head, first, n) for the rows of this thread's share, in blocks of up to sixteen of one head.
template <class Arch, class Fn>
TINFER_INLINE void each_state_block(WorkSlice slice, std::int64_t rows_per_head, std::int64_t n_head, Fn fn) noexcept {
    const Range share = slice.share(rows_per_head * n_head);
    for (std::int64_t row = share.begin; row < share.end;) {
        const std::int64_t head = row / rows_per_head, end_of_head = (head + 1) * rows_per_head;
        const std::int64_t end = end_of_head < share.end ? end_of_head : share.end;
        const int n = end - row < kStateBlock ? static_cast<int>(end - row) : kStateBlock;
        fn(head, row - head * rows_per_head, n);
        row += n;
    }
}

/// Sixteen vectors, one for each row of a block, and the sums of their lanes.
template <class Arch>
struct RowSums {
    alignas(64) float lanes[kStateBlock][16] = {};
    alignas(64) float sums[kStateBlock] = {};

    TINFER_INLINE f32x16<Arch> reduce(int n) noexcept {
        reduce_each<Arch>(lanes, n, sums);
        return f32x16<Arch>::load(sums);
    }
};

}  // namespace tinfer::kernels
