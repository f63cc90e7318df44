// SPDX-License-Identifier: MIT
// Where the keys and values of a unit's KV heads lie, and what is prefetched while few queries are worked straight from
// the cache. A page is worked in steps: the keys of one KV head after the other, then their values.
#pragma once

#include "base/dtype.hpp"
#include "kernels/attention/microkernels.hpp"
#include "kernels/attention/tile_iterator.hpp"

namespace tinfer::kernels {

template <class Arch>
class PageReads {
public:
    explicit PageReads(const KernelCall& call) noexcept
        : call_(call), k_bytes_(row_bytes(call[2].type, call.params.attention.head_dim_k)),
          v_bytes_(row_bytes(call[3].type, call.params.attention.head_dim_v)),
          coded_(is_coded<Arch>(call[2].type) && is_coded<Arch>(call[3].type)) {}
    /// KV heads [first, first + n).
    void open(std::int64_t first, int n) noexcept {
        kv_head_ = first;
        n_kv_ = n;
    }
    [[nodiscard]] int n_kv() const noexcept { return n_kv_; }
    /// Bytes of a KV slot.
    [[nodiscard]] std::int64_t k_bytes() const noexcept { return k_bytes_; }
    [[nodiscard]] std::int64_t v_bytes() const noexcept { return v_bytes_; }
    /// Of KV head number `head` of these.
    [[nodiscard]] const std::byte* key_group(std::int64_t kv_slot, int head) const noexcept {
        return call_[2].data + k_group_offset(kv_slot, kv_head_ + head, call_.params.attention.n_head_kv, k_bytes_);
    }
    [[nodiscard]] const std::byte* value_row(std::int64_t kv_slot, int head) const noexcept {
        return call_[3].data + v_row_offset(kv_slot, kv_head_ + head, call_.params.attention.n_head_kv, v_bytes_);
    }

    /// While scores become weights, too, a line is prefetched for every sixteen: those that are in turn are spread
    /// evenly over the time.
    [[nodiscard]] bool in_turn() const noexcept { return call_.processor.prefetch_in_turn; }
    [[nodiscard]] NextRead in_weights(std::int64_t then) const noexcept { return halves(then, keys()); }
    /// During step i of n_rows rows in the page that begins at KV slot `now`; later steps read the page at `then`, and
    /// after it the pages that follow in memory. Where prefetches are not in turn, quantized slots, at most half as
    /// long, are prefetched more steps ahead: with prefetches into L1, the values of a head during its keys, and its
    /// keys of `then` during its values. All else that was tried with prefetches into L1 was slower by a tenth to a
    /// quarter: the four groups in the order of their use, and the distance of floats for quantized slots or the
    /// reverse.
    [[nodiscard]] NextRead in_step(std::int64_t now, std::int64_t then, int i, int n_rows) const noexcept {
        if (in_turn()) {
            const std::int64_t in_weights = n_rows * AttentionTile<Arch>::kSize / 16 * 64;
            return halves(then, i < n_kv_ ? i * kPageSlots * k_bytes_
                                          : keys() + in_weights + (i - n_kv_) * kPageSlots * v_bytes_);
        }
        const bool to_l1 = call_.processor.prefetch_to_l1;
        const int ahead = !coded_ ? 1 : to_l1 ? n_kv_ : 2;
        return {read_in_step(now, then, i + ahead), read_in_step(now, then, i + 3 * ahead),
                to_l1 ? NextRead::Way::into_l1 : NextRead::Way::twice};
    }

private:
    [[nodiscard]] std::int64_t keys() const noexcept { return n_kv_ * kPageSlots * k_bytes_; }
    /// The page at `then`, all keys and then all values, in two halves, behind the first `done` bytes of both together.
    [[nodiscard]] NextRead halves(std::int64_t then, std::int64_t done) const noexcept {
        const std::int64_t all = keys() + n_kv_ * kPageSlots * v_bytes_;
        const auto place = [&](std::int64_t at) {
            return at < keys() ? key_group(then, 0) + at : value_row(then, 0) + (at - keys());
        };
        return {place(done / 128 * 64), place((done + all) / 128 * 64), NextRead::Way::in_turn};
    }
    /// What step i reads.
    [[nodiscard]] const std::byte* read_in_step(std::int64_t now, std::int64_t then, int i) const noexcept {
        const int part = i / n_kv_, head = i % n_kv_;
        const std::int64_t kv_slot = part < 2 ? now : then + (part / 2 - 1) * kPageSlots;
        return part % 2 == 0 ? key_group(kv_slot, head) : value_row(kv_slot, head);
    }

    const KernelCall& call_;
    const std::int64_t k_bytes_, v_bytes_;
    const bool coded_;  ///< both K and V
    std::int64_t kv_head_ = 0;
    int n_kv_ = 1;
};

}  // namespace tinfer::kernels
