// SPDX-License-Identifier: MIT
// Grammars as text (GBNF): rules of literals, classes, references, repetitions and whole tokens.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "grammar/program.hpp"
#include "grammar/schema_work.hpp"

namespace tinfer::grammar {

/// The single token of a text such as "<|im_end|>"; nullopt if it is not exactly one token. An empty function means
/// that there is no vocabulary; token items are then errors.
using TokenOfText = std::function<std::optional<std::uint32_t>(std::string_view)>;

/// Throws bad_grammar with line, column and rule for syntax errors, undefined rules, a missing root, left recursion and
/// too many repetitions; limit_exceeded for more than `max_nodes` nodes; what a budget of
/// `work` throws, if there is one.
[[nodiscard]] std::shared_ptr<const Program> parse_gbnf(std::string_view text, const TokenOfText& token_of = {},
                                                        std::size_t max_nodes = 1'000'000, SchemaWork* work = nullptr);

/// Removes dead ends from a program, so that every text that can be begun can be finished. False if the program accepts
/// no text at all.
[[nodiscard]] bool prune(Program& program);

}  // namespace tinfer::grammar
