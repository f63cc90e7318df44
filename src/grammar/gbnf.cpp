// SPDX-License-Identifier: MIT
#include "grammar/gbnf.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "base/utf8.hpp"

namespace tinfer::grammar {
namespace {

constexpr int kMaxDepth = 200;
constexpr std::size_t kMaxRepetitions = 2000;  // product of nested counts

/// One item of a rule's right-hand side. The comments name the kinds that use a field.
struct Item {
    enum class Kind : std::uint8_t { text, set, rule, sequence, alternatives, repeat, token } kind;
    std::string text{};              // text
    CharSet set{};                   // set
    std::uint32_t index = 0;         // rule; token
    bool is_negated = false;         // token
    std::vector<Item> parts{};       // sequence, alternatives, repeat
    std::uint32_t min = 0, max = 0;  // repeat; max kNone: no limit
};

struct Rule {
    std::string name;
    bool is_defined = false;
    std::size_t place = 0;  // of its definition, or of its first use until it is defined
    Item body{Item::Kind::sequence};
};

class Parser {
public:
    Parser(std::string_view text, const TokenOfText& token_of) : text_(text), token_of_(token_of) {}

    void parse() {
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
        if (is_new) rules.push_back({found->first, false, begin});
        return found->second;
    }

    void rule() {
        const std::size_t begin = at_;
        const std::uint32_t number = name();
        skip(false);
        if (text_.substr(at_, 3) != "::=") refuse("'::=' is missing behind the name of a rule", at_);
        at_ += 3;
        skip(true);
        if (rules[number].is_defined)
            warnings.push_back(
                cat("rule '", escaped(rules[number].name), "' is defined again; the last definition wins"));
        rules[number].is_defined = true;
        rules[number].place = begin;
        Item body = alternatives(0, 1);
        rules[number].body = std::move(body);
        if (at_ < text_.size() && peek() != '\n' && peek() != '\r') refuse("a rule ends with its line", at_);
    }

    Item alternatives(int depth, std::size_t product) {
        if (depth > kMaxDepth) refuse(cat("more than ", kMaxDepth, " parentheses inside each other"), at_);
        Item all{Item::Kind::alternatives};
        all.parts.push_back(sequence(depth, product));
        while (take('|')) {
            skip(true);
            all.parts.push_back(sequence(depth, product));
        }
        return all.parts.size() == 1 ? std::move(all.parts[0]) : all;
    }

    Item sequence(int depth, std::size_t product) {
        Item all{Item::Kind::sequence};
        for (;;) {
            skip(depth > 0);
            const char c = peek();
            if (at_ >= text_.size() || c == '|' || c == ')' || c == '\n' || c == '\r') return all;
            const std::size_t begin = at_;
            Item one = item(depth, product);
            // A count follows its item, so the item is parsed again once the count is known.
            const std::size_t end = at_;
            skip(depth > 0);
            std::uint32_t min = 1, max = 1;
            const std::size_t place = at_;
            if (take('*')) min = 0, max = kNone;
            else if (take('+')) max = kNone;
            else if (take('?')) min = 0;
            else if (peek() == '{') braces(min, max);
            else {
                at_ = end;
                all.parts.push_back(std::move(one));
                continue;
            }
            const std::size_t count = max == kNone ? std::max(min, 1u) : max;
            if (product * std::max<std::size_t>(count, 1) > kMaxRepetitions)
                refuse(cat("too many repetitions: ", product, " times ", count, ", the limit is ", kMaxRepetitions),
                       place);
            if (count > 1) {  // again, so that nested counts are multiplied
                const std::size_t behind = at_;
                at_ = begin;
                one = item(depth, product * count);
                at_ = behind;
            }
            Item repeat{Item::Kind::repeat};
            repeat.min = min;
            repeat.max = max;
            repeat.parts.push_back(std::move(one));
            all.parts.push_back(std::move(repeat));
        }
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

    Item item(int depth, std::size_t product) {
        const std::size_t begin = at_;
        if (take('"')) {
            Item text{Item::Kind::text};
            while (peek() != '"') {
                if (at_ >= text_.size() || peek() == '\n' || peek() == '\r') refuse("a literal has no end", begin);
                append_code_point(text.text, peek() == '\\' ? escape(false) : character());
            }
            ++at_;
            return text;
        }
        if (take('[')) return set(begin);
        if (take('.')) return Item{Item::Kind::set, {}, CharSet{{0, kMaxCodePoint}}};
        if (take('(')) {
            skip(true);
            Item inside = alternatives(depth + 1, product);
            skip(true);
            if (!take(')')) refuse("')' is missing", at_);
            return inside;
        }
        const bool is_negated = peek() == '!' && peek(1) == '<';
        if (is_negated) ++at_;
        if (peek() == '<') return token(is_negated, begin);
        if (!is_name(peek()))
            refuse(cat("'", escaped(text_.substr(at_, std::max<std::size_t>(utf8_length(text_.substr(at_)), 1))),
                       "' begins no item"),
                   begin);
        Item reference{Item::Kind::rule};
        reference.index = name();
        return reference;
    }

    Item set(std::size_t begin) {
        Item out{Item::Kind::set};
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
        out.set = CharSet::of(std::move(ranges));
        if (is_negated) out.set = out.set.inverted();
        return out;
    }

    Item token(bool is_negated, std::size_t begin) {
        Item out{Item::Kind::token};
        out.is_negated = is_negated;
        const std::size_t first = at_++;
        if (take('[')) {
            out.index = number();
            if (!take(']') || !take('>')) refuse("']>' is missing behind the number of a token", at_);
            return out;
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
        out.index = *found;
        return out;
    }

    std::string_view text_;
    const TokenOfText& token_of_;
    std::size_t at_ = 0;
    std::map<std::string, std::uint32_t, std::less<>> numbers_;
    std::uint32_t root_ = 0;
};

/// Finds the rules that can match the empty text and rejects left recursion.
class LeftRecursion {
public:
    explicit LeftRecursion(const Parser& parser) : parser_(parser), nullable_(parser.rules.size()) {
        for (bool changes = true; changes;) {
            changes = false;
            for (std::size_t r = 0; r < nullable_.size(); ++r)
                if (!nullable_[r] && is_empty(parser.rules[r].body)) nullable_[r] = 1, changes = true;
        }
    }
    void refuse_any() const {
        const std::size_t n = parser_.rules.size();
        std::vector<std::vector<std::uint32_t>> firsts(n);
        for (std::size_t r = 0; r < n; ++r) collect(parser_.rules[r].body, firsts[r]);
        std::vector<char> color(n);
        for (std::uint32_t r = 0; r < n; ++r) {
            if (color[r] != 0) continue;
            std::vector<std::pair<std::uint32_t, std::size_t>> path{{r, 0}};
            color[r] = 1;
            while (!path.empty()) {
                auto& [at, k] = path.back();
                if (k == firsts[at].size()) {
                    color[at] = 2;
                    path.pop_back();
                    continue;
                }
                const std::uint32_t to = firsts[at][k++];
                if (color[to] == 1) {
                    std::string chain;
                    bool inside = false;
                    for (const auto& step : path) {
                        inside = inside || step.first == to;
                        if (inside) chain += escaped(parser_.rules[step.first].name) + " -> ";
                    }
                    const Rule& rule = parser_.rules[to];
                    parser_.refuse(
                        cat("rule '", escaped(rule.name), "' is left-recursive: ", chain, escaped(rule.name)),
                        rule.place);
                }
                if (color[to] == 0) color[to] = 1, path.emplace_back(to, 0);
            }
        }
    }

    /// Whether the item can match the empty text.
    [[nodiscard]] bool is_empty(const Item& item) const {
        const auto empty = [this](const Item& part) { return is_empty(part); };
        switch (item.kind) {
            case Item::Kind::text: return item.text.empty();
            case Item::Kind::rule: return nullable_[item.index] != 0;
            case Item::Kind::sequence: return std::ranges::all_of(item.parts, empty);
            case Item::Kind::alternatives: return std::ranges::any_of(item.parts, empty);
            case Item::Kind::repeat: return item.min == 0 || is_empty(item.parts[0]);
            default: return false;
        }
    }

private:
    void collect(const Item& item, std::vector<std::uint32_t>& out) const {
        if (item.kind == Item::Kind::rule) out.push_back(item.index);
        for (const Item& part : item.parts) {
            collect(part, out);
            if (item.kind == Item::Kind::sequence && !is_empty(part)) return;
        }
    }

    const Parser& parser_;
    std::vector<char> nullable_;
};

class Compiler {
public:
    Compiler(const Parser& parser, const LeftRecursion& rules, Program& program, std::size_t max_nodes)
        : parser_(parser), rules_(rules), program_(program), max_nodes_(max_nodes) {}
    void run() {
        std::vector<std::uint32_t> entries;
        for (const Rule& rule : parser_.rules) {
            entries.push_back(compile(rule.body, program_.add({NodeKind::ret})));
            program_.rule_ends.emplace_back(static_cast<std::uint32_t>(program_.nodes.size()), rule.name);
        }
        for (const std::uint32_t call : calls_) program_.nodes[call].arg = entries[program_.nodes[call].arg];
        program_.start = entries[parser_.root()];
        program_.n_rules = entries.size();
    }

private:
    std::uint32_t compile(const Item& item, std::uint32_t next) {
        if (program_.nodes.size() > max_nodes_)
            fail(ErrorCode::limit_exceeded, cat("grammar: more than ", max_nodes_, " nodes"));
        switch (item.kind) {
            case Item::Kind::text: return program_.add_text(item.text, next);
            case Item::Kind::set: return program_.add_set(item.set, next);
            case Item::Kind::rule: {
                calls_.push_back(program_.add_call(item.index, next));
                return calls_.back();
            }
            case Item::Kind::sequence:
                for (std::size_t i = item.parts.size(); i-- > 0;) next = compile(item.parts[i], next);
                return next;
            case Item::Kind::alternatives: {
                std::vector<std::uint32_t> to;
                for (const Item& part : item.parts) to.push_back(compile(part, next));
                return program_.add_split(to);
            }
            case Item::Kind::repeat: return repeat(item, next);
            case Item::Kind::token: {
                program_.has_tokens = true;
                Node node{NodeKind::token, next};
                node.arg = item.index;
                node.min = item.is_negated ? 1 : 0;
                return program_.add(node);
            }
        }
        return next;
    }
    std::uint32_t repeat(const Item& item, std::uint32_t next) {
        const Item& body = item.parts[0];
        // An item that can be empty needs no lower bound: counting empty matches would only add ambiguity.
        const std::uint32_t min = rules_.is_empty(body) ? 0 : item.min;
        if (item.max == kNone && min <= 1) {
            Node node{NodeKind::split};
            node.first = static_cast<std::uint32_t>(program_.targets.size());
            node.count = 2;
            program_.targets.resize(program_.targets.size() + 2);
            const std::uint32_t loop = program_.add(node);
            const std::uint32_t entry = compile(body, loop);
            program_.targets[node.first] = entry;
            program_.targets[node.first + 1] = next;
            return min == 0 ? loop : entry;
        }
        if (min == 0 && item.max == 1) return program_.add_split({compile(body, next), next});
        return program_.add_repeat(compile(body, program_.add({NodeKind::ret})), min, item.max, next);
    }

    const Parser& parser_;
    const LeftRecursion& rules_;
    Program& program_;
    std::size_t max_nodes_;
    std::vector<std::uint32_t> calls_;
};

}  // namespace

std::shared_ptr<const Program> parse_gbnf(std::string_view text, const TokenOfText& token_of, std::size_t max_nodes) {
    Parser parser(text, token_of);
    parser.parse();
    const LeftRecursion rules(parser);
    rules.refuse_any();
    auto program = std::make_shared<Program>();
    Compiler(parser, rules, *program, max_nodes).run();
    program->text = std::string(text);
    program->warnings = parser.warnings;
    if (!prune(*program))
        parser.refuse("rule 'root' accepts no text that has an end", parser.rules[parser.root()].place);
    return program;
}

}  // namespace tinfer::grammar
