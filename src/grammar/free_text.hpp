// SPDX-License-Identifier: MIT
// Free text between delimiters: text that contains no delimiter, so that a parser finds exactly those that were meant.
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

/// Adds nodes for the texts that a DFA accepts. After a state with label l a match continues at `exits(l)`.
[[nodiscard]] std::uint32_t add_dfa(Program& program, const Dfa& dfa,
                                    const std::function<std::vector<std::uint32_t>(std::uint32_t label)>& exits);

/// Texts that contain none of the words. Label bit 0 is always set; bit i + 1 says that ends[i] may follow without
/// completing a word before its last character.
[[nodiscard]] Dfa free_text(std::span<const std::string> words, std::span<const std::string> ends);

/// Adds nodes for a string that is written raw, without escapes, and terminated by `end`, which it does not contain.
/// kNone if there is no such text.
[[nodiscard]] std::uint32_t add_raw_string(Program& program, const StringSpec& spec, const std::string& word,
                                           const std::string& end, std::uint32_t next);

}  // namespace tinfer::grammar
