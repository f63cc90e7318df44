// SPDX-License-Identifier: MIT
// Characters whose upper or title case is more than one character (Unicode, SpecialCasing.txt, unconditional part).
#pragma once

#include <string_view>

namespace tinfer::chat {

/// UTF-8 of the upper case (or title case); empty where the case is a single character.
[[nodiscard]] std::string_view special_casing(char32_t c, bool title) noexcept;

}  // namespace tinfer::chat
