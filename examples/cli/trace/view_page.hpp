// SPDX-License-Identifier: MIT
// The page of the viewer, made by viewer/assemble.py: the text before the block with what is in it, between that and
// the block with the bytes, and after both.
#pragma once

#include <span>
#include <string_view>

namespace cli {

struct ViewPage {
    std::span<const std::string_view> before, between, after;
};
[[nodiscard]] ViewPage view_page();

}  // namespace cli
