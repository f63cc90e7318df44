// SPDX-License-Identifier: MIT
// Prints the compiled form of a schema as readable GBNF.
#pragma once

#include <cstddef>
#include <string>

#include "grammar/program.hpp"

namespace tinfer::grammar {

/// The program in GBNF, equivalent except that strings are escaped only where they have to be. Empty if it would take
/// more than `max_bytes`, or repetition counts that GBNF does not allow.
[[nodiscard]] std::string print_gbnf(const Program& program, std::size_t max_bytes);

}  // namespace tinfer::grammar
