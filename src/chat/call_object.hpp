// SPDX-License-Identifier: MIT
// Calls that are JSON: an object for each, in the keys of a family, or a list of them.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "chat/tool_format.hpp"
#include "tinfer/chat.hpp"

namespace tinfer::chat {

/// nullopt for what is no JSON.
[[nodiscard]] std::optional<JsonDocument> parse_call_json(std::string_view json);
/// Adds the call, or the calls of a list, that a value of the text `json` stands for. False: something in it is none.
[[nodiscard]] bool add_json_calls(const ToolFormat& format, std::string_view json, JsonValue value,
                                  std::vector<ToolCall>& calls);

}  // namespace tinfer::chat
