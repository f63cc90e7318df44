// SPDX-License-Identifier: MIT
#include "grammar/machine.hpp"

#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

#include "base/error.hpp"

namespace tinfer::grammar {
namespace {

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) noexcept {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
    return hash ^ (hash >> 29);
}

constexpr std::size_t kFirstTable = 1u << 10;
constexpr std::size_t kFewItems = 32;
constexpr std::uint32_t kLooksOfStep = 16;  // callers looked at that count as one step

}  // namespace

Machine::Machine(std::shared_ptr<const Program> program, std::size_t max_piece, std::size_t few_stacks)
    : program_(std::move(program)), max_piece_(static_cast<std::uint32_t>(std::min<std::size_t>(max_piece, 1u << 20))),
      few_stacks_(few_stacks), stack_table_(kFirstTable, kUnknown), state_table_(kFirstTable, kUnknown),
      no_row_(std::make_unique<Row>()) {
    no_row_->fill(kUnknown);
    stacks_.push_back({kDead, {}});  // the empty stack
    intern();                        // the dead state: no stacks
    rows_[kDead] = new_row();
    rows_[kDead]->fill(kDead);
    visit({alone(kEmptyStack), program_->start, 0, 0});
    close();
    start_ = intern();
}

// ---- interning of stacks and states ------------------------------------------------------------------------------

std::uint32_t Machine::push(State parent, const Frame& frame) {
    const auto hash_of = [](const Stack& s) {
        return mix(mix(mix(s.parent, s.frame.node), static_cast<std::uint64_t>(s.frame.a) << 32 | s.frame.b),
                   s.frame.c);
    };
    if (stacks_.size() * 2 > stack_table_.size()) {
        take_memory(stack_table_.size() * 4 * sizeof(std::uint32_t));
        std::vector<std::uint32_t> larger(stack_table_.size() * 4, kUnknown);
        for (std::uint32_t i = 1; i < stacks_.size(); ++i) {
            std::size_t at = hash_of(stacks_[i]) & (larger.size() - 1);
            while (larger[at] != kUnknown) at = (at + 1) & (larger.size() - 1);
            larger[at] = i;
        }
        stack_table_ = std::move(larger);
    }
    const Stack stack{parent, frame};
    std::size_t at = hash_of(stack) & (stack_table_.size() - 1);
    while (stack_table_[at] != kUnknown) {
        const Stack& there = stacks_[stack_table_[at]];
        if (there.parent == parent && there.frame == frame) return stack_table_[at];
        at = (at + 1) & (stack_table_.size() - 1);
    }
    grow(stacks_);
    stacks_.push_back(stack);
    return stack_table_[at] = static_cast<std::uint32_t>(stacks_.size() - 1);
}

Machine::State Machine::alone(std::uint32_t stack) {
    if (stacks_[stack].alone == kUnknown) {
        const State state = state_of({&stack, 1});
        stacks_[stack].alone = state;
    }
    return stacks_[stack].alone;
}

bool Machine::is_key(const Stack& stack) const { return program_->nodes[stack.frame.node].kind == NodeKind::key; }

/// The stacks below this one; for a key, which lies on its object, those below the object.
Machine::State Machine::below(std::uint32_t stack) const {
    const Stack& top = stacks_[stack];
    return is_key(top) ? object_below(top.parent).parent : top.parent;
}

/// Reduces the number of stacks: those with the same frame on top and one stack below become a single one with all the
/// stacks below. Stacks with several below are left alone, since sets that contain each other would be merged without
/// end. `stacks` is ascending before and after.
void Machine::merge(std::vector<std::uint32_t>& stacks) {
    if (stacks.size() <= few_stacks_) return;
    const auto several = std::partition(stacks.begin(), stacks.end(), [&](std::uint32_t stack) {
        return stack != kEmptyStack && states_[below(stack)].count == 1;
    });
    const auto frames = [&](std::uint32_t stack) {
        const Frame& frame = stacks_[stack].frame;
        const Frame object = is_key(stacks_[stack]) ? object_below(stacks_[stack].parent).frame : Frame{};
        return std::tuple(frame.node, frame.a, frame.b, frame.c, object.node, object.a, object.b);
    };
    std::sort(stacks.begin(), several, [&](std::uint32_t a, std::uint32_t b) { return frames(a) < frames(b); });
    std::size_t n = 0;
    const auto n_ones = static_cast<std::size_t>(several - stacks.begin());
    for (std::size_t i = 0, last = 0; i < n_ones; i = last) {
        below_.clear();
        for (const auto frame = frames(stacks[i]); last < n_ones && frames(stacks[last]) == frame; ++last)
            below_.push_back(tops_[states_[below(stacks[last])].first]);
        std::uint32_t one = stacks[i];
        if (last - i > 1) {
            std::ranges::sort(below_);
            const Frame frame = stacks_[one].frame, object = object_below(stacks_[one].parent).frame;
            const State parent = state_of(below_);
            one = push(is_key(stacks_[one]) ? on(parent, object) : parent, frame);
        }
        stacks[n++] = one;
    }
    stacks.erase(std::copy(several, stacks.end(), stacks.begin() + static_cast<std::ptrdiff_t>(n)), stacks.end());
    std::ranges::sort(stacks);
}

/// The state of the stacks in out_, which it empties.
Machine::State Machine::intern() {
    std::ranges::sort(out_);
    out_.erase(std::unique(out_.begin(), out_.end()), out_.end());
    if (out_.size() > kMaxStacks)
        fail(ErrorCode::grammar_too_ambiguous, cat("grammar: more than ", kMaxStacks, " ways to read the same text"));
    merge(out_);
    const State state = state_of(out_);
    out_.clear();
    return state;
}

Machine::State Machine::state_of(std::span<const std::uint32_t> stacks) {
    const auto hash_of = [](std::span<const std::uint32_t> tops) {
        std::uint64_t hash = tops.size();
        for (const auto top : tops) hash = mix(hash, top);
        return hash;
    };
    const auto tops_of = [&](State s) { return std::span(tops_).subspan(states_[s].first, states_[s].count); };
    if (states_.size() * 2 > state_table_.size()) {
        take_memory(state_table_.size() * 4 * sizeof(std::uint32_t));
        std::vector<std::uint32_t> larger(state_table_.size() * 4, kUnknown);
        for (State s = 0; s < states_.size(); ++s) {
            std::size_t at = hash_of(tops_of(s)) & (larger.size() - 1);
            while (larger[at] != kUnknown) at = (at + 1) & (larger.size() - 1);
            larger[at] = s;
        }
        state_table_ = std::move(larger);
    }
    std::size_t at = hash_of(stacks) & (state_table_.size() - 1);
    while (state_table_[at] != kUnknown) {
        if (std::ranges::equal(tops_of(state_table_[at]), stacks)) return state_table_[at];
        at = (at + 1) & (state_table_.size() - 1);
    }
    if (states_.size() >= kMaxStates)
        fail(ErrorCode::limit_exceeded, cat("grammar: matching needs more than ", kMaxStates, " states"));
    const auto state = static_cast<State>(states_.size());
    // Reserve first: out of memory must not leave the three arrays with different sizes.
    grow(rows_);
    grow(states_);
    grow(tops_, stacks.size());
    const bool in_document = std::ranges::any_of(stacks, [&](std::uint32_t top) {
        if (top == kEmptyStack) return false;
        const Node& node = program_->nodes[stacks_[top].frame.node];
        return (node.kind == NodeKind::call && node.min != 0) || states_[stacks_[top].parent].in_document;
    });
    tops_.insert(tops_.end(), stacks.begin(), stacks.end());
    rows_.push_back(no_row_.get());
    states_.push_back({static_cast<std::uint32_t>(tops_.size() - stacks.size()),
                       static_cast<std::uint32_t>(stacks.size()), kUnknown,
                       !stacks.empty() && stacks.front() == kEmptyStack, in_document});
    return state_table_[at] = state;
}

Machine::Row* Machine::new_row() {
    if (rows_left_ == 0) {
        const std::size_t n = std::min<std::size_t>(std::size_t{4} << std::min<std::size_t>(row_blocks_.size(), 8), 64);
        take_memory(n * sizeof(Row));
        row_blocks_.push_back(std::make_unique_for_overwrite<Row[]>(n));
        rows_left_ = n;
        row_bytes_ += n * sizeof(Row);
    }
    Row* const row = row_blocks_.back().get() + --rows_left_;
    row->fill(kUnknown);
    return row;
}

void Machine::take_memory(std::size_t bytes) const {
    if (bytes <= max_memory_ && memory() <= max_memory_ - bytes) return;
    fail(ErrorCode::limit_exceeded,
         cat("grammar: matching takes more than ", max_memory_, " bytes (max_cache_bytes and those of one mask)"));
}

// ---- epsilon steps ---------------------------------------------------------------------------------------------

void Machine::refuse_steps(std::uint32_t node) const {
    const std::string_view rule = program_->rule_of(node);
    fail(ErrorCode::limit_exceeded, cat("grammar: matching takes more than ", max_steps_, " steps",
                                        rule.empty() ? std::string() : cat(", at last in rule '", escaped(rule), "'")));
}

void Machine::visit(const Item& item) {
    take_steps(1, item.node);
    const auto hash_of = [](const Item& i) {
        return mix(mix(i.parent, i.node), static_cast<std::uint64_t>(i.a) << 32 | i.b);
    };
    if (seen_.size() < kFewItems) {
        if (std::ranges::find(seen_, item) != seen_.end()) return;
    } else {  // many: a hash table of their indices
        if (seen_table_.size() < seen_.size() * 2) {
            seen_table_.assign(std::bit_ceil(seen_.size() * 4), kUnknown);
            for (std::uint32_t i = 0; i < seen_.size(); ++i) {
                std::size_t at = hash_of(seen_[i]) & (seen_table_.size() - 1);
                while (seen_table_[at] != kUnknown) at = (at + 1) & (seen_table_.size() - 1);
                seen_table_[at] = i;
            }
        }
        std::size_t at = hash_of(item) & (seen_table_.size() - 1);
        for (; seen_table_[at] != kUnknown; at = (at + 1) & (seen_table_.size() - 1))
            if (seen_[seen_table_[at]] == item) return;
        seen_table_[at] = static_cast<std::uint32_t>(seen_.size());
    }
    if (seen_.size() >= kMaxStacks)
        fail(ErrorCode::grammar_too_ambiguous, cat("grammar: more than ", kMaxStacks, " ways to read the same text"));
    seen_.push_back(item);
    work_.push_back(item);
}

void Machine::close() {
    while (!work_.empty()) {
        const Item item = work_.back();
        work_.pop_back();
        expand(item);
    }
    seen_.clear();
    seen_table_.clear();
}

/// The end of a rule: returns to its callers.
void Machine::leave(State parent) {
    const StateRecord callers = states_[parent];
    take_steps(callers.count / kLooksOfStep, program_->start);
    for (std::uint32_t i = 0; i < callers.count; ++i) {
        const std::uint32_t top = tops_[callers.first + i];
        if (std::exchange(stacks_[top].left_in, n_steps_) == n_steps_) continue;
        if (top == kEmptyStack) {
            out_.push_back(kEmptyStack);
            continue;
        }
        const Stack below = stacks_[top];
        const Node& node = program_->nodes[below.frame.node];
        if (node.kind == NodeKind::call) {
            visit({below.parent, node.next, 0, 0});
        } else if (node.kind == NodeKind::repeat) {
            const std::uint32_t enough = node.max == kNone ? node.min : node.max;
            const std::uint32_t times = is_far(below.frame.a) ? below.frame.a : std::min(below.frame.a + 1, enough);
            visit({below.parent, below.frame.node, times, 0});
        } else {
            visit({below.parent, below.frame.node, below.frame.a, below.frame.b});
        }
    }
}

void Machine::expand(const Item& item) {
    const Node& node = program_->nodes[item.node];
    switch (node.kind) {
        case NodeKind::split:
            for (std::uint32_t i = 0; i < node.count; ++i)
                visit({item.parent, program_->targets[node.first + i], 0, 0});
            break;
        case NodeKind::call:
            // Tail call: needs no return frame, so right-recursive lists do not deepen the stack. A document keeps one.
            if (program_->nodes[node.next].kind == NodeKind::ret && node.min == 0) visit({item.parent, node.arg, 0, 0});
            else visit({on(item.parent, {item.node}), node.arg, 0, 0});
            break;
        case NodeKind::ret: leave(item.parent); break;
        case NodeKind::repeat:
            if (item.a != kFarBelow && item.a >= node.min) visit({item.parent, node.next, 0, 0});
            if (node.max == kNone || is_far(item.a) || item.a < node.max)
                visit({on(item.parent, {item.node, item.a}), node.arg, 0, 0});
            break;
        case NodeKind::object: enter_object(item.parent, item.node, item.a, item.b); break;
        case NodeKind::choice: enter_choice(item); break;
        case NodeKind::lexeme:
            settle(item.parent, {item.node});
            if (program_->dfas[node.arg].labels[0] != 0) visit({item.parent, node.next, 0, 0});
            break;
        case NodeKind::bytes:
        case NodeKind::token:
        case NodeKind::string: settle(item.parent, {item.node}); break;
        case NodeKind::key: {  // has the frame of its object below it
            const StateRecord objects = states_[item.parent];
            for (std::uint32_t i = 0; i < objects.count; ++i) settle(alone(tops_[objects.first + i]), {item.node});
            break;
        }
    }
}

void Machine::enter_choice(const Item& item) {
    const Node& node = program_->nodes[item.node];
    const ChoiceTerminal& choice = program_->choices[node.arg];
    const std::uint64_t given = std::uint64_t{item.b} << 32 | item.a;
    const auto n = static_cast<std::uint32_t>(std::popcount(given));
    if (n >= node.min) visit({item.parent, node.next, 0, 0});
    if (n >= node.max) return;
    const auto& entries = n == 0 ? choice.first : choice.rest;
    for (std::size_t i = 0; i < entries.size(); ++i) {
        if ((given >> i & 1) != 0 || entries[i] == kNone) continue;
        const std::uint64_t with = given | std::uint64_t{1} << i;
        visit({on(item.parent, {item.node, static_cast<std::uint32_t>(with), static_cast<std::uint32_t>(with >> 32)}),
               entries[i], 0, 0});
    }
}

void Machine::enter_object(State parent, std::uint32_t node, std::uint32_t index, std::uint32_t count) {
    const ObjectTerminal& object = program_->objects[program_->nodes[node].arg];
    const bool has_required = object.next_required[index] < object.is_required.size();
    // Beyond the bounds the count does not matter.
    const std::uint32_t enough = object.max == kNone ? std::max(object.min, 1u) : object.max;
    count = std::min(count, enough);
    if (!has_required && count >= object.min) visit({parent, program_->nodes[node].next, 0, 0});
    if (object.max != kNone && count >= object.max) return;
    const Frame frame{node, index, count, 0};
    if (!key_lives(object, frame, 0, object.other_names == nullptr ? Dfa::kDead : 0)) return;
    visit({on(parent, frame), count == 0 ? object.first_entry : object.rest_entry, 0, 0});
}

// ---- byte steps ----------------------------------------------------------------------------------------------

Machine::State Machine::make_step(State state, std::uint8_t byte) {
    if (pause_at_ != kNoPause && steps_left_ <= static_cast<std::uint64_t>(pause_at_)) throw Paused{};
    begin_step();
    const StateRecord record = states_[state];
    for (std::uint32_t i = 0; i < record.count; ++i)
        if (const std::uint32_t top = tops_[record.first + i]; top != kEmptyStack) {
            const Stack stack = stacks_[top];
            step_stack(stack, byte);
        }
    close();
    const State to = intern();
    if (rows_[state] == no_row_.get()) rows_[state] = new_row();
    (*rows_[state])[byte] = to;
    return to;
}

void Machine::step_stack(const Stack& stack, std::uint8_t byte) {
    const Node& node = program_->nodes[stack.frame.node];
    take_steps(1 + node.count, stack.frame.node);
    switch (node.kind) {
        case NodeKind::bytes:
            for (std::uint32_t i = 0; i < node.count; ++i) {
                const ByteEdge& edge = program_->edges[node.first + i];
                if (byte >= edge.lo && byte <= edge.hi) visit({stack.parent, edge.next, 0, 0});
            }
            break;
        case NodeKind::lexeme: {
            const Dfa& dfa = program_->dfas[node.arg];
            const std::uint32_t to = byte < 128 ? dfa.step(stack.frame.b, byte) : Dfa::kDead;
            if (to == Dfa::kDead) break;
            settle(stack.parent, {stack.frame.node, 0, to, 0});
            if (dfa.labels[to] != 0) visit({stack.parent, node.next, 0, 0});
            break;
        }
        case NodeKind::string: step_string(stack, byte); break;
        case NodeKind::key: step_key(stack, byte); break;
        default: break;
    }
}

void Machine::step_string(const Stack& stack, std::uint8_t byte) {
    const Node& node = program_->nodes[stack.frame.node];
    const StringTerminal& string = program_->strings[node.arg];
    const Frame& at = stack.frame;
    const CharStep step = step_char(at.c, byte);
    switch (step.kind) {
        case CharStep::Kind::fail: return;
        case CharStep::Kind::close:
            if (string_ends(string, at.b, at.a)) visit({stack.parent, node.next, 0, 0});
            return;
        case CharStep::Kind::character: {
            const std::uint32_t to = string.dfa == nullptr ? 0 : string.dfa->step(at.b, step.lo[0]);
            const std::uint32_t count = count_after(string, at.a);
            if (string_lives(string, to, count)) settle(stack.parent, {at.node, count, to, 0});
            return;
        }
        case CharStep::Kind::partial:
            if (string_begins(string, at.b, at.a, step)) settle(stack.parent, {at.node, at.a, at.b, step.place});
            return;
    }
}

void Machine::step_key(const Stack& stack, std::uint8_t byte) {
    const Node& node = program_->nodes[stack.frame.node];
    const ObjectTerminal& object = program_->objects[node.arg];
    const Frame& at = stack.frame;
    const Stack below = object_below(stack.parent);
    const CharStep step = step_char(at.c, byte);
    const std::uint32_t names = at.a == kLeftNames ? kNone : at.a;
    const std::uint32_t other = object.other_names == nullptr ? Dfa::kDead : at.b;
    switch (step.kind) {
        case CharStep::Kind::fail: return;
        case CharStep::Kind::close: {
            const KeyEnd end = key_end(object, below.frame, names, other);
            if (end.entry != kNone)
                visit({on(below.parent, {below.frame.node, end.next, below.frame.b + 1, 0}), end.entry, 0, 0});
            return;
        }
        case CharStep::Kind::character: {
            const std::uint32_t to = object.name_after(names, step.lo[0]);
            const std::uint32_t to_other =
                other == Dfa::kDead ? Dfa::kDead : object.other_names->step(other, step.lo[0]);
            if (key_lives(object, below.frame, to, to_other))
                settle(stack.parent, {at.node, to == kNone ? kLeftNames : to, to_other, 0});
            return;
        }
        case CharStep::Kind::partial:
            if (key_begins(object, below.frame, names, other, step))
                settle(stack.parent, {at.node, at.a, at.b, step.place});
            return;
    }
}

}  // namespace tinfer::grammar
