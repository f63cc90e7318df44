// SPDX-License-Identifier: MIT
// Small conversations rendered to find out what a template does with its inputs.
#pragma once

#include <optional>
#include <string>

#include "tinfer/chat.hpp"
#include "tinfer/json.hpp"

namespace tinfer::chat {

/// The prompt; nullopt where the template raises an error. `tools` null: none are given, or a null where the template
/// raises an error without.
[[nodiscard]] std::optional<std::string> probe_render(const ChatTemplate& chat_template, Json messages,
                                                      bool answer_follows, Json tools = nullptr);
/// Whether a conversation without tools is an error for the template unless `tools` is a null.
[[nodiscard]] bool wants_null_tools(const ChatTemplate& chat_template);

}  // namespace tinfer::chat
