// SPDX-License-Identifier: MIT
// Peak rates of the matrix unit (AMX) of this machine, the roof of the products that the `amx` table gives it.
#pragma once

#include <cstddef>
#include <span>

#include "team.hpp"

namespace tinfer::bench {

/// Multiply-accumulates of bytes per second, of all threads together; zeros where the build has no `amx` table or the
/// machine or its system no tiles.
struct MatrixUnitRates {
    double registers = 0;  ///< six sums, factors that stay in tiles
    double memory = 0;     ///< blocks of 2 × 2 tiles, whose four factors are loaded: one load for each product
};
/// `memory`: where factors come from, each thread from its contiguous share. What fits L2 shows the roof of products
/// whose panels and tokens do.
[[nodiscard]] MatrixUnitRates matrix_unit_rates(roof::Team& team, std::span<const std::byte> memory, double budget);

}  // namespace tinfer::bench
