// SPDX-License-Identifier: MIT
// Any bytes as a regular expression of a schema and a text: compiling ends with an automaton or an Error. Of inputs
// whose first byte is odd, the characters are taken from a small set in which ECMA-262 and PCRE2 agree on what a valid
// expression means, and PCRE2 says whether the text has a match.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "grammar/regex.hpp"
#include "tokenizer/utf8.hpp"

namespace {

std::string from_set(std::string_view bytes, std::string_view set) {
    std::string out;
    for (const char byte : bytes) out += set[static_cast<unsigned char>(byte) % set.size()];
    return out;
}

/// Whether the text has a match; nullopt where PCRE2 refuses the expression or gives up.
std::optional<bool> pcre2_finds(const std::string& pattern, const std::string& text) {
    int error = 0;
    std::size_t place = 0;
    constexpr std::uint32_t kOptions =
        PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_ALLOW_EMPTY_CLASS | PCRE2_NO_AUTO_CAPTURE;
    const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code(
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), kOptions, &error, &place, nullptr),
        pcre2_code_free);
    if (code == nullptr) return std::nullopt;
    const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
        pcre2_match_data_create_from_pattern(code.get(), nullptr), pcre2_match_data_free);
    const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> limits(
        pcre2_match_context_create(nullptr), pcre2_match_context_free);
    pcre2_set_match_limit(limits.get(), 100'000);
    const int n = pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0, match.get(),
                              limits.get());
    if (n >= 0) return true;
    return n == PCRE2_ERROR_NOMATCH ? std::optional(false) : std::nullopt;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 3 || size > 512) return 0;
    const std::string_view rest(reinterpret_cast<const char*>(data) + 2, size - 2);
    const std::size_t cut = data[1] % rest.size();
    const bool compares = data[0] % 2 == 1;
    std::string pattern(rest.substr(cut)), text(rest.substr(0, cut));
    if (compares) {
        pattern = from_set(pattern, R"(aabb01_.*+?|()[]^-{},$\\dDwWsS2)");
        text = from_set(text, "aab01_- 2A");
    } else if (!tinfer::tokenizer::is_valid_utf8(text)) {
        text.clear();
    }
    try {
        const auto dfa = tinfer::grammar::compile_regex(pattern);
        const bool finds = dfa.match(text) != 0;
        if (!compares) return 0;
        const auto expected = pcre2_finds(pattern, text);
        if (expected && *expected != finds) std::abort();
    } catch (const tinfer::Error&) {
    }
    return 0;
}
