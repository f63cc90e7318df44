// SPDX-License-Identifier: MIT
#include "tokenizer/pretokenizer.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <new>
#include <span>

#include "base/error.hpp"
#include "tokenizer/pretokenizer_table.hpp"
#include "tokenizer/utf8.hpp"

namespace tinfer::tokenizer {

namespace {

// Runs of one character make backtracking deep: 8 MB covers about 100 KB of them, longer ones are retried without JIT
// on the heap, and what fails even there is cut where words end.
constexpr std::size_t kJitStackStart = 32 * 1024;
constexpr std::size_t kJitStackLimit = 8 * 1024 * 1024;
constexpr std::uint32_t kMatchLimit = 1'000'000'000;
constexpr std::uint32_t kHeapLimitKiB = 256 * 1024;
constexpr std::size_t kCutWindow = 64 * 1024;

struct Replacement {
    std::string_view from, to;
};

constexpr Replacement kAbbreviations[] = {
    {"%C%", "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"},
    {"%U%", R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"},
    {"%W%", R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"},
    {"%G%", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
};

// PCRE2's \s also matches U+180E, which lost White_Space in Unicode 6.3; its \p{Han} means Script_Extensions.
constexpr Replacement kEscapes[] = {
    {R"(\s)", R"(\p{White_Space})"},
    {R"(\S)", R"(\P{White_Space})"},
    {R"(\p{Han})", R"(\p{sc:Han})"},
};

const Replacement* replacement_at(std::span<const Replacement> table, std::string_view text) {
    const auto found = std::ranges::find_if(table, [&](const Replacement& r) { return text.starts_with(r.from); });
    return found == table.end() ? nullptr : &*found;
}

std::string replace_all(std::string_view text, std::span<const Replacement> table) {
    std::string out;
    while (!text.empty()) {
        if (const Replacement* replacement = replacement_at(table, text)) {
            out += replacement->to;
            text.remove_prefix(replacement->from.size());
            continue;
        }
        const std::size_t length = text[0] == '\\' && text.size() > 1 ? 2 : 1;   // an escaped character stays one unit
        out += text.substr(0, length);
        text.remove_prefix(length);
    }
    return out;
}

std::string regex_message(int error) {
    std::array<PCRE2_UCHAR8, 256> text{};
    pcre2_get_error_message_8(error, text.data(), text.size());
    return reinterpret_cast<const char*>(text.data());
}

constexpr bool is_ascii_space(char c) noexcept { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Where to cut a piece that no match survives: before the last whitespace inside the window, else at a character
// boundary near its end.
std::size_t cut_point(std::string_view piece) noexcept {
    if (piece.size() <= kCutWindow) return piece.size();
    std::size_t boundary = kCutWindow;
    while (boundary > 0 && (static_cast<unsigned char>(piece[boundary]) & 0xC0) == 0x80) --boundary;
    for (std::size_t i = boundary; i > 1; --i)
        if (is_ascii_space(piece[i - 1])) return i - 1;
    return boundary;
}

// One match attempt: JIT first, the interpreter with raised limits when the JIT stack does not suffice.
int match_once(const pcre2_code_8* code, std::string_view piece, std::size_t start, pcre2_match_data_8* data,
               pcre2_match_context_8* context) {
    const auto* subject = reinterpret_cast<PCRE2_SPTR8>(piece.data());
    const int result = pcre2_match_8(code, subject, piece.size(), start, PCRE2_NO_UTF_CHECK, data, context);
    if (result != PCRE2_ERROR_JIT_STACKLIMIT) return result;
    return pcre2_match_8(code, subject, piece.size(), start, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data, context);
}

}  // namespace

void FreeRegex::operator()(pcre2_code_8* code) const noexcept { pcre2_code_free_8(code); }
void FreeRegex::operator()(pcre2_match_data_8* data) const noexcept { pcre2_match_data_free_8(data); }
void FreeRegex::operator()(pcre2_match_context_8* context) const noexcept { pcre2_match_context_free_8(context); }
void FreeRegex::operator()(pcre2_jit_stack_8* stack) const noexcept { pcre2_jit_stack_free_8(stack); }

RegexScratch::RegexScratch()
    : data_(pcre2_match_data_create_8(1, nullptr)),
      stack_(pcre2_jit_stack_create_8(kJitStackStart, kJitStackLimit, nullptr)),
      context_(pcre2_match_context_create_8(nullptr)) {
    if (!data_ || !context_) throw std::bad_alloc();
    pcre2_set_match_limit_8(context_.get(), kMatchLimit);
    pcre2_set_depth_limit_8(context_.get(), kMatchLimit);
    pcre2_set_heap_limit_8(context_.get(), kHeapLimitKiB);
    if (stack_) pcre2_jit_stack_assign_8(context_.get(), nullptr, stack_.get());
}

Pretokenizer::Pretokenizer(const PretokenizerFamily& family, Matching matching) {
    for (const std::string_view pattern : family.patterns) {
        if (const ScanFn scan = find_scanner(pattern); scan != nullptr && matching == Matching::scanners_first) {
            steps_.push_back({scan, nullptr});
            continue;
        }
        const std::string expanded = expand_pattern(pattern);
        int error = 0;
        std::size_t offset = 0;
        Code code(pcre2_compile_8(reinterpret_cast<PCRE2_SPTR8>(expanded.data()), expanded.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &error, &offset, nullptr));
        if (!code)
            fail(ErrorCode::not_available, cat("pre-tokenizer family '", family.name, "': PCRE2 ", regex_version(),
                                               " refuses the expression at ", offset, ": ", regex_message(error)));
        pcre2_jit_compile_8(code.get(), PCRE2_JIT_COMPLETE);   // where there is no JIT, matching interprets
        steps_.push_back({nullptr, std::move(code)});
    }
}

void Pretokenizer::split(std::string_view subject, RegexScratch& scratch, std::vector<std::size_t>& ends) const {
    ends.assign(subject.empty() ? 0 : 1, subject.size());
    for (const auto& [scan, code] : steps_) {
        scratch.previous_.swap(ends);
        ends.clear();
        std::size_t begin = 0;
        for (const std::size_t end : scratch.previous_) {
            if (scan != nullptr) {
                scan(subject.substr(begin, end - begin), begin, ends);
                begin = end;
                continue;
            }
            if (split_piece(code.get(), subject.substr(begin, end - begin), begin, scratch, ends)) {
                begin = end;
                continue;
            }
            while (begin < end) {   // too deep even for the interpreter: window by window
                const std::string_view rest = subject.substr(begin, end - begin);
                const std::string_view window = rest.substr(0, cut_point(rest));
                if (!split_piece(code.get(), window, begin, scratch, ends)) ends.push_back(begin + window.size());
                begin += window.size();
            }
        }
    }
}

bool Pretokenizer::split_piece(const pcre2_code_8* code, std::string_view piece, std::size_t base,
                               RegexScratch& scratch, std::vector<std::size_t>& ends) {
    const std::size_t n_before = ends.size();
    std::size_t last = 0;   // end of the last piece
    for (std::size_t start = 0; start < piece.size();) {
        const int result = match_once(code, piece, start, scratch.data_.get(), scratch.context_.get());
        if (result == PCRE2_ERROR_NOMATCH) break;
        if (result < 0) {
            ends.resize(n_before);
            return false;
        }
        const std::size_t* match = pcre2_get_ovector_pointer_8(scratch.data_.get());
        if (match[0] > last) ends.push_back(base + (last = match[0]));
        if (match[1] > last) ends.push_back(base + (last = match[1]));
        start = last;
        if (match[0] == match[1])   // zero-length: the cut is made, the search goes on one character later
            start = match[1] < piece.size() ? match[1] + utf8_front(piece.substr(match[1])).length : piece.size();
    }
    if (last < piece.size()) ends.push_back(base + piece.size());
    return true;
}

std::string expand_pattern(std::string_view pattern) {
    return replace_all(replace_all(pattern, kAbbreviations), kEscapes);
}

std::string regex_version() {
    std::array<char, 64> version{}, unicode{};
    pcre2_config_8(PCRE2_CONFIG_VERSION, version.data());
    pcre2_config_8(PCRE2_CONFIG_UNICODE_VERSION, unicode.data());
    return cat(version.data(), ", Unicode ", unicode.data());
}

}  // namespace tinfer::tokenizer
