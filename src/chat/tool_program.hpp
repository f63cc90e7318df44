// SPDX-License-Identifier: MIT
// The implementations of tinfer::tool_grammar, tinfer::answer_grammar and tinfer::framed_grammar.
#pragma once

#include <memory>
#include <string_view>

#include "grammar/grammar_impl.hpp"
#include "grammar/program.hpp"
#include "tinfer/chat.hpp"

namespace tinfer::chat {

/// `work`: the budget of the schemas of all tools together; null: one of its own.
[[nodiscard]] std::shared_ptr<const grammar::Program> tool_program(const ChatTemplate& chat_template,
                                                                   std::string_view tools,
                                                                   const ToolGrammarOptions& options = {},
                                                                   grammar::SchemaWork* work = nullptr);

/// `work`: the budget of the schema.
[[nodiscard]] std::shared_ptr<const Grammar::Impl> compile_answer(const ChatTemplate& chat_template,
                                                                  std::string_view schema,
                                                                  const AnswerGrammarOptions& options,
                                                                  grammar::SchemaWork& work);
/// The same for a grammar in GBNF.
[[nodiscard]] std::shared_ptr<const Grammar::Impl> compile_framed(const ChatTemplate& chat_template,
                                                                  std::string_view gbnf, const Vocab& vocab,
                                                                  const AnswerGrammarOptions& options,
                                                                  grammar::SchemaWork& work);

}  // namespace tinfer::chat
