// SPDX-License-Identifier: MIT
// Templates of well-known prompt formats, for models whose file has none, or one that cannot be parsed.
#pragma once

#include <string_view>
#include <vector>

namespace tinfer::chat {

/// Jinja source; empty for an unknown name.
[[nodiscard]] std::string_view built_in_source(std::string_view name) noexcept;
[[nodiscard]] std::vector<std::string_view> built_in_names();
/// Names the built-in format of another template, recognized by the marks in its source; empty if there is none.
[[nodiscard]] std::string_view detect_built_in(std::string_view source) noexcept;

}  // namespace tinfer::chat
