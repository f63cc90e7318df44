// SPDX-License-Identifier: MIT
// The page for people: one HTML document without network, put together at build.
#pragma once

#include <span>
#include <string_view>

namespace server {

[[nodiscard]] std::span<const std::string_view> page_parts() noexcept;

}  // namespace server
