// SPDX-License-Identifier: MIT
// Grammars as text (GBNF): rules of literals, classes, references, repetitions and whole tokens.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "grammar/program.hpp"

namespace tinfer::grammar {

/// The one token that a text such as "<|im_end|>" is, nullopt where it is none or several. Empty function: there is no
/// vocabulary, and token items are errors.
using TokenOfText = std::function<std::optional<std::uint32_t>(std::string_view)>;

/// Throws bad_grammar naming line, column and rule: syntax, undefined rules, no root, left recursion, too many
/// repetitions; limit_exceeded for more than `max_nodes` nodes.
[[nodiscard]] std::shared_ptr<const Program> parse_gbnf(std::string_view text, const TokenOfText& token_of = {},
                                                        std::size_t max_nodes = 1'000'000);

/// Takes out of a program what can never be finished, so that no text is begun that has no end. False where nothing
/// can be generated at all.
[[nodiscard]] bool prune(Program& program);

}  // namespace tinfer::grammar
