// SPDX-License-Identifier: MIT
// The tests of the template language (`x is …`).
#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "chat/interpreter.hpp"
#include "chat/parameters.hpp"
#include "chat/runtime_error.hpp"
#include "chat/text_tools.hpp"

namespace tinfer::chat {
namespace {

using I = Interpreter;

template <bool (*property)(const Value&)>
bool simple(I&, const Value& value, Arguments& a) {
    const Parameters p("test", a, {});
    return property(value);
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_boolean(const Value& v) { return v.is<bool>(); }
bool is_true(const Value& v) { return v.is<bool>() && v.as<bool>(); }
bool is_false(const Value& v) { return v.is<bool>() && !v.as<bool>(); }
bool is_integer(const Value& v) { return v.is<std::int64_t>(); }
bool is_float(const Value& v) { return v.is<double>(); }
bool is_number(const Value& v) { return v.is_number(); }
bool is_string(const Value& v) { return v.is_string(); }
bool is_mapping(const Value& v) { return v.is_map() && !v.is_namespace(); }
bool is_iterable(const Value& v) {
    return v.is_string() || v.is_list() || is_mapping(v) || v.is_undefined() || v.is<NativeRef>();
}
bool is_sequence(const Value& v) {
    return v.is_string() || (v.is_list() && !v.list().is_generator) || is_mapping(v) || v.is_undefined();
}
bool is_callable(const Value& v) {
    return v.is_undefined() || v.is<FunctionRef>() || (v.is<NativeRef>() && v.as<NativeRef>()->callable() != nullptr);
}
bool never(const Value&) { return false; }

template <BinaryOp op>
bool relation(I& i, const Value& value, Arguments& a) {
    const Parameters p("test", a, {"other"}, 1);
    return related(i, op, value, *p[0]);
}

bool is_divisible(I& i, const Value& value, const Value& by) { return !truth(arithmetic(i, BinaryOp::mod, value, by)); }

bool divisibleby(I& i, const Value& value, Arguments& a) {
    const Parameters p("divisibleby", a, {"num"}, 1);
    return is_divisible(i, value, *p[0]);
}

template <bool odd>
bool parity(I& i, const Value& value, Arguments& a) {
    const Parameters p("even", a, {});
    if (!value.is_number()) runtime_error(cat("a ", type_name(value), " is neither even nor odd"));
    // The remainder of a float may be neither 0 nor 1: then the value is neither even nor odd.
    const Value rest = arithmetic(i, BinaryOp::mod, value, Value(std::int64_t{2}));
    return equal(i.heap(), rest, Value(std::int64_t{odd ? 1 : 0}));
}

bool sameas(I& i, const Value& value, Arguments& a) {
    const Parameters p("sameas", a, {"other"}, 1);
    const Value& other = *p[0];
    if (value.is_list() && other.is_list()) return value.as<ListRef>() == other.as<ListRef>();
    if (value.is_map() && other.is_map()) return value.as<MapRef>() == other.as<MapRef>();
    return type_name(value) == type_name(other) && equal(i.heap(), value, other);
}

/// True if the text has cased letters and all of them have this case.
template <bool upper>
bool is_case(I& i, const Value& value, Arguments& a) {
    const Parameters p("upper", a, {});
    const Value subject = i.as_string(value);
    bool found = false;
    CharacterReader reader(subject.text());
    for (CharacterReader::Character c; reader.next(c);) {
        if (upper ? is_lower(c.value) : is_upper(c.value)) return false;
        found = found || (upper ? is_upper(c.value) : is_lower(c.value));
    }
    return found;
}

bool is_filter(I&, const Value& value, Arguments&) {
    return value.is_string() && find_filter(value.bytes()) != nullptr;
}
bool is_test(I&, const Value& value, Arguments&) { return value.is_string() && find_test(value.bytes()) != nullptr; }

struct TestRow {
    std::string_view name;
    Test test;
};

constexpr std::array kTests = std::to_array<TestRow>({
    {"!=", relation<BinaryOp::not_equal>},
    {"<", relation<BinaryOp::less>},
    {"<=", relation<BinaryOp::less_equal>},
    {"==", relation<BinaryOp::equal>},
    {">", relation<BinaryOp::greater>},
    {">=", relation<BinaryOp::greater_equal>},
    {"boolean", simple<is_boolean>},
    {"callable", simple<is_callable>},
    {"defined", simple<is_defined>},
    {"divisibleby", divisibleby},
    {"eq", relation<BinaryOp::equal>},
    {"equalto", relation<BinaryOp::equal>},
    {"escaped", simple<never>},
    {"even", parity<false>},
    {"false", simple<is_false>},
    {"filter", is_filter},
    {"float", simple<is_float>},
    {"ge", relation<BinaryOp::greater_equal>},
    {"greaterthan", relation<BinaryOp::greater>},
    {"gt", relation<BinaryOp::greater>},
    {"in", relation<BinaryOp::in>},
    {"integer", simple<is_integer>},
    {"iterable", simple<is_iterable>},
    {"le", relation<BinaryOp::less_equal>},
    {"lessthan", relation<BinaryOp::less>},
    {"lower", is_case<false>},
    {"lt", relation<BinaryOp::less>},
    {"mapping", simple<is_mapping>},
    {"ne", relation<BinaryOp::not_equal>},
    {"none", simple<is_none>},
    {"number", simple<is_number>},
    {"odd", parity<true>},
    {"sameas", sameas},
    {"sequence", simple<is_sequence>},
    {"string", simple<is_string>},
    {"test", is_test},
    {"true", simple<is_true>},
    {"undefined", simple<is_undefined>},
    {"upper", is_case<true>},
});
static_assert(std::ranges::is_sorted(kTests, {}, &TestRow::name));

}  // namespace

Test find_test(std::string_view name) noexcept {
    const auto it = std::ranges::lower_bound(kTests, name, {}, &TestRow::name);
    return it != kTests.end() && it->name == name ? it->test : nullptr;
}

std::vector<std::string_view> test_names() {
    std::vector<std::string_view> out;
    for (const TestRow& row : kTests) out.push_back(row.name);
    return out;
}

}  // namespace tinfer::chat
