// SPDX-License-Identifier: MIT
#include "grammar/gbnf.hpp"

#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "grammar/gbnf_parser.hpp"

namespace tinfer::grammar {
namespace {

using gbnf::Item;
using gbnf::Parser;
using gbnf::Rule;

/// Finds the rules that can match the empty text and rejects left recursion.
class LeftRecursion {
public:
    explicit LeftRecursion(const Parser& parser) : parser_(parser), is_empty_(parser.items.size()) {
        const auto& items = parser.items;
        const std::size_t n_rules = parser.rules.size();
        std::vector<std::uint32_t> rule_of(items.size(), kNone);  // of a body
        std::vector<std::vector<std::uint32_t>> uses(n_rules);    // items that refer to a rule
        for (std::uint32_t r = 0; r < n_rules; ++r) rule_of[parser.rules[r].body] = r;
        std::vector<std::uint32_t> n_full(items.size());  // parts of a sequence that may not be empty, as far as known
        std::vector<std::uint32_t> work;
        const auto mark = [&](std::uint32_t item) {
            if (is_empty_[item] == 0) is_empty_[item] = 1, work.push_back(item);
        };
        for (std::uint32_t i = 0; i < items.size(); ++i) {
            const Item& item = items[i];
            n_full[i] = item.count;
            if (item.kind == Item::Kind::rule) uses[item.first].push_back(i);
            const bool has_none =
                (item.kind == Item::Kind::text || item.kind == Item::Kind::sequence) && item.count == 0;
            if (has_none || (item.kind == Item::Kind::repeat && item.min == 0)) mark(i);
        }
        while (!work.empty()) {
            const std::uint32_t item = work.back(), parent = items[item].parent;
            work.pop_back();
            if (parent != kNone) {
                if (items[parent].kind != Item::Kind::sequence || --n_full[parent] == 0) mark(parent);
            } else if (rule_of[item] != kNone) {
                for (const std::uint32_t use : uses[rule_of[item]]) mark(use);
            }
        }
    }
    void refuse_any() const {
        const std::size_t n = parser_.rules.size();
        std::vector<std::vector<std::uint32_t>> firsts(n);
        for (std::size_t r = 0; r < n; ++r) firsts[r] = first_rules(parser_.rules[r].body);
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
                        if (inside && chain.size() < kMaxChain)
                            chain += escaped(parser_.rules[step.first].name) + " -> ";
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
    [[nodiscard]] bool is_empty(std::uint32_t item) const noexcept { return is_empty_[item] != 0; }

private:
    static constexpr std::size_t kMaxChain = 800;  // bytes of the names in a message

    /// The rules that a text of the item can begin with.
    [[nodiscard]] std::vector<std::uint32_t> first_rules(std::uint32_t body) const {
        std::vector<std::uint32_t> out, work{body};
        while (!work.empty()) {
            const Item& item = parser_.items[work.back()];
            work.pop_back();
            if (item.kind == Item::Kind::rule) out.push_back(item.first);
            if (item.kind != Item::Kind::sequence && item.kind != Item::Kind::alternatives &&
                item.kind != Item::Kind::repeat)
                continue;
            std::uint32_t n = item.count;
            if (item.kind == Item::Kind::sequence)
                for (n = 0; n < item.count;)
                    if (!is_empty(parser_.parts[item.first + n++])) break;
            while (n-- > 0) work.push_back(parser_.parts[item.first + n]);
        }
        return out;
    }

    const Parser& parser_;
    std::vector<char> is_empty_;  // {items}
};

class Compiler {
public:
    Compiler(Parser& parser, const LeftRecursion& rules, Program& program)
        : parser_(parser), rules_(rules), program_(program) {}
    void run() {
        std::vector<std::uint32_t> entries;
        for (const Rule& rule : parser_.rules) {
            const std::size_t n_nodes = program_.nodes.size();
            entries.push_back(compile(rule.body, program_.add({NodeKind::ret})));
            program_.rule_ends.emplace_back(static_cast<std::uint32_t>(program_.nodes.size()), rule.name);
            parser_.spend(2 * sizeof(Node) * (program_.nodes.size() - n_nodes));
        }
        for (const std::uint32_t call : calls_) program_.nodes[call].arg = entries[program_.nodes[call].arg];
        program_.start = entries[parser_.root()];
        program_.n_rules = entries.size();
    }

private:
    /// An item that is being compiled: how many of its parts are, and the node behind the next of them.
    struct Open {
        std::uint32_t item, next, behind;
        std::uint32_t n_done = 0;
    };

    /// The first node of the item, with `next` behind it.
    std::uint32_t compile(std::uint32_t body, std::uint32_t next) {
        open_.assign(1, {body, next, next});
        std::uint32_t made = 0;  // the part that was compiled last
        while (!open_.empty()) {
            if (const auto part = next_part(open_.back(), made)) {
                open_.push_back({*part, open_.back().behind, open_.back().behind});
                continue;
            }
            const Open done = open_.back();
            open_.pop_back();
            made = finish(done, made);
        }
        return made;
    }
    /// The next part to compile, after `made`; nullopt where there is none.
    std::optional<std::uint32_t> next_part(Open& open, std::uint32_t made) {
        const Item& item = parser_.items[open.item];
        const bool has_parts = item.kind == Item::Kind::sequence || item.kind == Item::Kind::alternatives ||
                               item.kind == Item::Kind::repeat;
        if (!has_parts) return std::nullopt;
        if (item.kind == Item::Kind::sequence && open.n_done > 0) open.behind = made;
        if (item.kind == Item::Kind::alternatives && open.n_done > 0) targets_.push_back(made);
        if (item.kind == Item::Kind::repeat && open.n_done == 0) open.behind = begin_repeat(open);
        if (open.n_done == item.count) return std::nullopt;
        const std::uint32_t n = open.n_done++;
        // A sequence is compiled from its end.
        return parser_.parts[item.first + (item.kind == Item::Kind::sequence ? item.count - 1 - n : n)];
    }
    std::uint32_t finish(const Open& done, std::uint32_t made) {
        const Item& item = parser_.items[done.item];
        switch (item.kind) {
            case Item::Kind::text:
                return program_.add_text(std::string_view(parser_.texts).substr(item.first, item.count), done.next);
            case Item::Kind::set: return program_.add_set(parser_.sets[item.first], done.next);
            case Item::Kind::rule: calls_.push_back(program_.add_call(item.first, done.next)); return calls_.back();
            case Item::Kind::sequence: return done.behind;
            case Item::Kind::alternatives: {
                const auto first = targets_.end() - static_cast<std::ptrdiff_t>(item.count);
                const std::vector<std::uint32_t> to(first, targets_.end());
                targets_.erase(first, targets_.end());
                return program_.add_split(to);
            }
            case Item::Kind::repeat: return end_repeat(item, done, made);
            case Item::Kind::token: {
                program_.has_tokens = true;
                Node node{NodeKind::token, done.next};
                node.arg = item.first;
                node.min = item.is_negated ? 1 : 0;
                return program_.add(node);
            }
        }
        return done.next;
    }

    /// An item that can be empty needs no lower bound: counting empty matches would only add ambiguity.
    [[nodiscard]] std::uint32_t least(const Item& repeat) const {
        return rules_.is_empty(parser_.parts[repeat.first]) ? 0 : repeat.min;
    }
    /// The node behind one repetition.
    std::uint32_t begin_repeat(const Open& open) {
        const Item& item = parser_.items[open.item];
        if (item.max == kNone && least(item) <= 1) {
            Node node{NodeKind::split};
            node.first = static_cast<std::uint32_t>(program_.targets.size());
            node.count = 2;
            program_.targets.resize(program_.targets.size() + 2);
            return program_.add(node);
        }
        if (least(item) == 0 && item.max == 1) return open.next;
        return program_.add({NodeKind::ret});
    }
    std::uint32_t end_repeat(const Item& item, const Open& done, std::uint32_t entry) {
        const std::uint32_t min = least(item);
        if (item.max == kNone && min <= 1) {
            const std::uint32_t first = program_.nodes[done.behind].first;
            program_.targets[first] = entry;
            program_.targets[first + 1] = done.next;
            return min == 0 ? done.behind : entry;
        }
        if (min == 0 && item.max == 1) return program_.add_split({entry, done.next});
        return program_.add_repeat(entry, min, item.max, done.next);
    }

    Parser& parser_;
    const LeftRecursion& rules_;
    Program& program_;
    std::vector<std::uint32_t> calls_;
    std::vector<Open> open_;
    std::vector<std::uint32_t> targets_;  // of alternatives that are being compiled
};

}  // namespace

std::shared_ptr<const Program> parse_gbnf(std::string_view text, const TokenOfText& token_of, std::size_t max_nodes,
                                          SchemaWork* work) {
    Parser parser(text, token_of, max_nodes, work);
    parser.parse();
    const LeftRecursion rules(parser);
    rules.refuse_any();
    auto program = std::make_shared<Program>();
    program->max_nodes = max_nodes;
    Compiler(parser, rules, *program).run();
    program->text = std::string(text);
    program->warnings = parser.warnings;
    if (!prune(*program))
        parser.refuse("rule 'root' accepts no text that has an end", parser.rules[parser.root()].place);
    program->shrink();
    return program;
}

}  // namespace tinfer::grammar
