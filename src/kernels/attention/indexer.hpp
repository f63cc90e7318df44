// SPDX-License-Identifier: MIT
// Scores of an indexer: its heads against 64 keys at a time. What is chosen by them is decided in one place for all
// tables (kernels/key_selection.hpp); orders of operations as in reference/sparse_attention.cpp.
#pragma once

#include "kernels/attention/gather.hpp"
#include "kernels/key_selection.hpp"

namespace tinfer::kernels {

/// The memory of a thread behind that of the choice: 64 keys as they were stored, and as float32.
template <class Arch>
std::int64_t indexer_floats(const StepShape& call) noexcept {
    return call[2].present() ? 2 * 64 * std::int64_t{call.params.attention.head_dim_k} : 0;
}
template <class Arch>
std::uint64_t select_keys_scratch(const StepShape& call) noexcept {
    const std::uint64_t more = static_cast<std::uint64_t>((indexer_floats<Arch>(call) + 15) / 16 * 64);
    return scratch_keys(call) + more * static_cast<std::uint64_t>(call.n_threads);
}

/// One query of the indexer against lists of KV slots.
template <class Arch>
class IndexScores {
public:
    /// `head`: of the list, where there are no weights.
    IndexScores(const KernelCall& call, float* memory, std::int64_t token, std::int64_t head) noexcept
        : call_(call), d_(call.params.attention.head_dim_k), token_(token),
          weights_(call[3].present() ? call[3].template row<const float>(token) : nullptr),
          sums_(call[3].present() || call.params.whole_blocks != 0), first_(sums_ ? 0 : head),
          end_(sums_ ? call[1].ne[1] : head + 1), stored_(reinterpret_cast<std::byte*>(memory)),
          widened_(memory + 64 * d_) {}

    void run(const std::int32_t* kv_slots, std::int64_t n, float* scores) noexcept {
        for (std::int64_t i = 0; i < n; i += 64) {
            const int count = n - i < 64 ? static_cast<int>(n - i) : 64;
            alignas(64) float tile[64] = {};
            with_keys(kv_slots + i, count, [&](auto kind, const std::byte* const(&groups)[4]) {
                score_tile<decltype(kind)>(groups, (count + 15) / 16, tile);
            });
            for (int l = 0; l < count; ++l) scores[i + l] = tile[l];
        }
    }

private:
    /// Calls fn with four groups that hold the keys in order: where they lie, if they fill a group, else gathered.
    template <class Fn>
    void with_keys(const std::int32_t* kv_slots, int n, Fn fn) noexcept {
        const std::byte* groups[4];
        const std::int64_t bytes = row_bytes(call_[2].type, d_);
        for (int g = 0; g < 4; ++g) {
            const int first = 16 * g, count = n - first < 16 ? n - first : 16;
            groups[g] = count > 0 ? stored_ + first * bytes : groups[0];
            if (count <= 0) continue;
            if (in_place(kv_slots + first, count))
                groups[g] = call_[2].data + k_group_offset(kv_slots[first], 0, 1, bytes);
            else gather_keys<Arch>(call_[2], 0, 1, d_, kv_slots + first, count, stored_ + first * bytes);
            if (!is_coded<Arch>(call_[2].type)) continue;
            widen_group<Arch>(call_[2].type, groups[g], d_, widened_ + first * d_);
            groups[g] = reinterpret_cast<const std::byte*>(widened_ + first * d_);
        }
        if (is_coded<Arch>(call_[2].type)) return fn(KvSlotF32<Arch>{}, groups);
        with_kv_slot<Arch>(call_[2].type, [&](auto kind) { fn(kind, groups); });
    }
    /// Lane i is entry i, of all sixteen: what is not asked for is not read.
    static bool in_place(const std::int32_t* kv_slots, int n) noexcept {
        if (n != kGroup || kv_slots[0] % kGroup != 0) return false;
        for (int i = 1; i < n; ++i)
            if (kv_slots[i] != kv_slots[0] + i) return false;
        return true;
    }

    template <class KvSlot>
    void score_tile(const std::byte* const (&groups)[4], int n_groups, float (&tile)[64]) noexcept {
        constexpr int kQueries = kTileQueries<Arch>;
        alignas(64) float dots[kQueries][64];
        f32x16<Arch> sum[4] = {f32x16<Arch>(0.0f), f32x16<Arch>(0.0f), f32x16<Arch>(0.0f), f32x16<Arch>(0.0f)};
        const f32x16<Arch> zero(0.0f), one(1.0f);
        const std::uint64_t needed = ~std::uint64_t{0} >> (64 - 16 * n_groups);
        for (std::int64_t h = first_; h < end_; h += kQueries) {
            const int n = end_ - h < kQueries ? static_cast<int>(end_ - h) : kQueries;
            const float* q[kQueries];
            float* to[kQueries];
            for (int r = 0; r < n; ++r) {
                q[r] = call_[1].template row<const float>(h + r, token_);
                to[r] = dots[r];
            }
            dot_groups<Arch, KvSlot, false, kQueries>(n, q, groups, {}, d_, needed, to);
            if (!sums_) {
                for (int l = 0; l < 16 * n_groups; ++l) tile[l] = dots[0][l];
                return;
            }
            for (int r = 0; r < n; ++r) {
                const auto weight = weights_ == nullptr ? one : f32x16<Arch>::broadcast(weights_ + h + r);
                for (int g = 0; g < n_groups; ++g)
                    sum[g] = fma(weight, greater(f32x16<Arch>::load(dots[r] + 16 * g), zero), sum[g]);
            }
        }
        for (int g = 0; g < n_groups; ++g) sum[g].store(tile + 16 * g);
    }

    const KernelCall& call_;
    const std::int64_t d_, token_;
    const float* const weights_;
    const bool sums_;  ///< over the heads
    const std::int64_t first_, end_;
    std::byte* const stored_;
    float* const widened_;
};

template <class Arch>
void select_keys(const KernelCall& call, WorkSlice slice) noexcept {
    const std::int64_t n_group = call[0].ne[1];
    const Range items = slice.share(call[6].ne[1] * n_group);
    auto* memory = reinterpret_cast<float*>(call.scratch(slice.thread)) + 3 * most_visible(call);
    for (std::int64_t item = items.begin; item < items.end; ++item) {
        KeySelection selection(call, slice, item / n_group, item % n_group);
        if (selection.n_scored() > 0)
            IndexScores<Arch>(call, memory, item / n_group, item % n_group)
                .run(selection.scored(), selection.n_scored(), selection.scores());
        selection.list();
    }
}

}  // namespace tinfer::kernels
