// SPDX-License-Identifier: MIT
// The parser of expressions: recursive descent with one function per precedence level, from conditional, or, and, not,
// comparison, sum, concatenation, product, power and sign down to a value with its suffixes.
#include <optional>

#include "chat/token_stream.hpp"

namespace tinfer::chat {
namespace {

using Kind = LexToken::Kind;
using Nested = TokenStream::Nested;

template <class Node>
ExpressionPtr make(Place place, Node node) {
    return std::make_unique<Expression>(Expression{place, std::move(node)});
}

ExpressionPtr parse_unary(TokenStream& tokens, bool with_filters = true);

// ---- values ---------------------------------------------------------------------------------------------------------

ExpressionPtr parse_list(TokenStream& tokens, Place place) {
    ListLiteral list;
    while (!tokens.take_symbol("]")) {
        if (!list.items.empty()) tokens.expect_symbol(",");
        if (tokens.take_symbol("]")) break;
        list.items.push_back(parse_expression(tokens));
    }
    return make(place, std::move(list));
}

ExpressionPtr parse_map(TokenStream& tokens, Place place) {
    MapLiteral map;
    while (!tokens.take_symbol("}")) {
        if (!map.entries.empty()) tokens.expect_symbol(",");
        if (tokens.take_symbol("}")) break;
        auto key = parse_expression(tokens);
        tokens.expect_symbol(":");
        map.entries.emplace_back(std::move(key), parse_expression(tokens));
    }
    return make(place, std::move(map));
}

ExpressionPtr parse_parentheses(TokenStream& tokens, Place place) {
    if (tokens.take_symbol(")")) return make(place, ListLiteral{{}, true});
    auto inner = parse_tuple(tokens);
    tokens.expect_symbol(")");
    return inner;
}

ExpressionPtr parse_primary(TokenStream& tokens) {
    const Nested nested(tokens);
    const Place place = tokens.place();
    LexToken token = tokens.next();
    switch (token.kind) {
        case Kind::name:
            if (token.text == "true" || token.text == "True") return make(place, Literal{true});
            if (token.text == "false" || token.text == "False") return make(place, Literal{false});
            if (token.text == "none" || token.text == "None") return make(place, Literal{});
            return make(place, Variable{std::move(token.text)});
        case Kind::string: {
            std::string text = std::move(token.text);
            while (tokens.is(Kind::string)) text += tokens.next().text;  // adjacent literals are one string
            return make(place, Literal{std::move(text)});
        }
        case Kind::integer: return make(place, Literal{token.integer});
        case Kind::real: return make(place, Literal{token.real});
        case Kind::symbol:
            if (token.text == "(") return parse_parentheses(tokens, place);
            if (token.text == "[") return parse_list(tokens, place);
            if (token.text == "{") return parse_map(tokens, place);
            syntax_error(place, cat("'", token.text, "' where a value is expected"));
        default: syntax_error(place, "a value is expected");
    }
}

// ---- what follows a value -------------------------------------------------------------------------------------------

Suffix parse_subscript(TokenStream& tokens, Place place) {
    Suffix suffix{Suffix::Kind::item, place};
    const auto part = [&]() -> ExpressionPtr {
        return tokens.is_symbol(":") || tokens.is_symbol("]") ? nullptr : parse_tuple(tokens);
    };
    suffix.begin = part();
    if (tokens.take_symbol(":")) {
        suffix.kind = Suffix::Kind::slice;
        suffix.end = part();
        if (tokens.take_symbol(":")) suffix.step = part();
    } else if (suffix.begin == nullptr) {
        tokens.unexpected("an index");
    }
    tokens.expect_symbol("]");
    return suffix;
}

Suffix parse_attribute(TokenStream& tokens, Place place) {
    if (tokens.is(Kind::integer)) {
        Suffix suffix{Suffix::Kind::item, place};
        suffix.begin = make(place, Literal{tokens.next().integer});
        return suffix;
    }
    Suffix suffix{Suffix::Kind::attribute, place};
    suffix.name = tokens.expect_name("the name of an attribute");
    return suffix;
}

std::string parse_dotted_name(TokenStream& tokens, std::string_view what) {
    std::string name = tokens.expect_name(what);
    while (tokens.take_symbol(".")) name += '.' + tokens.expect_name(what);
    return name;
}

/// A test may take an argument without brackets: `x is divisibleby 3`.
bool starts_test_argument(const TokenStream& tokens) {
    switch (tokens.peek().kind) {
        case Kind::string:
        case Kind::integer:
        case Kind::real: return true;
        case Kind::name:
            return !tokens.is_name("else") && !tokens.is_name("or") && !tokens.is_name("and") &&
                   !tokens.is_name("is") && !tokens.is_name("if") && !tokens.is_name("in") && !tokens.is_name("not");
        case Kind::symbol: return tokens.is_symbol("[") || tokens.is_symbol("{");
        default: return false;
    }
}

void parse_calls(TokenStream& tokens, std::vector<Suffix>& suffixes) {
    while (true) {
        const Place place = tokens.place();
        if (tokens.take_symbol(".")) {
            suffixes.push_back(parse_attribute(tokens, place));
        } else if (tokens.take_symbol("[")) {
            suffixes.push_back(parse_subscript(tokens, place));
        } else if (tokens.take_symbol("(")) {
            Suffix suffix{Suffix::Kind::call, place};
            suffix.arguments = parse_arguments(tokens);
            suffixes.push_back(std::move(suffix));
        } else {
            return;
        }
    }
}

Suffix parse_test(TokenStream& tokens, Place place) {
    Suffix suffix{tokens.take_name("not") ? Suffix::Kind::not_test : Suffix::Kind::test, place};
    suffix.name = parse_dotted_name(tokens, "the name of a test");
    if (tokens.take_symbol("(")) {
        suffix.arguments = parse_arguments(tokens);
    } else if (starts_test_argument(tokens)) {
        auto argument = parse_primary(tokens);
        Postfix postfix{std::move(argument), {}};
        parse_calls(tokens, postfix.suffixes);
        suffix.arguments.positional.push_back(postfix.suffixes.empty() ? std::move(postfix.subject)
                                                                       : make(place, std::move(postfix)));
    }
    return suffix;
}

ExpressionPtr parse_suffixes(TokenStream& tokens, ExpressionPtr subject, bool with_filters) {
    const Place start = subject->place;
    Postfix postfix{std::move(subject), {}};
    parse_calls(tokens, postfix.suffixes);
    while (with_filters) {
        const Place place = tokens.place();
        if (tokens.take_symbol("|")) {
            Suffix suffix{Suffix::Kind::filter, place};
            suffix.name = parse_dotted_name(tokens, "the name of a filter");
            if (tokens.take_symbol("(")) suffix.arguments = parse_arguments(tokens);
            postfix.suffixes.push_back(std::move(suffix));
        } else if (tokens.take_name("is")) {
            postfix.suffixes.push_back(parse_test(tokens, place));
        } else if (!postfix.suffixes.empty() && tokens.is_symbol("(")) {  // calls the result of a filter
            parse_calls(tokens, postfix.suffixes);
        } else {
            break;
        }
    }
    if (postfix.suffixes.empty()) return std::move(postfix.subject);
    return make(start, std::move(postfix));
}

// ---- operators ------------------------------------------------------------------------------------------------------

ExpressionPtr parse_unary(TokenStream& tokens, bool with_filters) {
    const Place place = tokens.place();
    const bool minus = tokens.is_symbol("-");
    if (minus || tokens.is_symbol("+")) {
        const Nested nested(tokens);
        tokens.next();
        auto node = make(place, Unary{minus ? Unary::Op::minus : Unary::Op::plus, parse_unary(tokens, false)});
        return with_filters ? parse_suffixes(tokens, std::move(node), true) : std::move(node);
    }
    return parse_suffixes(tokens, parse_primary(tokens), with_filters);
}

using Operator = std::pair<std::string_view, BinaryOp>;

template <class Node, std::size_t N, class Operand>
ExpressionPtr parse_chain(TokenStream& tokens, const Operator (&operators)[N], Operand operand) {
    const Place start = tokens.place();
    Node node{operand(tokens), {}};
    while (true) {
        const Operator* found = nullptr;
        for (const Operator& op : operators)
            if (tokens.is_symbol(op.first)) found = &op;
        if (found == nullptr) break;
        const Place place = tokens.next().place;
        node.links.push_back({found->second, place, operand(tokens)});
    }
    return node.links.empty() ? std::move(node.first) : make(start, std::move(node));
}

ExpressionPtr parse_power(TokenStream& tokens) {
    static constexpr Operator kOperators[] = {{"**", BinaryOp::pow}};
    return parse_chain<Arithmetic>(tokens, kOperators, [](TokenStream& t) { return parse_unary(t); });
}

ExpressionPtr parse_product(TokenStream& tokens) {
    static constexpr Operator kOperators[] = {
        {"*", BinaryOp::mul}, {"/", BinaryOp::div}, {"//", BinaryOp::floor_div}, {"%", BinaryOp::mod}};
    return parse_chain<Arithmetic>(tokens, kOperators, parse_power);
}

ExpressionPtr parse_concatenation(TokenStream& tokens) {
    const Place start = tokens.place();
    Concatenation node;
    do node.parts.push_back(parse_product(tokens));
    while (tokens.take_symbol("~"));
    return node.parts.size() == 1 ? std::move(node.parts[0]) : make(start, std::move(node));
}

ExpressionPtr parse_sum(TokenStream& tokens) {
    static constexpr Operator kOperators[] = {{"+", BinaryOp::add}, {"-", BinaryOp::sub}};
    return parse_chain<Arithmetic>(tokens, kOperators, parse_concatenation);
}

std::optional<BinaryOp> take_comparison(TokenStream& tokens) {
    static constexpr Operator kOperators[] = {{"==", BinaryOp::equal},  {"!=", BinaryOp::not_equal},
                                              {"<", BinaryOp::less},    {"<=", BinaryOp::less_equal},
                                              {">", BinaryOp::greater}, {">=", BinaryOp::greater_equal}};
    for (const Operator& op : kOperators)
        if (tokens.take_symbol(op.first)) return op.second;
    if (tokens.take_name("in")) return BinaryOp::in;
    if (tokens.is_name("not") && tokens.is_name("in", 1)) {
        tokens.next();
        tokens.next();
        return BinaryOp::not_in;
    }
    return std::nullopt;
}

ExpressionPtr parse_comparison(TokenStream& tokens) {
    const Place start = tokens.place();
    Comparison node{parse_sum(tokens), {}};
    for (Place place = tokens.place(); const auto op = take_comparison(tokens); place = tokens.place())
        node.links.push_back({*op, place, parse_sum(tokens)});
    return node.links.empty() ? std::move(node.first) : make(start, std::move(node));
}

ExpressionPtr parse_not(TokenStream& tokens) {
    const Place place = tokens.place();
    if (!tokens.take_name("not")) return parse_comparison(tokens);
    const Nested nested(tokens);
    return make(place, Unary{Unary::Op::logical_not, parse_not(tokens)});
}

template <class Operand>
ExpressionPtr parse_logical(TokenStream& tokens, std::string_view word, bool is_and, Operand operand) {
    const Place start = tokens.place();
    Logical node{is_and, {}};
    do node.parts.push_back(operand(tokens));
    while (tokens.take_name(word));
    return node.parts.size() == 1 ? std::move(node.parts[0]) : make(start, std::move(node));
}

ExpressionPtr parse_and(TokenStream& tokens) { return parse_logical(tokens, "and", true, parse_not); }
ExpressionPtr parse_or(TokenStream& tokens) { return parse_logical(tokens, "or", false, parse_and); }

}  // namespace

ExpressionPtr parse_expression(TokenStream& tokens, bool with_condition) {
    const Nested nested(tokens);
    const Place start = tokens.place();
    auto value = parse_or(tokens);
    while (with_condition && tokens.take_name("if")) {
        Conditional node{std::move(value), parse_or(tokens), nullptr};
        if (tokens.take_name("else")) node.otherwise = parse_expression(tokens);
        value = make(start, std::move(node));
    }
    return value;
}

ExpressionPtr parse_tuple(TokenStream& tokens, bool with_condition) {
    const Place start = tokens.place();
    auto first = parse_expression(tokens, with_condition);
    if (!tokens.is_symbol(",")) return first;
    ListLiteral tuple{{}, true};
    tuple.items.push_back(std::move(first));
    while (tokens.take_symbol(",")) {
        const bool ends = tokens.is(Kind::output_end) || tokens.is(Kind::block_end) || tokens.is_symbol(")") ||
                          tokens.is_symbol("]") || tokens.is_symbol("=");
        if (ends) break;
        tuple.items.push_back(parse_expression(tokens, with_condition));
    }
    return make(start, std::move(tuple));
}

CallArguments parse_arguments(TokenStream& tokens) {
    CallArguments arguments;
    bool first = true;
    while (!tokens.take_symbol(")")) {
        if (!std::exchange(first, false)) {
            tokens.expect_symbol(",");
            if (tokens.take_symbol(")")) break;
        }
        const Place place = tokens.place();
        if (tokens.take_symbol("*")) {
            if (arguments.more_positional || arguments.more_named) syntax_error(place, "a second *");
            arguments.more_positional = parse_expression(tokens);
        } else if (tokens.take_symbol("**")) {
            if (arguments.more_named) syntax_error(place, "a second **");
            arguments.more_named = parse_expression(tokens);
        } else if (tokens.is(Kind::name) && tokens.is_symbol("=", 1)) {
            std::string name = tokens.next().text;
            tokens.next();
            arguments.named.emplace_back(std::move(name), parse_expression(tokens));
        } else {
            if (!arguments.named.empty() || arguments.more_positional || arguments.more_named)
                syntax_error(place, "an argument by position behind one by name");
            arguments.positional.push_back(parse_expression(tokens));
        }
    }
    return arguments;
}

}  // namespace tinfer::chat
