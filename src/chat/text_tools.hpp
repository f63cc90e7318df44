// SPDX-License-Identifier: MIT
// Text operations shared by string methods and filters. All keep the origins of characters.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/heap.hpp"
#include "chat/origin_text.hpp"

namespace tinfer::chat {

/// Python's str.isspace of one character.
[[nodiscard]] bool is_space(char32_t c) noexcept;
[[nodiscard]] bool is_upper(char32_t c) noexcept;
[[nodiscard]] bool is_lower(char32_t c) noexcept;
[[nodiscard]] bool is_letter(char32_t c) noexcept;
[[nodiscard]] bool is_digit(char32_t c) noexcept;    ///< str.isdigit
[[nodiscard]] bool is_decimal(char32_t c) noexcept;  ///< str.isdecimal
[[nodiscard]] bool is_numeric(char32_t c) noexcept;  ///< str.isnumeric

enum class Side : std::uint8_t { both, left, right };
/// Without `characters` white space is stripped.
[[nodiscard]] OriginText stripped(const OriginText& text, Side side, const std::string* characters = nullptr);

enum class Case : std::uint8_t { upper, lower, title, capitalize, swap };
[[nodiscard]] OriginText with_case(const OriginText& text, Case form);
[[nodiscard]] std::string lower_case(std::string_view text);  ///< for comparisons that ignore case

/// At most `count` replacements; negative: all.
[[nodiscard]] OriginText replaced(Heap& heap, const OriginText& text, const std::string& from, const OriginText& to,
                                  std::int64_t count);
/// At most `max` splits; negative: all. Without a separator it splits at runs of white space, and no part is empty.
[[nodiscard]] std::vector<OriginText> split(const OriginText& text, const std::string* separator, std::int64_t max);
[[nodiscard]] std::vector<OriginText> split_from_right(const OriginText& text, const std::string* separator,
                                                       std::int64_t max);
[[nodiscard]] std::vector<OriginText> split_lines(const OriginText& text, bool keep_ends);
[[nodiscard]] OriginText joined(Heap& heap, const std::vector<OriginText>& parts, const OriginText& separator);

/// Pads to `width` characters; `align` is '<', '>' or '^'.
[[nodiscard]] OriginText padded(Heap& heap, const OriginText& text, std::int64_t width, const std::string& fill,
                                char align);

/// Python's int(text, base) and float(text); nullopt where Python raises ValueError.
[[nodiscard]] std::optional<std::int64_t> parse_integer(std::string_view text, int base);
[[nodiscard]] std::optional<double> parse_float(std::string_view text);

}  // namespace tinfer::chat
