// SPDX-License-Identifier: MIT
// Text between marks: anything in which none of the marks stands, so that who reads it back finds the same ones.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/program.hpp"
#include "grammar/shapes.hpp"

namespace tinfer::grammar {

/// Adds the texts that an automaton over code points accepts. Behind a state of label l a match goes on at `exits(l)`.
[[nodiscard]] std::uint32_t add_dfa(Program& program, const Dfa& dfa,
                                    const std::function<std::vector<std::uint32_t>(std::uint32_t label)>& exits);

/// Texts in which none of the words stands. Bit 0 of a label: always; bit i + 1: ends[i] may follow, and no word is
/// complete before its last character.
[[nodiscard]] Dfa free_text(std::span<const std::string> words, std::span<const std::string> ends);

/// Texts of a string's own bounds in which `end` does not stand and behind which it does, as bytes without escapes.
/// kNone where there is no such text.
[[nodiscard]] std::uint32_t add_raw_string(Program& program, const StringSpec& spec, const std::string& word,
                                           const std::string& end, std::uint32_t next);

}  // namespace tinfer::grammar
