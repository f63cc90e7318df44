// SPDX-License-Identifier: MIT
// A conversation as readable Markdown.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tinfer::app {

[[nodiscard]] std::string markdown_of(const nlohmann::json& messages);

}  // namespace tinfer::app
