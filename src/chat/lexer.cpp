// SPDX-License-Identifier: MIT
#include "chat/lexer.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "base/error.hpp"
#include "base/hex.hpp"
#include "base/number_text.hpp"
#include "base/utf8.hpp"

namespace tinfer::chat {

void syntax_error(Place place, std::string_view message) {
    fail(ErrorCode::template_syntax, cat("template: line ", place.line, ", column ", place.column, ": ", message));
}

namespace {

using Kind = LexToken::Kind;

constexpr std::array<std::string_view, 6> kLongSymbols{"//", "**", "==", "!=", "<=", ">="};
constexpr std::string_view kSymbols = "+-/*%~[](){}<>=.:|,;";

bool is_blank(char c) noexcept { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_ascii_digit(char c) noexcept { return c >= '0' && c <= '9'; }
bool is_name_start(char c) noexcept {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool is_name(char c) noexcept { return is_name_start(c) || is_ascii_digit(c); }

class Lexer {
public:
    explicit Lexer(std::string_view source) : source_(source) {}

    std::vector<LexToken> run() {
        while (at_ < source_.size()) data();
        push(Kind::end, {});
        return std::move(tokens_);
    }

private:
    [[nodiscard]] std::string_view rest() const { return source_.substr(at_); }
    [[nodiscard]] bool starts(std::string_view text) const { return rest().starts_with(text); }

    /// Line and column of a byte; call it with ascending offsets.
    Place place_of(std::size_t offset) {
        for (; counted_ < offset; ++counted_) {
            if (source_[counted_] == '\n') place_ = {place_.line + 1, 1};
            else ++place_.column;
        }
        return place_;
    }

    LexToken& push(Kind kind, std::string text) {
        tokens_.push_back({kind, std::move(text), 0, 0, place_of(start_)});
        return tokens_.back();
    }

    /// Text up to the next tag, then the tag.
    void data() {
        start_ = at_;
        std::size_t tag = at_;
        while (tag < source_.size() &&
               !(source_[tag] == '{' && tag + 1 < source_.size() &&
                 (source_[tag + 1] == '{' || source_[tag + 1] == '%' || source_[tag + 1] == '#')))
            ++tag;
        if (tag >= source_.size()) {
            push(Kind::data, std::string(source_.substr(at_)));
            at_ = source_.size();
            return;
        }
        const char type = source_[tag + 1];
        const char control = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
        push_data(tag, control, type != '{');
        start_ = at_ = tag;
        at_ += control == '-' || control == '+' ? 3 : 2;
        if (type == '#') return comment();
        if (type == '%' && raw()) return;
        push(type == '{' ? Kind::output_begin : Kind::block_begin, {});
        expression(type == '{' ? "}}" : "%}", type == '{' ? Kind::output_end : Kind::block_end);
    }

    /// Emits the text before a tag, stripped as the tag says.
    void push_data(std::size_t end, char control, bool is_block) {
        std::size_t stop = end;
        if (control == '-') {
            while (stop > at_ && is_blank(source_[stop - 1])) --stop;
        } else if (is_block && control != '+') {
            std::size_t line = end;
            while (line > at_ && source_[line - 1] != '\n' && is_blank(source_[line - 1])) --line;
            if (line == 0 || source_[line - 1] == '\n') stop = line;
        }
        if (stop > at_) push(Kind::data, std::string(source_.substr(at_, stop - at_)));
    }

    /// Skips white space after a tag, as the tag says.
    void after_tag(char control, bool trims_newline) {
        if (control == '-')
            while (at_ < source_.size() && is_blank(source_[at_])) ++at_;
        else if (trims_newline && control != '+' && at_ < source_.size() && source_[at_] == '\n') ++at_;
    }

    void comment() {
        const std::size_t end = source_.find("#}", at_);
        if (end == std::string_view::npos) syntax_error(place_of(start_), "the comment does not end");
        const char control = end > at_ ? source_[end - 1] : '\0';
        at_ = end + 2;
        after_tag(control, true);
    }

    /// After "{%": reads "raw %}" … "{% endraw %}" verbatim. False if it is another tag.
    bool raw() {
        std::size_t p = at_;
        const auto spaces = [&] {
            while (p < source_.size() && is_blank(source_[p])) ++p;
        };
        const auto word = [&](std::string_view text) {
            spaces();
            if (!source_.substr(p).starts_with(text)) return false;
            p += text.size();
            spaces();
            return true;
        };
        const auto close = [&](char& control) {
            control = p < source_.size() && (source_[p] == '-' || source_[p] == '+') ? source_[p++] : '\0';
            if (!source_.substr(p).starts_with("%}")) return false;
            p += 2;
            return true;
        };
        char control = '\0';
        if (!word("raw") || !close(control)) return false;
        at_ = p;
        if (control == '-') after_tag('-', false);
        for (std::size_t tag = source_.find("{%", at_); tag != std::string_view::npos;
             tag = source_.find("{%", tag + 1)) {
            p = tag + 2;
            const char before = p < source_.size() && (source_[p] == '-' || source_[p] == '+') ? source_[p++] : '\0';
            if (!word("endraw") || !close(control)) continue;
            start_ = at_;
            push_data(tag, before, true);
            at_ = p;
            after_tag(control, true);
            return true;
        }
        syntax_error(place_of(start_), "the raw block does not end");
    }

    /// Reads tokens up to the end of the tag, which is recognized only outside of the expression's brackets.
    void expression(std::string_view closing, Kind end_kind) {
        const std::size_t tag = start_;
        std::vector<char> brackets;
        while (true) {
            while (at_ < source_.size() && is_blank(source_[at_])) ++at_;
            start_ = at_;
            if (at_ >= source_.size())
                syntax_error(place_of(at_), cat("the tag of line ", line_of(tag), " does not end"));
            if (brackets.empty()) {
                const char control = source_[at_] == '-' || source_[at_] == '+' ? source_[at_] : '\0';
                if (source_.substr(at_ + (control != '\0')).starts_with(closing)) {
                    push(end_kind, {});
                    at_ += closing.size() + (control != '\0');
                    return after_tag(control, end_kind == Kind::block_end);
                }
            }
            token(brackets);
        }
    }

    [[nodiscard]] std::size_t line_of(std::size_t offset) const {
        return 1 + static_cast<std::size_t>(std::ranges::count(source_.substr(0, offset), '\n'));
    }

    void token(std::vector<char>& brackets) {
        const char c = source_[at_];
        if (is_name_start(c)) {
            while (at_ < source_.size() && is_name(source_[at_])) ++at_;
            push(Kind::name, std::string(source_.substr(start_, at_ - start_)));
        } else if (is_ascii_digit(c)) {
            number();
        } else if (c == '"' || c == '\'') {
            string(c);
        } else {
            symbol(brackets);
        }
    }

    void symbol(std::vector<char>& brackets) {
        for (const std::string_view text : kLongSymbols)
            if (starts(text)) {
                push(Kind::symbol, std::string(text));
                at_ += text.size();
                return;
            }
        const char c = source_[at_];
        if (kSymbols.find(c) == std::string_view::npos)
            syntax_error(place_of(at_), cat("'", escaped(source_.substr(at_, 1)), "' has no meaning here"));
        if (c == '(' || c == '[' || c == '{') brackets.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
        if (c == ')' || c == ']' || c == '}') {
            if (brackets.empty()) syntax_error(place_of(at_), cat("'", c, "' closes nothing"));
            if (brackets.back() != c)
                syntax_error(place_of(at_), cat("'", c, "' where '", brackets.back(), "' is expected"));
            brackets.pop_back();
        }
        push(Kind::symbol, std::string(1, c));
        ++at_;
    }

    // ---- literals ---------------------------------------------------------------------------------------------------

    /// Digits of a base with single underscores between them.
    std::string digits(int base) {
        std::string out;
        while (at_ < source_.size()) {
            const int digit = hex_digit(source_[at_]);
            if (source_[at_] == '_' && !out.empty() && at_ + 1 < source_.size() && hex_digit(source_[at_ + 1]) >= 0 &&
                hex_digit(source_[at_ + 1]) < base)
                ++at_;
            else if (digit >= 0 && digit < base) out += source_[at_++];
            else break;
        }
        return out;
    }

    void number() {
        int base = 10;
        if (source_[at_] == '0' && at_ + 2 < source_.size()) {
            const char mark = static_cast<char>(source_[at_ + 1] | 0x20);
            const int prefix = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
            if (prefix != 10 && hex_digit(source_[at_ + 2]) >= 0 && hex_digit(source_[at_ + 2]) < prefix)
                base = prefix, at_ += 2;
        }
        std::string text = digits(base);
        const bool after_dot = !tokens_.empty() && tokens_.back().kind == Kind::symbol && tokens_.back().text == ".";
        if (base == 10 && !after_dot && fraction(text)) {
            double value = 0;
            if (read_number(text, value).ec == std::errc::result_out_of_range)
                value = is_large(text) ? std::numeric_limits<double>::infinity() : 0;
            push(Kind::real, {}).real = value;
            return;
        }
        std::int64_t value = 0;
        if (std::from_chars(text.data(), text.data() + text.size(), value, base).ec != std::errc{})
            syntax_error(place_of(start_), "the integer does not fit into 64 bits");
        push(Kind::integer, {}).integer = value;
    }

    /// Appends ".5", "e3" or ".5e3" to the digits in `text`.
    bool fraction(std::string& text) {
        bool real = false;
        if (starts(".") && at_ + 1 < source_.size() && is_ascii_digit(source_[at_ + 1])) {
            ++at_;
            text += '.' + digits(10);
            real = true;
        }
        if (at_ < source_.size() && (source_[at_] | 0x20) == 'e') {
            std::size_t p = at_ + 1;
            if (p < source_.size() && (source_[p] == '+' || source_[p] == '-')) ++p;
            if (p < source_.size() && is_ascii_digit(source_[p])) {
                text += 'e';
                if (source_[p - 1] == '-') text += '-';
                at_ = p;
                text += digits(10);
                real = true;
            }
        }
        return real;
    }

    void string(char quote) {
        std::string out;
        for (++at_; at_ < source_.size() && source_[at_] != quote;) {
            if (source_[at_] != '\\') out += source_[at_++];
            else escape(out);
        }
        if (at_ >= source_.size()) syntax_error(place_of(start_), "the string does not end");
        ++at_;
        push(Kind::string, std::move(out));
    }

    /// A Python escape sequence; unknown ones are kept.
    void escape(std::string& out) {
        if (++at_ >= source_.size()) return;
        const char c = source_[at_++];
        constexpr std::string_view kNames = "abfnrtv\\'\"";
        constexpr std::string_view kValues = "\a\b\f\n\r\t\v\\'\"";
        if (c == '\n') return;  // line continuation
        if (const auto i = kNames.find(c); i != kNames.npos) {
            out += kValues[i];
        } else if (c >= '0' && c <= '7') {
            unsigned value = static_cast<unsigned>(c - '0');
            for (int n = 0; n < 2 && at_ < source_.size() && source_[at_] >= '0' && source_[at_] <= '7'; ++n)
                value = value * 8 + static_cast<unsigned>(source_[at_++] - '0');
            append_code_point(out, value);
        } else if (c == 'x' || c == 'u' || c == 'U') {
            hex_escape(out, c == 'x' ? 2 : c == 'u' ? 4 : 8);
        } else {
            out += '\\';
            out += c;
        }
    }

    void hex_escape(std::string& out, int n_digits) {
        char32_t value = 0;
        for (int i = 0; i < n_digits; ++i, ++at_) {
            const int digit = at_ < source_.size() ? hex_digit(source_[at_]) : -1;
            if (digit < 0)
                syntax_error(place_of(start_), cat("an escape of the string needs ", n_digits, " hexadecimal digits"));
            value = value * 16 + static_cast<char32_t>(digit);
        }
        if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
            syntax_error(place_of(start_), "an escape of the string is no character");
        append_code_point(out, value);
    }

    std::string_view source_;
    std::size_t at_ = 0;       ///< next byte
    std::size_t start_ = 0;    ///< of the current token
    std::size_t counted_ = 0;  ///< the offset of place_
    Place place_;
    std::vector<LexToken> tokens_;
};

}  // namespace

std::vector<LexToken> lex(std::string_view source) { return Lexer(source).run(); }

}  // namespace tinfer::chat
