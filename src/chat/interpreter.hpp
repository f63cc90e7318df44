// SPDX-License-Identifier: MIT
// Tree-walking interpreter of a template: statements write text, expressions return values. One interpreter per
// rendering.
#pragma once

#include <cstddef>
#include <ctime>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/stack_budget.hpp"
#include "chat/ast.hpp"
#include "chat/value.hpp"

namespace tinfer::chat {

/// The variables of one block, macro call or iteration, with the enclosing scope.
struct Scope : Container {
    Scope(Heap& heap, std::shared_ptr<Scope> around)
        : Container(heap, sizeof(Scope)), parent(std::move(around)), names(heap) {}
    [[nodiscard]] const Value* find(std::string_view name) const noexcept;
    void set(std::string_view name, Value value);  ///< the name must outlive the scope
    void drop_values() noexcept override;

    std::shared_ptr<Scope> parent;
    HeapVector<std::pair<std::string_view, Value>> names;
};

class Interpreter {
public:
    /// `now` is the local time for strftime_now.
    Interpreter(Heap& heap, const std::tm& now) : heap_(heap), now_(now) {}

    /// Throws template_runtime with line and column, template_error (raise_exception), limit_exceeded.
    [[nodiscard]] OriginText render(const Body& body, const MapObject& inputs);

    [[nodiscard]] Heap& heap() const noexcept { return heap_; }
    [[nodiscard]] const std::tm& now() const noexcept { return now_; }

    // For filters, tests and methods. These throw RuntimeError.
    Value call(const Value& callee, Arguments& arguments);
    Value apply_filter(std::string_view name, const Value& subject, Arguments& arguments);
    bool apply_test(std::string_view name, const Value& subject, Arguments& arguments);
    /// a.name: a method of the type, then an item.
    Value attribute(const Value& subject, std::string_view name);
    /// a[index]: an item, then a method of the type.
    Value item(const Value& subject, const Value& index);
    /// The items that a loop over the value goes through.
    [[nodiscard]] Values items_of(const Value& value);

    [[nodiscard]] Value string(std::string_view bytes, Origin origin = kFromTemplate) const {
        return make_string(heap_, bytes, origin);
    }
    [[nodiscard]] Value string(OriginText text) const { return make_string(heap_, std::move(text)); }
    /// A string made from `subject`, which is markup if the subject is.
    [[nodiscard]] Value string_like(const Value& subject, OriginText text) const {
        return make_string(heap_, std::move(text), subject.is_markup());
    }
    [[nodiscard]] OriginText print(const Value& value) const { return printed(heap_, value); }
    /// The value itself if it is a string, else what it prints as.
    [[nodiscard]] Value as_string(const Value& value) const { return value.is_string() ? value : string(print(value)); }
    /// A text of the template.
    [[nodiscard]] OriginText word(std::string_view bytes) const { return OriginText(heap_, bytes); }

private:
    friend struct LoopObject;
    enum class Flow : std::uint8_t { next, leave, again };  ///< leave, again: break and continue
    using ScopeRef = std::shared_ptr<Scope>;

    /// Limits nesting, because recursion uses the stack.
    class Nested;

    // statements (interpreter.cpp)
    Flow run(const Body& body);
    Flow run(const Statement& statement);
    Flow run(const Data& node);
    Flow run(const Output& node);
    Flow run(const If& node);
    Flow run(const For& node);
    Flow run(const Set& node);
    Flow run(const SetBlock& node);
    Flow run(const Macro& node);
    Flow run(const CallBlock& node);
    Flow run(const FilterBlock& node);
    Flow run(const With& node);
    Flow run(const Block& node) { return run(node.body); }
    Flow run(const Break&) { return Flow::leave; }
    Flow run(const Continue&) { return Flow::again; }
    Flow loop_over(const For& node, const Value& values, int depth);
    void assign(const Target& target, Value value);
    OriginText captured(const Body& body);
    FunctionRef make_macro(const Macro& node);
    Value call_macro(const Macro& node, const ScopeRef& scope, Arguments& given);
    void set_parameters(const Macro& node, Arguments& given);

    // expressions (evaluate.cpp)
    Value evaluate(const Expression& expression);
    Value evaluate(const Literal& node);
    Value evaluate(const Variable& node);
    Value evaluate(const ListLiteral& node);
    Value evaluate(const MapLiteral& node);
    Value evaluate(const Postfix& node);
    Value evaluate(const Arithmetic& node);
    Value evaluate(const Comparison& node);
    Value evaluate(const Concatenation& node);
    Value evaluate(const Unary& node);
    Value evaluate(const Logical& node);
    Value evaluate(const Conditional& node);
    Value apply(const Suffix& suffix, const Value& subject);
    Value slice(const Suffix& suffix, const Value& subject);
    Arguments arguments(const CallArguments& node);
    Value apply_filters(const std::vector<FilterUse>& filters, Value value);

    Heap& heap_;
    std::tm now_;
    ScopeRef globals_, scope_;
    OriginText* out_ = nullptr;
    Place place_;  ///< of the current expression, for error messages
    int depth_ = 0;
    /// Of 256 KiB; the rest is for what an expression calls at its deepest, such as the printing of nested values.
    StackBudget stack_{std::size_t{160} << 10};
};

// ---- operators (operators.cpp) --------------------------------------------------------------------------------------

[[nodiscard]] Value arithmetic(Interpreter& interpreter, BinaryOp op, const Value& a, const Value& b);
[[nodiscard]] bool related(Interpreter& interpreter, BinaryOp op, const Value& a, const Value& b);
[[nodiscard]] bool contains(Interpreter& interpreter, const Value& container, const Value& value);
/// The value as a string, escaped for HTML unless it is markup.
[[nodiscard]] OriginText escaped_for_html(Interpreter& interpreter, const Value& value);
/// Python's "…" % values. `markup`: the values are escaped.
[[nodiscard]] OriginText format_percent(Interpreter& interpreter, const OriginText& format, const Value& values,
                                        bool markup);

// ---- tables ---------------------------------------------------------------------------------------------------------

using Method = Value (*)(Interpreter&, const Value& self, Arguments&);
using Filter = Method;
using Test = bool (*)(Interpreter&, const Value& subject, Arguments&);
[[nodiscard]] Filter find_filter(std::string_view name) noexcept;  ///< null: unknown
[[nodiscard]] Test find_test(std::string_view name) noexcept;
[[nodiscard]] Method find_method(const Value& self, std::string_view name) noexcept;
/// All names, for tests that try each.
[[nodiscard]] std::vector<std::string_view> filter_names();
[[nodiscard]] std::vector<std::string_view> test_names();
[[nodiscard]] std::vector<std::string_view> method_names(const Value& self);
/// range, dict, namespace, raise_exception, strftime_now and kin.
void add_functions(Heap& heap, Scope& globals);
/// C's strftime with English names.
[[nodiscard]] OriginText format_time(const OriginText& format, const std::tm& time);

}  // namespace tinfer::chat
