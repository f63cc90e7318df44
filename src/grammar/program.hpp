// SPDX-License-Identifier: MIT
// A compiled grammar: the nodes of a pushdown automaton over bytes, immutable and shared by all matchers. A rule is a
// chain of nodes from its entry to a `ret`. JSON terminals (strings, keys, numbers, white space) are single nodes that
// keep their progress in the stack frame, so that lengths are counted instead of unrolled.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/dfa.hpp"

namespace tinfer::grammar {

inline constexpr std::uint32_t kNone = 0xFFFFFFFF;

enum class NodeKind : std::uint8_t {
    bytes,   ///< one byte by edges [first, first + count)
    split,   ///< continues at each of targets [first, first + count)
    call,    ///< rule at `arg`, then `next`; with min = 1 the rule is a JSON document in a text
    ret,     ///< end of a rule
    repeat,  ///< rule at `arg`, min to max times, then `next`
    token,   ///< the token `arg`; with min = 1 any token but that
    lexeme,  ///< bytes that dfas[arg] accepts
    string,  ///< a JSON string after its opening quote, strings[arg]
    object,  ///< members of an object, objects[arg]; `next` is the closing brace
    key,     ///< a key of objects[arg] after its opening quote; its frame lies on the object's
    choice,  ///< min to max of the rules of choices[arg], each at most once, in any order; then `next`
};

struct ByteEdge {
    std::uint8_t lo, hi;
    std::uint32_t next;
};

struct Node {
    NodeKind kind;
    std::uint32_t next = kNone;
    std::uint32_t first = 0, count = 0;
    std::uint32_t arg = 0, min = 0, max = 0;
};

/// The content of a string: a DFA over its characters (null: any), and bounds on their number.
struct StringTerminal {
    static constexpr std::uint32_t kNoLimit = 0xFFFFFFFF;
    std::shared_ptr<const Dfa> dfa;
    DfaDistances distances;  ///< of the DFA
    std::uint32_t min = 0, max = kNoLimit;
    std::vector<char> takes_all{};  ///< {states}: every character leads back to the state
};

/// Members of an object: first the declared properties in order, each at most once, then others.
struct ObjectTerminal {
    struct TrieNode {
        std::map<std::uint32_t, std::uint32_t> next;  ///< by code point
        std::uint32_t property = kNone;               ///< property whose name ends here
        std::vector<std::uint32_t> reachable;         ///< properties whose names end here or below, ascending
    };
    std::vector<TrieNode> trie{1};
    std::vector<char> is_required;                           ///< {properties}
    std::vector<std::uint32_t> allowed_from, required_from;  ///< {properties + 1}: counts from this one on
    std::vector<std::uint32_t> next_required;  ///< {properties + 1}: the first required one from here on, or the count
    std::vector<std::uint32_t> value_entries;  ///< {properties}: rule of ": value"; kNone: the name is forbidden
    std::shared_ptr<const Dfa> other_names;    ///< label l: value rule other_entries[l − 1]; null: no others
    std::vector<std::uint32_t> other_entries;
    std::uint32_t min = 0, max = kNone;             ///< number of members
    std::uint32_t first_entry = 0, rest_entry = 0;  ///< nodes before a key: a quote; a comma and a quote

    /// Trie node after a character, kNone if no declared name continues with it.
    [[nodiscard]] std::uint32_t name_after(std::uint32_t node, std::uint32_t c) const noexcept {
        if (node == kNone) return kNone;
        const auto found = trie[node].next.find(c);
        return found == trie[node].next.end() ? kNone : found->second;
    }
};

/// Values that may be used once each, with their rules; a frame has a bit for each value that was used.
struct ChoiceTerminal {
    static constexpr std::size_t kMax = 64;
    std::vector<std::uint32_t> first, rest;  ///< rule as the first value, and as a later one; kNone: not allowed
};

class SchemaWork;

struct Program {
    std::vector<Node> nodes;
    std::vector<ByteEdge> edges;
    std::vector<std::uint32_t> targets;
    std::vector<Dfa> dfas;
    std::vector<StringTerminal> strings;
    std::vector<ObjectTerminal> objects;
    std::vector<ChoiceTerminal> choices;
    std::uint32_t start = 0;
    std::size_t n_rules = 0;
    std::vector<std::pair<std::uint32_t, std::string>>
        rule_ends{};  ///< rules of a grammar: index after the last node, name
    bool has_tokens = false;
    bool has_witnesses = false;         ///< objects have members whose names only a DFA bounds, beside their terminal
    std::string text;                   ///< the grammar in GBNF, if it was given so
    std::vector<std::string> warnings;  ///< non-fatal findings
    std::size_t max_nodes =
        kNone - 1;  ///< more nodes, those of the tries of names counted, are refused as they are made
    std::size_t n_trie_nodes = 0;
    SchemaWork* work = nullptr;  ///< the budget that schemas of this program share while they are compiled

    /// Name of the rule that a node belongs to; empty where rules have no names.
    [[nodiscard]] std::string_view rule_of(std::uint32_t node) const noexcept;

    /// Throws limit_exceeded beyond max_nodes.
    std::uint32_t add(const Node& node) {
        count_nodes(1);
        nodes.push_back(node);
        return static_cast<std::uint32_t>(nodes.size() - 1);
    }
    /// Gives back what the lists have room for and do not need.
    void shrink();
    [[nodiscard]] std::size_t memory() const noexcept;
    void count_nodes(std::size_t n_more) const {
        if (nodes.size() + n_trie_nodes + n_more > max_nodes) refuse_nodes();
    }
    std::uint32_t add_split(const std::vector<std::uint32_t>& to) {
        if (to.size() == 1) return to[0];
        const std::uint32_t node = add({NodeKind::split});
        set_split(node, to);
        return node;
    }
    /// Sets the targets of a split that was added without any, so that rules can refer to it first.
    void set_split(std::uint32_t node, const std::vector<std::uint32_t>& to) {
        nodes[node].first = static_cast<std::uint32_t>(targets.size());
        nodes[node].count = static_cast<std::uint32_t>(to.size());
        targets.insert(targets.end(), to.begin(), to.end());
    }
    /// The bytes of a text, then `next`.
    std::uint32_t add_text(std::string_view bytes, std::uint32_t next);
    /// One code point of a set, then `next`.
    std::uint32_t add_set(const CharSet& set, std::uint32_t next);
    std::uint32_t add_call(std::uint32_t entry, std::uint32_t next) {
        Node node{NodeKind::call, next};
        node.arg = entry;
        return add(node);
    }
    /// A JSON document of its own in a text: no object in it gives a name twice.
    std::uint32_t add_document(std::uint32_t entry, std::uint32_t next) {
        const std::uint32_t call = add_call(entry, next);
        nodes[call].min = 1;
        return call;
    }
    std::uint32_t add_repeat(std::uint32_t entry, std::uint32_t min, std::uint32_t max, std::uint32_t next) {
        Node node{NodeKind::repeat, next};
        node.arg = entry;
        node.min = min;
        node.max = max;
        return add(node);
    }

private:
    [[noreturn]] void refuse_nodes() const;
};

}  // namespace tinfer::grammar
