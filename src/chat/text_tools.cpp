// SPDX-License-Identifier: MIT
#include "chat/text_tools.hpp"

#include <algorithm>
#include <charconv>
#include <limits>

#include <utf8proc.h>

#include "base/number_text.hpp"
#include "base/utf8.hpp"
#include "chat/special_casing.hpp"
#include "tokenizer/utf8.hpp"

namespace tinfer::chat {
namespace {

using Character = CharacterReader::Character;

utf8proc_category_t category(char32_t c) noexcept {
    return c > 0x10FFFF ? UTF8PROC_CATEGORY_CN : utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

char32_t to_upper(char32_t c) noexcept {
    return c > 0x10FFFF ? c : static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}
char32_t to_lower(char32_t c) noexcept {
    return c > 0x10FFFF ? c : static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}
char32_t to_title(char32_t c) noexcept {
    return c > 0x10FFFF ? c : static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
}

std::string utf8(char32_t c) {
    std::string out;
    append_code_point(out, c);
    return out;
}

enum class OneCase : std::uint8_t { upper, lower, title };

/// One character may become several ("ß" → "SS").
std::string mapped(char32_t c, OneCase form) {
    if (form == OneCase::lower) return c == 0x130 ? std::string("i\xCC\x87") : utf8(to_lower(c));
    const std::string_view special = special_casing(c, form == OneCase::title);
    if (!special.empty()) return std::string(special);
    return utf8(form == OneCase::upper ? to_upper(c) : to_title(c));
}

bool is_cased(char32_t c) noexcept { return is_upper(c) || is_lower(c) || category(c) == UTF8PROC_CATEGORY_LT; }

bool is_case_ignorable(char32_t c) noexcept {
    switch (category(c)) {
        case UTF8PROC_CATEGORY_MN:
        case UTF8PROC_CATEGORY_ME:
        case UTF8PROC_CATEGORY_CF:
        case UTF8PROC_CATEGORY_LM:
        case UTF8PROC_CATEGORY_SK: return true;
        default:
            return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2018 || c == 0x2019 || c == 0x2024 ||
                   c == 0x2027;
    }
}

/// Whether a capital sigma ends a word, which gives it a special lower case. `after` is behind it.
bool ends_word(CharacterReader after) {
    Character c;
    while (after.next(c))
        if (!is_case_ignorable(c.value)) return !is_cased(c.value);
    return true;
}

/// The length of the last character of a text that is not empty.
std::size_t last_length(std::string_view text) noexcept {
    for (std::size_t n = 2; n <= std::min<std::size_t>(text.size(), 4); ++n) {
        if (first_character(text.substr(text.size() - n)).length == n) return n;
    }
    return 1;
}

std::string_view without_white_space(std::string_view text) noexcept {
    while (!text.empty() && is_space(first_character(text).value)) text.remove_prefix(first_character(text).length);
    for (std::size_t n = 0; !text.empty(); text.remove_suffix(n)) {
        n = last_length(text);
        if (!is_space(first_character(text.substr(text.size() - n)).value)) break;
    }
    return text;
}

bool is_line_end(char32_t c) noexcept {
    return (c >= '\n' && c <= '\r') || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

bool is_space(char32_t c) noexcept { return tokenizer::is_white_space(c) || (c >= 0x1C && c <= 0x1F); }
bool is_upper(char32_t c) noexcept {
    return category(c) == UTF8PROC_CATEGORY_LU || (c >= 0x2160 && c <= 0x216F) || (c >= 0x24B6 && c <= 0x24CF);
}
bool is_lower(char32_t c) noexcept {
    return category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA || (c >= 0x2170 && c <= 0x217F) ||
           (c >= 0x24D0 && c <= 0x24E9);
}
bool is_letter(char32_t c) noexcept {
    const auto k = category(c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}
bool is_decimal(char32_t c) noexcept { return category(c) == UTF8PROC_CATEGORY_ND; }
bool is_digit(char32_t c) noexcept {
    return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
           (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468) || (c >= 0x2474 && c <= 0x247C) ||
           (c >= 0x2488 && c <= 0x2490);
}
bool is_numeric(char32_t c) noexcept {
    return is_digit(c) || category(c) == UTF8PROC_CATEGORY_NL || category(c) == UTF8PROC_CATEGORY_NO;
}

OriginText stripped(const OriginText& text, Side side, Characters characters) {
    Heap& heap = text.heap();
    HeapVector<char32_t> set(heap);
    if (characters) {
        heap.work(characters->size());
        for (std::string_view rest = *characters; !rest.empty(); rest.remove_prefix(first_character(rest).length))
            set.push_back(first_character(rest).value);
        std::ranges::sort(set);
    }
    const auto goes = [&](char32_t c) {
        heap.touch(0);
        return characters ? std::ranges::binary_search(set, c) : is_space(c);
    };
    const std::string_view bytes = text.bytes();
    std::size_t begin = 0, end = bytes.size();
    while (side != Side::right && begin < end) {
        const FirstCharacter c = first_character(bytes.substr(begin));
        if (!goes(c.value)) break;
        begin += c.length;
    }
    while (side != Side::left && end > begin) {
        const std::size_t n = last_length(bytes.substr(begin, end - begin));
        if (!goes(first_character(bytes.substr(end - n)).value)) break;
        end -= n;
    }
    return text.slice(begin, end);
}

OriginText with_case(const OriginText& text, Case form) {
    OriginText out(text.heap());
    bool after_cased = false;  // the last character is a letter with two cases
    bool in_word = false;      // so is the last one that case rules do not skip
    CharacterReader reader(text);
    for (Character c; reader.next(c);) {
        OneCase one = OneCase::lower;
        switch (form) {
            case Case::upper: one = OneCase::upper; break;
            case Case::lower: break;
            case Case::title: one = after_cased ? OneCase::lower : OneCase::title; break;
            case Case::capitalize: one = c.begin == 0 ? OneCase::title : OneCase::lower; break;
            case Case::swap: one = is_upper(c.value) ? OneCase::lower : OneCase::upper; break;
        }
        if (c.value > 0x10FFFF) out.append(text, c.begin, c.end);  // an invalid byte
        else if (one == OneCase::lower && c.value == 0x3A3 && in_word && ends_word(reader))
            out.append("\xCF\x82", c.origin);
        else out.append(mapped(c.value, one), c.origin);
        after_cased = is_cased(c.value);
        if (!is_case_ignorable(c.value)) in_word = after_cased;
    }
    return out;
}

OriginText replaced(const OriginText& text, std::string_view from, const OriginText& to, std::int64_t count) {
    Heap& heap = text.heap();
    OriginText out(heap);
    if (count < 0) count = std::numeric_limits<std::int64_t>::max();
    if (from.empty()) {  // insert between all characters
        CharacterReader reader(text);
        for (Character c; reader.next(c);) {
            if (count > 0) out.append(to), --count;
            out.append(text, c.begin, c.end);
        }
        if (count > 0) out.append(to);
        return out;
    }
    std::size_t at = 0;
    for (std::size_t hit; count > 0 && (hit = find_text(heap, text.bytes(), from, at)) != text.bytes().npos; --count) {
        out.append(text, at, hit);
        out.append(to);
        at = hit + from.size();
    }
    out.append(text, at, text.size());
    return out;
}

namespace {

/// The part behind `begin` without the white space that it begins with. False: there is none.
bool next_word(const OriginText& text, TextPart& word) {
    const std::string_view bytes = text.bytes();
    std::size_t at = word.end;
    const auto skip = [&](bool spaces) {
        while (at < bytes.size()) {
            const FirstCharacter c = first_character(bytes.substr(at));
            if (is_space(c.value) != spaces) return;
            text.heap().touch(0);
            at += c.length;
        }
    };
    skip(true);
    word.begin = at;
    skip(false);
    word.end = at;
    return word.begin < word.end;
}

/// The same from the right: the part before `word.begin`.
bool previous_word(const OriginText& text, TextPart& word) {
    const std::string_view bytes = text.bytes();
    std::size_t at = word.begin;
    const auto skip = [&](bool spaces) {
        while (at > 0) {
            const std::size_t n = last_length(bytes.substr(0, at));
            if (is_space(first_character(bytes.substr(at - n)).value) != spaces) return;
            text.heap().touch(0);
            at -= n;
        }
    };
    skip(true);
    word.end = at;
    skip(false);
    word.begin = at;
    return word.begin < word.end;
}

}  // namespace

TextParts split(const OriginText& text, Separator separator, std::int64_t max) {
    Heap& heap = text.heap();
    TextParts out(heap);
    if (max < 0) max = std::numeric_limits<std::int64_t>::max();
    const std::string_view bytes = text.bytes();
    if (separator) {
        std::size_t at = 0;
        for (std::size_t hit; max > 0 && (hit = find_text(heap, bytes, *separator, at)) != bytes.npos; --max) {
            out.push_back({at, hit});
            at = hit + separator->size();
        }
        out.push_back({at, bytes.size()});
        return out;
    }
    for (TextPart word{0, 0}; next_word(text, word);) {
        if (max-- == 0) {  // the rest as one part, without trailing white space
            TextPart end{bytes.size(), bytes.size()};
            (void)previous_word(text, end);
            out.push_back({word.begin, end.end});
            break;
        }
        out.push_back(word);
    }
    return out;
}

TextParts split_from_right(const OriginText& text, Separator separator, std::int64_t max) {
    Heap& heap = text.heap();
    TextParts out(heap);
    if (max < 0) max = std::numeric_limits<std::int64_t>::max();
    const std::string_view bytes = text.bytes();
    if (separator) {
        std::size_t end = bytes.size();
        for (std::size_t hit; max > 0 && (hit = find_last_text(heap, bytes.substr(0, end), *separator)) != bytes.npos;
             --max) {
            out.push_back({hit + separator->size(), end});
            end = hit;
        }
        out.push_back({0, end});
    } else {
        for (TextPart word{bytes.size(), bytes.size()}; previous_word(text, word);) {
            if (max-- == 0) {
                TextPart begin{0, 0};
                (void)next_word(text, begin);
                out.push_back({begin.begin, word.end});
                break;
            }
            out.push_back(word);
        }
    }
    std::ranges::reverse(out);
    return out;
}

TextParts split_lines(const OriginText& text, bool keep_ends) {
    TextParts out(text.heap());
    std::size_t begin = 0;
    CharacterReader reader(text);
    for (Character c; reader.next(c);) {
        if (!is_line_end(c.value)) continue;
        const std::size_t stop = c.begin;
        if (c.value == '\r' && text.bytes().substr(c.end).starts_with('\n')) (void)reader.next(c);
        out.push_back({begin, keep_ends ? c.end : stop});
        begin = c.end;
    }
    if (begin < text.size()) out.push_back({begin, text.size()});
    return out;
}

OriginText padded(const OriginText& text, std::int64_t width, const OriginText& fill, char align) {
    Heap& heap = text.heap();
    const auto length = static_cast<std::int64_t>(count_characters(heap, text.bytes()));
    if (width <= length) return text;
    const std::int64_t missing = width - length;
    heap.check_text(static_cast<std::size_t>(missing));
    heap.check_text(text.size() + static_cast<std::size_t>(missing) * fill.size());
    // Centred text with odd padding: Python puts the extra character at the left if the width is odd.
    const std::int64_t left = align == '<' ? 0 : align == '>' ? missing : missing / 2 + (missing & width & 1);
    OriginText out(heap);
    for (std::int64_t i = 0; i < left; ++i) out.append(fill);
    out.append(text);
    for (std::int64_t i = left; i < missing; ++i) out.append(fill);
    return out;
}

// ---- numbers --------------------------------------------------------------------------------------------------------

namespace {

/// Removes single underscores between digits; empty if one is misplaced.
HeapString without_underscores(Heap& heap, std::string_view text) {
    heap.touch(text.size());
    HeapString out(heap);
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '_') {
            out += text[i];
        } else if (i == 0 || i + 1 == text.size() || text[i + 1] == '_') {
            return HeapString(heap);
        }
    }
    return out;
}

}  // namespace

std::optional<std::int64_t> parse_integer(Heap& heap, std::string_view text, int base) {
    heap.touch(text.size());
    std::string_view rest = without_white_space(text);
    const bool negative = rest.starts_with('-');
    if (negative || rest.starts_with('+')) rest.remove_prefix(1);
    const auto prefix = [&](char lower, int b) {
        const bool matches = (base == b || base == 0) && rest.size() > 2 && rest[0] == '0' && (rest[1] | 0x20) == lower;
        if (!matches) return;
        rest.remove_prefix(rest[2] == '_' ? 3 : 2);
        base = b;
    };
    prefix('x', 16);
    prefix('o', 8);
    prefix('b', 2);
    if (base == 0) base = 10;
    const HeapString digits = without_underscores(heap, rest);
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (digits.empty() || error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
    constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (value > kMax + (negative ? 1 : 0)) return std::nullopt;
    return negative ? static_cast<std::int64_t>(0 - value) : static_cast<std::int64_t>(value);
}

std::optional<double> parse_float(Heap& heap, std::string_view text) {
    heap.touch(text.size());
    HeapString digits = without_underscores(heap, without_white_space(text));
    for (char& c : digits)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
    std::string_view rest = digits;
    const bool negative = rest.starts_with('-');
    if (negative || rest.starts_with('+')) rest.remove_prefix(1);
    double value = 0;
    if (rest == "inf" || rest == "infinity") {
        value = std::numeric_limits<double>::infinity();
    } else if (rest == "nan") {
        value = std::numeric_limits<double>::quiet_NaN();
    } else {
        if (rest.empty() || rest.find_first_not_of("0123456789.e+-") != rest.npos || rest[0] == '-' || rest[0] == '+')
            return std::nullopt;
        const auto [end, error] = read_number(rest, value);
        if (end != rest.data() + rest.size()) return std::nullopt;
        if (error == std::errc::result_out_of_range) {
            value = is_large(rest) ? std::numeric_limits<double>::infinity() : 0;
        } else if (error != std::errc{}) {
            return std::nullopt;
        }
    }
    return negative ? -value : value;
}

}  // namespace tinfer::chat
