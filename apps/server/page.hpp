// SPDX-License-Identifier: MIT
// The web page: one HTML document with its own script and style, assembled at build time, and beside it the libraries
// that it loads after its first paint.
#pragma once

#include <span>
#include <string_view>

namespace tinfer::server {

[[nodiscard]] std::span<const std::string_view> page_parts() noexcept;
/// Markdown, sanitizer, highlighting and formulas with their licences, as one script; nearly empty in a build without
/// them.
[[nodiscard]] std::span<const std::string_view> page_libraries() noexcept;
/// Of the inline script and style, as Content-Security-Policy has them: 'sha256-…'.
[[nodiscard]] std::string_view page_script_hash() noexcept;
[[nodiscard]] std::string_view page_style_hash() noexcept;

}  // namespace tinfer::server
