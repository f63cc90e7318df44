// SPDX-License-Identifier: MIT
#include "grammar/string_mask.hpp"

#include <algorithm>
#include <tuple>

namespace tinfer::grammar {
namespace {

constexpr std::size_t kFewClosers = 8;
constexpr std::uint32_t kLargeSubtree = 4;  // tokens; smaller ones are walked

void allow(std::span<std::uint64_t> bits, std::uint32_t token) noexcept { bits[token / 64] |= 1ull << (token % 64); }

}  // namespace

/// Progress in a string with a DFA: its state and the number of characters.
class StringMask::OfString {
public:
    OfString(const StringTerminal& string, StringClasses& classes) : string_(string), classes_(classes) {}

    [[nodiscard]] bool step(Place& at, std::uint32_t symbol) const noexcept {
        at.state = classes_.step(at.state, symbol);
        if (at.state == Dfa::kDead) return false;
        at.count = Machine::count_after(string_, at.count);
        return Machine::string_lives(string_, at.state, at.count);
    }
    /// Whether every text below the node is alive, and all of them are equivalent at a closing quote.
    [[nodiscard]] bool is_free(const Place& at, const StringTrie::Node& node) const {
        return loops(at, node) && !is_short(at);
    }
    /// Whether every text below the node is alive.
    [[nodiscard]] bool is_alive(const Place& at, const StringTrie::Node& node) const {
        if (loops(at, node)) return !is_short(at) || string_.distances.longest[at.state] == DfaDistances::kEndless;
        if (is_short(at)) return false;
        const bool is_unbounded = string_.max == StringTerminal::kNoLimit || at.count == Machine::kFarInside;
        if (is_unbounded && classes_.stays_alive(at.state, node)) return true;
        return node.height <= StringClasses::kLongest && (node.kinds & ~classes_.roams(at.state)) == 0 &&
               has_room(at, node, classes_.needed(at.state));
    }
    [[nodiscard]] bool begins(const Place& at, const CharStep& begun) const noexcept {
        return Machine::string_begins(string_, at.state, at.count, begun);
    }
    [[nodiscard]] std::uint32_t group(const Place& at) const noexcept {
        return Machine::string_ends(string_, at.state, at.count) ? 0 : kNone;
    }

private:
    /// Whether every text below the node leads back to the state and leaves room to finish the string.
    [[nodiscard]] bool loops(const Place& at, const StringTrie::Node& node) const {
        return (node.kinds & ~classes_.loops(at.state)) == 0 &&
               has_room(at, node, string_.distances.shortest[at.state]);
    }
    [[nodiscard]] bool is_short(const Place& at) const noexcept {
        return at.count == Machine::kFarBelow || (at.count != Machine::kFarInside && at.count < string_.min);
    }
    [[nodiscard]] bool has_room(const Place& at, const StringTrie::Node& node, std::uint32_t needed) const noexcept {
        if (at.count == Machine::kFarInside || at.count == Machine::kFarBelow) return true;
        return string_.max == StringTerminal::kNoLimit || std::uint64_t{at.count} + node.height + needed <= string_.max;
    }

    const StringTerminal& string_;
    StringClasses& classes_;
};

/// Progress in a key: the node of the declared names and the DFA state of other names.
class StringMask::OfKey {
public:
    /// For an object whose next member may have an undeclared name.
    OfKey(const ObjectTerminal& object, const Frame& frame, StringClasses& classes, StringMask& mask)
        : object_(object), frame_(frame), classes_(classes), mask_(mask) {}

    [[nodiscard]] bool step(Place& at, std::uint32_t symbol) const noexcept {
        if (at.count != kNone) at.count = object_.name_after(at.count, mask_.trie_.symbols()[symbol]);
        if (at.state != Dfa::kDead) at.state = classes_.step(at.state, symbol);
        return at.state != Dfa::kDead || Machine::key_lives(object_, frame_, at.count, at.state);
    }
    [[nodiscard]] bool is_free(const Place& at, const StringTrie::Node& node) const {
        return at.count == kNone && at.state != Dfa::kDead && (node.kinds & ~classes_.loops(at.state)) == 0;
    }
    [[nodiscard]] bool is_alive(const Place& at, const StringTrie::Node& node) const {
        return at.state != Dfa::kDead &&
               (classes_.stays_alive(at.state, node) ||
                (node.height <= StringClasses::kLongest && (node.kinds & ~classes_.roams(at.state)) == 0));
    }
    [[nodiscard]] bool begins(const Place& at, const CharStep& begun) const noexcept {
        return Machine::key_begins(object_, frame_, at.count, at.state, begun);
    }
    [[nodiscard]] std::uint32_t group(const Place& at) const {
        const Machine::KeyEnd end = Machine::key_end(object_, frame_, at.count, at.state);
        if (end.entry == kNone) return kNone;
        const auto known = std::ranges::find(mask_.groups_, end) - mask_.groups_.begin();
        if (static_cast<std::size_t>(known) == mask_.groups_.size()) mask_.groups_.push_back(end);
        return static_cast<std::uint32_t>(known);
    }

private:
    const ObjectTerminal& object_;
    Frame frame_;
    StringClasses& classes_;
    StringMask& mask_;
};

StringMask::StringMask(const TokenTrie& trie) : vocabulary_(trie), trie_(trie.in_string()) {
    path_.resize(trie.max_piece() + 1);
    ends_.resize(trie.max_piece() + 1);
    rest_path_.resize(trie.max_piece() + 1);
    rest_ends_.resize(trie.max_piece() + 1);
    follows_.resize(trie_.rests().size() + 1);
}

void StringMask::add(Machine& machine, const Machine::InString& at, std::span<std::uint64_t> bits) {
    if (machine.program().nodes[at.frame.node].kind == NodeKind::string) add_string(machine, at, bits);
    else add_key(machine, at, bits);
}

StringClasses& StringMask::classes(const Dfa& dfa, std::span<const std::uint32_t> shortest) {
    auto found = std::ranges::find(classes_, &dfa, &StringClasses::dfa);
    if (found == classes_.end()) {
        found = std::ranges::min_element(classes_, {}, &StringClasses::last_use);
        found->set(dfa, shortest, trie_);
    }
    found->last_use = ++n_uses_;
    return *found;
}

/// Walks the character trie in depth-first order. Subtrees that are alive as a whole are allowed at once.
template <class Inside>
void StringMask::walk(Inside& inside, Place start, std::span<std::uint64_t> bits) {
    const auto nodes = trie_.nodes();
    const std::uint32_t* const tokens = trie_.tokens().data();
    const auto close = [&](std::uint32_t first, std::uint32_t last, const Place& at) {
        if (first == last) return;
        const std::uint32_t group = inside.group(at);
        for (std::uint32_t k = first; group != kNone && k < last; ++k) closings_.push_back({k, group});
    };
    const auto end_here = [&](std::uint32_t i, const Place& at) {
        const StringTrie::Node &node = nodes[i], &next = nodes[i + 1];
        for (std::uint32_t k = node.token; k < node.partial; ++k) allow(bits, tokens[k]);
        for (std::uint32_t k = node.partial; k < next.token; ++k)
            if (inside.begins(at, trie_.begun(k))) allow(bits, tokens[k]);
        close(node.closer, next.closer, at);
    };
    closings_.clear();
    groups_.clear();
    std::size_t depth = 0;
    path_[0] = start;
    ends_[0] = nodes[0].end;
    end_here(0, start);
    for (std::uint32_t i = 1; i < nodes[0].end;) {
        const StringTrie::Node& node = nodes[i];
        while (i >= ends_[depth]) --depth;
        Place to = path_[depth];
        if (!inside.step(to, node.symbol)) {
            i = node.end;
            continue;
        }
        const StringTrie::Node& behind = nodes[node.end];
        const bool is_large = behind.token - node.token >= kLargeSubtree;
        const bool is_free = is_large && inside.is_free(to, node);
        if (is_free || (is_large && node.closer == behind.closer && inside.is_alive(to, node))) {
            for (std::uint32_t k = node.token; k < behind.token; ++k) allow(bits, tokens[k]);
            close(node.closer, behind.closer, to);
            i = node.end;
            continue;
        }
        end_here(i, to);
        ++i;
        ++depth;
        path_[depth] = to;
        ends_[depth] = node.end;
    }
}

/// Finds the rests that may follow the quote, into follows_.
void StringMask::follow(Machine& machine, Machine::State behind) {
    const auto nodes = trie_.rests();
    std::ranges::fill(follows_, 0);
    follows_[0] = 1;
    std::size_t depth = 0;
    rest_path_[0] = behind;
    rest_ends_[0] = static_cast<std::uint32_t>(nodes.size());
    for (std::uint32_t i = 0; i < nodes.size();) {
        while (i >= rest_ends_[depth]) --depth;
        const Machine::State to = machine.step(rest_path_[depth], nodes[i].byte);
        if (to == Machine::kDead) {
            i = nodes[i].end;
            continue;
        }
        follows_[i + 1] = 1;
        ++depth;
        rest_path_[depth] = to;
        rest_ends_[depth] = nodes[i].end;
        ++i;
    }
}

void StringMask::add_closers(Machine& machine, Machine::State behind, std::span<const Closing> closers,
                             std::span<std::uint64_t> bits) {
    const bool are_few = closers.size() <= kFewClosers;
    if (!are_few) follow(machine, behind);
    for (const Closing& closing : closers) {
        const StringTrie::Closer& closer = trie_.closers()[closing.closer];
        bool is_allowed = !are_few && follows_[closer.rest] != 0;
        if (are_few) {
            Machine::State state = behind;
            for (const char byte : vocabulary_.piece(closer.token).substr(closer.offset))
                if (state != Machine::kDead) state = machine.step(state, static_cast<std::uint8_t>(byte));
            is_allowed = state != Machine::kDead;
        }
        if (is_allowed) allow(bits, closer.token);
    }
}

void StringMask::add_string(Machine& machine, const Machine::InString& at, std::span<std::uint64_t> bits) {
    const StringTerminal& string = machine.program().strings[machine.program().nodes[at.frame.node].arg];
    const std::uint32_t count = at.frame.a, state = at.frame.b;
    if (string.dfa != nullptr && string.takes_all[state] == 0) {
        OfString inside(string, classes(*string.dfa, string.distances.shortest));
        walk(inside, {state, count}, bits);
        if (!closings_.empty()) add_closers(machine, machine.close_string(at), closings_, bits);
        return;
    }
    const bool is_far = count == Machine::kFarBelow || count == Machine::kFarInside;
    const bool is_bounded = !is_far && string.max != StringTerminal::kNoLimit;
    trie_.add_inside(is_bounded ? string.max - count : StringTrie::kAnyNumber, bits);
    if (count == Machine::kFarBelow) return;
    follow(machine, machine.close_string(at));
    for (const StringTrie::Closer& closer : trie_.closers())
        if (follows_[closer.rest] != 0 && (is_far || count + closer.characters >= string.min) &&
            (!is_bounded || closer.characters <= string.max - count))
            allow(bits, closer.token);
}

void StringMask::add_key(Machine& machine, const Machine::InString& at, std::span<std::uint64_t> bits) {
    const ObjectTerminal& object = machine.program().objects[machine.program().nodes[at.frame.node].arg];
    const bool allows_others = object.other_names != nullptr && at.frame.b != Dfa::kDead &&
                               object.next_required[at.below.a] == object.is_required.size();
    if (!allows_others) return add_declared_key(machine, at, bits);
    StringClasses& others = classes(*object.other_names, {});
    if (others.takes_all(at.frame.b)) return add_free_key(machine, at, bits);
    OfKey inside(object, at.below, others, *this);
    walk(inside, {at.frame.b, at.frame.a == Machine::kLeftNames ? kNone : at.frame.a}, bits);
    add_groups(machine, at, bits);
}

/// Adds the closers of a key, group by group of closings_.
void StringMask::add_groups(Machine& machine, const Machine::InString& at, std::span<std::uint64_t> bits) {
    std::ranges::sort(closings_, {}, &Closing::group);
    for (std::size_t i = 0, last = 0; i < closings_.size(); i = last) {
        while (last < closings_.size() && closings_[last].group == closings_[i].group) ++last;
        add_closers(machine, machine.close_key(at, groups_[closings_[i].group]),
                    std::span(closings_).subspan(i, last - i), bits);
    }
}

/// Walks the piece trie and the name trie in parallel; calls fn(node, names) for each pair of nodes, which returns
/// whether to descend.
template <class Fn>
void StringMask::for_each_name(const ObjectTerminal& object, std::uint32_t names, const Fn& fn) {
    pairs_.assign(1, {0, names});
    while (!pairs_.empty()) {
        const std::uint32_t node = pairs_.back().first, at = pairs_.back().second;
        pairs_.pop_back();
        if (!fn(node, at)) continue;
        for (const auto& [c, next] : object.trie[at].next) {
            const std::uint32_t symbol = trie_.symbol_of(c);
            if (const std::uint32_t child = symbol == StringTrie::kNoSymbol ? 0 : trie_.child(node, symbol); child != 0)
                pairs_.emplace_back(child, next);
        }
    }
}

/// Only declared names are allowed, so only their part of the trie is walked.
void StringMask::add_declared_key(Machine& machine, const Machine::InString& at, std::span<std::uint64_t> bits) {
    if (at.frame.a == Machine::kLeftNames) return;
    const ObjectTerminal& object = machine.program().objects[machine.program().nodes[at.frame.node].arg];
    const auto nodes = trie_.nodes();
    for_each_name(object, at.frame.a, [&](std::uint32_t node, std::uint32_t names) {
        if (!Machine::key_lives(object, at.below, names, Dfa::kDead)) return false;
        const StringTrie::Node &here = nodes[node], &next = nodes[node + 1];
        for (std::uint32_t k = here.token; k < here.partial; ++k) allow(bits, trie_.tokens()[k]);
        for (std::uint32_t k = here.partial; k < next.token; ++k)
            if (Machine::key_begins(object, at.below, names, Dfa::kDead, trie_.begun(k)))
                allow(bits, trie_.tokens()[k]);
        if (here.closer == next.closer) return true;
        const Machine::KeyEnd end = Machine::key_end(object, at.below, names, Dfa::kDead);
        if (end.entry == kNone) return true;
        behind_.push_back({here.closer, next.closer, machine.close_key(at, end)});
        return true;
    });
}

void StringMask::finish(Machine& machine, std::span<std::uint64_t> bits) {
    std::ranges::sort(behind_, {}, [](const Behind& b) { return std::tuple(b.first, b.last, b.state); });
    for (std::size_t i = 0, last = 0; i < behind_.size(); i = last) {
        Machine::State state = Machine::kDead;
        for (;
             last < behind_.size() && behind_[last].first == behind_[i].first && behind_[last].last == behind_[i].last;
             ++last)
            state = machine.unite(state, behind_[last].state);
        closings_.clear();
        for (std::uint32_t k = behind_[i].first; k < behind_[i].last; ++k) closings_.push_back({k, 0});
        add_closers(machine, state, closings_, bits);
    }
    behind_.clear();
}

/// Any name is allowed. Declared names differ from others only in what follows their end.
void StringMask::add_free_key(Machine& machine, const Machine::InString& at, std::span<std::uint64_t> bits) {
    const ObjectTerminal& object = machine.program().objects[machine.program().nodes[at.frame.node].arg];
    const auto nodes = trie_.nodes();
    trie_.add_inside(StringTrie::kAnyNumber, bits);
    overrides_.clear();
    if (at.frame.a != Machine::kLeftNames)
        for_each_name(object, at.frame.a, [&](std::uint32_t node, std::uint32_t names) {
            if (object.trie[names].property != kNone && nodes[node].closer != nodes[node + 1].closer)
                overrides_.push_back({nodes[node].closer, nodes[node + 1].closer,
                                      Machine::key_end(object, at.below, names, at.frame.b)});
            return true;
        });
    std::ranges::sort(overrides_, {}, &Override::first);
    if (const Machine::KeyEnd end = Machine::key_end(object, at.below, kNone, at.frame.b); end.entry != kNone) {
        follow(machine, machine.close_key(at, end));
        const auto add = [&](std::uint32_t first, std::uint32_t last) {
            for (std::uint32_t k = first; k < last; ++k)
                if (const auto& closer = trie_.closers()[k]; follows_[closer.rest] != 0) allow(bits, closer.token);
        };
        std::uint32_t next = 0;
        for (const Override& one : overrides_) add(std::exchange(next, one.last), one.first);
        add(next, static_cast<std::uint32_t>(trie_.closers().size()));
    }
    for (const Override& one : overrides_) {
        if (one.end.entry == kNone) continue;
        closings_.clear();
        for (std::uint32_t k = one.first; k < one.last; ++k) closings_.push_back({k, 0});
        add_closers(machine, machine.close_key(at, one.end), closings_, bits);
    }
}

}  // namespace tinfer::grammar
