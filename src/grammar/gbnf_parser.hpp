// SPDX-License-Identifier: MIT
// Reads a grammar in GBNF into rules and items. What compiles them is gbnf.cpp.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "grammar/gbnf.hpp"

namespace tinfer::grammar::gbnf {

inline constexpr std::size_t kMaxDepth = 200;
inline constexpr std::size_t kMaxWarnings = 100;
inline constexpr std::size_t kMaxRepetitions = 2000;  // product of nested counts

/// One item of a rule's right-hand side. Items lie in one list, and the parts of an item before it: nothing here is
/// recursive, whatever the text says. The comments name the kinds that use a field.
struct Item {
    enum class Kind : std::uint8_t { text, set, rule, sequence, alternatives, repeat, token } kind;
    bool is_negated = false;  // token
    /// rule: its number; token: its id; set: its place among the sets; text: its first byte among the texts;
    /// sequence, alternatives, repeat: the first of its parts.
    std::uint32_t first = 0;
    std::uint32_t count = 0;         // text: bytes; sequence, alternatives, repeat: parts
    std::uint32_t min = 0, max = 0;  // repeat; max kNone: no limit
    std::uint32_t parent = kNone;    // the item that it is part of; kNone for the body of a rule
    std::uint32_t repeats = 1;       // the largest product of the counts inside each other in it
    std::uint32_t count_place = 0;   // in the text, of the innermost of these counts
};

struct Rule {
    std::string name;
    bool is_defined = false;
    std::size_t place = 0;       // of its definition, or of its first use until it is defined
    std::uint32_t body = kNone;  // an item
};

class Parser {
public:
    Parser(std::string_view text, const TokenOfText& token_of, std::size_t max_nodes, SchemaWork* work)
        : text_(text), token_of_(token_of), max_nodes_(max_nodes), work_(work) {}

    /// Counts a step, and memory that stays.
    void spend(std::size_t n_bytes) {
        if (work_ == nullptr) return;
        work_->spend(1);
        work_->hold(n_bytes);
    }

    void parse() {
        if (text_.size() >= kNone / 2)
            fail(ErrorCode::limit_exceeded, cat("grammar: a text of ", text_.size(), " bytes, limit ", kNone / 2));
        for (skip(true); at_ < text_.size(); skip(true)) rule();
        for (const Rule& rule : rules)
            if (!rule.is_defined) refuse(cat("rule '", escaped(rule.name), "' is not defined"), rule.place);
        if (const auto root = numbers_.find("root"); root == numbers_.end()) refuse("there is no rule 'root'", 0);
        else root_ = root->second;
    }

    [[noreturn]] void refuse(std::string_view reason, std::size_t place) const {
        std::size_t line = 1, column = 1;
        for (std::size_t i = 0; i < std::min(place, text_.size()); ++i) {
            const bool ends_line = text_[i] == '\n' || (text_[i] == '\r' && text_.substr(i + 1, 1) != "\n");
            if (ends_line) ++line, column = 1;
            else if ((text_[i] & 0xC0) != 0x80 && text_[i] != '\r') ++column;
        }
        fail(ErrorCode::bad_grammar, cat("grammar: line ", line, ", column ", column, ": ", reason));
    }

    std::vector<Rule> rules;
    std::vector<Item> items;
    std::vector<std::uint32_t> parts;  // of the items
    std::string texts;
    std::vector<CharSet> sets;
    std::vector<std::string> warnings;
    [[nodiscard]] std::uint32_t root() const noexcept { return root_; }

private:
    [[nodiscard]] char peek(std::size_t ahead = 0) const noexcept {
        return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
    }
    bool take(char c) noexcept {
        if (at_ >= text_.size() || text_[at_] != c) return false;
        ++at_;
        return true;
    }
    void skip(bool over_lines) noexcept {
        for (; at_ < text_.size(); ++at_) {
            const char c = text_[at_];
            if (c == '#') {
                while (at_ + 1 < text_.size() && text_[at_ + 1] != '\n' && text_[at_ + 1] != '\r') ++at_;
            } else if (c != ' ' && c != '\t' && !(over_lines && (c == '\n' || c == '\r'))) {
                return;
            }
        }
    }

    static bool is_name(char c) noexcept {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    }
    std::uint32_t name() {
        const std::size_t begin = at_;
        while (at_ < text_.size() && is_name(text_[at_])) ++at_;
        if (at_ == begin) refuse("a name of a rule is missing", begin);
        const auto [found, is_new] = numbers_.try_emplace(std::string(text_.substr(begin, at_ - begin)),
                                                          static_cast<std::uint32_t>(rules.size()));
        if (is_new) {
            spend(2 * sizeof(Rule) + 2 * found->first.size());
            rules.push_back({found->first, false, begin});
        }
        return found->second;
    }

    void rule() {
        const std::size_t begin = at_;
        const std::uint32_t number = name();
        skip(false);
        if (text_.substr(at_, 3) != "::=") refuse("'::=' is missing behind the name of a rule", at_);
        at_ += 3;
        skip(true);
        if (rules[number].is_defined && warnings.size() < kMaxWarnings)
            warnings.push_back(
                cat("rule '", escaped(rules[number].name), "' is defined again; the last definition wins"));
        rules[number].is_defined = true;
        rules[number].place = begin;
        rules[number].body = body();
        if (at_ < text_.size() && peek() != '\n' && peek() != '\r') refuse("a rule ends with its line", at_);
    }

    std::uint32_t add(const Item& item) {
        // Only items without a node of their own, such as empty literals, can make more of them than nodes.
        if (items.size() >= 2 * std::min<std::size_t>(max_nodes_, kNone / 2))
            fail(ErrorCode::limit_exceeded, cat("grammar: more than ", max_nodes_, " nodes (max_nodes)"));
        spend(2 * sizeof(Item));
        items.push_back(item);
        return static_cast<std::uint32_t>(items.size() - 1);
    }
    /// An item of the given ones, which it removes from the end of the list.
    std::uint32_t join(Item::Kind kind, std::vector<std::uint32_t>& list, std::size_t first) {
        Item whole{kind};
        whole.first = static_cast<std::uint32_t>(parts.size());
        whole.count = static_cast<std::uint32_t>(list.size() - first);
        for (std::size_t i = first; i < list.size(); ++i)
            if (items[list[i]].repeats > whole.repeats) {
                whole.repeats = items[list[i]].repeats;
                whole.count_place = items[list[i]].count_place;
            }
        const std::uint32_t number = add(whole);
        for (std::size_t i = first; i < list.size(); ++i) items[list[i]].parent = number;
        parts.insert(parts.end(), list.begin() + static_cast<std::ptrdiff_t>(first), list.end());
        list.resize(first);
        return number;
    }

    /// An open parenthesis, or the rule around all of them: where its items begin in the lists of open ones.
    struct Group {
        std::size_t place, first_alternative, first_part;
    };
    void end_sequence(const Group& group) {
        alternatives_.push_back(join(Item::Kind::sequence, open_parts_, group.first_part));
    }
    std::uint32_t end_group(const Group& group) {
        end_sequence(group);
        if (alternatives_.size() - group.first_alternative > 1)
            return join(Item::Kind::alternatives, alternatives_, group.first_alternative);
        const std::uint32_t only = alternatives_.back();
        alternatives_.pop_back();
        return only;
    }

    std::uint32_t body() {
        std::vector<Group> groups{{at_, alternatives_.size(), open_parts_.size()}};
        for (;;) {
            const bool is_inside = groups.size() > 1;
            skip(is_inside);
            const char c = peek();
            if (at_ >= text_.size() || c == '\n' || c == '\r') {
                if (is_inside) refuse("')' is missing", at_);
                return end_group(groups.back());
            }
            const std::size_t begin = at_;
            std::uint32_t one = 0;
            if (take('|')) {
                skip(true);
                end_sequence(groups.back());
                continue;
            }
            if (take('(')) {
                skip(true);
                if (groups.size() > kMaxDepth)
                    refuse(cat("more than ", kMaxDepth, " parentheses inside each other"), at_);
                groups.push_back({begin, alternatives_.size(), open_parts_.size()});
                continue;
            }
            if (c == ')') {
                const Group group = groups.back();
                if (!is_inside) return end_group(group);  // rule() refuses what follows
                ++at_;
                groups.pop_back();
                one = end_group(group);
            } else {
                one = item();
            }
            open_parts_.push_back(repeated(one, groups.size() > 1));
        }
    }

    /// The item with the count that follows it, if there is one.
    std::uint32_t repeated(std::uint32_t one, bool is_inside) {
        const std::size_t end = at_;
        skip(is_inside);
        const std::size_t place = at_;
        std::uint32_t min = 1, max = 1;
        if (take('*')) min = 0, max = kNone;
        else if (take('+')) max = kNone;
        else if (take('?')) min = 0;
        else if (peek() == '{') braces(min, max);
        else {
            at_ = end;
            return one;
        }
        const std::size_t count = std::max<std::size_t>(max == kNone ? min : max, 1);
        const Item& inside = items[one];
        if (count > 1 && count * inside.repeats > kMaxRepetitions)
            refuse(cat("too many repetitions: ", count, " times ", inside.repeats, ", the limit is ", kMaxRepetitions),
                   inside.repeats > 1 ? inside.count_place : place);
        open_parts_.push_back(one);
        const std::uint32_t number = join(Item::Kind::repeat, open_parts_, open_parts_.size() - 1);
        Item& repeat = items[number];
        repeat.min = min;
        repeat.max = max;
        if (count > 1 && repeat.repeats == 1) repeat.count_place = static_cast<std::uint32_t>(place);
        repeat.repeats *= static_cast<std::uint32_t>(count);
        return number;
    }

    std::uint32_t number() {
        const std::size_t begin = at_;
        std::uint64_t value = 0;
        while (peek() >= '0' && peek() <= '9') {
            value = std::min<std::uint64_t>(value * 10 + static_cast<std::uint64_t>(peek() - '0'), 1'000'000'000);
            ++at_;
        }
        if (at_ == begin) refuse("a number is missing", begin);
        return static_cast<std::uint32_t>(value);
    }
    void braces(std::uint32_t& min, std::uint32_t& max) {
        const std::size_t begin = at_++;
        skip(false);
        min = max = number();
        skip(false);
        if (take(',')) {
            skip(false);
            max = peek() == '}' ? kNone : number();
            skip(false);
        }
        if (!take('}')) refuse("'}' is missing behind a count", at_);
        if (max < min) refuse(cat("the repetition {", min, ",", max, "} ends before it begins"), begin);
        if (min > kMaxRepetitions || (max != kNone && max > kMaxRepetitions))
            refuse(cat("too many repetitions: ", max == kNone ? min : max, ", the limit is ", kMaxRepetitions), begin);
    }

    std::uint32_t character() {
        const std::size_t n = utf8_length(text_.substr(at_));
        if (n == 0) refuse("the text is not UTF-8", at_);
        const auto lead = static_cast<unsigned char>(text_[at_]);
        std::uint32_t c = n == 1 ? lead : lead & (0x7Fu >> n);
        for (std::size_t k = 1; k < n; ++k) c = (c << 6) | (static_cast<unsigned char>(text_[at_ + k]) & 0x3F);
        at_ += n;
        return c;
    }
    std::uint32_t escape(bool in_set) {
        const std::size_t begin = at_++;
        const char c = peek();
        ++at_;
        switch (c) {
            case 'n': return '\n';
            case 'r': return '\r';
            case 't': return '\t';
            case '\\':
            case '"':
            case '[':
            case ']': return static_cast<std::uint32_t>(c);
            case '-':
                if (in_set) return '-';
                break;
            case 'x':
            case 'u':
            case 'U': {
                std::uint32_t value = 0;
                for (int i = 0, n = c == 'x' ? 2 : c == 'u' ? 4 : 8; i < n; ++i, ++at_) {
                    const char d = peek();
                    const int digit = d >= '0' && d <= '9'   ? d - '0'
                                      : d >= 'a' && d <= 'f' ? d - 'a' + 10
                                      : d >= 'A' && d <= 'F' ? d - 'A' + 10
                                                             : -1;
                    if (digit < 0) refuse(cat("the escape \\", c, " needs ", n, " hexadecimal digits"), begin);
                    value = value << 4 | static_cast<std::uint32_t>(digit);
                }
                if (value > kMaxCodePoint || (value >= 0xD800 && value <= 0xDFFF))
                    refuse("an escape names no character of Unicode", begin);
                return value;
            }
            default: break;
        }
        refuse("unknown escape", begin);
    }

    std::uint32_t item() {
        const std::size_t begin = at_;
        if (take('"')) {
            Item text{Item::Kind::text};
            text.first = static_cast<std::uint32_t>(texts.size());
            while (peek() != '"') {
                if (at_ >= text_.size() || peek() == '\n' || peek() == '\r') refuse("a literal has no end", begin);
                append_code_point(texts, peek() == '\\' ? escape(false) : character());
            }
            ++at_;
            text.count = static_cast<std::uint32_t>(texts.size()) - text.first;
            return add(text);
        }
        if (take('[')) return set(begin);
        if (take('.')) return add_set(CharSet{{0, kMaxCodePoint}});
        const bool is_negated = peek() == '!' && peek(1) == '<';
        if (is_negated) ++at_;
        if (peek() == '<') return token(is_negated, begin);
        if (!is_name(peek()))
            refuse(cat("'", escaped(text_.substr(at_, std::max<std::size_t>(utf8_length(text_.substr(at_)), 1))),
                       "' begins no item"),
                   begin);
        Item reference{Item::Kind::rule};
        reference.first = name();
        return add(reference);
    }

    std::uint32_t add_set(CharSet set) {
        Item out{Item::Kind::set};
        out.first = static_cast<std::uint32_t>(sets.size());
        sets.push_back(std::move(set));
        return add(out);
    }
    std::uint32_t set(std::size_t begin) {
        const bool is_negated = take('^');
        std::vector<CharRange> ranges;
        while (peek() != ']') {
            if (at_ >= text_.size() || peek() == '\n' || peek() == '\r') refuse("a set has no end", begin);
            const std::size_t place = at_;
            const std::uint32_t lo = peek() == '\\' ? escape(true) : character();
            std::uint32_t hi = lo;
            if (peek() == '-' && peek(1) != ']') {
                ++at_;
                if (at_ >= text_.size() || peek() == '\n' || peek() == '\r') refuse("a set has no end", begin);
                hi = peek() == '\\' ? escape(true) : character();
            }
            if (hi < lo) refuse("a range ends before it begins", place);
            ranges.push_back({lo, hi});
        }
        ++at_;
        const CharSet out = CharSet::of(std::move(ranges));
        return add_set(is_negated ? out.inverted() : out);
    }

    std::uint32_t token(bool is_negated, std::size_t begin) {
        Item out{Item::Kind::token};
        out.is_negated = is_negated;
        const std::size_t first = at_++;
        if (take('[')) {
            out.first = number();
            if (!take(']') || !take('>')) refuse("']>' is missing behind the number of a token", at_);
            return add(out);
        }
        const std::size_t end = text_.find('>', at_);
        if (end == std::string_view::npos ||
            text_.substr(at_, end - at_).find_first_of("\r\n") != std::string_view::npos)
            refuse("'>' is missing behind the text of a token", begin);
        at_ = end + 1;
        const std::string_view text = text_.substr(first, at_ - first);
        if (!token_of_) refuse(cat("the token '", escaped(text), "' needs a vocabulary"), begin);
        const auto found = token_of_(text);
        if (!found) refuse(cat("'", escaped(text), "' is not one token of the vocabulary"), begin);
        out.first = *found;
        return add(out);
    }

    std::string_view text_;
    const TokenOfText& token_of_;
    std::size_t max_nodes_;
    SchemaWork* work_;
    std::size_t at_ = 0;
    std::vector<std::uint32_t> alternatives_, open_parts_;  // of the groups that are open, the outer ones first
    std::map<std::string, std::uint32_t, std::less<>> numbers_;
    std::uint32_t root_ = 0;
};

}  // namespace tinfer::grammar::gbnf
