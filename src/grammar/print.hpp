// SPDX-License-Identifier: MIT
// The compiled form of a schema as a grammar that people can read.
#pragma once

#include <cstddef>
#include <string>

#include "grammar/program.hpp"

namespace tinfer::grammar {

/// The program in GBNF. It admits what the program does, spelled without escapes where none are needed. Empty where
/// that takes more than `max_bytes`, or has to count further than GBNF does.
[[nodiscard]] std::string print_gbnf(const Program& program, std::size_t max_bytes);

}  // namespace tinfer::grammar
