// SPDX-License-Identifier: MIT
// Converts values to text as Python's str and repr do.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include <utf8proc.h>

#include "base/error.hpp"
#include "chat/runtime_error.hpp"
#include "chat/value.hpp"

namespace tinfer::chat {

std::string float_text(double value) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    std::array<char, 32> buffer{};
    const auto end =
        std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific).ptr;
    const std::string_view shortest(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
    const std::size_t e = shortest.find('e');
    int exponent = 0;
    const char* digits_of_exponent = shortest.data() + e + (shortest[e + 1] == '+' ? 2 : 1);
    std::from_chars(digits_of_exponent, shortest.data() + shortest.size(), exponent);
    if (exponent < -4 || exponent >= 16) {
        std::string out(shortest.substr(0, e));
        const int magnitude = std::abs(exponent);
        return cat(out, "e", exponent < 0 ? '-' : '+', magnitude < 10 ? "0" : "", magnitude);
    }
    std::array<char, 40> plain{};
    const auto stop = std::to_chars(plain.data(), plain.data() + plain.size(), value, std::chars_format::fixed).ptr;
    std::string out(plain.data(), stop);
    if (out.find('.') == std::string::npos) out += ".0";
    return out;
}

namespace {

/// Python escapes invisible characters: separators other than the space, controls, unassigned and private characters.
bool is_printable(char32_t c) {
    if (c == ' ') return true;
    if (c > 0x10FFFF) return false;
    switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
        case UTF8PROC_CATEGORY_CN:
        case UTF8PROC_CATEGORY_CC:
        case UTF8PROC_CATEGORY_CF:
        case UTF8PROC_CATEGORY_CS:
        case UTF8PROC_CATEGORY_CO:
        case UTF8PROC_CATEGORY_ZL:
        case UTF8PROC_CATEGORY_ZP:
        case UTF8PROC_CATEGORY_ZS: return false;
        default: return true;
    }
}

std::string hex_escape(char32_t c) {
    std::array<char, 12> buffer{};
    const char* format = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
    const auto value = c > 0x10FFFF ? c - 0x110000 : c;  // an invalid byte
    std::snprintf(buffer.data(), buffer.size(), c > 0x10FFFF ? "\\x%02x" : format, static_cast<unsigned>(value));
    return buffer.data();
}

void append_string(OriginText& out, const OriginText& text) {
    const std::string_view bytes = text.bytes();
    const char quote = bytes.find('\'') != bytes.npos && bytes.find('"') == bytes.npos ? '"' : '\'';
    const Origin around = text.main_origin();
    out.append(std::string_view(&quote, 1), around);
    CharacterReader reader(text);
    for (CharacterReader::Character c; reader.next(c);) {
        if (c.value == static_cast<char32_t>(quote) || c.value == '\\')
            out.append(cat('\\', static_cast<char>(c.value)), c.origin);
        else if (c.value == '\n') out.append("\\n", c.origin);
        else if (c.value == '\r') out.append("\\r", c.origin);
        else if (c.value == '\t') out.append("\\t", c.origin);
        else if (is_printable(c.value)) out.append(text, c.begin, c.end);
        else out.append(hex_escape(c.value), c.origin);
    }
    out.append(std::string_view(&quote, 1), around);
}

class Printer {
public:
    Printer(Heap& heap, OriginText& out) : heap_(heap), out_(out) {}

    void print(const Value& value, bool quote_strings) {
        heap_.work(1);
        if (value.is_undefined()) return word(quote_strings ? "Undefined" : "");
        if (value.is_none()) return word("None");
        if (const auto* b = value.get<bool>()) return word(*b ? "True" : "False");
        if (const auto* i = value.get<std::int64_t>()) return word(std::to_string(*i));
        if (const auto* d = value.get<double>()) return word(float_text(*d));
        if (value.is_string()) {
            if (!quote_strings) return out_.append(value.text());
            if (value.is_markup()) word("Markup(");
            append_string(out_, value.text());
            if (value.is_markup()) word(")");
            return;
        }
        if (value.is_list()) return list(value.list());
        if (value.is_map()) return map(value.map());
        word(cat("<", type_name(value), ">"));
    }

private:
    void word(std::string_view text) { out_.append(text, kFromTemplate); }

    /// A container that contains itself prints as dots, as in Python.
    bool enter(const Container& container) {
        if (std::ranges::find(open_, &container) != open_.end()) return false;
        if (open_.size() >= kMaxDepth) runtime_error("values are nested too deep to be printed");
        open_.push_back(&container);
        return true;
    }

    void list(const ListObject& list) {
        if (list.is_generator) return word("<generator>");
        if (!enter(list)) return word(list.is_tuple ? "(...)" : "[...]");
        word(list.is_tuple ? "(" : "[");
        for (std::size_t i = 0; i < list.items.size(); ++i) {
            if (i > 0) word(", ");
            print(list.items[i], true);
        }
        word(!list.is_tuple ? "]" : list.items.size() == 1 ? ",)" : ")");
        open_.pop_back();
    }

    void map(const MapObject& map) {
        if (!enter(map)) return word("{...}");
        word(map.is_namespace ? "<Namespace {" : "{");
        bool first = true;
        for (const auto& [key, value] : map.entries) {
            if (!std::exchange(first, false)) word(", ");
            print(key, true);
            word(": ");
            print(value, true);
        }
        word(map.is_namespace ? "}>" : "}");
        open_.pop_back();
    }

    Heap& heap_;
    OriginText& out_;
    std::vector<const Container*> open_;
};

}  // namespace

OriginText printed(Heap& heap, const Value& value) {
    OriginText out(heap);
    Printer(heap, out).print(value, false);
    return out;
}

OriginText representation(Heap& heap, const Value& value) {
    OriginText out(heap);
    Printer(heap, out).print(value, true);
    return out;
}

}  // namespace tinfer::chat
