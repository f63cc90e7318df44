// SPDX-License-Identifier: MIT
// A conversation as readable Markdown.
#pragma once

#include <string>
#include <tinfer/json.hpp>

namespace tinfer::app {

[[nodiscard]] std::string markdown_of(const Json& messages);

}  // namespace tinfer::app
