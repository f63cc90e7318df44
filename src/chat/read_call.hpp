// SPDX-License-Identifier: MIT
// Reads one call, or one list of calls, at the beginning of a text by the row of its family.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/tool_format.hpp"
#include "tinfer/chat_session.hpp"

namespace tinfer::chat {

/// The JSON type of an argument by name of tool and argument, from the schemas; empty where it is not known.
using ArgumentType = std::function<std::string(std::string_view tool, std::string_view argument)>;

struct ReadCall {
    enum class Outcome : std::uint8_t { done, more, none } outcome = Outcome::none;  ///< more: the text ends too early
    std::size_t length = 0;  ///< bytes that were read, when done
    std::vector<ToolCall> calls{};
    std::string content{};    ///< of the shape `generic`
    bool is_content = false;  ///< no call: text for the user follows
};

/// From call_open on. `final`: nothing follows the text.
[[nodiscard]] ReadCall read_call(const ToolFormat& format, std::string_view text, bool final, const ArgumentType& type);
/// What follows ToolFormat::code_open, all of it.
[[nodiscard]] std::vector<ToolCall> read_code(const ToolFormat& format, std::string_view text);

}  // namespace tinfer::chat
