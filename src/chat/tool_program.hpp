// SPDX-License-Identifier: MIT
// The implementation of tinfer::tool_grammar.
#pragma once

#include <memory>
#include <string_view>

#include "grammar/program.hpp"
#include "tinfer/chat_grammar.hpp"

namespace tinfer::chat {

/// `work`: the budget of the schemas of all tools together; null: one of its own.
[[nodiscard]] std::shared_ptr<const grammar::Program> tool_program(const ChatTemplate& chat_template,
                                                                   std::string_view tools,
                                                                   const ToolGrammarOptions& options = {},
                                                                   grammar::SchemaWork* work = nullptr);

}  // namespace tinfer::chat
