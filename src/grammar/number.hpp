// SPDX-License-Identifier: MIT
// Numbers of JSON between bounds, as automata: the digits are compared with those of the bounds while they are read, so
// bounds are exact whatever a double would make of them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/dfa.hpp"

namespace tinfer::grammar {

/// A decimal number without exponent: no zeros in front of `whole` ("0" alone) or behind `fraction`.
struct Decimal {
    bool is_negative = false;
    std::string whole = "0", fraction{};

    /// Of a JSON number; nullopt for an exponent that makes more than 400 digits.
    [[nodiscard]] static std::optional<Decimal> parse(std::string_view text);
    [[nodiscard]] int sign() const noexcept { return whole == "0" && fraction.empty() ? 0 : is_negative ? -1 : 1; }
    [[nodiscard]] bool is_integer() const noexcept { return fraction.empty(); }
    bool operator==(const Decimal&) const = default;
};
[[nodiscard]] int compare(const Decimal& a, const Decimal& b) noexcept;  ///< -1, 0 or 1

/// What is asked of a number.
struct NumberSpec {
    std::optional<Decimal> min{}, max{};
    bool min_is_exclusive = false, max_is_exclusive = false;
    bool is_integer = false;     ///< without a fraction
    bool is_plain = false;       ///< written without fraction and exponent
    bool is_no_integer = false;  ///< with a fraction that is not 0
    std::vector<Decimal> multiples{}, not_multiples{}, not_equal{};

    bool operator==(const NumberSpec&) const = default;

    void raise_min(const Decimal& value, bool is_exclusive);
    void lower_max(const Decimal& value, bool is_exclusive);
};

/// Whether a JSON number in any spelling is one of them; false beyond what Decimal::parse() reads, and beyond 400
/// digits.
[[nodiscard]] bool contains(const NumberSpec& spec, std::string_view number);
/// Over the characters of a number. Empty where none is left. Throws limit_exceeded.
[[nodiscard]] Dfa number_dfa(const NumberSpec& spec);

}  // namespace tinfer::grammar
