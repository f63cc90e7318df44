// SPDX-License-Identifier: MIT
// Evaluation of expressions.
#include <algorithm>

#include "base/error.hpp"
#include "chat/interpreter.hpp"
#include "chat/nested.hpp"
#include "chat/runtime_error.hpp"

namespace tinfer::chat {

Value Interpreter::evaluate(const Expression& expression) {
    const Nested nested(*this);
    heap_.work(1);
    place_ = expression.place;
    return std::visit([this](const auto& node) { return evaluate(node); }, expression.node);
}

Value Interpreter::evaluate(const Literal& node) {
    if (const auto* b = std::get_if<bool>(&node.value)) return *b;
    if (const auto* i = std::get_if<std::int64_t>(&node.value)) return *i;
    if (const auto* d = std::get_if<double>(&node.value)) return *d;
    if (const auto* s = std::get_if<std::string>(&node.value)) return string(*s);
    return None{};
}

Value Interpreter::evaluate(const Variable& node) {
    if (const Value* value = scope_->find(node.name)) return *value;
    return Undefined{string(node.name).as<StringRef>()};
}

Value Interpreter::evaluate(const ListLiteral& node) {
    const auto list = make_list(heap_, node.is_tuple);
    for (const auto& item : node.items) list->push(evaluate(*item));
    return list;
}

Value Interpreter::evaluate(const MapLiteral& node) {
    const auto map = make_map(heap_);
    for (const auto& [key, value] : node.entries) {
        const Value name = evaluate(*key);
        map->set(name, evaluate(*value));
    }
    return map;
}

Value Interpreter::evaluate(const Postfix& node) {
    Value value = evaluate(*node.subject);
    for (std::size_t i = 0; i < node.suffixes.size(); ++i) {
        const Suffix& suffix = node.suffixes[i];
        const bool is_call = i + 1 < node.suffixes.size() && node.suffixes[i + 1].kind == Suffix::Kind::call;
        if (const Method method =
                suffix.kind == Suffix::Kind::attribute && is_call ? find_method(value, suffix.name) : nullptr) {
            // A method call, without creating an object for the bound method.
            Arguments given = arguments(node.suffixes[++i].arguments);
            place_ = suffix.place;
            value = method(*this, value, given);
        } else {
            value = apply(suffix, value);
        }
        heap_.work(1);
    }
    return value;
}

Value Interpreter::apply(const Suffix& suffix, const Value& subject) {
    using Kind = Suffix::Kind;
    if (suffix.kind == Kind::slice) return slice(suffix, subject);
    if (suffix.kind == Kind::item) {
        const Value index = evaluate(*suffix.begin);
        place_ = suffix.place;
        return item(subject, index);
    }
    if (suffix.kind == Kind::attribute) {
        place_ = suffix.place;
        return attribute(subject, suffix.name);
    }
    Arguments given = arguments(suffix.arguments);
    place_ = suffix.place;
    switch (suffix.kind) {
        case Kind::filter: return apply_filter(suffix.name, subject, given);
        case Kind::test: return apply_test(suffix.name, subject, given);
        case Kind::not_test: return !apply_test(suffix.name, subject, given);
        default: return call(subject, given);
    }
}

Arguments Interpreter::arguments(const CallArguments& node) {
    Arguments out(heap_);
    for (const auto& value : node.positional) out.positional.push_back(evaluate(*value));
    for (const auto& [name, value] : node.named) out.named.emplace_back(name, evaluate(*value));
    if (node.more_positional)
        for (Value& value : items_of(evaluate(*node.more_positional))) out.positional.push_back(std::move(value));
    if (node.more_named) {
        const Value more = evaluate(*node.more_named);
        if (!more.is_map()) runtime_error("a mapping is expected behind **");
        for (const auto& [name, value] : more.map().entries) {
            if (!name.is_string()) runtime_error("the names of arguments are strings");
            out.names.push_back(name);
            out.named.emplace_back(name.bytes(), value);
        }
    }
    for (std::size_t i = 0; i < out.named.size(); ++i) {
        heap_.work(i / 16);
        for (std::size_t j = 0; j < i; ++j)
            if (out.named[i].first == out.named[j].first)
                runtime_error(cat("two values for the argument '", escaped(out.named[i].first), "'"));
    }
    return out;
}

Value Interpreter::evaluate(const Arithmetic& node) {
    Value left = evaluate(*node.first);
    for (const Link& link : node.links) {
        const Value right = evaluate(*link.operand);
        place_ = link.place;
        left = arithmetic(*this, link.op, left, right);
    }
    return left;
}

Value Interpreter::evaluate(const Comparison& node) {
    Value left = evaluate(*node.first);
    for (const Link& link : node.links) {
        Value right = evaluate(*link.operand);
        place_ = link.place;
        if (!related(*this, link.op, left, right)) return false;
        left = std::move(right);
    }
    return true;
}

Value Interpreter::evaluate(const Concatenation& node) {
    OriginText text(heap_);
    for (const auto& part : node.parts) text.append(as_string(evaluate(*part)).text());
    return string(std::move(text));
}

Value Interpreter::evaluate(const Unary& node) {
    const Place place = place_;
    const Value value = evaluate(*node.operand);
    place_ = place;
    if (node.op == Unary::Op::logical_not) return !truth(value);
    if (value.is<double>()) return node.op == Unary::Op::minus ? -value.as<double>() : value.as<double>();
    const auto integer = value.integer();
    if (!integer) runtime_error(cat("a ", type_name(value), " has no sign"));
    if (node.op == Unary::Op::plus) return *integer;
    if (*integer == INT64_MIN) runtime_error("an integer beyond 64 bits");
    return -*integer;
}

Value Interpreter::evaluate(const Logical& node) {
    Value value;
    for (const auto& part : node.parts) {
        value = evaluate(*part);
        if (truth(value) != node.is_and) break;
    }
    return value;
}

Value Interpreter::evaluate(const Conditional& node) {
    if (truth(evaluate(*node.condition))) return evaluate(*node.value);
    return node.otherwise ? evaluate(*node.otherwise) : Value();
}

// ---- access ---------------------------------------------------------------------------------------------------------

namespace {

[[noreturn]] void undefined_error(const Value& value) {
    const StringRef& name = value.as<Undefined>().name;
    runtime_error(name ? cat("'", escaped(name->text.bytes()), "' is undefined")
                       : std::string("the value is undefined"));
}

/// Whether it is the built-in `dict`, and not a macro of that name.
bool is_dict_type(const Value& value) {
    const auto* function = value.get<FunctionRef>();
    using Native = Value (*)(Interpreter&, Arguments&);
    return function != nullptr && (*function)->name == "dict" && (*function)->body.target<Native>() != nullptr;
}

bool is_method_of_dict(std::string_view name) {
    constexpr std::string_view kNames[] = {"clear", "copy",    "fromkeys",   "get",    "items", "keys",
                                           "pop",   "popitem", "setdefault", "update", "values"};
    return std::ranges::find(kNames, name) != std::end(kNames) || name.starts_with("__");
}

Value bound_method(Heap& heap, const Value& self, std::string_view name, Method method) {
    return make_container<FunctionObject>(heap, name, [self, method](Interpreter& interpreter, Arguments& given) {
        return method(interpreter, self, given);
    });
}

/// Python's slice bounds for a sequence of n items: first index, and how many steps of `step` are taken.
struct SliceRange {
    std::int64_t first = 0, step = 1, count = 0;
};

SliceRange slice_range(std::optional<std::int64_t> begin, std::optional<std::int64_t> end, std::int64_t step,
                       std::int64_t n) {
    const auto clamp = [&](std::int64_t i) {
        if (i < 0) i = i < -n ? -1 : i + n;
        return step > 0 ? std::clamp<std::int64_t>(i, 0, n) : std::clamp<std::int64_t>(i, -1, n - 1);
    };
    const auto from = [&](std::int64_t i) { return i < 0 && i + n < 0 ? (step > 0 ? 0 : -1) : clamp(i); };
    const std::int64_t first = begin ? from(*begin) : step > 0 ? 0 : n - 1;
    const std::int64_t stop = end ? from(*end) : step > 0 ? n : -1;
    std::int64_t count = 0;
    if (step > 0 && stop > first) count = (stop - first - 1) / step + 1;
    // The quotient of negative numbers, because -step overflows for the smallest one.
    if (step < 0 && first > stop) count = (stop - first + 1) / step + 1;
    return {first, step, count};
}

}  // namespace

Value Interpreter::attribute(const Value& subject, std::string_view name) {
    if (subject.is_undefined()) undefined_error(subject);
    if (const Method method = find_method(subject, name)) return bound_method(heap_, subject, name, method);
    if (subject.is_map())
        if (const Value* found = subject.map().find(name)) return *found;
    if (subject.is_list()) {
        const auto& names = subject.list().names;
        if (const auto it = std::ranges::find(names, name); it != names.end())
            return subject.list().items[static_cast<std::size_t>(it - names.begin())];
    }
    if (const auto* native = subject.get<NativeRef>())
        if (auto found = (*native)->attribute(*this, name)) return *std::move(found);
    if (const auto* function = subject.get<FunctionRef>(); function != nullptr && name == "name")
        return string((*function)->name);
    // In Python a type takes any subscript: dict.from_keys is dict['from_keys'], which is called as dict is.
    if (is_dict_type(subject) && !is_method_of_dict(name)) return subject;
    return Undefined{string(name).as<StringRef>()};
}

Value Interpreter::item(const Value& subject, const Value& index) {
    if (subject.is_undefined()) undefined_error(subject);
    if (subject.is_map() && !subject.is_namespace())
        if (const Value* found = subject.map().find(index)) return *found;
    if (index.is_string()) return attribute(subject, index.bytes());
    const bool has_index = subject.is_string() || (subject.is_list() && !subject.list().is_generator);
    if (const auto i = index.integer(); i && has_index) {
        const auto n = static_cast<std::int64_t>(subject.is_list() ? subject.list().items.size()
                                                                   : count_characters(heap_, subject.bytes()));
        const std::int64_t at = *i < 0 ? *i + n : *i;
        if (at >= 0 && at < n) {
            if (subject.is_list()) return subject.list().items[static_cast<std::size_t>(at)];
            const std::size_t begin = character_offset(heap_, subject.bytes(), static_cast<std::size_t>(at));
            const std::size_t length = first_character(subject.bytes().substr(begin)).length;
            return string_like(subject, subject.text().slice(begin, begin + length));
        }
    }
    return Undefined{};
}

Value Interpreter::slice(const Suffix& suffix, const Value& subject) {
    const auto part = [&](const ExpressionPtr& expression) -> std::optional<std::int64_t> {
        if (expression == nullptr) return std::nullopt;
        const Value value = evaluate(*expression);
        if (value.is_none()) return std::nullopt;
        const auto integer = value.integer();
        if (!integer) runtime_error(cat("the bounds of a slice are integers, not ", type_name(value)));
        return integer;
    };
    const auto begin = part(suffix.begin), end = part(suffix.end);
    const std::int64_t step = part(suffix.step).value_or(1);
    place_ = suffix.place;
    if (step == 0) runtime_error("the step of a slice is 0");
    if (subject.is_undefined()) undefined_error(subject);
    if (subject.is_list() && !subject.list().is_generator) {
        const auto& items = subject.list().items;
        const SliceRange range = slice_range(begin, end, step, static_cast<std::int64_t>(items.size()));
        const auto out = make_list(heap_, subject.list().is_tuple);
        heap_.work(static_cast<std::uint64_t>(range.count));
        for (std::int64_t i = 0; i < range.count; ++i)
            out->push(items[static_cast<std::size_t>(range.first + i * range.step)]);
        return out;
    }
    if (!subject.is_string()) runtime_error(cat("a ", type_name(subject), " has no slices"));
    const OriginText& text = subject.text();
    const SliceRange range =
        slice_range(begin, end, step, static_cast<std::int64_t>(count_characters(heap_, text.bytes())));
    if (range.step == 1) {
        const std::size_t from = character_offset(heap_, text.bytes(), static_cast<std::size_t>(range.first));
        const std::size_t length =
            character_offset(heap_, text.bytes().substr(from), static_cast<std::size_t>(range.count));
        return string_like(subject, text.slice(from, from + length));
    }
    HeapVector<std::size_t> offsets(heap_);
    CharacterReader reader(text);
    for (CharacterReader::Character c; reader.next(c);) offsets.push_back(c.begin);
    offsets.push_back(text.size());
    OriginText out(heap_);
    for (std::int64_t i = 0; i < range.count; ++i) {
        const auto at = static_cast<std::size_t>(range.first + i * range.step);
        out.append(text, offsets[at], offsets[at + 1]);
    }
    return string_like(subject, std::move(out));
}

Values Interpreter::items_of(const Value& value) {
    Values out(heap_);
    if (value.is_undefined()) return out;
    if (value.is_list()) {
        heap_.work(value.list().items.size());
        if (!value.list().is_generator) return value.list().items;
        out.swap(value.list().items);
        return out;
    }
    if (value.is_map() && !value.is_namespace()) {
        heap_.work(value.map().entries.size());
        for (const auto& [key, item] : value.map().entries) out.push_back(key);
        return out;
    }
    if (value.is_string()) {
        const OriginText& text = value.text();
        CharacterReader reader(text);
        for (CharacterReader::Character c; reader.next(c);) out.push_back(string(text.slice(c.begin, c.end)));
        return out;
    }
    runtime_error(cat("a ", type_name(value), " cannot be looped over"));
}

Value Interpreter::call(const Value& callee, Arguments& given) {
    FunctionRef function;
    if (const auto* f = callee.get<FunctionRef>()) function = *f;
    if (const auto* native = callee.get<NativeRef>()) function = (*native)->callable();
    if (callee.is_undefined()) undefined_error(callee);
    if (function == nullptr) runtime_error(cat("a ", type_name(callee), " cannot be called"));
    const Nested nested(*this);
    return function->body(*this, given);
}

Value Interpreter::apply_filter(std::string_view name, const Value& subject, Arguments& given) {
    const Filter filter = find_filter(name);
    if (filter == nullptr) runtime_error(cat("there is no filter '", escaped(name), "'"));
    heap_.work(1);
    const Nested nested(*this);  // map applies filters, map among them
    return filter(*this, subject, given);
}

bool Interpreter::apply_test(std::string_view name, const Value& subject, Arguments& given) {
    const Test test = find_test(name);
    if (test == nullptr) runtime_error(cat("there is no test '", escaped(name), "'"));
    heap_.work(1);
    return test(*this, subject, given);
}

}  // namespace tinfer::chat
