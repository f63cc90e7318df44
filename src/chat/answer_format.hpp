// SPDX-License-Identifier: MIT
// How the models of one chat template write their answers: which marks stand around thoughts, and in which notation
// calls of tools are. Found out by what the template writes for a known call; the parser of answers and the grammar of
// answers both follow it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "chat/tool_format.hpp"
#include "tinfer/chat.hpp"

namespace tinfer::chat {

/// The format of a template's answers. Immutable; the views in its rows live as long as it does.
struct AnswerFormat {
    /// How it was found.
    enum class Source : std::uint8_t {
        calls,         ///< by the calls that the template writes
        instructions,  ///< it writes no calls, but its prompt shows the marks of a family
        none,          ///< it writes none, and shows none
        unknown,       ///< it writes calls in a notation that cannot be read
    } source = Source::none;
    /// The row of the template's own calls, and then other spellings that are recognized in answers. Never empty.
    std::vector<const ToolFormat*> rows{};
    const ReasoningFormat* thoughts = nullptr;  ///< nullptr: none are marked

    [[nodiscard]] const ToolFormat& calls() const noexcept { return *rows.front(); }

    // What the row refers to, where it was made of what the template writes.
    std::deque<std::string> texts{};
    ToolFormat own{};
    ReasoningFormat own_thoughts{};
};

/// The format of a template; found out when it is first asked for, and kept with the template. Any thread.
[[nodiscard]] const AnswerFormat& answer_format(const ChatTemplate& chat_template);
/// Finds it out.
[[nodiscard]] std::shared_ptr<const AnswerFormat> make_answer_format(const ChatTemplate& chat_template);

}  // namespace tinfer::chat
