// SPDX-License-Identifier: MIT
// What prompts and conversations have in common.
#pragma once

#include <cstddef>

#include "tinfer/json.hpp"

namespace tinfer::chat {

/// Calls of tools in these messages.
[[nodiscard]] std::size_t count_calls(const Json& messages);

}  // namespace tinfer::chat
