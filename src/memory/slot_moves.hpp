// SPDX-License-Identifier: MIT
// Slots of a cache that change places, all at once, as a list of copies that can be made in place one after the other:
// no slot is written before what it holds has been read. A cycle of moves goes through a buffer of one slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tinfer::memory {

/// Copies of `n` slots from `from` on to those from `to` on, in ascending order; kMoveBuffer is the buffer, and n is 1
/// then.
struct SlotMove {
    std::int32_t from = 0, to = 0, n = 0;
    bool operator==(const SlotMove&) const = default;
};
inline constexpr std::int32_t kMoveBuffer = -1;

class SlotMoves {
public:
    explicit SlotMoves(std::int32_t n_slots);

    void clear() noexcept;
    /// No slot is added twice, neither as a source nor as a target.
    void add(std::int32_t from, std::int32_t to) noexcept;
    /// The list, ended by a row of zeros, as kernels/ops.hpp describes `moves`; uses up what was added. `out` has room
    /// for 3 · n_rows(n_slots) numbers. Returns the number of rows without the zeros.
    std::size_t write(std::span<std::int32_t> out) noexcept;

    /// Rows of the longest list: all slots in cycles of two, which take three rows each, and the end.
    [[nodiscard]] static std::size_t n_rows(std::int32_t n_slots) noexcept {
        return static_cast<std::size_t>(n_slots) * 3 / 2 + 1;
    }
    [[nodiscard]] static std::uint64_t bytes(std::int32_t n_slots) noexcept {
        return static_cast<std::uint64_t>(n_slots) * 3 * sizeof(std::int32_t);
    }
    [[nodiscard]] std::uint64_t allocated_bytes() const noexcept;

private:
    [[nodiscard]] static std::size_t at(std::int32_t slot) noexcept { return static_cast<std::size_t>(slot); }
    void emit(std::int32_t from, std::int32_t to) noexcept;
    void fill(std::int32_t target) noexcept;

    std::vector<std::int32_t> source_;   // {n_slots}: of what the slot is to hold, or -1
    std::vector<std::int32_t> target_;   // {n_slots}: of what the slot holds, or -1
    std::vector<std::int32_t> targets_;  // {n_slots}: in the order in which they were added
    std::size_t n_targets_ = 0, n_rows_ = 0;
    std::span<std::int32_t> out_;
};

/// Calls fn(from, to) for every slot of a list, in order.
template <class Fn>
void for_each_move(std::span<const std::int32_t> moves, Fn fn) {
    for (std::size_t i = 0; i + 2 < moves.size() && moves[i + 2] > 0; i += 3)
        for (std::int32_t k = 0; k < moves[i + 2]; ++k)
            fn(moves[i] == kMoveBuffer ? kMoveBuffer : moves[i] + k,
               moves[i + 1] == kMoveBuffer ? kMoveBuffer : moves[i + 1] + k);
}

}  // namespace tinfer::memory
