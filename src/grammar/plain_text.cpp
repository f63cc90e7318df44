// SPDX-License-Identifier: MIT
// Grammars of texts that are no JSON: those of a regular expression, and lists of texts.
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "grammar/print.hpp"
#include "grammar/regex.hpp"
#include "tinfer/grammar.hpp"
#include "tokenizer/utf8.hpp"

namespace tinfer {
namespace {

constexpr std::size_t kMaxGbnfBytes = 1u << 20;
constexpr std::string_view kWritingGrammar = "grammar: an allocation failed";

std::string print_texts(grammar::Dfa dfa, std::string_view what) {
    if (dfa.empty()) fail(ErrorCode::bad_parameter, cat(what, ": no text matches it"));
    std::string gbnf = print_gbnf(std::move(dfa), kMaxGbnfBytes);
    if (gbnf.empty())
        fail(ErrorCode::limit_exceeded, cat(what, ": its grammar takes more than ", kMaxGbnfBytes, " bytes"));
    return gbnf;
}

}  // namespace

std::string gbnf_of_regex(std::string_view pattern) {
    return reporting_memory(kWritingGrammar, [&] {
        grammar::RegexShare share;
        // Alone first: "a)(b" would be an expression between other parentheses.
        if (grammar::compile_regex(pattern, share).empty())
            fail(ErrorCode::bad_parameter, cat("regular expression '", escaped(pattern, 160), "': no text matches it"));
        return print_texts(grammar::compile_regex(cat("^(?:", pattern, ")$"), share),
                           cat("regular expression '", escaped(pattern, 160), "'"));
    });
}

std::string gbnf_of_texts(std::span<const std::string> texts) {
    return reporting_memory(kWritingGrammar, [&] {
        if (texts.empty()) fail(ErrorCode::bad_parameter, "grammar: a list of texts has none");
        for (std::size_t i = 0; i < texts.size(); ++i)
            if (!tokenizer::is_valid_utf8(texts[i]))
                fail(ErrorCode::bad_parameter, cat("grammar: text ", i, " is not UTF-8"));
        const std::vector<std::string_view> views(texts.begin(), texts.end());
        return print_texts(grammar::dfa_of_texts(views), "grammar: a list of texts");
    });
}

}  // namespace tinfer
