// SPDX-License-Identifier: MIT
#include "base/number_text.hpp"

#include <algorithm>
#include <cstdint>

namespace tinfer {

std::from_chars_result read_number(std::string_view text, double& value) noexcept {
    const FpEnvironment guard;
    return std::from_chars(text.data(), text.data() + text.size(), value);
}

std::from_chars_result read_number(std::string_view text, float& value) noexcept {
    const FpEnvironment guard;
    return std::from_chars(text.data(), text.data() + text.size(), value);
}

bool is_large(std::string_view number) noexcept {
    const std::size_t e = std::min(number.find_first_of("eE"), number.size());
    const std::string_view digits = number.substr(0, e);
    std::int64_t exponent = 0;
    if (e < number.size()) {
        const bool negative = number[e + 1] == '-';
        for (const char c : number.substr(e + 1))
            if (c >= '0' && c <= '9')
                exponent = std::min<std::int64_t>(exponent * 10 + (c - '0'), std::int64_t{1} << 40);
        if (negative) exponent = -exponent;
    }
    const std::size_t point = std::min(digits.find('.'), digits.size()), first = digits.find_first_of("123456789");
    const auto power = static_cast<std::int64_t>(point) - static_cast<std::int64_t>(first) - (first < point ? 1 : 0);
    return power + exponent >= 0;
}

}  // namespace tinfer
