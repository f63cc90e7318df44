// SPDX-License-Identifier: MIT
// Parses one call, or one list of calls, at the beginning of a text, in the format of a model family.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/tool_format.hpp"
#include "tinfer/chat.hpp"

namespace tinfer::chat {

/// The JSON type of an argument of a tool, from the tool's schema; empty if unknown. The argument may be a path: names
/// of members, and "[]" for elements, with line breaks between them.
using ArgumentType = std::function<std::string(std::string_view tool, std::string_view argument)>;

struct ReadCall {
    enum class Outcome : std::uint8_t { done, more, none } outcome = Outcome::none;  ///< more: the text is incomplete
    std::size_t length = 0;  ///< bytes that were read, when done
    std::vector<ToolCall> calls{};
    std::string content{};    ///< the response of shape `generic`
    bool is_content = false;  ///< not a call: text for the user follows
};

/// `text` begins with call_open. `final`: no more text will come.
[[nodiscard]] ReadCall read_call(const ToolFormat& format, std::string_view text, bool final, const ArgumentType& type);
/// A message to a tool, of a family with channels: an object with arguments, or code for "python", unless it is cut.
/// nullopt: no call.
[[nodiscard]] std::optional<ToolCall> read_message(std::string_view recipient, std::string_view text, bool is_cut);
/// `text` is everything after ToolFormat::code_open. Code has no closing mark: where the answer is cut it is no call.
[[nodiscard]] std::vector<ToolCall> read_code(const ToolFormat& format, std::string_view text, bool is_cut);

}  // namespace tinfer::chat
