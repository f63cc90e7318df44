// SPDX-License-Identifier: MIT
// Numbers with a fixed count of digits for reports, independent of the locale.
#pragma once

#include <array>
#include <charconv>
#include <string>
#include <system_error>

namespace tinfer::trace {

/// In fixed notation; empty where the number has too many digits for a report.
[[nodiscard]] inline std::string fixed_text(double value, int digits) {
    std::array<char, 64> text;
    const auto [end, error] =
        std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, digits);
    return error == std::errc() ? std::string(text.data(), end) : std::string();
}

/// A share of 1 as "12.3 %".
[[nodiscard]] inline std::string percent_text(double share) { return fixed_text(100 * share, 1) + " %"; }

}  // namespace tinfer::trace
