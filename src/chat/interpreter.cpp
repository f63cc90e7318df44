// SPDX-License-Identifier: MIT
#include "chat/interpreter.hpp"

#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "chat/loop.hpp"
#include "chat/nested.hpp"
#include "chat/runtime_error.hpp"

namespace tinfer::chat {

// ---- scopes ---------------------------------------------------------------------------------------------------------

const Value* Scope::find(std::string_view name) const noexcept {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get())
        for (const auto& [key, value] : scope->names)
            if (key == name) return &value;
    return nullptr;
}

void Scope::set(std::string_view name, Value value) {
    for (auto& [key, old] : names) {
        if (key != name) continue;
        old = std::move(value);
        return;
    }
    names.emplace_back(name, std::move(value));
}

void Scope::drop_values() noexcept {
    names.clear();
    parent.reset();
}

namespace {

/// Gives a variable another value for the lifetime of this object.
template <class T>
class Redirected {
public:
    Redirected(T& variable, T value) : variable_(variable), before_(std::exchange(variable, std::move(value))) {}
    Redirected(const Redirected&) = delete;
    Redirected& operator=(const Redirected&) = delete;
    ~Redirected() { variable_ = std::move(before_); }

private:
    T& variable_;
    T before_;
};

class InnerScope : Redirected<std::shared_ptr<Scope>> {
public:
    InnerScope(Heap& heap, std::shared_ptr<Scope>& current, std::shared_ptr<Scope> around)
        : Redirected(current, make_container<Scope>(heap, std::move(around))) {}
};

}  // namespace

// ---- statements -----------------------------------------------------------------------------------------------------

OriginText Interpreter::render(const Body& body, const MapObject& inputs) {
    globals_ = make_container<Scope>(heap_, nullptr);
    add_functions(heap_, *globals_);
    for (const auto& [name, value] : inputs.entries) globals_->set(name.bytes(), value);
    // Top-level variables of the template have a scope of their own, so that a macro sees their values at the time of
    // the call.
    globals_ = make_container<Scope>(heap_, globals_);
    scope_ = globals_;
    OriginText out(heap_);
    out_ = &out;
    try {
        static_cast<void>(run(body));
    } catch (const RuntimeError& error) {
        fail(ErrorCode::template_runtime,
             cat("template: line ", place_.line, ", column ", place_.column, ": ", error.message));
    }
    return out;
}

Interpreter::Flow Interpreter::run(const Body& body) {
    for (const auto& statement : body)
        if (const Flow flow = run(*statement); flow != Flow::next) return flow;
    return Flow::next;
}

Interpreter::Flow Interpreter::run(const Statement& statement) {
    const Nested nested(*this);
    heap_.work(1);
    place_ = statement.place;
    return std::visit([this](const auto& node) { return run(node); }, statement.node);
}

Interpreter::Flow Interpreter::run(const Data& node) {
    out_->append(node.text, kFromTemplate);
    return Flow::next;
}

Interpreter::Flow Interpreter::run(const Output& node) {
    const Value value = evaluate(*node.value);
    out_->append(as_string(value).text());
    return Flow::next;
}

Interpreter::Flow Interpreter::run(const If& node) {
    for (const auto& [condition, body] : node.branches)
        if (truth(evaluate(*condition))) return run(body);
    return run(node.otherwise);
}

Interpreter::Flow Interpreter::run(const For& node) { return loop_over(node, evaluate(*node.values), 0); }

Interpreter::Flow Interpreter::loop_over(const For& node, const Value& values, int depth) {
    Values items = items_of(values);
    const auto around = scope_;
    if (node.condition != nullptr) {
        Values kept(heap_);
        for (Value& item : items) {
            const InnerScope scope(heap_, scope_, around);
            assign(node.target, item);
            if (truth(evaluate(*node.condition))) kept.push_back(std::move(item));
        }
        items = std::move(kept);
    }
    if (items.empty()) {
        const InnerScope scope(heap_, scope_, around);
        return run(node.otherwise);
    }
    const auto loop = make_container<LoopObject>(heap_, std::move(items), depth);
    if (node.recursive) {
        loop->again = make_container<FunctionObject>(
            heap_, "loop", [&node, depth](Interpreter& interpreter, Arguments& arguments) -> Value {
                if (arguments.positional.size() != 1) runtime_error("loop() takes what is to be looped over");
                OriginText inner(interpreter.heap_);
                const Redirected<OriginText*> out(interpreter.out_, &inner);
                static_cast<void>(interpreter.loop_over(node, arguments.positional[0], depth + 1));
                return interpreter.string(std::move(inner));
            });
    }
    for (loop->index = 0; loop->index < loop->items.size(); ++loop->index) {
        const InnerScope scope(heap_, scope_, around);
        assign(node.target, loop->items[loop->index]);
        scope_->set("loop", NativeRef(loop));
        if (run(node.body) == Flow::leave) break;
    }
    return Flow::next;
}

void Interpreter::assign(const Target& target, Value value) {
    if (!target.items.empty()) {
        const Values values = items_of(value);
        if (values.size() != target.items.size())
            runtime_error(cat("cannot unpack ", values.size(), " values into ", target.items.size(), " names"));
        for (std::size_t i = 0; i < values.size(); ++i) assign(target.items[i], values[i]);
    } else if (target.attribute.empty()) {
        scope_->set(target.name, std::move(value));
    } else {
        const Value* space = scope_->find(target.name);
        if (space == nullptr || !space->is_namespace()) {
            place_ = target.place;
            runtime_error(cat("'", escaped(target.name), "' is no namespace: attributes cannot be assigned"));
        }
        space->map().set(string(target.attribute), std::move(value));
    }
}

Interpreter::Flow Interpreter::run(const Set& node) {
    assign(node.target, evaluate(*node.value));
    return Flow::next;
}

OriginText Interpreter::captured(const Body& body) {
    OriginText text(heap_);
    const Redirected<OriginText*> out(out_, &text);
    const InnerScope scope(heap_, scope_, scope_);
    static_cast<void>(run(body));
    return text;
}

Value Interpreter::apply_filters(const std::vector<FilterUse>& filters, Value value) {
    for (const FilterUse& filter : filters) {
        Arguments given = arguments(filter.arguments);
        place_ = filter.place;
        value = apply_filter(filter.name, value, given);
    }
    return value;
}

Interpreter::Flow Interpreter::run(const SetBlock& node) {
    assign(node.target, apply_filters(node.filters, string(captured(node.body))));
    return Flow::next;
}

Interpreter::Flow Interpreter::run(const FilterBlock& node) {
    out_->append(as_string(apply_filters(node.filters, string(captured(node.body)))).text());
    return Flow::next;
}

Interpreter::Flow Interpreter::run(const With& node) {
    // Values are evaluated in the enclosing scope: `with a = b, b = a` refers to the outer variables.
    Values values(heap_);
    for (const auto& binding : node.bindings) values.push_back(evaluate(*binding.second));
    const InnerScope scope(heap_, scope_, scope_);
    for (std::size_t i = 0; i < values.size(); ++i) assign(node.bindings[i].first, std::move(values[i]));
    return run(node.body);
}

// ---- macros ---------------------------------------------------------------------------------------------------------

FunctionRef Interpreter::make_macro(const Macro& node) {
    return make_container<FunctionObject>(heap_, node.name,
                                          [&node, scope = scope_](Interpreter& interpreter, Arguments& arguments) {
                                              return interpreter.call_macro(node, scope, arguments);
                                          });
}

Interpreter::Flow Interpreter::run(const Macro& node) {
    scope_->set(node.name, make_macro(node));
    return Flow::next;
}

Interpreter::Flow Interpreter::run(const CallBlock& node) {
    const auto& postfix = std::get<Postfix>(node.call->node);
    Value callee = evaluate(*postfix.subject);
    for (std::size_t i = 0; i + 1 < postfix.suffixes.size(); ++i) callee = apply(postfix.suffixes[i], callee);
    Arguments given = arguments(postfix.suffixes.back().arguments);
    given.named.emplace_back("caller", make_macro(node.caller));
    place_ = node.call->place;
    out_->append(as_string(call(callee, given)).text());
    return Flow::next;
}

Value Interpreter::call_macro(const Macro& node, const ScopeRef& scope, Arguments& given) {
    const Nested nested(*this);
    const Place place = place_;
    OriginText text(heap_);
    const Redirected<OriginText*> out(out_, &text);
    const InnerScope inner(heap_, scope_, scope);
    set_parameters(node, given);
    static_cast<void>(run(node.body));
    place_ = place;
    return string(std::move(text));
}

void Interpreter::set_parameters(const Macro& node, Arguments& given) {
    const std::size_t n = node.parameters.size();
    for (std::size_t i = 0; i < n; ++i) {
        const Parameter& parameter = node.parameters[i];
        const auto by_name = std::ranges::find(given.named, parameter.name, &std::pair<std::string_view, Value>::first);
        if (i < given.positional.size()) {
            if (by_name != given.named.end())
                runtime_error(cat(node.name, "() got two values for '", parameter.name, "'"));
            scope_->set(parameter.name, given.positional[i]);
        } else if (by_name != given.named.end()) {
            scope_->set(parameter.name, std::move(by_name->second));
            given.named.erase(by_name);
        } else if (parameter.otherwise != nullptr) {
            scope_->set(parameter.name, evaluate(*parameter.otherwise));
        } else {
            scope_->set(parameter.name, Undefined{string(parameter.name).as<StringRef>()});
        }
    }
    // Arguments that the macro does not name become `caller`, `varargs` and `kwargs`, the last two only if its body
    // reads them.
    const auto rest = make_list(heap_, true);
    for (std::size_t i = n; i < given.positional.size(); ++i) rest->push(given.positional[i]);
    const auto rest_by_name = make_map(heap_);
    for (auto& [name, value] : given.named) {
        if (name == "caller") scope_->set("caller", std::move(value));
        else if (node.takes_kwargs) rest_by_name->set(given.name(name), std::move(value));
        else runtime_error(cat(node.name, "() has no argument '", escaped(name), "'"));
    }
    if (!rest->items.empty() && !node.takes_varargs)
        runtime_error(cat(node.name, "() takes ", n, " arguments, not ", given.positional.size()));
    if (node.takes_varargs) scope_->set("varargs", rest);
    if (node.takes_kwargs) scope_->set("kwargs", rest_by_name);
}

}  // namespace tinfer::chat
