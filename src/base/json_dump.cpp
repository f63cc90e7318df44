// SPDX-License-Identifier: MIT
#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "base/hex.hpp"
#include "base/utf8.hpp"
#include "tinfer/json.hpp"

namespace tinfer {
namespace {

/// Writes one value and what is in it.
class JsonText {
public:
    explicit JsonText(const JsonLayout& layout) : layout_(layout) {}

    std::string of(const Json& root) {
        begin(root);
        while (!open_.empty()) {
            auto& [json, at] = open_.back();
            if (at == json->size()) {
                const char bracket = json->is_object() ? '}' : ']';
                open_.pop_back();
                new_line();
                out_ += bracket;
                continue;
            }
            if (at > 0) out_ += ',';
            new_line();
            const std::size_t i = at++;
            if (!json->is_object()) begin((*json)[i]);
            else {
                const Json::Member& member = json->items()[i];
                string(member.key);
                out_ += layout_.indent < 0 ? ":" : ": ";
                begin(member.value);
            }
        }
        return std::move(out_);
    }

private:
    void begin(const Json& value) {
        switch (value.kind()) {
            case JsonKind::null: out_ += "null"; break;
            case JsonKind::boolean: out_ += value.boolean() ? "true" : "false"; break;
            case JsonKind::number: number(value); break;
            case JsonKind::string: string(value.string()); break;
            case JsonKind::array:
            case JsonKind::object:
                out_ += value.is_object() ? '{' : '[';
                if (value.empty()) out_ += value.is_object() ? '}' : ']';
                else open_.emplace_back(&value, 0);
        }
    }

    void new_line() {
        if (layout_.indent < 0) return;
        out_ += '\n';
        out_.append(open_.size() * static_cast<std::size_t>(layout_.indent), ' ');
    }

    void number(const Json& value) {
        if (!value.is_integer()) return real(value.get<double>());
        char buffer[24];
        const auto result = value.is_natural() ? std::to_chars(buffer, buffer + 24, value.get<std::uint64_t>())
                                               : std::to_chars(buffer, buffer + 24, value.get<std::int64_t>());
        out_.append(buffer, result.ptr);
    }

    // 0.0001 to 999999999999999.0 with a point and at least one digit on both sides, others as 1.5e+20.
    void real(double value) {
        if (!std::isfinite(value)) return void(out_ += "null");
        if (std::signbit(value)) out_ += '-';
        char buffer[32];
        const char* const end = std::to_chars(buffer, buffer + 32, std::abs(value), std::chars_format::scientific).ptr;
        const char* const e = std::find(buffer, buffer + 32, 'e');
        int exponent = 0;
        (void)std::from_chars(e + (e[1] == '+' ? 2 : 1), end, exponent);
        std::string digits(1, buffer[0]);
        if (e > buffer + 1) digits.append(static_cast<const char*>(buffer) + 2, e);
        const auto n_digits = static_cast<int>(digits.size()), n_whole = exponent + 1;
        if (n_digits <= n_whole && n_whole <= 15) {
            out_.append(digits).append(static_cast<std::size_t>(n_whole - n_digits), '0') += ".0";
        } else if (0 < n_whole && n_whole <= 15) {
            out_ += digits.insert(static_cast<std::size_t>(n_whole), 1, '.');
        } else if (-4 < n_whole && n_whole <= 0) {
            out_.append("0.").append(static_cast<std::size_t>(-n_whole), '0') += digits;
        } else {
            if (n_digits > 1) digits.insert(1, 1, '.');
            out_.append(digits).append(e, end);
        }
    }

    void unit(char32_t value) {
        out_ += "\\u";
        append_hex(out_, static_cast<unsigned char>(value >> 8));
        append_hex(out_, static_cast<unsigned char>(value & 0xFF));
    }

    void escape(char32_t c) {
        constexpr std::string_view kMeanings = "\"\\\b\f\n\r\t", kNames = "\"\\bfnrt";
        if (const std::size_t i = c < 0x80 ? kMeanings.find(static_cast<char>(c)) : kMeanings.npos; i != kMeanings.npos)
            (out_ += '\\') += kNames[i];
        else if (c < 0x10000) unit(c);
        else {
            unit(0xD800 + ((c - 0x10000) >> 10));
            unit(0xDC00 + ((c - 0x10000) & 0x3FF));
        }
    }

    void string(std::string_view text) {
        out_ += '"';
        const auto is_plain = [](unsigned char c) { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\'; };
        while (!text.empty()) {
            const auto n = static_cast<std::size_t>(std::ranges::find_if_not(text, is_plain) - text.begin());
            out_ += text.substr(0, n);
            text.remove_prefix(n);
            if (text.empty()) break;
            const Utf8Front front = utf8_front(text);
            const bool is_broken = front.kind != Utf8Front::Kind::character;
            const auto lead = static_cast<unsigned char>(text[0]);
            if (lead >= 0x80 || lead == 0x7F) {
                if (layout_.ascii) escape(is_broken ? 0xFFFD : code_point(text.substr(0, front.length)));
                else out_ += is_broken ? "\xEF\xBF\xBD" : text.substr(0, front.length);
            } else {
                escape(lead);
            }
            text.remove_prefix(front.length);
        }
        out_ += '"';
    }

    static char32_t code_point(std::string_view character) noexcept {
        const auto lead = static_cast<unsigned char>(character[0]);
        if (character.size() == 1) return lead;
        char32_t value = lead & (0x7Fu >> character.size());
        for (const char c : character.substr(1)) value = value << 6 | (static_cast<unsigned char>(c) & 0x3Fu);
        return value;
    }

    const JsonLayout& layout_;
    std::string out_;
    std::vector<std::pair<const Json*, std::size_t>> open_;  // containers, and their next elements
};

}  // namespace

std::string Json::dump(const JsonLayout& layout) const { return JsonText(layout).of(*this); }

}  // namespace tinfer
