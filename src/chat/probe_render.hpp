// SPDX-License-Identifier: MIT
// Small conversations rendered to find out what a template does with its inputs.
#pragma once

#include <optional>
#include <string>

#include "tinfer/chat.hpp"
#include "tinfer/json.hpp"

namespace tinfer::chat {

/// The prompt; nullopt where the template raises an error. `tools` null: none are given.
[[nodiscard]] std::optional<std::string> probe_render(const ChatTemplate& chat_template, Json messages,
                                                      bool answer_follows, Json tools = nullptr);

}  // namespace tinfer::chat
