// SPDX-License-Identifier: MIT
// The implementation of tinfer::tool_grammar.
#pragma once

#include <memory>
#include <string_view>

#include "grammar/program.hpp"
#include "tinfer/chat_grammar.hpp"

namespace tinfer::chat {

[[nodiscard]] std::shared_ptr<const grammar::Program>
tool_program(const ChatTemplate& chat_template, std::string_view tools, const ToolGrammarOptions& options = {});

}  // namespace tinfer::chat
