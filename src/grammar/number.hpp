// SPDX-License-Identifier: MIT
// JSON numbers between bounds, as automata. Digits are compared with those of the bounds as they are read, so bounds
// are exact beyond the precision of a double.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/dfa.hpp"

namespace tinfer::grammar {

/// A decimal number without exponent; `whole` has no leading zeros (except "0") and `fraction` no trailing ones.
struct Decimal {
    bool is_negative = false;
    std::string whole = "0", fraction{};

    /// From a JSON number; nullopt if its exponent makes more than 400 digits.
    [[nodiscard]] static std::optional<Decimal> parse(std::string_view text);
    [[nodiscard]] int sign() const noexcept { return whole == "0" && fraction.empty() ? 0 : is_negative ? -1 : 1; }
    [[nodiscard]] bool is_integer() const noexcept { return fraction.empty(); }
    bool operator==(const Decimal&) const = default;
};
[[nodiscard]] int compare(const Decimal& a, const Decimal& b) noexcept;  ///< -1, 0 or 1

/// The constraints on a number.
struct NumberSpec {
    std::optional<Decimal> min{}, max{};
    bool min_is_exclusive = false, max_is_exclusive = false;
    bool is_integer = false;     ///< value is integral
    bool is_plain = false;       ///< written without fraction and exponent
    bool is_no_integer = false;  ///< value is not integral
    std::vector<Decimal> multiples{}, not_multiples{}, not_equal{};

    bool operator==(const NumberSpec&) const = default;

    void raise_min(const Decimal& value, bool is_exclusive);
    void lower_max(const Decimal& value, bool is_exclusive);
};

/// Whether a JSON number, in any notation, satisfies the constraints; false if it is too long for Decimal::parse() or
/// has more than 400 digits.
[[nodiscard]] bool contains(const NumberSpec& spec, std::string_view number);
/// The automaton of the notations of all such numbers; empty if there is none. Throws limit_exceeded.
[[nodiscard]] Dfa number_dfa(const NumberSpec& spec);

}  // namespace tinfer::grammar
