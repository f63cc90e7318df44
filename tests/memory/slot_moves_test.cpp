// SPDX-License-Identifier: MIT
// Lists of moves against an array that holds what every cell should.
#include "memory/cell_moves.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

using namespace tinfer::memory;

namespace {

/// Works off a list in place, and checks that no cell is read after it was written and none written twice.
std::vector<int> moved(std::vector<int> cells, const std::vector<std::int32_t>& list) {
    int buffer = -1;
    std::set<std::int32_t> written;
    for_each_move(list, [&](std::int32_t from, std::int32_t to) {
        REQUIRE_FALSE(written.contains(from));
        if (to != kMoveBuffer) REQUIRE(written.insert(to).second);
        (to == kMoveBuffer ? buffer : cells[static_cast<std::size_t>(to)]) =
            from == kMoveBuffer ? buffer : cells[static_cast<std::size_t>(from)];
    });
    return cells;
}

}  // namespace

TEST_CASE("cell moves: any cells may change places, chains and rings among them") {
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
        CellMoves moves(n);
        std::vector<int> cells(from.size()), expected;
        std::iota(cells.begin(), cells.end(), 100);
        expected = cells;
        moves.clear();
        for (std::size_t i = 0; i < static_cast<std::size_t>(n_moved); ++i) {
            moves.add(from[i], to[i]);
            expected[static_cast<std::size_t>(to[i])] = cells[static_cast<std::size_t>(from[i])];
        }
        std::vector<std::int32_t> list(3 * CellMoves::n_rows(n), 7);
        const std::size_t n_rows = moves.write(list);
        REQUIRE(n_rows < CellMoves::n_rows(n));
        REQUIRE(list[3 * n_rows + 2] == 0);
        REQUIRE(moved(cells, list) == expected);
    }
}

TEST_CASE("cell moves: cells that move towards the front are one row, those that stay are none") {
    CellMoves moves(64);
    moves.clear();
    for (int cell = 0; cell < 10; ++cell) moves.add(cell, cell);
    for (int cell = 20; cell < 64; ++cell) moves.add(cell, cell - 10);
    std::vector<std::int32_t> list(3 * CellMoves::n_rows(64));
    REQUIRE(moves.write(list) == 1);
    CHECK(std::vector(list.begin(), list.begin() + 3) == std::vector<std::int32_t>{20, 10, 44});
    CHECK(moves.write(list) == 0);
    moves.add(3, 4);
    moves.add(4, 3);
    REQUIRE(moves.write(list) == 3);
    CHECK(std::vector(list.begin(), list.begin() + 9) ==
          std::vector<std::int32_t>{4, kMoveBuffer, 1, 3, 4, 1, kMoveBuffer, 3, 1});
    CHECK(moves.bytes_held() == CellMoves::bytes(64));
}
