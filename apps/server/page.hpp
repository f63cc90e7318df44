// SPDX-License-Identifier: MIT
// The web page: one self-contained HTML document, assembled at build time.
#pragma once

#include <span>
#include <string_view>

namespace tinfer::server {

[[nodiscard]] std::span<const std::string_view> page_parts() noexcept;

}  // namespace tinfer::server
