// SPDX-License-Identifier: MIT
// Queries of a machine by masks and constraints, and its serialization.
#include <algorithm>
#include <map>
#include <utility>

#include "grammar/machine.hpp"

namespace tinfer::grammar {

/// Abstracts the counts of repeats whose bounds are too far away; a repetition takes at least one byte.
Machine::State Machine::far_repeats(State parent) {
    const StateRecord record = states_[parent];
    const auto is_repeat = [&](std::uint32_t top) {
        return top != kEmptyStack && program_->nodes[stacks_[top].frame.node].kind == NodeKind::repeat;
    };
    const auto tops = std::span(tops_).subspan(record.first, record.count);
    if (std::ranges::none_of(tops, is_repeat)) return parent;
    std::vector<std::uint32_t> out(tops.begin(), tops.end());
    for (std::uint32_t& top : out) {
        if (!is_repeat(top)) continue;
        Stack stack = stacks_[top];
        const Node& repeat = program_->nodes[stack.frame.node];
        std::uint32_t& count = stack.frame.a;
        const bool is_below_max = repeat.max == kNone || repeat.max - count > max_piece_ + 1;
        if (count < repeat.min && repeat.min - count > max_piece_ + 1 && is_below_max) count = kFarBelow;
        else if (count >= repeat.min && is_below_max && repeat.max != kNone) count = kFarInside;
        top = push(stack.parent, stack.frame);
    }
    std::ranges::sort(out);
    out.erase(std::unique(out.begin(), out.end()), out.end());
    merge(out);
    return state_of(out);
}

Machine::State Machine::abstract(State state) {
    if (states_[state].abstracted != kUnknown) return states_[state].abstracted;
    out_.clear();
    const StateRecord record = states_[state];
    for (std::uint32_t i = 0; i < record.count; ++i) {
        const std::uint32_t top = tops_[record.first + i];
        Stack stack = stacks_[top];
        if (top != kEmptyStack && program_->nodes[stack.frame.node].kind == NodeKind::string) {
            const StringTerminal& string = program_->strings[program_->nodes[stack.frame.node].arg];
            // More characters than a token can add plus the automaton's shortest path to acceptance can need.
            const std::uint32_t needed = string.dfa == nullptr ? 0 : static_cast<std::uint32_t>(string.dfa->n_states());
            const std::uint32_t far = max_piece_ + needed + 1;
            std::uint32_t& count = stack.frame.a;
            const bool is_below_max = string.max == StringTerminal::kNoLimit || string.max - count > far;
            if (count < string.min && string.min - count > far && is_below_max && string.dfa == nullptr)
                count = kFarBelow;
            else if (count >= string.min && is_below_max && string.max != StringTerminal::kNoLimit) count = kFarInside;
            out_.push_back(push(stack.parent, stack.frame));
        } else if (top != kEmptyStack) {
            out_.push_back(push(far_repeats(stack.parent), stack.frame));
        } else {
            out_.push_back(top);
        }
    }
    const State to = intern();
    states_[state].abstracted = to;
    states_[to].abstracted = to;
    return to;
}

bool Machine::has_token_items(State state) const {
    const StateRecord& record = states_[state];
    if (!program_->has_tokens) return false;
    for (std::uint32_t i = 0; i < record.count; ++i)
        if (const auto top = tops_[record.first + i];
            top != kEmptyStack && program_->nodes[stacks_[top].frame.node].kind == NodeKind::token)
            return true;
    return false;
}

bool Machine::is_in_string(State state) const noexcept {
    const StateRecord& record = states_[state];
    for (std::uint32_t i = 0; i < record.count; ++i)
        if (const auto top = tops_[record.first + i]; top != kEmptyStack) {
            const NodeKind kind = program_->nodes[stacks_[top].frame.node].kind;
            if (kind == NodeKind::string || kind == NodeKind::key) return true;
        }
    return false;
}

void Machine::token_items(State state, std::vector<std::pair<std::uint32_t, bool>>& out) const {
    out.clear();
    const StateRecord& record = states_[state];
    for (std::uint32_t i = 0; i < record.count; ++i)
        if (const auto top = tops_[record.first + i]; top != kEmptyStack)
            if (const Node& node = program_->nodes[stacks_[top].frame.node]; node.kind == NodeKind::token)
                out.emplace_back(node.arg, node.min != 0);
}

Machine::State Machine::step_token(State state, std::uint32_t token, bool is_eog) {
    if (!program_->has_tokens) return kDead;
    begin_step();
    const StateRecord record = states_[state];
    for (std::uint32_t i = 0; i < record.count; ++i)
        if (const auto top = tops_[record.first + i]; top != kEmptyStack) {
            const Stack stack = stacks_[top];
            const Node& node = program_->nodes[stack.frame.node];
            if (node.kind != NodeKind::token) continue;
            if (node.min != 0 ? node.arg != token && !is_eog : node.arg == token)
                visit({stack.parent, node.next, 0, 0});
        }
    close();
    return intern();
}

Machine::State Machine::unite(State a, State b) {
    if (a == kDead || a == b) return b;
    if (b == kDead) return a;
    out_.clear();
    for (const State s : {a, b})
        out_.insert(out_.end(), tops_.begin() + states_[s].first, tops_.begin() + states_[s].first + states_[s].count);
    return intern();
}

int Machine::forced_byte(State state) {
    if (accepts(state) || has_token_items(state)) return -1;
    int found = -1;
    for (int byte = 0; byte < 256; ++byte) {
        if (step(state, static_cast<std::uint8_t>(byte)) == kDead) continue;
        if (found >= 0) return -1;
        found = byte;
    }
    return found;
}

/// States in an order in which each follows those below it. Per state: the number of stacks, then for each its frame
/// and the index of the state below, or kUnknown for the empty stack.
std::vector<std::uint32_t> Machine::save(State state) const {
    std::vector<State> order;
    std::vector<std::pair<State, bool>> work{{state, false}};
    std::map<State, std::uint32_t> places;
    while (!work.empty()) {
        const auto [at, is_below_done] = work.back();
        work.pop_back();
        if (places.contains(at)) continue;
        if (is_below_done) {
            places[at] = static_cast<std::uint32_t>(order.size());
            order.push_back(at);
            continue;
        }
        work.emplace_back(at, true);
        for (const std::uint32_t top : std::span(tops_).subspan(states_[at].first, states_[at].count))
            if (top != kEmptyStack) work.emplace_back(stacks_[top].parent, false);
    }
    std::vector<std::uint32_t> out;
    for (const State at : order) {
        out.push_back(states_[at].count);
        for (const std::uint32_t top : std::span(tops_).subspan(states_[at].first, states_[at].count)) {
            const Frame& frame = stacks_[top].frame;
            out.insert(out.end(), {frame.node, frame.a, frame.b, frame.c,
                                   top == kEmptyStack ? kUnknown : places.at(stacks_[top].parent)});
        }
    }
    return out;
}

Machine::State Machine::load(std::span<const std::uint32_t> saved) {
    std::vector<State> states;
    for (std::size_t i = 0; i < saved.size();) {
        std::vector<std::uint32_t> tops;
        const std::size_t n = saved[i++];
        for (std::size_t k = 0; k < n; ++k, i += 5) {
            const auto stack = saved.subspan(i, 5);
            tops.push_back(stack[4] == kUnknown ? kEmptyStack
                                                : push(states[stack[4]], {stack[0], stack[1], stack[2], stack[3]}));
        }
        std::ranges::sort(tops);
        states.push_back(state_of(tops));
    }
    return states.back();
}

}  // namespace tinfer::grammar
