// SPDX-License-Identifier: MIT
// Python's operators: floor division and modulo with the sign of the divisor, + also for strings and lists, % also for
// formatting.
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "chat/interpreter.hpp"
#include "chat/runtime_error.hpp"

namespace tinfer::chat {
namespace {

using Int = std::int64_t;

[[noreturn]] void overflow() { runtime_error("an integer beyond 64 bits"); }

constexpr std::string_view symbol(BinaryOp op) {
    constexpr std::string_view kSpellings[] = {
        "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
    return kSpellings[static_cast<std::size_t>(op)];
}

Int floor_div(Int a, Int b) {
    if (a == std::numeric_limits<Int>::min() && b == -1) overflow();
    const Int q = a / b;
    return q - ((a % b != 0) && ((a < 0) != (b < 0)));
}

double floor_mod(double a, double b) {
    const double r = std::fmod(a, b);
    return r != 0 && ((r < 0) != (b < 0)) ? r + b : std::copysign(r, r == 0 ? b : r);
}

Value power(const Value& a, const Value& b) {
    const auto base = a.integer(), exponent = b.integer();
    if (!base || !exponent || *exponent < 0) {
        if (a.real() == 0 && b.real() < 0) runtime_error("0 to a negative power");
        const double result = std::pow(a.real(), b.real());
        if (std::isnan(result) && !std::isnan(a.real()) && !std::isnan(b.real()))
            runtime_error("a power that is no real number");
        return result;
    }
    Int result = 1, factor = *base;
    for (Int e = *exponent; e > 0; e >>= 1) {
        if ((e & 1) != 0 && __builtin_mul_overflow(result, factor, &result)) overflow();
        if (e > 1 && __builtin_mul_overflow(factor, factor, &factor)) overflow();
    }
    return result;
}

Value integers(BinaryOp op, Int a, Int b) {
    Int result = 0;
    switch (op) {
        case BinaryOp::add:
            if (__builtin_add_overflow(a, b, &result)) overflow();
            return result;
        case BinaryOp::sub:
            if (__builtin_sub_overflow(a, b, &result)) overflow();
            return result;
        case BinaryOp::mul:
            if (__builtin_mul_overflow(a, b, &result)) overflow();
            return result;
        case BinaryOp::floor_div: return floor_div(a, b);
        default: return a == std::numeric_limits<Int>::min() && b == -1 ? Int{0} : a - floor_div(a, b) * b;
    }
}

Value numbers(BinaryOp op, const Value& a, const Value& b) {
    if (op == BinaryOp::pow) return power(a, b);
    const bool divides = op == BinaryOp::div || op == BinaryOp::floor_div || op == BinaryOp::mod;
    if (divides && b.real() == 0) runtime_error("division by zero");
    const auto i = a.integer(), j = b.integer();
    if (i && j && op != BinaryOp::div) return integers(op, *i, *j);
    const double x = a.real(), y = b.real();
    switch (op) {
        case BinaryOp::add: return x + y;
        case BinaryOp::sub: return x - y;
        case BinaryOp::mul: return x * y;
        case BinaryOp::div: return x / y;
        case BinaryOp::floor_div: return std::floor((x - floor_mod(x, y)) / y + 0.5);
        default: return floor_mod(x, y);
    }
}

Value repeated(Interpreter& interpreter, const Value& sequence, Int n) {
    Heap& heap = interpreter.heap();
    n = std::max<Int>(n, 0);
    const std::size_t length = sequence.is_string() ? sequence.bytes().size() : sequence.list().items.size();
    const std::size_t limit = sequence.is_string() ? kMaxText : kMaxText / sizeof(Value);
    if (length > 0 && static_cast<std::uint64_t>(n) > limit / length) heap.check_text(kMaxText + 1);
    heap.work(length * static_cast<std::uint64_t>(n) / 16);
    if (length == 0) n = 0;
    if (sequence.is_string()) {
        OriginText text(heap);
        for (Int k = 0; k < n; ++k) text.append(sequence.text());
        return interpreter.string_like(sequence, std::move(text));
    }
    const auto list = make_list(heap, sequence.list().is_tuple);
    const Values items = sequence.list().items;
    for (Int k = 0; k < n; ++k)
        for (const Value& item : items) list->push(item);
    return list;
}

Value joined(Interpreter& interpreter, const Value& a, const Value& b) {
    if (a.is_string()) {
        const bool markup = a.is_markup() || b.is_markup();
        OriginText text(interpreter.heap());
        for (const Value* part : {&a, &b}) text.append(markup ? escaped_for_html(interpreter, *part) : part->text());
        return make_string(interpreter.heap(), std::move(text), markup);
    }
    const auto list = make_list(interpreter.heap(), a.list().is_tuple);
    interpreter.heap().work(a.list().items.size() + b.list().items.size());
    for (const Value& item : a.list().items) list->push(item);
    for (const Value& item : b.list().items) list->push(item);
    return list;
}

}  // namespace

Value arithmetic(Interpreter& interpreter, BinaryOp op, const Value& a, const Value& b) {
    for (const Value* value : {&a, &b})
        if (value->is_undefined()) {
            const StringRef& name = value->as<Undefined>().name;
            runtime_error(name ? cat("'", escaped(name->text.bytes()), "' is undefined")
                               : std::string("a value is undefined"));
        }
    if (a.is_number() && b.is_number()) return numbers(op, a, b);
    if (op == BinaryOp::add &&
        ((a.is_string() && b.is_string()) || (a.is_list() && b.is_list() && a.list().is_tuple == b.list().is_tuple &&
                                              !a.list().is_generator && !b.list().is_generator)))
        return joined(interpreter, a, b);
    if (op == BinaryOp::mul) {
        if ((a.is_string() || a.is_list()) && b.integer()) return repeated(interpreter, a, *b.integer());
        if ((b.is_string() || b.is_list()) && a.integer()) return repeated(interpreter, b, *a.integer());
    }
    if (op == BinaryOp::mod && a.is_string())
        return interpreter.string_like(a, format_percent(interpreter, a.text(), b, a.is_markup()));
    runtime_error(cat("'", symbol(op), "' has no meaning for ", type_name(a), " and ", type_name(b)));
}

OriginText escaped_for_html(Interpreter& interpreter, const Value& value) {
    const OriginText text = interpreter.print(value);
    if (value.is_markup()) return text;
    OriginText out(interpreter.heap());
    CharacterReader reader(text);
    for (CharacterReader::Character c; reader.next(c);) {
        switch (c.value) {
            case '&': out.append("&amp;", c.origin); break;
            case '<': out.append("&lt;", c.origin); break;
            case '>': out.append("&gt;", c.origin); break;
            case '"': out.append("&#34;", c.origin); break;
            case '\'': out.append("&#39;", c.origin); break;
            default: out.append(text, c.begin, c.end);
        }
    }
    return out;
}

bool contains(Interpreter& interpreter, const Value& container, const Value& value) {
    Heap& heap = interpreter.heap();
    if (container.is_string()) {
        if (!value.is_string()) runtime_error(cat("'in' a string needs a string, not ", type_name(value)));
        return find_text(heap, container.bytes(), value.bytes()) != std::string_view::npos;
    }
    if (container.is_map() && !container.is_namespace()) return container.map().find(value) != nullptr;
    for (const Value& item : interpreter.items_of(container))
        if (equal(heap, item, value)) return true;
    return false;
}

bool related(Interpreter& interpreter, BinaryOp op, const Value& a, const Value& b) {
    Heap& heap = interpreter.heap();
    switch (op) {
        case BinaryOp::equal: return equal(heap, a, b);
        case BinaryOp::not_equal: return !equal(heap, a, b);
        case BinaryOp::in: return contains(interpreter, b, a);
        case BinaryOp::not_in: return !contains(interpreter, b, a);
        default: break;
    }
    const bool has_nan = (a.is<double>() && std::isnan(a.real())) || (b.is<double>() && std::isnan(b.real()));
    const int order = compare(heap, a, b);
    if (has_nan) return false;
    switch (op) {
        case BinaryOp::less: return order < 0;
        case BinaryOp::less_equal: return order <= 0;
        case BinaryOp::greater: return order > 0;
        default: return order >= 0;
    }
}

}  // namespace tinfer::chat
