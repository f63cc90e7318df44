// SPDX-License-Identifier: MIT
// Small conversations rendered to find out what a template does with its inputs.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "tinfer/chat.hpp"

namespace tinfer::chat {

using ProbeJson = nlohmann::ordered_json;

/// The prompt; nullopt where the template raises an error. `tools` null: none are given.
[[nodiscard]] std::optional<std::string> probe_render(const ChatTemplate& chat_template, ProbeJson messages,
                                                      bool answer_follows, ProbeJson tools = nullptr);

}  // namespace tinfer::chat
