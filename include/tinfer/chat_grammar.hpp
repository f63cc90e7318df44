// SPDX-License-Identifier: MIT
// Answers whose calls of tools are sure to parse: a grammar in the format of a template's family of models, with the
// arguments that the tools' schemas allow.
//
//     const auto format = *tinfer::ChatTemplate::built_in("chatml");
//     const auto tools = R"([{"type": "function", "function": {"name": "weather", "parameters": {"type": "object",
//         "properties": {"city": {"type": "string"}}, "required": ["city"]}}}])";
//     const auto grammar = tinfer::tool_grammar(format, tools, {.use = tinfer::ToolUse::required});
//     std::cout << grammar.matches(R"({"tool_calls": [{"name": "weather", "arguments": {"city": "Oslo"}}]})") << '\n';
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tinfer/chat.hpp"
#include "tinfer/export.hpp"
#include "tinfer/grammar.hpp"

namespace tinfer {

/// Whether an answer calls tools.
enum class ToolUse : std::uint8_t {
    none,       ///< it does not: what could be read as a call is not written
    automatic,  ///< text, or text and then calls
    required,   ///< calls, and nothing else but reasoning before them
};
[[nodiscard]] TINFER_API std::string_view to_string(ToolUse use) noexcept;

struct ToolGrammarOptions {
    ToolUse use = ToolUse::automatic;
    std::string function{};           ///< the only one that may be called; empty: any
    bool parallel = true;             ///< more than one call in an answer
    bool reasoning = true;            ///< AnswerOptions::reasoning of whoever reads the answer
    std::string generation_prompt{};  ///< AnswerOptions::generation_prompt
    SchemaOptions schema{};           ///< how the schemas of arguments are taken
};

/// The answers of the family that `chat_template` belongs to, as AnswerParser reads them: reasoning, text and calls in
/// one grammar that binds from the first token on. Every answer it allows is read back as the calls that were written.
/// Arguments are those that a tool's `parameters` allow, in their order; names that are not declared are given only
/// where additionalProperties asks for it. `tools` is a JSON array as templates take it. Throws bad_parameter for tools
/// that are none, for a function that is not among them and for names that the family cannot write; bad_schema naming
/// the tool; limit_exceeded.
[[nodiscard]] TINFER_API Grammar tool_grammar(const ChatTemplate& chat_template, std::string_view tools,
                                              const ToolGrammarOptions& options = {});

}  // namespace tinfer
