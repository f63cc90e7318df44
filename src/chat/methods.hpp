// SPDX-License-Identifier: MIT
// Lookup of methods by type; null if the type has no such method.
#pragma once

#include <string_view>

#include "chat/interpreter.hpp"

namespace tinfer::chat {

[[nodiscard]] Method find_string_method(std::string_view name) noexcept;
[[nodiscard]] Method find_list_method(std::string_view name, bool tuple) noexcept;
[[nodiscard]] Method find_map_method(std::string_view name) noexcept;

[[nodiscard]] std::vector<std::string_view> string_method_names();

}  // namespace tinfer::chat
