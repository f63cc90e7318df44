// SPDX-License-Identifier: MIT
#include "tokenizer/pretokenizer_scan.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "tokenizer/utf8.hpp"

namespace tinfer::tokenizer {

namespace {

// ---- Characters -----------------------------------------------------------------------------------------------------

enum Kind : std::uint8_t { kOther = 0, kLetter = 1, kNumber = 2, kSpace = 4, kNewline = 8, kMark = 16, kPunctuation = 32 };

constexpr std::uint8_t kind_of_category(utf8proc_category_t category) noexcept {
    if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) return kLetter;
    if (category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME) return kMark;
    if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) return kNumber;
    if (category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO) return kPunctuation;
    return kOther;
}

constexpr std::array<std::uint8_t, 128> make_ascii_kinds() noexcept {
    std::array<std::uint8_t, 128> kinds{};
    for (unsigned c = 0; c < 128; ++c) {
        const bool is_symbol = c == '$' || c == '+' || c == '<' || c == '=' || c == '>' || c == '^' || c == '`' || c == '|' || c == '~';
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) kinds[c] = kLetter;
        else if (c >= '0' && c <= '9') kinds[c] = kNumber;
        else if (c == '\r' || c == '\n') kinds[c] = kSpace | kNewline;
        else if (c == ' ' || (c >= '\t' && c <= '\r')) kinds[c] = kSpace;
        else if (c > ' ' && c < 0x7F && !is_symbol) kinds[c] = kPunctuation;
    }
    return kinds;
}
constexpr auto kAsciiKinds = make_ascii_kinds();

struct Character {
    std::uint8_t kind;
    std::size_t length;   // 0 at the end of the text
};

Character character_at(std::string_view text, std::size_t at) noexcept {
    if (at >= text.size()) return {kOther, 0};
    const auto lead = static_cast<unsigned char>(text[at]);
    if (lead < 0x80) return {kAsciiKinds[lead], 1};
    const CodePoint point = decode_structural(text.substr(at));
    if (is_white_space(point.value)) return {kSpace, point.length};
    return {kind_of_category(utf8proc_category(static_cast<utf8proc_int32_t>(point.value))), point.length};
}

/// End of the run of characters from `at` on of which `is_in` is true, of at most `most` of them.
template <class Predicate>
std::size_t run_end(std::string_view text, std::size_t at, const Predicate& is_in,
                    std::size_t most = std::numeric_limits<std::size_t>::max()) noexcept {
    for (; most > 0; --most) {
        const Character c = character_at(text, at);
        if (c.length == 0 || !is_in(c.kind)) break;
        at += c.length;
    }
    return at;
}

constexpr auto is_space = [](std::uint8_t kind) { return (kind & kSpace) != 0; };
constexpr auto is_newline = [](std::uint8_t kind) { return (kind & kNewline) != 0; };
constexpr auto is_number = [](std::uint8_t kind) { return kind == kNumber; };

// ---- Parts of expressions: the length of a match at the front, 0 for none --------------------------------------------

/// 's 't 're 've 'm 'll 'd.
std::size_t contraction(std::string_view text, bool any_case) noexcept {
    if (text.size() < 2 || text[0] != '\'') return 0;
    const auto letter = [&](std::size_t i) {
        const char c = i < text.size() ? text[i] : '\0';
        return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    };
    const char first = letter(1), second = letter(2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
    return (first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l') ? 3 : 0;
}

/// \s+(?!\S)|\s+ : a run of spaces without its last one where text follows that can use it.
std::size_t spaces(std::string_view text) noexcept {
    std::size_t end = 0, last = 0;
    for (Character c = character_at(text, 0); c.length != 0 && is_space(c.kind); c = character_at(text, end)) {
        last = end;
        end += c.length;
    }
    return end == text.size() || last == 0 ? end : last;
}

// ---- Expressions ----------------------------------------------------------------------------------------------------

/// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
std::size_t match_gpt2(std::string_view text) noexcept {
    if (const std::size_t n = contraction(text, false)) return n;
    const std::size_t begin = text[0] == ' ' ? 1 : 0;
    const Character c = character_at(text, begin);
    if (c.length == 0 || is_space(c.kind)) return spaces(text);
    constexpr std::uint8_t told_apart = kLetter | kNumber | kSpace;
    return run_end(text, begin + c.length, [&](std::uint8_t kind) { return ((kind ^ c.kind) & told_apart) == 0; });
}

/// contraction|[^\r\n\p{L}\p{N}]?L+|\p{N}{1,n}| ?[^\sL\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ with the letters L of `letters`.
template <std::uint8_t letters, std::size_t n_digits>
std::size_t match_llama3(std::string_view text) noexcept {
    constexpr auto is_letter = [](std::uint8_t kind) { return (kind & letters) != 0; };
    constexpr auto is_other = [](std::uint8_t kind) { return (kind & (letters | kNumber | kSpace)) == 0; };
    if (const std::size_t n = contraction(text, true)) return n;
    const Character first = character_at(text, 0);
    if (is_letter(first.kind)) return run_end(text, first.length, is_letter);
    if (is_number(first.kind)) return run_end(text, 0, is_number, n_digits);
    if (!is_newline(first.kind))
        if (const std::size_t end = run_end(text, first.length, is_letter); end > first.length) return end;
    const std::size_t begin = text[0] == ' ' ? 1 : 0;
    if (const std::size_t end = run_end(text, begin, is_other); end > begin) return run_end(text, end, is_newline);
    const std::size_t space_end = run_end(text, 0, is_space);
    if (const std::size_t newline = text.substr(0, space_end).find_last_of("\r\n"); newline != text.npos) return newline + 1;
    return spaces(text);
}

/// \p{N}{1,n}
template <std::size_t n_digits>
std::size_t match_numbers(std::string_view text) noexcept {
    return run_end(text, 0, is_number, n_digits);
}

/// [\p{P}\$\+<=>\^~\|`]+, the back-tick being in or out.
template <bool with_backtick>
std::size_t match_punctuation(std::string_view text) noexcept {
    constexpr std::string_view symbols = with_backtick ? "$+<=>^~|`" : "$+<=>^~|";
    std::size_t end = 0;
    for (Character c = character_at(text, 0); c.length != 0; c = character_at(text, end)) {
        if (c.kind != kPunctuation && symbols.find(text[end]) == symbols.npos) break;
        end += c.length;
    }
    return end;
}

/// [0-9][0-9][0-9]
std::size_t match_three_digits(std::string_view text) noexcept {
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    return text.size() >= 3 && std::all_of(text.begin(), text.begin() + 3, is_digit) ? 3 : 0;
}

template <std::size_t (*match)(std::string_view) noexcept>
void scan(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends) {
    std::size_t last = 0;   // end of the last match
    for (std::size_t at = 0; at < piece.size();) {
        const std::size_t length = match(piece.substr(at));
        if (length == 0) {
            at += length_by_lead(static_cast<unsigned char>(piece[at]));
            continue;
        }
        if (at > last) ends.push_back(base + at);
        at = last = at + length;
        ends.push_back(base + at);
    }
    if (last < piece.size()) ends.push_back(base + piece.size());
}

struct Scanner {
    std::string_view pattern;
    ScanFn scan;
};
constexpr std::size_t kAnyNumber = std::numeric_limits<std::size_t>::max();
constexpr Scanner kScanners[] = {
    {R"re('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)re", scan<match_gpt2>},
    {"%G%", scan<match_gpt2>},
    {R"re(%C%|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
     scan<match_llama3<kLetter, 3>>},
    {R"re(%C%|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
     scan<match_llama3<kLetter, 1>>},
    {R"re(%C%|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
     scan<match_llama3<kLetter | kMark, 1>>},
    {R"re(\p{N})re", scan<match_numbers<1>>},
    {R"re(\p{N}{1,3})re", scan<match_numbers<3>>},
    {R"re(\p{N}+)re", scan<match_numbers<kAnyNumber>>},
    {R"re([\p{P}\$\+<=>\^~\|`]+)re", scan<match_punctuation<true>>},
    {R"re([\p{P}\$\+<=>\^~\|]+)re", scan<match_punctuation<false>>},
    {R"re([0-9][0-9][0-9])re", scan<match_three_digits>},
};

}  // namespace

ScanFn find_scanner(std::string_view pattern) noexcept {
    const auto found = std::ranges::find(kScanners, pattern, &Scanner::pattern);
    return found == std::end(kScanners) ? nullptr : found->scan;
}

}  // namespace tinfer::tokenizer
