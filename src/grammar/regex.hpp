// SPDX-License-Identifier: MIT
// Compiles ECMA-262 regular expressions (u flag: characters are code points) to automata. A match may lie anywhere in
// the text, as JSON Schema defines it. Look-around, back-references and word boundaries, which automata cannot express,
// are refused by name.
#pragma once

#include <string_view>

#include "grammar/dfa.hpp"
#include "grammar/schema_work.hpp"

namespace tinfer::grammar {

/// Accepts the texts that contain a match. Throws bad_parameter with location and reason, or limit_exceeded.
[[nodiscard]] Dfa compile_regex(std::string_view pattern, RegexShare& share);
/// The same for a single expression.
[[nodiscard]] inline Dfa compile_regex(std::string_view pattern) {
    RegexShare alone;
    return compile_regex(pattern, alone);
}

}  // namespace tinfer::grammar
