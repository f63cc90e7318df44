// SPDX-License-Identifier: MIT
// Python's two kinds of formats, "{:>8}".format(…) and "%-8s" % …, over one description of a field.
#include "chat/format.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/error.hpp"
#include "chat/runtime_error.hpp"
#include "chat/text_tools.hpp"

namespace tinfer::chat {
namespace {

struct Field {
    std::string_view fill = " ";  ///< of the format
    Origin fill_origin = kFromTemplate;
    char align = 0;   ///< '<' '>' '^' '=', 0: default of the type
    char sign = '-';  ///< '-', '+' or ' '
    bool alternative = false, zero = false;
    char grouping = 0;  ///< ',' or '_'
    std::int64_t width = 0, precision = -1;
    char type = 0;  ///< 's', 'd', 'f' …, 0: by the value's type
};

[[noreturn]] void bad_format(std::string_view why) { runtime_error(cat("format: ", why)); }

constexpr std::int64_t kMaxPrecision = 1000;

std::int64_t read_count(std::string_view text, std::size_t& at) {
    std::int64_t value = 0;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
        value = value * 10 + (text[at++] - '0');
        if (value > static_cast<std::int64_t>(kMaxText)) bad_format("a width beyond any text");
    }
    return value;
}

std::string with_groups(std::string digits, char separator, std::size_t size) {
    const std::size_t end = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
    if (separator != 0)
        for (std::size_t at = end; at > size;) digits.insert(at -= size, 1, separator);
    return digits;
}

/// |value| by to_chars, for 'e', 'f' and 'g'.
std::string real_digits(double value, char type, std::int64_t precision, bool alternative) {
    const char lower = static_cast<char>(type | 0x20);
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return "inf";
    if (precision > kMaxPrecision) bad_format("the precision is too large");
    std::string buffer(1500, '\0');
    if (lower == 'g' && precision == 0) precision = 1;
    const auto form = lower == 'e'   ? std::chars_format::scientific
                      : lower == 'f' ? std::chars_format::fixed
                                     : std::chars_format::general;
    const auto end =
        std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, form, static_cast<int>(precision)).ptr;
    buffer.resize(static_cast<std::size_t>(end - buffer.data()));
    if (alternative && buffer.find('.') == std::string::npos)
        buffer.insert(std::min(buffer.find('e'), buffer.size()), 1, '.');
    return buffer;
}

std::string real_text(double value, Field& field) {
    const double magnitude = std::abs(value);
    const char type = static_cast<char>(field.type | 0x20);
    if (field.type == 0 && field.precision < 0) return float_text(magnitude);
    if (type == '%')
        return real_digits(magnitude * 100, 'f', field.precision < 0 ? 6 : field.precision, field.alternative) + '%';
    return real_digits(magnitude, field.type == 0 ? 'g' : field.type, field.precision < 0 ? 6 : field.precision,
                       field.alternative);
}

std::string integer_text(std::int64_t value, const Field& field) {
    const auto magnitude = value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
    const char type = static_cast<char>(field.type | 0x20);
    const int base = type == 'x' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
    std::array<char, 72> buffer{};
    std::string digits(buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), magnitude, base).ptr);
    return field.alternative && base != 10 ? cat('0', type, digits) : digits;
}

OriginText filled(const OriginText& text, std::int64_t width, const Field& field, char align) {
    return padded(text, width, OriginText(text.heap(), field.fill, field.fill_origin), align);
}

OriginText number_field(Interpreter& interpreter, const Value& value, Field field) {
    const bool real = value.is<double>() || std::string_view("eEfFgG%").find(field.type) != std::string_view::npos;
    const bool as_real = real && (value.is<double>() || field.type != 0);
    if (!as_real && field.precision >= 0) bad_format("an integer has no precision");
    const bool negative = as_real ? std::signbit(value.real()) : *value.integer() < 0;
    std::string digits = as_real ? real_text(value.real(), field) : integer_text(*value.integer(), field);
    digits = with_groups(std::move(digits), field.grouping,
                         as_real || (field.type | 0x20) == 'd' || field.type == 0 ? 3 : 4);
    if (field.type >= 'A' && field.type <= 'Z')
        std::ranges::transform(digits, digits.begin(),
                               [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
    const std::string sign = negative ? "-" : field.sign == '-' ? "" : std::string(1, field.sign);
    if (field.zero && field.align == 0) field.align = '=', field.fill = "0";
    if (field.align != '=')
        return filled(interpreter.word(sign + digits), field.width, field, field.align == 0 ? '>' : field.align);
    OriginText out = interpreter.word(sign);
    out.append(filled(interpreter.word(digits), field.width - static_cast<std::int64_t>(sign.size()), field, '>'));
    return out;
}

OriginText text_field(OriginText text, const Field& field) {
    if (field.precision >= 0)
        text = text.slice(0, character_offset(text.heap(), text.bytes(), static_cast<std::size_t>(field.precision)));
    if (field.align == '=') bad_format("'=' is for numbers");
    return filled(text, field.width, field, field.align == 0 ? '<' : field.align);
}

OriginText formatted(Interpreter& interpreter, const Value& value, const Field& field) {
    if (value.is_number() && field.type != 's') {
        if (!value.is<bool>() || field.type != 0) {
            if (value.is<double>() && std::string_view("dxXob").find(field.type) != std::string_view::npos &&
                field.type != 0)
                bad_format("an integer is expected, not a float");
            return number_field(interpreter, value, field);
        }
    }
    if (field.type != 0 && field.type != 's') bad_format(cat("'", field.type, "' is not for ", type_name(value)));
    return text_field(interpreter.print(value), field);
}

/// "*>+08,.3f"
Field read_field(Heap& heap, std::string_view spec) {
    Field field;
    std::size_t at = 0;
    const auto is_align = [&](std::size_t i) {
        return i < spec.size() && std::string_view("<>^=").find(spec[i]) != std::string_view::npos;
    };
    const std::size_t first = character_offset(heap, spec, 1);
    if (!spec.empty() && is_align(first)) {
        field.fill = spec.substr(0, first);
        field.align = spec[first];
        at = first + 1;
    } else if (is_align(0)) {
        field.align = spec[at++];
    }
    if (at < spec.size() && (spec[at] == '+' || spec[at] == '-' || spec[at] == ' ')) field.sign = spec[at++];
    if (at < spec.size() && spec[at] == '#') field.alternative = true, ++at;
    if (at < spec.size() && spec[at] == '0') field.zero = true, ++at;
    field.width = read_count(spec, at);
    if (at < spec.size() && (spec[at] == ',' || spec[at] == '_')) field.grouping = spec[at++];
    if (at < spec.size() && spec[at] == '.') field.precision = read_count(spec, ++at);
    if (at < spec.size()) field.type = spec[at++];
    if (at < spec.size() || std::string_view("\0sdxXobeEfFgG%", 14).find(field.type) == std::string_view::npos)
        bad_format(cat("'", escaped(spec), "' is no format"));
    return field;
}

class BraceFormat {
public:
    BraceFormat(Interpreter& interpreter, const Arguments& arguments, bool markup)
        : interpreter_(interpreter), arguments_(arguments), markup_(markup) {}

    OriginText run(const OriginText& format, int depth) {
        if (depth > 2) bad_format("fields are nested too deep");
        const std::string_view text = format.bytes();
        OriginText out(interpreter_.heap());
        for (std::size_t at = 0; at < text.size();) {
            interpreter_.heap().work(1);
            const std::size_t brace = std::min(text.find_first_of("{}", at), text.size());
            out.append(format, at, brace);
            if (brace == text.size()) break;
            if (brace + 1 < text.size() && text[brace + 1] == text[brace]) {
                out.append(format, brace, brace + 1);
                at = brace + 2;
                continue;
            }
            if (text[brace] == '}') bad_format("'}' closes nothing");
            const std::size_t end = closing(text, brace);
            interpreter_.heap().touch(end - brace);
            out.append(field(format.slice(brace + 1, end), depth));
            at = end + 1;
        }
        return out;
    }

private:
    static std::size_t closing(std::string_view text, std::size_t open) {
        int depth = 0;
        for (std::size_t at = open; at < text.size(); ++at) {
            if (text[at] == '{') ++depth;
            if (text[at] == '}' && --depth == 0) return at;
        }
        bad_format("'{' is not closed");
    }

    /// name.attribute[item]!conversion:spec
    OriginText field(const OriginText& whole, int depth) {
        const std::string_view text = whole.bytes();
        const std::size_t name_end = std::min(text.find_first_of("!:"), text.size());
        Value value = lookup(text.substr(0, name_end));
        std::size_t at = name_end;
        if (at < text.size() && text[at] == '!') {
            const char conversion = at + 1 < text.size() ? text[at + 1] : '\0';
            if (conversion == 'r') value = interpreter_.string(representation(interpreter_.heap(), value));
            else if (conversion == 's') value = interpreter_.string(interpreter_.print(value));
            else bad_format("'!' is followed by r or s");
            at += 2;
        }
        if (at < text.size() && text[at] != ':') bad_format("':' is expected");
        const OriginText spec =
            at < text.size() ? run(whole.slice(at + 1, text.size()), depth + 1) : OriginText(interpreter_.heap());
        if (markup_ && !value.is_number()) value = interpreter_.string(escaped_for_html(interpreter_, value));
        Field how = read_field(interpreter_.heap(), spec.bytes());
        how.fill_origin = spec.main_origin();
        return formatted(interpreter_, value, how);
    }

    Value lookup(std::string_view name) {
        std::size_t at = std::min(name.find_first_of(".["), name.size());
        Value value = argument(name.substr(0, at));
        while (at < name.size()) {
            const bool item = name[at] == '[';
            const std::size_t end = item ? name.find(']', at) : std::min(name.find_first_of(".[", at + 1), name.size());
            if (end == std::string_view::npos) bad_format("'[' is not closed");
            const std::string_view key = name.substr(at + 1, end - at - 1);
            std::int64_t index = 0;
            const auto parsed = std::from_chars(key.data(), key.data() + key.size(), index);
            const bool is_index = !key.empty() && parsed.ec == std::errc{} && parsed.ptr == key.data() + key.size();
            value = !item ? interpreter_.attribute(value, key)
                          : interpreter_.item(value, is_index ? Value(index) : interpreter_.string(key));
            at = end + (item ? 1 : 0);
        }
        return value;
    }

    Value argument(std::string_view name) {
        std::size_t index = next_;
        if (name.empty()) {
            ++next_;
        } else if (name.find_first_not_of("0123456789") == std::string_view::npos) {
            if (std::from_chars(name.data(), name.data() + name.size(), index).ec != std::errc{})
                bad_format("an index out of range");
        } else {
            for (const auto& [key, value] : arguments_.named)
                if (key == name) return value;
            bad_format(cat("there is no argument '", escaped(name), "'"));
        }
        if (index >= arguments_.positional.size()) bad_format(cat("there is no argument ", index));
        return arguments_.positional[index];
    }

    Interpreter& interpreter_;
    const Arguments& arguments_;
    bool markup_;
    std::size_t next_ = 0;
};

class PercentFormat {
public:
    PercentFormat(Interpreter& interpreter, const OriginText& format, const Value& values, bool markup)
        : interpreter_(interpreter), format_(format), text_(format.bytes()), values_(values),
          several_(values.is_list() && values.list().is_tuple), markup_(markup) {}

    OriginText run() {
        OriginText out(interpreter_.heap());
        while (at_ < text_.size()) {
            interpreter_.heap().work(1);
            const std::size_t percent = std::min(text_.find('%', at_), text_.size());
            out.append(format_, at_, percent);
            if (percent == text_.size()) break;
            at_ = percent + 1;
            out.append(conversion());
        }
        if (!values_.is_map() && used_ < (several_ ? values_.list().items.size() : 1))
            bad_format("not all values are used");
        return out;
    }

private:
    Value next() {
        if (several_ ? used_ >= values_.list().items.size() : used_ > 0) bad_format("too few values");
        return several_ ? values_.list().items[used_++] : (++used_, values_);
    }

    /// The value of "%(name)"; nullopt without a name.
    std::optional<Value> named() {
        if (!text_.substr(at_).starts_with('(')) return std::nullopt;
        const std::size_t end = text_.find(')', at_);
        if (end == std::string_view::npos || !values_.is_map()) bad_format("'%(name)' needs a mapping");
        const std::string_view name = text_.substr(at_ + 1, end - at_ - 1);
        const Value* found = values_.map().find(name);
        if (found == nullptr) bad_format(cat("there is no '", escaped(name), "'"));
        at_ = end + 1;
        return *found;
    }

    /// A width or precision; "*" takes it from the values.
    std::int64_t number() {
        if (!text_.substr(at_).starts_with('*')) return read_count(text_, at_);
        ++at_;
        const auto value = next().integer();
        if (!value || *value > static_cast<std::int64_t>(kMaxText) || *value < -static_cast<std::int64_t>(kMaxText))
            bad_format("'*' needs an integer");
        return *value;
    }

    Field field() {
        Field out;
        bool left = false;
        for (; at_ < text_.size() && std::string_view("-+ #0").find(text_[at_]) != std::string_view::npos; ++at_) {
            if (text_[at_] == '-') left = true;
            if (text_[at_] == '+') out.sign = '+';
            if (text_[at_] == ' ' && out.sign != '+') out.sign = ' ';
            if (text_[at_] == '#') out.alternative = true;
            if (text_[at_] == '0') out.zero = true;
        }
        out.width = number();
        if (left || out.width < 0) out.align = '<';
        if (out.width < 0) out.width = -out.width;
        if (text_.substr(at_).starts_with('.')) {
            ++at_;
            out.precision = std::max<std::int64_t>(number(), 0);
        }
        if (at_ >= text_.size()) bad_format("the format ends behind '%'");
        out.type = text_[at_++];
        return out;
    }

    OriginText conversion() {
        const std::optional<Value> by_name = named();
        Field field = this->field();
        if (field.type == '%') return interpreter_.word("%");
        Value value = by_name ? *by_name : next();
        if (field.type == 'r' || field.type == 's' || field.type == 'a') {
            if (field.type != 's') value = interpreter_.string(representation(interpreter_.heap(), value));
            return as_text(markup_ ? escaped_for_html(interpreter_, value) : interpreter_.print(value), field);
        }
        if (field.type == 'i' || field.type == 'u') field.type = 'd';
        if (std::string_view("dxXoeEfFgG").find(field.type) == std::string_view::npos)
            bad_format(cat("'%", escaped(std::string(1, field.type)), "' is no format"));
        if (!value.is_number()) bad_format(cat("a number is expected, not ", type_name(value)));
        if (std::string_view("dxXo").find(field.type) == std::string_view::npos)
            return number_field(interpreter_, value, field);
        if (value.is<double>()) {
            if (field.type != 'd' || !(std::abs(value.real()) < 9e18))
                bad_format("an integer is expected, not a float");
            value = static_cast<std::int64_t>(value.real());
        }
        return field.precision < 0 ? number_field(interpreter_, value, field) : with_digits(*value.integer(), field);
    }

    OriginText as_text(OriginText text, Field field) {
        field.type = 0;
        if (field.align == 0) field.align = '>';
        return text_field(std::move(text), field);
    }

    /// An integer of at least `precision` digits.
    OriginText with_digits(std::int64_t value, Field field) {
        const std::string sign = value < 0 ? "-" : field.sign == '-' ? "" : std::string(1, field.sign);
        OriginText text = interpreter_.word(sign);
        const OriginText digits = interpreter_.word(integer_text(value, field));
        text.append(padded(digits, field.precision, interpreter_.word("0"), '>'));
        field.precision = -1;
        return as_text(std::move(text), field);
    }

    Interpreter& interpreter_;
    const OriginText& format_;
    std::string_view text_;
    const Value& values_;
    bool several_, markup_;
    std::size_t at_ = 0, used_ = 0;
};

}  // namespace

OriginText format_braces(Interpreter& interpreter, const OriginText& format, const Arguments& arguments, bool markup) {
    return BraceFormat(interpreter, arguments, markup).run(format, 0);
}

OriginText format_percent(Interpreter& interpreter, const OriginText& format, const Value& values, bool markup) {
    return PercentFormat(interpreter, format, values, markup).run();
}

}  // namespace tinfer::chat
