// SPDX-License-Identifier: MIT
// Text operations shared by string methods and filters. All keep the origins of characters, and all count what they
// look at and make by the heap of the text.
#pragma once

#include <optional>
#include <string_view>

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
/// A set of characters, or nullopt for white space.
using Characters = std::optional<std::string_view>;
[[nodiscard]] OriginText stripped(const OriginText& text, Side side, Characters characters = {});

enum class Case : std::uint8_t { upper, lower, title, capitalize, swap };
[[nodiscard]] OriginText with_case(const OriginText& text, Case form);

/// At most `count` replacements; negative: all.
[[nodiscard]] OriginText replaced(const OriginText& text, std::string_view from, const OriginText& to,
                                  std::int64_t count);

/// Bytes [begin, end) of a text.
struct TextPart {
    std::size_t begin, end;
};
using TextParts = HeapVector<TextPart>;
/// nullopt: runs of white space, and no part is empty.
using Separator = std::optional<std::string_view>;
/// At most `max` splits; negative: all.
[[nodiscard]] TextParts split(const OriginText& text, Separator separator, std::int64_t max);
[[nodiscard]] TextParts split_from_right(const OriginText& text, Separator separator, std::int64_t max);
[[nodiscard]] TextParts split_lines(const OriginText& text, bool keep_ends);

/// Pads to `width` characters; `align` is '<', '>' or '^'. Throws limit_exceeded before it makes anything.
[[nodiscard]] OriginText padded(const OriginText& text, std::int64_t width, const OriginText& fill, char align);

/// Python's int(text, base) and float(text); nullopt where Python raises ValueError.
[[nodiscard]] std::optional<std::int64_t> parse_integer(Heap& heap, std::string_view text, int base);
[[nodiscard]] std::optional<double> parse_float(Heap& heap, std::string_view text);

}  // namespace tinfer::chat
