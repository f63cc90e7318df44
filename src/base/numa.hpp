// SPDX-License-Identifier: MIT
// Lists of memory nodes as the system writes them.
#pragma once

#include <string_view>
#include <vector>

namespace tinfer {

/// "0-1,4" → 0, 1, 4; empty for anything that is no such list.
[[nodiscard]] std::vector<int> parse_node_list(std::string_view text);

}  // namespace tinfer
