// SPDX-License-Identifier: MIT
// The syntax tree of a template. A chain of one kind (a + b + c, a.b[0](x) | f) is one node with a list, so that the
// tree's depth, which is limited, is the nesting of brackets and blocks and not the length of an expression.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "chat/lexer.hpp"

namespace tinfer::chat {

// clang-format off
struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Body = std::vector<std::unique_ptr<Statement>>;

// ---- expressions ----------------------------------------------------------------------------------------------------

struct Literal {
    std::variant<std::monostate, bool, std::int64_t, double, std::string> value;   ///< monostate: none
};
struct Variable { std::string name; };
struct ListLiteral { std::vector<ExpressionPtr> items; bool is_tuple = false; };
struct MapLiteral { std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries; };

struct CallArguments {
    std::vector<ExpressionPtr> positional;
    std::vector<std::pair<std::string, ExpressionPtr>> named;
    ExpressionPtr more_positional, more_named;   ///< *list and **mapping, or null
};

/// What may follow a value: .name, [item], [a:b:c], (arguments), | filter, is test.
struct Suffix {
    enum class Kind : std::uint8_t { attribute, item, slice, call, filter, test, not_test } kind;
    Place place;
    std::string name{};                 ///< of attribute, filter, test
    ExpressionPtr begin{}, end{}, step{};   ///< of item (begin alone) and slice; null where left out
    CallArguments arguments{};
};
struct Postfix { ExpressionPtr subject; std::vector<Suffix> suffixes; };

enum class BinaryOp : std::uint8_t { add, sub, mul, div, floor_div, mod, pow, equal, not_equal, less, less_equal, greater, greater_equal, in, not_in };
/// first op[0] rest[0] op[1] rest[1] …: from left to right. `place` is that of the operator.
struct Link { BinaryOp op; Place place; ExpressionPtr operand; };
struct Arithmetic { ExpressionPtr first; std::vector<Link> links; };
/// a < b < c: true if every pair of neighbours compares true.
struct Comparison { ExpressionPtr first; std::vector<Link> links; };
struct Concatenation { std::vector<ExpressionPtr> parts; };
struct Unary { enum class Op : std::uint8_t { minus, plus, logical_not } op; ExpressionPtr operand; };
struct Logical { bool is_and; std::vector<ExpressionPtr> parts; };
struct Conditional { ExpressionPtr value, condition, otherwise; };   ///< otherwise may be null: undefined

struct Expression {
    Place place;
    std::variant<Literal, Variable, ListLiteral, MapLiteral, Postfix, Arithmetic, Comparison, Concatenation, Unary, Logical, Conditional> node;
};

// ---- statements -----------------------------------------------------------------------------------------------------

/// What is assigned to: a name, an attribute of a namespace, or several of them.
struct Target {
    std::string name{};
    std::string attribute{};         ///< of the namespace `name`, else empty
    std::vector<Target> items{};     ///< not empty: the value is unpacked
    Place place{};
};

struct Parameter { std::string name; ExpressionPtr otherwise; };   ///< otherwise: default, or null
struct FilterUse { std::string name; CallArguments arguments; Place place; };

struct Data { std::string text; };
struct Output { ExpressionPtr value; };
struct If {
    struct Branch { ExpressionPtr condition; Body body; };
    std::vector<Branch> branches;
    Body otherwise;
};
struct For { Target target; ExpressionPtr values, condition; Body body, otherwise; bool recursive = false; };
struct Set { Target target; ExpressionPtr value; };
struct SetBlock { Target target; std::vector<FilterUse> filters; Body body; };
struct Macro {
    std::string name;
    std::vector<Parameter> parameters;
    Body body;
    bool takes_varargs = false, takes_kwargs = false;   ///< the body reads `varargs`, `kwargs`
};
struct CallBlock { ExpressionPtr call; Macro caller; };
struct FilterBlock { std::vector<FilterUse> filters; Body body; };
struct With { std::vector<std::pair<Target, ExpressionPtr>> bindings; Body body; };
struct Block { Body body; };   ///< rendered as it stands: generation, block, autoescape
struct Break {};
struct Continue {};

struct Statement {
    Place place;
    std::variant<Data, Output, If, For, Set, SetBlock, Macro, CallBlock, FilterBlock, With, Block, Break, Continue> node;
};

/// Throws template_syntax with line and column.
[[nodiscard]] Body parse(std::string_view source);

inline constexpr int kMaxNesting = 250;   ///< of brackets, signs and blocks; less where the stack ends first
// clang-format on

}  // namespace tinfer::chat
