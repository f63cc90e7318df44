// SPDX-License-Identifier: MIT
#include "chat/text_tools.hpp"

#include <algorithm>
#include <charconv>
#include <limits>

#include <utf8proc.h>

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

/// A capital sigma at the end of a word has a special lower case.
bool is_final_sigma(const std::vector<Character>& characters, std::size_t i) {
    std::size_t before = i;
    while (before > 0 && is_case_ignorable(characters[before - 1].value)) --before;
    if (before == 0 || !is_cased(characters[before - 1].value)) return false;
    std::size_t after = i + 1;
    while (after < characters.size() && is_case_ignorable(characters[after].value)) ++after;
    return after == characters.size() || !is_cased(characters[after].value);
}

std::vector<Character> characters_of(const OriginText& text) {
    std::vector<Character> out;
    CharacterReader reader(text);
    for (Character c; reader.next(c);) out.push_back(c);
    return out;
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

OriginText stripped(const OriginText& text, Side side, const std::string* characters) {
    std::vector<char32_t> set;
    if (characters != nullptr)
        for (const Character& c : characters_of(OriginText(*characters))) set.push_back(c.value);
    const auto goes = [&](char32_t c) {
        return characters != nullptr ? std::ranges::find(set, c) != set.end() : is_space(c);
    };
    const auto all = characters_of(text);
    std::size_t first = 0, last = all.size();
    if (side != Side::right)
        while (first < last && goes(all[first].value)) ++first;
    if (side != Side::left)
        while (last > first && goes(all[last - 1].value)) --last;
    return first == last ? OriginText() : text.slice(all[first].begin, all[last - 1].end);
}

OriginText with_case(const OriginText& text, Case form) {
    OriginText out;
    const auto all = characters_of(text);
    bool after_cased = false;
    for (std::size_t i = 0; i < all.size(); ++i) {
        const Character& c = all[i];
        OneCase one = OneCase::lower;
        switch (form) {
            case Case::upper: one = OneCase::upper; break;
            case Case::lower: break;
            case Case::title: one = after_cased ? OneCase::lower : OneCase::title; break;
            case Case::capitalize: one = i == 0 ? OneCase::title : OneCase::lower; break;
            case Case::swap: one = is_upper(c.value) ? OneCase::lower : OneCase::upper; break;
        }
        after_cased = is_cased(c.value);
        if (c.value > 0x10FFFF) out.append(text, c.begin, c.end);  // an invalid byte
        else if (one == OneCase::lower && c.value == 0x3A3 && is_final_sigma(all, i)) out.append("\xCF\x82", c.origin);
        else out.append(mapped(c.value, one), c.origin);
    }
    return out;
}

std::string lower_case(std::string_view text) { return with_case(OriginText(text), Case::lower).bytes(); }

OriginText replaced(Heap& heap, const OriginText& text, const std::string& from, const OriginText& to,
                    std::int64_t count) {
    OriginText out;
    const std::string& bytes = text.bytes();
    heap.work(bytes.size() / 16);
    if (from.empty()) {  // insert between all characters
        for (const Character& c : characters_of(text)) {
            if (count != 0) out.append(to), --count;
            out.append(text, c.begin, c.end);
            heap.check_text(out.size());
        }
        if (count != 0) out.append(to);
        return out;
    }
    std::size_t at = 0;
    for (std::size_t hit; count != 0 && (hit = bytes.find(from, at)) != std::string::npos; --count) {
        out.append(text, at, hit);
        out.append(to);
        heap.check_text(out.size());
        at = hit + from.size();
    }
    out.append(text, at, bytes.size());
    return out;
}

std::vector<OriginText> split(const OriginText& text, const std::string* separator, std::int64_t max) {
    std::vector<OriginText> out;
    if (separator != nullptr) {
        std::size_t at = 0;
        for (std::size_t hit; max != 0 && (hit = text.bytes().find(*separator, at)) != std::string::npos; --max) {
            out.push_back(text.slice(at, hit));
            at = hit + separator->size();
        }
        out.push_back(text.slice(at, text.size()));
        return out;
    }
    const auto all = characters_of(text);
    for (std::size_t i = 0; i < all.size();) {
        while (i < all.size() && is_space(all[i].value)) ++i;
        if (i == all.size()) break;
        const std::size_t begin = all[i].begin;
        if (max == 0) {  // the rest as one part, without trailing white space
            out.push_back(stripped(text.slice(begin, text.size()), Side::right));
            break;
        }
        --max;
        while (i < all.size() && !is_space(all[i].value)) ++i;
        out.push_back(text.slice(begin, all[i - 1].end));
    }
    return out;
}

std::vector<OriginText> split_from_right(const OriginText& text, const std::string* separator, std::int64_t max) {
    std::vector<OriginText> out;
    if (separator != nullptr) {
        std::size_t end = text.size();
        while (max != 0 && end >= separator->size()) {
            const std::size_t hit = text.bytes().rfind(*separator, end - separator->size());
            if (hit == std::string::npos) break;
            out.push_back(text.slice(hit + separator->size(), end));
            end = hit;
            --max;
        }
        out.push_back(text.slice(0, end));
    } else {
        const auto all = characters_of(text);
        for (std::size_t i = all.size(); i > 0;) {
            while (i > 0 && is_space(all[i - 1].value)) --i;
            if (i == 0) break;
            const std::size_t end = all[i - 1].end;
            if (max == 0) {
                out.push_back(stripped(text.slice(0, end), Side::left));
                break;
            }
            --max;
            while (i > 0 && !is_space(all[i - 1].value)) --i;
            out.push_back(text.slice(all[i].begin, end));
        }
    }
    std::ranges::reverse(out);
    return out;
}

std::vector<OriginText> split_lines(const OriginText& text, bool keep_ends) {
    std::vector<OriginText> out;
    const auto all = characters_of(text);
    std::size_t begin = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (!is_line_end(all[i].value)) continue;
        const std::size_t stop = all[i].begin;
        if (all[i].value == '\r' && i + 1 < all.size() && all[i + 1].value == '\n') ++i;
        out.push_back(text.slice(begin, keep_ends ? all[i].end : stop));
        begin = all[i].end;
    }
    if (begin < text.size()) out.push_back(text.slice(begin, text.size()));
    return out;
}

OriginText joined(Heap& heap, const std::vector<OriginText>& parts, const OriginText& separator) {
    OriginText out;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        if (i > 0) out.append(separator);
        out.append(parts[i]);
        heap.check_text(out.size());
        heap.work(1);
    }
    return out;
}

OriginText padded(Heap& heap, const OriginText& text, std::int64_t width, const std::string& fill, char align) {
    const auto length = static_cast<std::int64_t>(count_characters(text.bytes()));
    if (width <= length) return text;
    const std::int64_t missing = width - length;
    heap.check_text(static_cast<std::size_t>(missing) * std::max<std::size_t>(fill.size(), 1));
    // Centred text with odd padding: Python puts the extra character at the left if the width is odd.
    const std::int64_t left = align == '<' ? 0 : align == '>' ? missing : missing / 2 + (missing & width & 1);
    OriginText out;
    for (std::int64_t i = 0; i < left; ++i) out.append(fill, kFromTemplate);
    out.append(text);
    for (std::int64_t i = left; i < missing; ++i) out.append(fill, kFromTemplate);
    return out;
}

// ---- numbers --------------------------------------------------------------------------------------------------------

namespace {

/// Removes single underscores between digits; empty if one is misplaced.
std::string without_underscores(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '_') {
            out += text[i];
        } else if (i == 0 || i + 1 == text.size() || text[i + 1] == '_') {
            return {};
        }
    }
    return out;
}

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text, int base) {
    const std::string trimmed = stripped(OriginText(text), Side::both).bytes();
    std::string_view rest = trimmed;
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
    const std::string digits = without_underscores(rest);
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (digits.empty() || error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
    constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (value > kMax + (negative ? 1 : 0)) return std::nullopt;
    return negative ? static_cast<std::int64_t>(0 - value) : static_cast<std::int64_t>(value);
}

std::optional<double> parse_float(std::string_view text) {
    const std::string trimmed = without_underscores(lower_case(stripped(OriginText(text), Side::both).bytes()));
    std::string_view rest = trimmed;
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
        const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
        if (end != rest.data() + rest.size()) return std::nullopt;
        if (error == std::errc::result_out_of_range) {
            const auto e = rest.find('e');
            const bool tiny = e != rest.npos && rest.substr(e + 1).starts_with('-');
            value = tiny ? 0 : std::numeric_limits<double>::infinity();
        } else if (error != std::errc{}) {
            return std::nullopt;
        }
    }
    return negative ? -value : value;
}

}  // namespace tinfer::chat
