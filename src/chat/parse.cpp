// SPDX-License-Identifier: MIT
// The parser of statements: tags {% … %} and the bodies of blocks.
#include <algorithm>
#include <array>
#include <initializer_list>
#include <span>

#include "chat/token_stream.hpp"

namespace tinfer::chat {

void TokenStream::unexpected(std::string_view expected) const {
    const LexToken& token = peek();
    std::string found;
    switch (token.kind) {
        case Kind::data: found = "text"; break;
        case Kind::output_begin: found = "'{{'"; break;
        case Kind::output_end: found = "'}}'"; break;
        case Kind::block_begin: found = "'{%'"; break;
        case Kind::block_end: found = "'%}'"; break;
        case Kind::string: found = "a string"; break;
        case Kind::integer:
        case Kind::real: found = "a number"; break;
        case Kind::name:
        case Kind::symbol: found = cat("'", escaped(token.text), "'"); break;
        case Kind::end: found = "the end of the template"; break;
    }
    syntax_error(token.place, cat(found, " where ", expected, " is expected"));
}

namespace {

using Kind = LexToken::Kind;
using Words = std::initializer_list<std::string_view>;

class Parser {
public:
    explicit Parser(std::string_view source) : tokens_(lex(source)) {}

    Body run() { return body({}); }

private:
    template <class Node>
    static void add(Body& body, Place place, Node node) {
        body.push_back(std::make_unique<Statement>(Statement{place, std::move(node)}));
    }

    /// Parses statements up to a tag that begins with one of `ends`. Its "{%" is consumed, the rest of the tag is left
    /// to the caller. Without `ends` it parses to the end of the template.
    Body body(Words ends) {
        const TokenStream::Nested nested(tokens_);
        const Place start = tokens_.place();
        Body out;
        while (!tokens_.is(Kind::end)) {
            const Place place = tokens_.place();
            if (tokens_.is(Kind::data)) {
                add(out, place, Data{tokens_.next().text});
            } else if (tokens_.is(Kind::output_begin)) {
                tokens_.next();
                add(out, place, Output{parse_tuple(tokens_)});
                tokens_.expect(Kind::output_end, "'}}'");
            } else {
                tokens_.expect(Kind::block_begin, "'{%'");
                if (std::ranges::any_of(ends, [this](std::string_view word) { return tokens_.is_name(word); }))
                    return out;
                statement(out);
            }
        }
        if (ends.size() > 0) syntax_error(start, cat("the block has no '", *(ends.end() - 1), "'"));
        return out;
    }

    void end_of_tag() { tokens_.expect(Kind::block_end, "'%}'"); }
    void end_of_block(std::string_view word) {
        if (!tokens_.take_name(word)) tokens_.unexpected(cat("'", word, "'"));
        end_of_tag();
    }

    void statement(Body& out) {
        const Place place = tokens_.place();
        const std::string word = tokens_.expect_name("the name of a statement");
        if (word == "if") return add(out, place, if_statement());
        if (word == "for") return add(out, place, for_statement());
        if (word == "set") return set_statement(out, place);
        if (word == "macro") return add(out, place, macro(tokens_.expect_name("the name of a macro"), "endmacro"));
        if (word == "call") return add(out, place, call_block());
        if (word == "filter") return add(out, place, filter_block());
        if (word == "with") return add(out, place, with_block());
        if (word == "generation" || word == "block" || word == "autoescape") return add(out, place, plain_block(word));
        if (word == "break" || word == "continue") {
            if (loops_ == 0) syntax_error(place, cat("'", word, "' outside of a loop"));
            end_of_tag();
            return word == "break" ? add(out, place, Break{}) : add(out, place, Continue{});
        }
        syntax_error(place, cat("'", escaped(word), "' is no statement that can stand here"));
    }

    If if_statement() {
        If node;
        auto condition = parse_tuple(tokens_, false);
        while (true) {
            end_of_tag();
            node.branches.push_back({std::move(condition), body({"elif", "else", "endif"})});
            if (!tokens_.take_name("elif")) break;
            condition = parse_tuple(tokens_, false);
        }
        if (tokens_.take_name("else")) {
            end_of_tag();
            node.otherwise = body({"endif"});
        }
        end_of_block("endif");
        return node;
    }

    For for_statement() {
        For node;
        node.target = target("in");
        if (!tokens_.take_name("in")) tokens_.unexpected("'in'");
        node.values = parse_tuple(tokens_, false);
        if (tokens_.take_name("if")) node.condition = parse_expression(tokens_);
        node.recursive = tokens_.take_name("recursive");
        end_of_tag();
        ++loops_;
        node.body = body({"else", "endfor"});
        --loops_;
        if (tokens_.take_name("else")) {
            end_of_tag();
            node.otherwise = body({"endfor"});
        }
        end_of_block("endfor");
        return node;
    }

    Target single_target() {
        const TokenStream::Nested nested(tokens_);
        Target out;
        out.place = tokens_.place();
        if (tokens_.take_symbol("(")) {
            out = target("");
            tokens_.expect_symbol(")");
            return out;
        }
        out.name = tokens_.expect_name("the name of a variable");
        constexpr std::array<std::string_view, 6> kReserved{"true", "false", "none", "True", "False", "None"};
        if (std::ranges::find(kReserved, out.name) != kReserved.end())
            syntax_error(out.place, cat("'", out.name, "' cannot be assigned to"));
        if (tokens_.take_symbol(".")) out.attribute = tokens_.expect_name("the name of an attribute");
        return out;
    }

    /// One target, or several separated by commas; in a loop the word `end` ends the list.
    Target target(std::string_view end) {
        Target first = single_target();
        if (!tokens_.is_symbol(",")) return first;
        Target out;
        out.place = first.place;
        out.items.push_back(std::move(first));
        while (tokens_.take_symbol(",")) {
            if (tokens_.is_symbol("=") || tokens_.is_symbol(")") || (!end.empty() && tokens_.is_name(end))) break;
            out.items.push_back(single_target());
        }
        return out;
    }

    void set_statement(Body& out, Place place) {
        Target where = target("");
        if (tokens_.take_symbol("=")) {
            add(out, place, Set{std::move(where), parse_tuple(tokens_)});
            return end_of_tag();
        }
        if (!where.items.empty()) tokens_.unexpected("'='");
        SetBlock node{std::move(where), {}, {}};
        if (tokens_.take_symbol("|")) node.filters = filters();
        end_of_tag();
        node.body = outside_of_loops([this] { return body({"endset"}); });
        end_of_block("endset");
        add(out, place, std::move(node));
    }

    /// The body of a macro or a block set is not part of the enclosing loop.
    template <class Fn>
    Body outside_of_loops(Fn parse_body) {
        const int loops = std::exchange(loops_, 0);
        Body out = parse_body();
        loops_ = loops;
        return out;
    }

    std::vector<Parameter> parameters() {
        std::vector<Parameter> out;
        while (!tokens_.take_symbol(")")) {
            if (!out.empty()) tokens_.expect_symbol(",");
            const Place place = tokens_.place();
            Parameter parameter{tokens_.expect_name("the name of a parameter"), nullptr};
            if (tokens_.take_symbol("=")) parameter.otherwise = parse_expression(tokens_);
            else if (!out.empty() && out.back().otherwise != nullptr)
                syntax_error(place, "a parameter without default behind one with a default");
            out.push_back(std::move(parameter));
        }
        return out;
    }

    Macro macro(std::string name, std::string_view end) {
        Macro node{std::move(name), {}, {}};
        tokens_.expect_symbol("(");
        node.parameters = parameters();
        end_of_tag();
        const int n_varargs = tokens_.n_varargs(), n_kwargs = tokens_.n_kwargs();
        node.body = outside_of_loops([this, end] { return body({end}); });
        node.takes_varargs = tokens_.n_varargs() > n_varargs;
        node.takes_kwargs = tokens_.n_kwargs() > n_kwargs;
        end_of_block(end);
        return node;
    }

    CallBlock call_block() {
        CallBlock node;
        if (tokens_.take_symbol("(")) node.caller.parameters = parameters();
        node.call = parse_expression(tokens_);
        const auto* call = std::get_if<Postfix>(&node.call->node);
        if (call == nullptr || call->suffixes.back().kind != Suffix::Kind::call)
            syntax_error(node.call->place, "a call is expected");
        end_of_tag();
        node.caller.name = "caller";
        node.caller.body = outside_of_loops([this] { return body({"endcall"}); });
        end_of_block("endcall");
        return node;
    }

    std::vector<FilterUse> filters() {
        std::vector<FilterUse> out;
        do {
            const Place place = tokens_.place();
            FilterUse use{tokens_.expect_name("the name of a filter"), {}, place};
            while (tokens_.take_symbol(".")) use.name += '.' + tokens_.expect_name("the name of a filter");
            if (tokens_.take_symbol("(")) use.arguments = parse_arguments(tokens_);
            out.push_back(std::move(use));
        } while (tokens_.take_symbol("|"));
        return out;
    }

    FilterBlock filter_block() {
        FilterBlock node{filters(), {}};
        end_of_tag();
        node.body = outside_of_loops([this] { return body({"endfilter"}); });
        end_of_block("endfilter");
        return node;
    }

    With with_block() {
        With node;
        while (!tokens_.is(Kind::block_end)) {
            if (!node.bindings.empty()) tokens_.expect_symbol(",");
            Target where = single_target();
            tokens_.expect_symbol("=");
            node.bindings.emplace_back(std::move(where), parse_expression(tokens_));
        }
        end_of_tag();
        node.body = body({"endwith"});
        end_of_block("endwith");
        return node;
    }

    Block plain_block(const std::string& word) {
        if (word == "block") tokens_.expect_name("the name of the block");
        if (word == "autoescape") static_cast<void>(parse_expression(tokens_));
        end_of_tag();
        const std::string end = "end" + word;
        Block node{body({end})};
        tokens_.next();
        if (word == "block" && tokens_.is(Kind::name)) tokens_.next();
        end_of_tag();
        return node;
    }

    TokenStream tokens_;
    int loops_ = 0;  ///< enclosing loops within the same macro
};

/// Line ends become "\n", and a final one is removed.
std::string normalized(std::string_view source) {
    std::string out;
    out.reserve(source.size());
    for (std::size_t i = 0; i < source.size(); ++i) {
        if (source[i] != '\r') {
            out += source[i];
            continue;
        }
        out += '\n';
        if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
    if (out.ends_with('\n')) out.pop_back();
    return out;
}

}  // namespace

Body parse(std::string_view source) { return Parser(normalized(source)).run(); }

}  // namespace tinfer::chat
