// SPDX-License-Identifier: MIT
// Filters of numbers and of values of any kind.
#include <array>
#include <charconv>
#include <cmath>

#include "base/error.hpp"
#include "base/number_text.hpp"
#include "chat/filters.hpp"
#include "chat/parameters.hpp"
#include "chat/runtime_error.hpp"
#include "chat/text_tools.hpp"

namespace tinfer::chat::filters {
namespace {

using I = Interpreter;

void need_defined(const Value& value, std::string_view filter) {
    if (value.is_undefined()) runtime_error(cat(filter, " of an undefined value"));
}

/// Rounds toward zero; nullopt if the result is no 64-bit integer.
std::optional<std::int64_t> truncated(double value) {
    if (!(std::abs(value) < 9.2e18)) return std::nullopt;
    return static_cast<std::int64_t>(value);
}

/// Rounds half to even in decimal, based on the exact value.
double rounded(double value, int digits) {
    if (!std::isfinite(value) || digits > 320) return value;
    if (digits < 0) {
        const double scale = std::pow(10.0, std::min(-digits, 400));
        return std::isinf(scale) ? std::copysign(0.0, value) : std::nearbyint(value / scale) * scale;
    }
    std::array<char, 800> buffer{};
    const auto end =
        std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed, digits).ptr;
    double out = value;
    (void)read_number(std::string_view(buffer.data(), static_cast<std::size_t>(end - buffer.data())), out);
    return out;
}

/// The nearest multiple of 10^digits, half to even.
std::int64_t rounded(std::int64_t value, std::int64_t digits) {
    if (digits > 19) return 0;
    std::uint64_t unit = 1;
    for (; digits > 0; --digits) unit *= 10;  // 10^19 fits
    const std::uint64_t magnitude =
        value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
    std::uint64_t quotient = magnitude / unit;
    const std::uint64_t rest = magnitude % unit;
    if (rest > unit - rest || (rest == unit - rest && quotient % 2 == 1)) ++quotient;
    std::uint64_t result = 0;
    if (__builtin_mul_overflow(quotient, unit, &result) || result > static_cast<std::uint64_t>(INT64_MAX))
        runtime_error("an integer beyond 64 bits");
    return value < 0 ? -static_cast<std::int64_t>(result) : static_cast<std::int64_t>(result);
}

}  // namespace

Value abs(I&, const Value& subject, Arguments& a) {
    const Parameters p("abs", a, {});
    if (subject.is<double>()) return std::abs(subject.real());
    const auto integer = subject.integer();
    if (!integer || *integer == INT64_MIN) runtime_error(cat("abs of a ", type_name(subject)));
    return std::abs(*integer);
}

Value round(I&, const Value& subject, Arguments& a) {
    const Parameters p("round", a, {"precision", "method"});
    if (!subject.is_number()) runtime_error(cat("round of a ", type_name(subject)));
    const std::int64_t precision = std::clamp<std::int64_t>(p.integer(0, 0), -400, 400);
    const std::string_view method = p.has(1) ? p.text(1).bytes() : "common";
    if (method == "common") {
        if (!subject.integer()) return rounded(subject.real(), static_cast<int>(precision));
        return precision >= 0 ? *subject.integer() : rounded(*subject.integer(), -precision);
    }
    if (method != "ceil" && method != "floor")
        runtime_error(cat("round: the method '", escaped(method), "' is none of common, ceil, floor"));
    const double scale = std::pow(10.0, static_cast<double>(precision));
    const double scaled = subject.real() * scale;
    return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale;
}

Value to_int(I& i, const Value& subject, Arguments& a) {
    const Parameters p("int", a, {"default", "base"});
    need_defined(subject, "int");
    const Value otherwise = p.value(0, std::int64_t{0});
    if (subject.integer()) return *subject.integer();
    if (subject.is<double>()) {
        const auto integer = truncated(subject.real());
        return integer ? Value(*integer) : otherwise;
    }
    if (!subject.is_string()) return otherwise;
    const std::int64_t base = p.integer(1, 10);
    if (base != 0 && (base < 2 || base > 36)) runtime_error("int: the base is 0 or 2 to 36");
    if (const auto integer = parse_integer(i.heap(), subject.bytes(), static_cast<int>(base))) return *integer;
    if (const auto real = parse_float(i.heap(), subject.bytes()))
        if (const auto integer = truncated(*real)) return *integer;
    return otherwise;
}

Value to_float(I& i, const Value& subject, Arguments& a) {
    const Parameters p("float", a, {"default"});
    need_defined(subject, "float");
    if (subject.is_number()) return subject.real();
    if (subject.is_string())
        if (const auto real = parse_float(i.heap(), subject.bytes())) return *real;
    return p.value(0, 0.0);
}

Value default_value(I& i, const Value& subject, Arguments& a) {
    const Parameters p("default", a, {"default_value", "boolean"});
    if (subject.is_undefined() || (p.boolean(1, false) && !truth(subject)))
        return p.value(0, i.string(std::string_view()));
    return subject;
}

Value attr(I& i, const Value& subject, Arguments& a) {
    const Parameters p("attr", a, {"name"}, 1);
    if (const Method method = find_method(subject, p.text(0).bytes());
        method != nullptr || subject.is_namespace() || subject.is<NativeRef>())
        return i.attribute(subject, p.text(0).bytes());
    return Undefined{p[0]->as<StringRef>()};
}

Value pprint(I& i, const Value& subject, Arguments& a) {
    const Parameters p("pprint", a, {});
    return i.string(representation(i.heap(), subject));
}

Value filesizeformat(I& i, const Value& subject, Arguments& a) {
    const Parameters p("filesizeformat", a, {"binary"});
    Arguments none(i.heap());
    const double bytes = to_float(i, subject, none).real();
    const bool binary = p.boolean(0, false);
    const double base = binary ? 1024 : 1000;
    if (bytes == 1) return i.string(std::string_view("1 Byte"));
    if (bytes < base) return i.string(cat(std::to_string(truncated(bytes).value_or(INT64_MIN)), " Bytes"));
    if (!std::isfinite(bytes)) runtime_error("filesizeformat needs a number");
    constexpr std::string_view kPrefixes = "kMGTPEZY";
    std::size_t k = 0;
    double unit = base * base;
    for (; k + 1 < kPrefixes.size() && bytes >= unit; ++k) unit *= base;
    std::array<char, 400> buffer{};
    const auto end =
        std::to_chars(buffer.data(), buffer.data() + buffer.size(), base * bytes / unit, std::chars_format::fixed, 1)
            .ptr;
    const char prefix = binary && kPrefixes[k] == 'k' ? 'K' : kPrefixes[k];
    return i.string(cat(std::string(buffer.data(), end), ' ', prefix, binary ? "iB" : "B"));
}

}  // namespace tinfer::chat::filters
