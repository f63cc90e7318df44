// SPDX-License-Identifier: MIT
// Finds the name of a pre-tokenizer by its expressions: those of a checkpoint and those of the library are brought into
// one spelling and compared. What is made one changes no match.
#include <tinfer/text.hpp>

#include <algorithm>
#include <array>
#include <set>

#include "convert/text.hpp"
#include "convert/vocabulary.hpp"

namespace tinfer::convert {

namespace {

using Spelling = std::pair<std::string_view, std::string_view>;

/// Replaced as they stand, in this order.
constexpr Spelling kSpellings[] = {
    {"%G%", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {"%U%", R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"},
    {"%W%", R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)", "%C%"},
    {"'(?i:[sdmt]|ll|ve|re)", "%C%"},
    {"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])", "%C%"},
    {"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])", "%C%"},
    {"'(?:[sdmt]|ll|ve|re)", "'s|'t|'re|'ve|'m|'ll|'d"},
    {R"((?<!\s)\s+$)", R"(\s+$)"},
    {R"((?![\p{Alphabetic}\p{M}\p{Nd}\p{Pc}]))", R"(\b)"},
};

std::string code_point(std::uint32_t value) {
    std::ostringstream text;
    text << "\\x{" << std::hex << std::uppercase << value << "}";
    return std::move(text).str();
}

/// Walks an expression atom by atom and writes it in one spelling.
class Speller {
public:
    explicit Speller(std::string_view text) : text_(text) {}

    [[nodiscard]] std::string run() {
        std::string result;
        bool after_quantifier = false;
        while (at_ < text_.size()) {
            const char c = text_[at_];
            if (c == '[') {
                result += character_class();
                after_quantifier = false;
            } else if (c == '+' && after_quantifier) {  // possessive
                ++at_;
                after_quantifier = false;
            } else if (c == '*' || c == '+' || c == '?' || c == '{') {
                const std::size_t end = c == '{' ? std::min(text_.find('}', at_), text_.size() - 1) : at_;
                result += text_.substr(at_, end + 1 - at_);
                at_ = end + 1;
                after_quantifier = !result.ends_with("(?");
            } else {
                result += is_meta(c) ? std::string(1, text_[at_++]) : atom();
                after_quantifier = false;
            }
        }
        return result;
    }

private:
    static bool is_meta(char c) { return std::string_view("()|.^$%:=!<>").find(c) != std::string_view::npos; }

    [[nodiscard]] std::uint32_t hexadecimal(std::string_view digits) const {
        std::uint32_t value = 0;
        for (const char c : digits) {
            const std::size_t digit = std::string_view("0123456789abcdef").find(static_cast<char>(c | 0x20));
            value = value << 4 | static_cast<std::uint32_t>(c >= '0' && c <= '9' ? c - '0' : digit & 15);
        }
        return value;
    }

    /// One character, escaped or not, as \x{…}; or a kind of characters, as \s or \p{L}.
    std::string atom() {
        const auto c = static_cast<unsigned char>(text_[at_]);
        if (c != '\\') return code_point(utf8());
        if (++at_ == text_.size()) return "\\";
        const char kind = text_[at_++];
        const auto braced = [&] {
            const std::size_t end = std::min(text_.find('}', at_), text_.size());
            const auto inner = text_.substr(at_ + 1, end > at_ ? end - at_ - 1 : 0);
            at_ = std::min(end + 1, text_.size());
            return inner;
        };
        if (kind == 'p' || kind == 'P') {
            if (at_ < text_.size() && text_[at_] == '{') return cat('\\', kind, '{', braced(), '}');
            return at_ < text_.size() ? cat('\\', kind, '{', text_[at_++], '}') : "\\p";
        }
        if (kind == 'x' && at_ < text_.size() && text_[at_] == '{') return code_point(hexadecimal(braced()));
        if (kind == 'x' || kind == 'u') {
            const std::size_t n = std::min<std::size_t>(kind == 'x' ? 2 : 4, text_.size() - at_);
            at_ += n;
            return code_point(hexadecimal(text_.substr(at_ - n, n)));
        }
        if (kind == 'n') return code_point('\n');
        if (kind == 'r') return code_point('\r');
        if (kind == 't') return code_point('\t');
        if ((kind >= 'a' && kind <= 'z') || (kind >= 'A' && kind <= 'Z')) return cat('\\', kind);
        --at_;
        return code_point(utf8());
    }

    std::uint32_t utf8() {
        const auto lead = static_cast<unsigned char>(text_[at_++]);
        std::size_t more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
        std::uint32_t value = more == 0 ? lead : lead & (0x3Fu >> more);
        for (; more > 0 && at_ < text_.size(); --more)
            value = value << 6 | (static_cast<unsigned char>(text_[at_++]) & 0x3Fu);
        return value;
    }

    std::string character_class() {
        std::string result = "[";
        if (++at_ < text_.size() && text_[at_] == '^') result += '^', ++at_;
        std::set<std::string> members;
        for (bool is_first = true; at_ < text_.size() && (text_[at_] != ']' || is_first); is_first = false) {
            std::string member = atom();
            if (member.starts_with("\\x") && at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
                ++at_;
                member += "-" + atom();
            }
            members.insert(std::move(member));
        }
        at_ = std::min(at_ + 1, text_.size());
        for (const std::string& member : members) result += member;
        return result + "]";
    }

    std::string_view text_;
    std::size_t at_ = 0;
};

std::string in_one_spelling(std::string text) {
    for (const auto& [from, to] : kSpellings) replace_all(text, from, to);
    text = Speller(text).run();
    // White space up to a line break: more line breaks behind it are white space, too.
    constexpr std::string_view kLines = R"(\s*[\x{A}\x{D}])";
    for (std::size_t at = 0; (at = text.find(kLines, at)) != text.npos;) {
        at += kLines.size();
        if (at == text.size() || (text[at] != '+' && text[at] != '*')) text.insert(at, 1, '+');
    }
    return text;
}

std::string name_in_family(const std::vector<PretokenizerInfo>& names, std::string_view family, bool ignores_merges,
                           bool cleans_spaces) {
    if (family == "gpt2") return "gpt-2";
    if (family == "llama3") return ignores_merges ? "llama-bpe" : "dbrx";
    if (family == "qwen2") return cleans_spaces ? "stablelm2" : "qwen2";
    if (family == "starcoder") return cleans_spaces ? "starcoder" : "smollm";
    return std::string(std::ranges::find(names, family, &PretokenizerInfo::family)->name);
}

}  // namespace

std::string find_pretokenizer(const PretokenizerList& list, bool ignores_merges, bool cleans_spaces,
                              std::string_view name) {
    std::vector<std::string> wanted;
    for (const std::string& expression : list.expressions) wanted.push_back(in_one_spelling(expression));
    const auto names = pretokenizers();
    if (list.is_known)
        for (const PretokenizerInfo& row : names) {
            const auto spelt = [](std::string_view pattern) { return in_one_spelling(std::string(pattern)); };
            if (row.patterns.size() == wanted.size() && std::ranges::equal(row.patterns, wanted, {}, spelt))
                return name_in_family(names, row.family, ignores_merges, cleans_spaces);
        }
    std::string expressions;
    for (const std::string& expression : list.expressions)
        expressions += cat(expressions.empty() ? "" : ", ", shown(expression));
    fail(ErrorCode::unknown_pretokenizer, name, ": 'pre_tokenizer': no known pre-tokenizer cuts by ",
         expressions.empty() ? "nothing" : expressions, " (see --pretokenizer)");
}

}  // namespace tinfer::convert
