// SPDX-License-Identifier: MIT
#include "chat/call_literals.hpp"

#include <cctype>

#include "base/hex.hpp"
#include "base/json.hpp"
#include "base/utf8.hpp"

namespace tinfer::chat {
namespace {

constexpr int kMaxLiteralDepth = 60;

bool is_json_blank(char c) noexcept { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

}  // namespace

std::string json_string(std::string_view text) { return Json(text).dump(); }

bool is_json(std::string_view text) {
    try {
        (void)JsonDocument::parse(text, "call");
        return true;
    } catch (const Error& error) {
        if (error.code() == ErrorCode::out_of_memory) throw;
        return false;
    }
}

std::optional<std::size_t> end_of_json(std::string_view text, std::size_t begin, bool& at_end) {
    std::size_t at = begin;
    while (at < text.size() && is_json_blank(text[at])) ++at;
    std::size_t depth = 0;
    for (bool quoted = false; at < text.size(); ++at) {
        const char c = text[at];
        if (quoted) {
            if (c == '\\') ++at;
            else if (c == '"' && (quoted = false, depth == 0)) return at + 1;
        } else if (c == '"') {
            quoted = true;
        } else if (c == '{' || c == '[') {
            ++depth;
        } else if (c == '}' || c == ']') {
            if (depth == 0) return std::nullopt;
            if (--depth == 0) return at + 1;
        } else if (depth == 0) {
            return std::nullopt;  // other values do not occur in calls
        }
    }
    at_end = true;
    return std::nullopt;
}

void LiteralReader::skip_space() noexcept {
    while (at < text.size() && is_json_blank(text[at])) ++at;
    if (at == text.size()) at_end = true;
}

bool LiteralReader::take(std::string_view mark) noexcept {
    const auto rest = text.substr(at);
    if (rest.starts_with(mark)) {
        at += mark.size();
        return true;
    }
    if (mark.starts_with(rest)) at_end = true;
    return false;
}

bool LiteralReader::take_mark(std::string_view mark) noexcept {
    while (true) {
        const auto part = mark.substr(0, mark.find('\n'));
        if (!take(part)) return false;
        if (part.size() == mark.size()) return true;
        mark.remove_prefix(part.size() + 1);
        skip_space();
    }
}

std::string LiteralReader::name() {
    const std::size_t begin = at;
    const auto inside = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.' ||
               (static_cast<unsigned char>(c) & 0x80) != 0;
    };
    while (at < text.size() && inside(text[at])) ++at;
    if (at == text.size()) at_end = true;
    return std::string(text.substr(begin, at - begin));
}

/// Reads digits after `at`, and moves `at` to the last one.
unsigned LiteralReader::hex_digits(int most) noexcept {
    unsigned code = 0;
    for (; most > 0 && at + 1 < text.size(); --most) {
        const int digit = hex_digit(text[at + 1]);
        if (digit < 0) break;
        code = code * 16 + static_cast<unsigned>(digit);
        ++at;
    }
    return code;
}

std::optional<std::string> LiteralReader::quoted() {
    if (!quote.empty() && take(quote)) {
        const auto end = text.find(quote, at);
        if (end == text.npos) {
            at_end = true;
            return std::nullopt;
        }
        const auto inner = text.substr(at, end - at);
        at = end + quote.size();
        return json_string(inner);
    }
    const char mark = at < text.size() ? text[at] : '\0';
    if (mark != '"' && mark != '\'') return std::nullopt;
    std::string out;
    for (++at; at < text.size() && text[at] != mark; ++at) {
        if (text[at] != '\\') {
            out += text[at];
            continue;
        }
        if (++at == text.size()) break;
        constexpr std::string_view kNames = "ntrbf0", kValues{"\n\t\r\b\f\0", 6};
        if (const auto known = kNames.find(text[at]); known != kNames.npos) out += kValues[known];
        else if (text[at] == 'u' || text[at] == 'x') {
            unsigned code = hex_digits(text[at] == 'u' ? 4 : 2);
            // A surrogate pair.
            if (code >= 0xD800 && code < 0xDC00 && text.substr(at + 1).starts_with("\\u")) {
                const auto before = at;
                at += 2;
                const unsigned low = hex_digits(4);
                if (low >= 0xDC00 && low < 0xE000) code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
                else at = before;
            }
            append_code_point(out, code);
        } else out += text[at];
    }
    if (at >= text.size()) {
        at_end = true;
        return std::nullopt;
    }
    ++at;
    return json_string(out);
}

std::optional<std::string> LiteralReader::word() {
    const std::size_t begin = at;
    while (at < text.size() && std::string_view(",)]}: \t\r\n").find(text[at]) == std::string_view::npos) ++at;
    if (at == text.size()) at_end = true;
    const auto found = text.substr(begin, at - begin);
    if (found == "True" || found == "true") return "true";
    if (found == "False" || found == "false") return "false";
    if (found == "None" || found == "null") return "null";
    if (!found.empty() && is_json(found)) return std::string(found);  // a number
    return std::nullopt;
}

std::optional<std::string> LiteralReader::container(char close, bool mapping, int depth) {
    std::string out(1, mapping ? '{' : '[');
    for (++at;; ++at) {
        skip_space();
        if (at < text.size() && text[at] == close) break;
        if (out.size() > 1) out += ", ";
        if (mapping) {
            auto key = quoted();
            if (!key && bare_keys) key = json_string(name());
            skip_space();
            if (!key || !take(":")) return std::nullopt;
            out += *key + ": ";
        }
        auto item = value(depth + 1);
        if (!item) return std::nullopt;
        out += *item;
        skip_space();
        if (at >= text.size() || (text[at] != ',' && text[at] != close)) return std::nullopt;
        if (text[at] == close) break;
    }
    ++at;
    return out + (mapping ? '}' : ']');
}

std::optional<std::string> LiteralReader::value(int depth) {
    if (depth > kMaxLiteralDepth) return std::nullopt;
    skip_space();
    if (at >= text.size()) return std::nullopt;
    const char c = text[at];
    if (c == '"' || c == '\'' || (!quote.empty() && c == quote[0])) return quoted();
    if (c == '{') return container('}', true, depth);
    if (c == '[') return container(']', false, depth);
    if (c == '(') return container(')', false, depth);
    return word();
}

std::optional<std::string> LiteralReader::keyword_arguments() {
    std::string out = "{";
    while (true) {
        skip_space();
        if (take(")")) return out + "}";
        if (out.size() > 1) {
            if (!take(",")) return std::nullopt;
            skip_space();
            if (take(")")) return out + "}";
            out += ", ";
        }
        const std::string key = name();
        skip_space();
        if (key.empty() || !take("=")) return std::nullopt;
        auto item = value();
        if (!item) return std::nullopt;
        out += json_string(key) + ": " + *item;
    }
}

}  // namespace tinfer::chat
