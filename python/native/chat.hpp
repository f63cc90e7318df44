// SPDX-License-Identifier: MIT
#pragma once

#include "common.hpp"

namespace tinfer_python {

/// The prompt that a conversation is to a model, and how its answer is read: what an engine needs for one turn.
struct ChatPrompt {
    tinfer::ChatTemplate chat_template;
    tinfer::AnswerOptions answer;
    std::string text;
    std::vector<tinfer::Token> tokens;
    std::optional<tinfer::Grammar> grammar;
    bool has_content = false;  ///< the grammar wants something behind the thoughts

    [[nodiscard]] tinfer::AnswerParser parser() const { return tinfer::AnswerParser(chat_template, answer); }
};

}  // namespace tinfer_python
