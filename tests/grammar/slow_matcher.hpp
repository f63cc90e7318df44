// SPDX-License-Identifier: MIT
// Random grammars, as text and as a tree, and a matcher that is slow and obvious: every item gives the set of places
// where its text may end, and remembers whether the text ran out inside it.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tinfer::test {

struct SlowItem {
    enum class Kind { text, set, rule, sequence, alternatives, repeat } kind = Kind::sequence;
    std::string text{};                     // text
    std::vector<std::string> characters{};  // set: its members in UTF-8
    bool is_negated = false;                // set
    std::size_t rule = 0;
    std::vector<SlowItem> parts{};
    std::size_t min = 0, max = 0;  // repeat; max 99: no limit
};

class SlowMatcher {
public:
    SlowMatcher(const std::vector<SlowItem>& rules, std::string_view text) : rules_(rules), text_(text) {}

    /// Whether the text is one of the grammar, and whether it is the begin of one.
    std::pair<bool, bool> run() {
        const auto ends = match(rules_[0], 0);
        const bool whole = ends.contains(text_.size());
        return {whole, whole || ran_out_};
    }

private:
    using Ends = std::set<std::size_t>;

    Ends match(const SlowItem& item, std::size_t at) {
        switch (item.kind) {
            case SlowItem::Kind::text: return literal(item.text, at);
            case SlowItem::Kind::set: return item.is_negated ? any_but(item, at) : any_of(item, at);
            case SlowItem::Kind::rule: {
                const auto key = std::pair(item.rule, at);
                if (const auto known = memo_.find(key); known != memo_.end()) return known->second;
                return memo_[key] = match(rules_[item.rule], at);
            }
            case SlowItem::Kind::sequence: {
                Ends ends{at};
                for (const SlowItem& part : item.parts) ends = after(ends, part);
                return ends;
            }
            case SlowItem::Kind::alternatives: {
                Ends all;
                for (const SlowItem& part : item.parts) all.merge(match(part, at));
                return all;
            }
            case SlowItem::Kind::repeat: {
                Ends all, ends{at};
                for (std::size_t n = 0; n <= (item.max == 99 ? text_.size() + item.min + 1 : item.max); ++n) {
                    if (n >= item.min) all.insert(ends.begin(), ends.end());
                    if (n < item.max) ends = after(ends, item.parts[0]);
                }
                return all;
            }
        }
        return {};
    }
    Ends after(const Ends& begins, const SlowItem& item) {
        Ends all;
        for (const std::size_t begin : begins) all.merge(match(item, begin));
        return all;
    }
    Ends literal(std::string_view wanted, std::size_t at) {
        const auto rest = text_.substr(at);
        if (rest.size() >= wanted.size()) return rest.starts_with(wanted) ? Ends{at + wanted.size()} : Ends{};
        if (wanted.starts_with(rest)) ran_out_ = true;
        return {};
    }
    Ends any_of(const SlowItem& item, std::size_t at) {
        Ends all;
        for (const std::string& one : item.characters) all.merge(literal(one, at));
        return all;
    }
    /// Every begin of a character leaves one that is not among the few members.
    Ends any_but(const SlowItem& item, std::size_t at) {
        const auto rest = text_.substr(at);
        if (rest.empty()) return ran_out_ = true, Ends{};
        const auto lead = static_cast<unsigned char>(rest[0]);
        const std::size_t n = lead < 0x80   ? 1
                              : lead < 0xC2 ? 0
                              : lead < 0xE0 ? 2
                              : lead < 0xF0 ? 3
                              : lead < 0xF5 ? 4
                                            : 0;
        if (n == 0) return {};
        for (std::size_t i = 1; i < std::min(n, rest.size()); ++i)
            if ((rest[i] & 0xC0) != 0x80) return {};
        if (rest.size() > 1) {  // no overlong forms, no surrogates, nothing above U+10FFFF (Unicode 15.0, table 3-7)
            const auto second = static_cast<unsigned char>(rest[1]);
            if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) || (lead == 0xF0 && second < 0x90) ||
                (lead == 0xF4 && second > 0x8F))
                return {};
        }
        if (rest.size() < n) return ran_out_ = true, Ends{};
        for (const std::string& one : item.characters)
            if (rest.starts_with(one)) return {};
        return {at + n};
    }

    const std::vector<SlowItem>& rules_;
    std::string_view text_;
    std::map<std::pair<std::size_t, std::size_t>, Ends> memo_;
    bool ran_out_ = false;
};

/// A grammar whose rules all end and none of which begins with itself.
class RandomGrammar {
public:
    explicit RandomGrammar(std::uint32_t seed) : random_(seed) {
        const std::size_t n = 1 + below(4);
        rules.resize(n);
        for (std::size_t r = 0; r < n; ++r) {
            rules[r].kind = SlowItem::Kind::alternatives;
            rules[r].parts.push_back(text());
            for (std::size_t i = 0, more = below(3); i < more; ++i) rules[r].parts.push_back(sequence(r, n, 0));
            gbnf += (r == 0 ? std::string("root") : "r" + std::to_string(r)) + " ::= " + print(rules[r], false) + "\n";
        }
    }
    std::vector<SlowItem> rules;
    std::string gbnf;

    static const std::vector<std::string>& alphabet() {
        static const std::vector<std::string> letters{"a", "b", "c", "é", "世", "\xF0\x9F\x98\x80", "\xF0\x9F\x98\x81"};
        return letters;
    }
    std::size_t below(std::size_t n) { return random_() % n; }

private:
    SlowItem text() {
        SlowItem out{SlowItem::Kind::text};
        for (std::size_t i = 0, n = 1 + below(3); i < n; ++i) out.text += alphabet()[below(7)];
        return out;
    }
    /// What stands behind a letter may be any rule; in front of it only later ones.
    SlowItem sequence(std::size_t rule, std::size_t n_rules, int depth) {
        SlowItem out{SlowItem::Kind::sequence};
        bool has_letter = false;
        for (std::size_t i = 0, n = below(4); i < n; ++i) {
            out.parts.push_back(item(rule, n_rules, depth, has_letter));
            const auto kind = out.parts.back().kind;
            has_letter = has_letter || kind == SlowItem::Kind::text || kind == SlowItem::Kind::set;
        }
        return out;
    }
    SlowItem item(std::size_t rule, std::size_t n_rules, int depth, bool has_letter) {
        switch (depth > 2 ? below(3) : below(6)) {
            case 0: return text();
            case 1: {
                SlowItem out{SlowItem::Kind::set};
                out.is_negated = below(3) == 0;
                for (std::size_t i = 0, n = 1 + below(3); i < n; ++i) out.characters.push_back(alphabet()[below(7)]);
                return out;
            }
            case 2: {
                const std::size_t first = has_letter ? 0 : rule + 1;
                if (first >= n_rules) return text();
                SlowItem out{SlowItem::Kind::rule};
                out.rule = first + below(n_rules - first);
                return out;
            }
            case 3: {
                SlowItem out{SlowItem::Kind::alternatives};
                for (std::size_t i = 0, n = 2 + below(2); i < n; ++i) {
                    SlowItem part = sequence(rule, n_rules, depth + 1);
                    out.parts.push_back(std::move(part));
                }
                return out;
            }
            default: {
                SlowItem out{SlowItem::Kind::repeat};
                out.parts.push_back(item(rule, n_rules, depth + 1, has_letter));
                constexpr std::pair<std::size_t, std::size_t> kCounts[] = {{0, 99}, {1, 99}, {0, 1}, {2, 3},
                                                                           {1, 1},  {2, 99}, {0, 2}};
                std::tie(out.min, out.max) = kCounts[below(7)];
                return out;
            }
        }
    }
    static std::string print(const SlowItem& item, bool closed) {
        std::string out;
        switch (item.kind) {
            case SlowItem::Kind::text: return '"' + item.text + '"';
            case SlowItem::Kind::set:
                out = item.is_negated ? "[^" : "[";
                for (const auto& one : item.characters) out += one;
                return out + "]";
            case SlowItem::Kind::rule: return item.rule == 0 ? "root" : "r" + std::to_string(item.rule);
            case SlowItem::Kind::sequence:
                if (item.parts.empty()) return "\"\"";  // a line that ends with "|" would go on
                for (const auto& part : item.parts) out += print(part, true) + " ";
                return closed ? "(" + out + ")" : out;
            case SlowItem::Kind::alternatives:
                for (std::size_t i = 0; i < item.parts.size(); ++i)
                    out += (i ? " | " : "") + print(item.parts[i], false);
                return closed ? "(" + out + ")" : out;
            case SlowItem::Kind::repeat:
                out = print(item.parts[0], true);
                if (item.parts[0].kind == SlowItem::Kind::repeat) out = "(" + out + ")";
                if (item.max == 99)
                    return out + (item.min == 0 ? "*" : item.min == 1 ? "+" : "{" + std::to_string(item.min) + ",}");
                if (item.min == 0 && item.max == 1) return out + "?";
                if (item.min == item.max) return out + "{" + std::to_string(item.min) + "}";
                return out + "{" + std::to_string(item.min) + "," + std::to_string(item.max) + "}";
        }
        return out;
    }
    std::mt19937 random_;
};

}  // namespace tinfer::test
