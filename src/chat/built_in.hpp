// SPDX-License-Identifier: MIT
// Templates of well-known prompt formats, for files that bring none, or one that cannot be parsed.
#pragma once

#include <string_view>
#include <vector>

namespace tinfer::chat {

/// Jinja source; empty for an unknown name.
[[nodiscard]] std::string_view built_in_source(std::string_view name) noexcept;
[[nodiscard]] std::vector<std::string_view> built_in_names();
/// Which of them is meant by the source of another template, by the marks that it contains; empty where none is.
[[nodiscard]] std::string_view detect_built_in(std::string_view source) noexcept;

}  // namespace tinfer::chat
