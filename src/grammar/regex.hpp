// SPDX-License-Identifier: MIT
// Regular expressions of ECMA-262 (with the u flag: characters are code points) as automata. A match may lie anywhere
// in a text, as JSON schema asks. What no automaton can do, look-around, back-references and word boundaries, is
// refused by name.
#pragma once

#include <string_view>

#include "grammar/dfa.hpp"
#include "grammar/schema_work.hpp"

namespace tinfer::grammar {

/// Accepts the texts in which the expression matches somewhere. Throws bad_parameter naming place and reason,
/// limit_exceeded.
[[nodiscard]] Dfa compile_regex(std::string_view pattern, RegexShare& share);
/// The same of an expression that has no others beside it.
[[nodiscard]] inline Dfa compile_regex(std::string_view pattern) {
    RegexShare alone;
    return compile_regex(pattern, alone);
}

}  // namespace tinfer::grammar
