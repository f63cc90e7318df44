// SPDX-License-Identifier: MIT
// What masks and constraints ask a machine.
#include <algorithm>

#include "grammar/machine.hpp"

namespace tinfer::grammar {

Machine::State Machine::abstract(State state) {
    if (states_[state].abstracted != kUnknown) return states_[state].abstracted;
    out_.clear();
    const StateRecord record = states_[state];
    for (std::uint32_t i = 0; i < record.count; ++i) {
        const std::uint32_t top = tops_[record.first + i];
        Stack stack = stacks_[top];
        if (top != kEmptyStack && program_->nodes[stack.frame.node].kind == NodeKind::string) {
            const StringTerminal& string = program_->strings[program_->nodes[stack.frame.node].arg];
            // Room that no token fills; the automaton has to fit into it, too.
            const std::uint32_t needed = string.dfa == nullptr ? 0 : static_cast<std::uint32_t>(string.dfa->n_states());
            const std::uint32_t far = max_piece_ + needed + 1;
            std::uint32_t& count = stack.frame.a;
            const bool is_below_max = string.max == StringTerminal::kNoLimit || string.max - count > far;
            if (count < string.min && string.min - count > far && is_below_max && string.dfa == nullptr)
                count = kFarBelow;
            else if (count >= string.min && is_below_max && string.max != StringTerminal::kNoLimit) count = kFarInside;
            out_.push_back(push(stack.parent, stack.frame));
        } else if (top != kEmptyStack && stack.parent != kEmptyStack &&
                   program_->nodes[stacks_[stack.parent].frame.node].kind == NodeKind::repeat) {
            // How often a part was repeated, each time by a byte at least.
            Stack below = stacks_[stack.parent];
            const Node& repeat = program_->nodes[below.frame.node];
            std::uint32_t& count = below.frame.a;
            const bool is_below_max = repeat.max == kNone || repeat.max - count > max_piece_ + 1;
            if (count < repeat.min && repeat.min - count > max_piece_ + 1 && is_below_max) count = kFarBelow;
            else if (count >= repeat.min && is_below_max && repeat.max != kNone) count = kFarInside;
            out_.push_back(push(push(below.parent, below.frame), stack.frame));
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

std::vector<std::uint32_t> Machine::save(State state) const {
    std::vector<std::uint32_t> out;
    const StateRecord& record = states_[state];
    for (std::uint32_t i = 0; i < record.count; ++i) {
        const std::size_t at = out.size();
        out.push_back(0);
        for (std::uint32_t top = tops_[record.first + i]; top != kEmptyStack; top = stacks_[top].parent) {
            const Frame& frame = stacks_[top].frame;
            out.insert(out.end(), {frame.node, frame.a, frame.b, frame.c});
            ++out[at];
        }
    }
    return out;
}

Machine::State Machine::load(std::span<const std::uint32_t> saved) {
    std::vector<std::uint32_t> tops;
    for (std::size_t i = 0; i < saved.size();) {
        const std::size_t n = saved[i++];
        std::uint32_t top = kEmptyStack;
        for (std::size_t k = n; k-- > 0;) {
            const auto frame = saved.subspan(i + 4 * k, 4);
            top = push(top, {frame[0], frame[1], frame[2], frame[3]});
        }
        i += 4 * n;
        tops.push_back(top);
    }
    out_ = std::move(tops);
    return intern();
}

}  // namespace tinfer::grammar
