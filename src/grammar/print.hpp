// SPDX-License-Identifier: MIT
// Prints compiled forms as readable GBNF.
#pragma once

#include <cstddef>
#include <string>

#include "grammar/dfa.hpp"
#include "grammar/program.hpp"

namespace tinfer::grammar {

/// The program in GBNF, equivalent except that strings are escaped only where they have to be. Empty if it would take
/// more than `max_bytes`, or repetition counts that GBNF does not allow.
[[nodiscard]] std::string print_gbnf(const Program& program, std::size_t max_bytes);
/// The texts that an automaton accepts, as a grammar. Empty if it would take more than `max_bytes`, or accepts none.
[[nodiscard]] std::string print_gbnf(Dfa dfa, std::size_t max_bytes);

}  // namespace tinfer::grammar
