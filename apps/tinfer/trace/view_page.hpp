// SPDX-License-Identifier: MIT
// The page of the viewer, made by viewer/assemble.cmake: the text before the info block, between it and the data block,
// and after both.
#pragma once

#include <span>
#include <string_view>

namespace tinfer::app {

struct ViewPage {
    std::span<const std::string_view> before, between, after;
};
[[nodiscard]] ViewPage view_page();

}  // namespace tinfer::app
