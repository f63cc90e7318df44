// SPDX-License-Identifier: MIT
// Answers whose calls of tools are sure to parse: a grammar in the format of a template's family of models, with the
// arguments that the tools' schemas allow. And answers whose content a schema or a grammar binds, with thoughts before.
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
    none,       ///< no calls: text that could be read as one is excluded
    automatic,  ///< text, or text and then calls
    required,   ///< calls, and nothing else but reasoning before them
};
[[nodiscard]] TINFER_API std::string_view to_string(ToolUse use) noexcept;

struct ToolGrammarOptions {
    ToolUse use = ToolUse::automatic;
    std::string function{};           ///< the only one that may be called; empty: any
    bool parallel = true;             ///< more than one call in an answer
    bool reasoning = true;            ///< AnswerOptions::reasoning of the parser of the answer
    std::string generation_prompt{};  ///< AnswerOptions::generation_prompt
    SchemaOptions schema{};           ///< for the schemas of arguments
};

/// The answers of the family that `chat_template` belongs to, as AnswerParser reads them: reasoning, text and calls in
/// one grammar that constrains the answer from its first token on. Every answer it allows is parsed back into the calls
/// that were written. Arguments are those that a tool's `parameters` allow, in their order; names that are not declared
/// are given only where additionalProperties asks for it. Where the template writes calls in a notation that cannot be
/// read, the answer has the generic form, and Grammar::warnings() says so. `tools` is a JSON array as templates take
/// it. Throws bad_parameter where `tools` is no list of tools, for a function that is not among them and for names that
/// the family cannot write; bad_schema naming the tool; limit_exceeded.
[[nodiscard]] TINFER_API Grammar tool_grammar(const ChatTemplate& chat_template, std::string_view tools,
                                              const ToolGrammarOptions& options = {});

struct AnswerGrammarOptions {
    bool thoughts = true;             ///< false: the model writes none; those that the prompt has opened end at once
    std::string generation_prompt{};  ///< AnswerOptions::generation_prompt
    SchemaOptions schema{};
    /// A JSON array as tool_grammar() takes it: the answer is calls of them, or the content. Only with a schema.
    std::string tools{};
    ToolGrammarOptions calls{};  ///< how; `use` and generation_prompt are not read
};

/// The answers whose content is a JSON text that `schema` allows, in the frame of the family that `chat_template`
/// belongs to: free thoughts first, unless they are switched off, then the marks that open the answer, then the JSON.
/// AnswerParser gives it as the content of each of them. For families without a frame it is Schema::parse(schema). With
/// tools, answers that call them are allowed, too. Throws what Schema::parse and tool_grammar throw.
[[nodiscard]] TINFER_API Grammar answer_grammar(const ChatTemplate& chat_template, std::string_view schema,
                                                const AnswerGrammarOptions& options = {});
/// The same for a grammar of the caller's own, as Grammar::parse(gbnf, vocab) reads it: it binds the content. A
/// grammar that writes a mark of the frame itself, in a literal or as a token, binds the whole answer, and so does any
/// for families without a frame. Throws what Grammar::parse throws.
[[nodiscard]] TINFER_API Grammar framed_grammar(const ChatTemplate& chat_template, std::string_view gbnf,
                                                const Vocab& vocab, const AnswerGrammarOptions& options = {});

}  // namespace tinfer
