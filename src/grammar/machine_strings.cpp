// SPDX-License-Identifier: MIT
// The rules of strings and keys, shared by byte steps and by masks, which walk over characters.
#include <algorithm>
#include <string_view>

#include "base/hex.hpp"
#include "base/utf8.hpp"
#include "grammar/machine.hpp"

namespace tinfer::grammar {
namespace {

/// Whether some code point of the ranges leads to a state that `is_good`.
template <class Fn>
bool any_follows(const Dfa& dfa, std::uint32_t state, const CharStep& step, const Fn& is_good) {
    if (state == Dfa::kDead) return false;
    for (int r = 0; r < step.n_ranges; ++r)
        for (std::size_t c = dfa.class_of(step.lo[r]); c < dfa.n_classes() && dfa.starts[c] <= step.hi[r]; ++c)
            if (const std::uint32_t to = dfa.next[state * dfa.n_classes() + c]; to != Dfa::kDead && is_good(to))
                return true;
    return false;
}

/// The range, first and last, of the properties that may be the next member.
std::pair<std::uint32_t, std::uint32_t> next_properties(const ObjectTerminal& object, const Frame& frame) noexcept {
    const auto n = static_cast<std::uint32_t>(object.is_required.size());
    std::uint32_t first = frame.a;
    std::uint32_t last = object.next_required[frame.a];
    const std::uint32_t required = last;
    // If only the required ones still fit, no optional one may come.
    if (object.max != kNone && frame.b + 1 + object.required_from[frame.a] > object.max) first = required;
    // If no other names are allowed, enough declared ones have to be left to reach the minimum.
    if (object.other_names == nullptr && frame.b < object.min) {
        last = std::min(last, n - 1);
        while (last > first && frame.b + 1 + object.allowed_from[last + 1] < object.min) --last;
    }
    return {first, last};
}

// Besides a code point, add_char() records the closing quote or a choice.
constexpr std::uint32_t kQuote = 0xFFFFFFFD, kMany = 0xFFFFFFFE;

void add_char(std::uint32_t& found, std::uint32_t c) noexcept { found = found == kNone || found == c ? c : kMany; }

/// Adds the characters that lead to a state that `is_good`.
template <class Fn>
void add_chars(std::uint32_t& found, const Dfa& dfa, std::uint32_t state, const Fn& is_good) {
    const std::size_t n = dfa.n_classes();
    for (std::size_t c = 0; c < n && found != kMany; ++c) {
        const std::uint32_t to = dfa.next[state * n + c];
        if (to == Dfa::kDead || !is_good(to)) continue;
        const bool is_one = c + 1 < n && dfa.starts[c + 1] == dfa.starts[c] + 1;
        add_char(found, is_one ? dfa.starts[c] : kMany);
    }
}

void add_chars(std::uint32_t& found, const StringTerminal& string, const Frame& at) {
    if (Machine::string_ends(string, at.b, at.a)) add_char(found, kQuote);
    const std::uint32_t count = Machine::count_after(string, at.a);
    const auto lives = [&](std::uint32_t to) { return Machine::string_lives(string, to, count); };
    if (string.dfa != nullptr) add_chars(found, *string.dfa, at.b, lives);
    else if (lives(0)) found = kMany;
}

void add_chars(std::uint32_t& found, const ObjectTerminal& object, const Frame& at, const Frame& below) {
    const std::uint32_t names = at.a == Machine::kLeftNames ? kNone : at.a;
    const std::uint32_t other = object.other_names == nullptr ? Dfa::kDead : at.b;
    if (Machine::key_end(object, below, names, other).entry != kNone) add_char(found, kQuote);
    if (other != Dfa::kDead)
        add_chars(found, *object.other_names, other,
                  [&](std::uint32_t to) { return Machine::key_lives(object, below, kNone, to); });
    if (names == kNone) return;
    for (const auto& [c, next] : object.trie[names].next)
        if (Machine::key_lives(object, below, next, Dfa::kDead)) add_char(found, c);
}

/// Appends a character of a JSON string, escaped only if it has to be.
void append_char(std::string& out, std::uint32_t c) {
    constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
    if (const auto at = c < 0x80 ? kEscaped.find(static_cast<char>(c)) : kEscaped.npos; at != kEscaped.npos) {
        (out += '\\') += kLetters[at];
    } else if (c < 0x20) {
        out += "\\u00";
        append_hex(out, static_cast<std::uint8_t>(c));
    } else {
        append_code_point(out, c);
    }
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
    // Without an upper bound, counting stops at the lower one.
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

/// `frame` is that of the key's object.
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

/// kNone if some stack is not between two characters of a string, kMany if there is a choice.
std::uint32_t Machine::forced_char(State state) const {
    const StateRecord& record = states_[state];
    std::uint32_t found = kNone;
    for (std::uint32_t i = 0; i < record.count; ++i) {
        const std::uint32_t top = tops_[record.first + i];
        if (top == kEmptyStack) return kNone;
        const Stack& stack = stacks_[top];
        const Node& node = program_->nodes[stack.frame.node];
        if ((node.kind != NodeKind::string && node.kind != NodeKind::key) || stack.frame.c != 0) return kNone;
        if (node.kind == NodeKind::string) add_chars(found, program_->strings[node.arg], stack.frame);
        else add_chars(found, program_->objects[node.arg], stack.frame, object_below(stack.parent).frame);
        if (found == kMany) return kMany;
    }
    return found;
}

bool Machine::append_forced(State& state, std::string& out) {
    const std::uint32_t c = forced_char(state);
    if (c == kMany) return false;
    const std::size_t begin = out.size();
    if (c == kNone) {
        const int byte = forced_byte(state);
        if (byte < 0) return false;
        out += static_cast<char>(byte);
    } else if (c == kQuote) {
        out += '"';
    } else {
        append_char(out, c);
    }
    State to = state;
    for (std::size_t i = begin; i < out.size() && to != kDead; ++i) to = step(to, static_cast<std::uint8_t>(out[i]));
    if (to == kDead) out.resize(begin);  // the character is not allowed in a string
    else state = to;
    return to != kDead;
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
            strings.push_back(
                {stack.parent, stack.frame, kind == NodeKind::key ? object_below(stack.parent).frame : Frame{}});
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
    visit({on(object_below(at.parent).parent, {at.below.node, end.next, at.below.b + 1, 0}), end.entry, 0, 0});
    close();
    return intern();
}

}  // namespace tinfer::grammar
