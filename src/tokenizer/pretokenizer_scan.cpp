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

enum Kind : std::uint8_t {
    kOther = 0,
    kLetter = 1,
    kNumber = 2,
    kSpace = 4,
    kNewline = 8,
    kMark = 16,
    kPunctuation = 32
};

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
        const bool is_symbol =
            c == '$' || c == '+' || c == '<' || c == '=' || c == '>' || c == '^' || c == '`' || c == '|' || c == '~';
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
    std::size_t length;  // 0 at the end of the text
};

Character character_at(std::string_view text, std::size_t at) noexcept {
    if (at >= text.size()) return {kOther, 0};
    const auto lead = static_cast<unsigned char>(text[at]);
    if (lead < 0x80) return {kAsciiKinds[lead], 1};
    const CodePoint point = decode_structural(text.substr(at));
    if (is_white_space(point.value)) return {kSpace, point.length};
    return {kind_of_category(utf8proc_category(static_cast<utf8proc_int32_t>(point.value))), point.length};
}

/// End of the run of at most `most` characters from `at` on for which `is_in` is true.
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

// ---- Parts of expressions: the length of a match at the front, or 0 -------------------------------------------------

/// 's 't 're 've 'm 'll 'd.
std::size_t contraction(std::string_view text, bool any_case) noexcept {
    if (text.size() < 2 || text[0] != '\'') return 0;
    const auto letter = [&](std::size_t i) {
        const char c = i < text.size() ? text[i] : '\0';
        return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    };
    const char first = letter(1), second = letter(2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
    return (first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l') ? 3
                                                                                                                 : 0;
}

/// \s+(?!\S)|\s+ : a run of white space; if text follows, without its last character.
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

/// contraction|[^\r\n\p{L}\p{N}]?L+|\p{N}{1,n}| ?[^\sL\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
/// where L are the kinds in `letters`.
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
    if (const std::size_t newline = text.substr(0, space_end).find_last_of("\r\n"); newline != text.npos)
        return newline + 1;
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
    std::size_t last = 0;  // end of the last match
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

// ---- Digits in groups of three from the right
// -------------------------------------------------------------------------------- The expressions look ahead to the
// end of the run at every digit, which takes quadratic time. Here the digits of a run are counted once.

utf8proc_category_t category_of(char32_t c) noexcept { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

/// \d
bool is_decimal(char32_t c) noexcept {
    return c < 0x80 ? c >= '0' && c <= '9' : category_of(c) == UTF8PROC_CATEGORY_ND;
}

/// \p{N}
bool is_any_number(char32_t c) noexcept {
    return c < 0x80 ? c >= '0' && c <= '9' : kind_of_category(category_of(c)) == kNumber;
}

/// [\p{Alphabetic}\p{M}\p{Nd}\p{Pc}]: Alphabetic is letters, letter numbers, some marks and four ranges of symbols
/// (DerivedCoreProperties.txt of Unicode 14).
bool is_word(char32_t c) noexcept {
    const bool is_letter_symbol = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
                                  (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
    const utf8proc_category_t category = category_of(c);
    return (kind_of_category(category) & (kLetter | kMark)) != 0 || category == UTF8PROC_CATEGORY_ND ||
           category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_PC || is_letter_symbol;
}

struct Run {
    std::size_t end, n_characters;
};

template <bool (*is_digit)(char32_t) noexcept>
Run digit_run(std::string_view text, std::size_t at) noexcept {
    Run run{at, 0};
    while (run.end < text.size()) {
        const CodePoint point = decode_structural(text.substr(run.end));
        if (!is_digit(point.value)) break;
        run.end += point.length;
        ++run.n_characters;
    }
    return run;
}

/// Calls fn(begin, run) for every run of digits.
template <bool (*is_digit)(char32_t) noexcept, class Fn>
void for_each_digit_run(std::string_view piece, const Fn& fn) {
    for (std::size_t at = 0; at < piece.size();) {
        const Run run = digit_run<is_digit>(piece, at);
        if (run.n_characters > 0) fn(at, run);
        at = run.end;
        if (at < piece.size()) at += length_by_lead(static_cast<unsigned char>(piece[at]));
    }
}

/// D{1,3}(?=(?:D{3})*(?!W)) with digits D and a class W that includes them: groups of three from the right, of a run
/// that no W follows. The first group may be shorter.
template <bool (*is_digit)(char32_t) noexcept, bool (*hinders)(char32_t) noexcept>
void scan_threes(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends) {
    std::size_t last = 0;  // end of the last match
    for_each_digit_run<is_digit>(piece, [&](std::size_t at, Run run) {
        if (run.end < piece.size() && hinders(decode_structural(piece.substr(run.end)).value)) return;
        if (at > last) ends.push_back(base + at);
        for (std::size_t n_left = run.n_characters; n_left > 0;) {
            at += decode_structural(piece.substr(at)).length;
            if (--n_left % 3 == 0) ends.push_back(base + at);
        }
        last = run.end;
    });
    if (last < piece.size()) ends.push_back(base + piece.size());
}

/// (?=(\d{3})+(?!\d)): a cut before every group of three, none after the run.
void scan_cuts_before_threes(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends) {
    for_each_digit_run<is_decimal>(piece, [&](std::size_t at, Run run) {
        for (std::size_t n_left = run.n_characters; n_left > 0; --n_left) {
            if (n_left % 3 == 0 && at > 0) ends.push_back(base + at);
            at += decode_structural(piece.substr(at)).length;
        }
    });
    if (!piece.empty()) ends.push_back(base + piece.size());
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
    {R"re(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))re", scan_threes<is_any_number, is_any_number>},
    {R"re(\d{1,3}(?=(?:\d{3})*(?![\p{Alphabetic}\p{M}\p{Nd}\p{Pc}])))re", scan_threes<is_decimal, is_word>},
    {R"re((?=(\d{3})+(?!\d)))re", scan_cuts_before_threes},
};

}  // namespace

ScanFn find_scanner(std::string_view pattern) noexcept {
    const auto found = std::ranges::find(kScanners, pattern, &Scanner::pattern);
    return found == std::end(kScanners) ? nullptr : found->scan;
}

}  // namespace tinfer::tokenizer
