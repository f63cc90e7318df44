// SPDX-License-Identifier: MIT
// Lists of moves against an array that holds what every slot should.
#include "memory/slot_moves.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

using namespace tinfer::memory;

namespace {

/// Works off a list in place, and checks that no slot is read after it was written and none written twice.
std::vector<int> moved(std::vector<int> slots, const std::vector<std::int32_t>& list) {
    int buffer = -1;
    std::set<std::int32_t> written;
    for_each_move(list, [&](std::int32_t from, std::int32_t to) {
        REQUIRE_FALSE(written.contains(from));
        if (to != kMoveBuffer) REQUIRE(written.insert(to).second);
        (to == kMoveBuffer ? buffer : slots[static_cast<std::size_t>(to)]) =
            from == kMoveBuffer ? buffer : slots[static_cast<std::size_t>(from)];
    });
    return slots;
}

}  // namespace

TEST_CASE("slot moves: any slots may change places, chains and rings among them") {
    std::mt19937 random(3);
    for (int trial = 0; trial < 500; ++trial) {
        const int n = 1 + static_cast<int>(random() % 200),
                  n_moved = static_cast<int>(random() % static_cast<unsigned>(n + 1));
        std::vector<std::int32_t> from(static_cast<std::size_t>(n)), to;
        std::iota(from.begin(), from.end(), 0);
        to = from;
        std::ranges::shuffle(from, random);
        if (trial % 3 != 0) std::ranges::shuffle(to, random);
        if (trial % 5 == 0 && n_moved > 0) {  // one ring
            to = from;
            std::rotate(to.begin(), to.begin() + 1, to.begin() + n_moved);
        }
        SlotMoves moves(n);
        std::vector<int> slots(from.size()), expected;
        std::iota(slots.begin(), slots.end(), 100);
        expected = slots;
        moves.clear();
        for (std::size_t i = 0; i < static_cast<std::size_t>(n_moved); ++i) {
            moves.add(from[i], to[i]);
            expected[static_cast<std::size_t>(to[i])] = slots[static_cast<std::size_t>(from[i])];
        }
        std::vector<std::int32_t> list(3 * SlotMoves::n_rows(n), 7);
        const std::size_t n_rows = moves.write(list);
        REQUIRE(n_rows < SlotMoves::n_rows(n));
        REQUIRE(list[3 * n_rows + 2] == 0);
        REQUIRE(moved(slots, list) == expected);
    }
}

TEST_CASE("slot moves: slots that move towards the front are one row, those that stay are none") {
    SlotMoves moves(64);
    moves.clear();
    for (int slot = 0; slot < 10; ++slot) moves.add(slot, slot);
    for (int slot = 20; slot < 64; ++slot) moves.add(slot, slot - 10);
    std::vector<std::int32_t> list(3 * SlotMoves::n_rows(64));
    REQUIRE(moves.write(list) == 1);
    CHECK(std::vector(list.begin(), list.begin() + 3) == std::vector<std::int32_t>{20, 10, 44});
    CHECK(moves.write(list) == 0);
    moves.add(3, 4);
    moves.add(4, 3);
    REQUIRE(moves.write(list) == 3);
    CHECK(std::vector(list.begin(), list.begin() + 9) ==
          std::vector<std::int32_t>{4, kMoveBuffer, 1, 3, 4, 1, kMoveBuffer, 3, 1});
    CHECK(moves.allocated_bytes() == SlotMoves::bytes(64));
}
