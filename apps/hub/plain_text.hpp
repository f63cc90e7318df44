// SPDX-License-Identifier: MIT
// Texts of others on a terminal.
#pragma once

#include <string>
#include <string_view>

namespace tinfer::hub {

/// The text with everything that could steer a terminal or hide in it spelt out as "\x1b" or "\u{202e}": control
/// characters, marks that turn the direction of writing, line and paragraph separators, and bytes that are no UTF-8.
/// Line feeds and tabs stay where lines are kept.
[[nodiscard]] std::string spell_controls(std::string_view text, bool keeps_lines = false);

}  // namespace tinfer::hub
