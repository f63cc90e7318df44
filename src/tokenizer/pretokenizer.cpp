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
        const std::size_t length = text[0] == '\\' && text.size() > 1 ? 2 : 1;  // an escaped character stays one unit
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

// PCRE2 allocates with operator new, as everything else here. `refused` is set if that fails.
void* allocate(PCRE2_SIZE size, void* refused) noexcept {
    void* const memory = ::operator new(size, std::nothrow);
    if (memory == nullptr && refused != nullptr) *static_cast<bool*>(refused) = true;
    return memory;
}
void release(void* memory, void*) noexcept { ::operator delete(memory); }

using GeneralContext = std::unique_ptr<pcre2_general_context_8, decltype(&pcre2_general_context_free_8)>;

GeneralContext make_general_context(bool* refused = nullptr) {
    GeneralContext context(pcre2_general_context_create_8(allocate, release, refused), pcre2_general_context_free_8);
    if (!context) throw std::bad_alloc();
    return context;
}

// Compiled code is freed through the pointer it was made with, so `refused` lives as long as the code.
Pretokenizer::Code compile(const PretokenizerFamily& family, std::string_view pattern, bool& refused) {
    const GeneralContext memory = make_general_context(&refused);
    const std::unique_ptr<pcre2_compile_context_8, decltype(&pcre2_compile_context_free_8)> context(
        pcre2_compile_context_create_8(memory.get()), pcre2_compile_context_free_8);
    if (!context) throw std::bad_alloc();
    const std::string expanded = expand_pattern(pattern);
    int error = 0;
    std::size_t offset = 0;
    Pretokenizer::Code code(pcre2_compile_8(reinterpret_cast<PCRE2_SPTR8>(expanded.data()), expanded.size(),
                                            PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &error, &offset,
                                            context.get()));
    if (refused) throw std::bad_alloc();
    if (!code)
        fail(ErrorCode::not_available, cat("pre-tokenizer family '", family.name, "': PCRE2 ", regex_version(),
                                           " refuses the expression at ", offset, ": ", regex_message(error)));
    // If there is no JIT or no executable memory, PCRE2 interprets the code, with the same matches.
    pcre2_jit_compile_8(code.get(), PCRE2_JIT_COMPLETE);
    if (refused) throw std::bad_alloc();
    return code;
}

// Runs the compiled code, or the interpreter where the 32 KB stack of compiled code is too small.
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

RegexScratch::RegexScratch(RegexLimits limits) : limits_(limits) {
    const GeneralContext memory = make_general_context();
    data_.reset(pcre2_match_data_create_8(1, memory.get()));
    context_.reset(pcre2_match_context_create_8(memory.get()));
    if (!data_ || !context_) throw std::bad_alloc();
    pcre2_set_match_limit_8(context_.get(), limits.n_steps);
    pcre2_set_depth_limit_8(context_.get(), limits.n_steps);
    pcre2_set_heap_limit_8(context_.get(), limits.heap_kib);
}

Pretokenizer::Pretokenizer(const PretokenizerFamily& family, Matching matching)
    : name_(family.name), refused_(std::make_unique<bool>(false)) {
    for (const std::string_view pattern : family.patterns) {
        const ScanFn scan = matching == Matching::scanners_first ? find_scanner(pattern) : nullptr;
        steps_.push_back({scan, scan == nullptr ? compile(family, pattern, *refused_) : nullptr});
    }
}

void Pretokenizer::split(std::string_view subject, RegexScratch& scratch, std::vector<std::size_t>& ends) const {
    ends.assign(subject.empty() ? 0 : 1, subject.size());
    for (const auto& [scan, code] : steps_) {
        scratch.previous_.swap(ends);
        ends.clear();
        std::size_t begin = 0;
        for (const std::size_t end : scratch.previous_) {
            const std::string_view piece = subject.substr(begin, end - begin);
            if (scan != nullptr) scan(piece, begin, ends);
            else split_piece(code.get(), piece, begin, scratch, ends);
            begin = end;
        }
    }
}

void Pretokenizer::split_piece(const pcre2_code_8* code, std::string_view piece, std::size_t base,
                               RegexScratch& scratch, std::vector<std::size_t>& ends) const {
    std::size_t last = 0;  // end of the last piece
    for (std::size_t start = 0; start < piece.size();) {
        const int result = match_once(code, piece, start, scratch.data_.get(), scratch.context_.get());
        if (result == PCRE2_ERROR_NOMATCH) break;
        if (result < 0) refuse(result, piece.size(), scratch.limits_);
        const std::size_t* match = pcre2_get_ovector_pointer_8(scratch.data_.get());
        if (match[0] > last) ends.push_back(base + (last = match[0]));
        if (match[1] > last) ends.push_back(base + (last = match[1]));
        start = last;
        if (match[0] == match[1])  // an empty match: cut here, continue after the next character
            start = match[1] < piece.size() ? match[1] + utf8_front(piece.substr(match[1])).length : piece.size();
    }
    if (last < piece.size()) ends.push_back(base + piece.size());
}

// Throws: a text that cannot be cut as in training must not get other tokens.
void Pretokenizer::refuse(int error, std::size_t n_bytes, const RegexLimits& limits) const {
    const auto where = [&] {
        return cat("pre-tokenizer family '", name_, "': matching in a piece of ", n_bytes, " bytes ");
    };
    switch (error) {
        case PCRE2_ERROR_NOMEMORY: throw std::bad_alloc();
        case PCRE2_ERROR_MATCHLIMIT:
        case PCRE2_ERROR_DEPTHLIMIT:
            fail(ErrorCode::limit_exceeded, cat(where(), "takes more than the limit of ", limits.n_steps, " steps"));
        case PCRE2_ERROR_HEAPLIMIT:
            fail(ErrorCode::limit_exceeded, cat(where(), "takes more than the limit of ", limits.heap_kib, " KiB"));
        default:
            fail(ErrorCode::compute_failed, cat(where(), "failed: PCRE2 error ", error, ", ", regex_message(error)));
    }
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
