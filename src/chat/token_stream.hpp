// SPDX-License-Identifier: MIT
// The token stream that the parsers of statements and expressions share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/stack_budget.hpp"
#include "chat/ast.hpp"
#include "chat/lexer.hpp"

namespace tinfer::chat {

class TokenStream {
public:
    using Kind = LexToken::Kind;

    explicit TokenStream(std::vector<LexToken> tokens) : tokens_(std::move(tokens)) {}

    [[nodiscard]] const LexToken& peek(std::size_t ahead = 0) const {
        return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
    }
    [[nodiscard]] Place place() const { return peek().place; }
    LexToken next() {
        n_varargs_ += is_name("varargs");
        n_kwargs_ += is_name("kwargs");
        return at_ + 1 < tokens_.size() ? std::move(tokens_[at_++]) : tokens_.back();
    }
    /// How often these names were read so far: a macro that uses them accepts undeclared arguments.
    [[nodiscard]] int n_varargs() const noexcept { return n_varargs_; }
    [[nodiscard]] int n_kwargs() const noexcept { return n_kwargs_; }

    [[nodiscard]] bool is(Kind kind) const { return peek().kind == kind; }
    [[nodiscard]] bool is_symbol(std::string_view text, std::size_t ahead = 0) const {
        return peek(ahead).kind == Kind::symbol && peek(ahead).text == text;
    }
    [[nodiscard]] bool is_name(std::string_view text, std::size_t ahead = 0) const {
        return peek(ahead).kind == Kind::name && peek(ahead).text == text;
    }
    bool take_symbol(std::string_view text) { return is_symbol(text) && (next(), true); }
    bool take_name(std::string_view text) { return is_name(text) && (next(), true); }

    void expect_symbol(std::string_view text) {
        if (!take_symbol(text)) unexpected(cat("'", text, "'"));
    }
    void expect(Kind kind, std::string_view what) {
        if (!is(kind)) unexpected(what);
        next();
    }
    std::string expect_name(std::string_view what) {
        if (!is(Kind::name)) unexpected(what);
        return next().text;
    }
    [[noreturn]] void unexpected(std::string_view expected) const;

    /// Guard of the nesting depth; throws template_syntax beyond the limit.
    class Nested {
    public:
        explicit Nested(TokenStream& tokens) : tokens_(tokens) {
            if (tokens_.depth_ >= kMaxNesting) syntax_error(tokens_.place(), cat("nested deeper than ", kMaxNesting));
            if (tokens_.stack_.is_spent())
                syntax_error(tokens_.place(),
                             cat(tokens_.depth_, " brackets, signs and blocks inside each other: too deep"));
            ++tokens_.depth_;
        }
        Nested(const Nested&) = delete;
        Nested& operator=(const Nested&) = delete;
        ~Nested() { --tokens_.depth_; }

    private:
        TokenStream& tokens_;
    };

private:
    std::vector<LexToken> tokens_;
    std::size_t at_ = 0;
    int depth_ = 0;
    StackBudget stack_{std::size_t{200} << 10};  // of 256 KiB
    int n_varargs_ = 0, n_kwargs_ = 0;
};

// The parser of expressions (parse_expression.cpp).

/// An expression, or with commas a tuple. `with_condition`: allows "a if b else c" (not so in `for … in xs if …`).
[[nodiscard]] ExpressionPtr parse_tuple(TokenStream& tokens, bool with_condition = true);
[[nodiscard]] ExpressionPtr parse_expression(TokenStream& tokens, bool with_condition = true);
/// After an opening bracket, up to its closing one.
[[nodiscard]] CallArguments parse_arguments(TokenStream& tokens);

}  // namespace tinfer::chat
