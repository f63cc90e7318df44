// SPDX-License-Identifier: MIT
// The rules of strings and keys, for steps over a byte and for masks that walk over characters.
#include <algorithm>

#include "grammar/machine.hpp"

namespace tinfer::grammar {
namespace {

/// Whether a state of the automaton that `is_good` follows over a code point of the ranges.
template <class Fn>
bool any_follows(const Dfa& dfa, std::uint32_t state, const CharStep& step, const Fn& is_good) {
    if (state == Dfa::kDead) return false;
    for (int r = 0; r < step.n_ranges; ++r)
        for (std::size_t c = dfa.class_of(step.lo[r]); c < dfa.n_classes() && dfa.starts[c] <= step.hi[r]; ++c)
            if (const std::uint32_t to = dfa.next[state * dfa.n_classes() + c]; to != Dfa::kDead && is_good(to))
                return true;
    return false;
}

/// The properties, first and last, that may be the next member.
std::pair<std::uint32_t, std::uint32_t> next_properties(const ObjectTerminal& object, const Frame& frame) noexcept {
    const auto n = static_cast<std::uint32_t>(object.is_required.size());
    std::uint32_t first = frame.a;
    std::uint32_t last = object.next_required[frame.a];
    const std::uint32_t required = last;
    // With too little room for those that are required, none of the others.
    if (object.max != kNone && frame.b + 1 + object.required_from[frame.a] > object.max) first = required;
    // With no names but these, enough of them have to be left.
    if (object.other_names == nullptr && frame.b < object.min) {
        last = std::min(last, n - 1);
        while (last > first && frame.b + 1 + object.allowed_from[last + 1] < object.min) --last;
    }
    return {first, last};
}

}  // namespace

bool Machine::string_lives(const StringTerminal& string, std::uint32_t state, std::uint32_t count) noexcept {
    if (count == kFarBelow || count == kFarInside) return string.dfa == nullptr || state != Dfa::kDead;
    if (string.max != StringTerminal::kNoLimit && count > string.max) return false;
    if (string.dfa == nullptr) return true;
    if (state == Dfa::kDead) return false;
    if (string.max != StringTerminal::kNoLimit && string.distances.shortest[state] > string.max - count) return false;
    return count >= string.min || string.distances.longest[state] >= string.min - count;
}

std::uint32_t Machine::count_after(const StringTerminal& string, std::uint32_t count) noexcept {
    if (count == kFarBelow || count == kFarInside) return count;
    // Without an upper bound nothing is counted beyond the lower one.
    return string.max == StringTerminal::kNoLimit ? std::min(count + 1, string.min) : count + 1;
}

bool Machine::string_ends(const StringTerminal& string, std::uint32_t state, std::uint32_t count) noexcept {
    if (count == kFarBelow || (count != kFarInside && count < string.min)) return false;
    return string.dfa == nullptr || string.dfa->labels[state] != 0;
}

bool Machine::string_begins(const StringTerminal& string, std::uint32_t state, std::uint32_t count,
                            const CharStep& begun) noexcept {
    const std::uint32_t next = count_after(string, count);
    if (string.dfa == nullptr) return string_lives(string, 0, next);
    return any_follows(*string.dfa, state, begun, [&](std::uint32_t to) { return string_lives(string, to, next); });
}

/// `frame` is that of the object below the key.
bool Machine::key_lives(const ObjectTerminal& object, const Frame& frame, std::uint32_t names,
                        std::uint32_t state) noexcept {
    if (state != Dfa::kDead && object.next_required[frame.a] == object.is_required.size()) return true;
    if (names == kNone || frame.a >= object.is_required.size()) return false;
    const auto [lowest, highest] = next_properties(object, frame);
    const auto& reachable = object.trie[names].reachable;
    const auto first = std::ranges::lower_bound(reachable, lowest);
    return first != reachable.end() && *first <= highest;
}

Machine::KeyEnd Machine::key_end(const ObjectTerminal& object, const Frame& frame, std::uint32_t names,
                                 std::uint32_t state) noexcept {
    const auto n = static_cast<std::uint32_t>(object.is_required.size());
    if (const std::uint32_t property = names == kNone ? kNone : object.trie[names].property; property != kNone) {
        if (frame.a >= n) return {};
        const auto [lowest, highest] = next_properties(object, frame);
        if (property < lowest || property > highest) return {};
        return {object.value_entries[property], property + 1};
    }
    if (state == Dfa::kDead || object.other_names->labels[state] == 0 || object.next_required[frame.a] != n) return {};
    return {object.other_entries[object.other_names->labels[state] - 1], n};
}

bool Machine::key_begins(const ObjectTerminal& object, const Frame& frame, std::uint32_t names, std::uint32_t state,
                         const CharStep& begun) noexcept {
    if (state != Dfa::kDead && any_follows(*object.other_names, state, begun,
                                           [&](std::uint32_t to) { return key_lives(object, frame, kNone, to); }))
        return true;
    if (names == kNone) return false;
    const auto& next = object.trie[names].next;
    for (int r = 0; r < begun.n_ranges; ++r)
        for (auto edge = next.lower_bound(begun.lo[r]); edge != next.end() && edge->first <= begun.hi[r]; ++edge)
            if (key_lives(object, frame, edge->second, Dfa::kDead)) return true;
    return false;
}

Machine::State Machine::split_strings(State state, std::vector<InString>& strings) {
    const StateRecord record = states_[state];
    const std::size_t before = strings.size();
    out_.clear();
    for (std::uint32_t i = 0; i < record.count; ++i) {
        const std::uint32_t top = tops_[record.first + i];
        const Stack& stack = stacks_[top];
        const NodeKind kind = top == kEmptyStack ? NodeKind::ret : program_->nodes[stack.frame.node].kind;
        if ((kind == NodeKind::string || kind == NodeKind::key) && stack.frame.c == 0)
            strings.push_back({stack.parent, stack.frame, stacks_[stack.parent].frame});
        else out_.push_back(top);
    }
    return strings.size() == before ? state : intern();
}

Machine::State Machine::close_string(const InString& at) {
    begin_step();
    visit({at.parent, program_->nodes[at.frame.node].next, 0, 0});
    close();
    return intern();
}

Machine::State Machine::close_key(const InString& at, const KeyEnd& end) {
    begin_step();
    visit({push(stacks_[at.parent].parent, {at.below.node, end.next, at.below.b + 1, 0}), end.entry, 0, 0});
    close();
    return intern();
}

}  // namespace tinfer::grammar
