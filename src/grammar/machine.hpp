// SPDX-License-Identifier: MIT
// Runs a Program over bytes. A state of the match is a set of stacks. What lies below the top of a stack is a set of
// stacks, too (a graph-structured stack: Tomita, Computational Linguistics 13, 1987), so that the ways to have come to
// one place are followed as one. Stacks and states are kept once each under a number, with the successors that were
// asked for, so that a grammar becomes, as it is used, a table that a walk over the vocabulary only reads. One thread
// at a time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "grammar/json_text.hpp"
#include "grammar/program.hpp"

namespace tinfer::grammar {

/// One entry of a stack: a node and how far inside it the match is.
struct Frame {
    std::uint32_t node = 0;
    std::uint32_t a = 0;  ///< repeat: times; string: characters; object: next property; key: node of the trie;
                          ///< choice: bits of the values given
    std::uint32_t b = 0;  ///< lexeme, string, key: state of the automaton; object: members so far; choice: upper bits
    std::uint32_t c = 0;  ///< string, key: place in a character
    bool operator==(const Frame&) const = default;
};

class Machine {
public:
    using State = std::uint32_t;
    static constexpr State kDead = 0;
    /// More stacks at once are grammar_too_ambiguous.
    static constexpr std::size_t kMaxStacks = 100'000;
    /// More states in one machine are limit_exceeded; each takes a kilobyte.
    static constexpr std::size_t kMaxStates = 400'000;

    /// So many stacks are followed one by one; more of one frame become one.
    static constexpr std::size_t kFewStacks = 16;

    /// `max_piece` is the largest number of bytes in a token: what a bound farther away than that does, no token sees.
    Machine(std::shared_ptr<const Program> program, std::size_t max_piece, std::size_t few_stacks = kFewStacks);

    [[nodiscard]] State start() const noexcept { return start_; }
    [[nodiscard]] State step(State state, std::uint8_t byte) {
        const std::uint32_t to = (*rows_[state])[byte];
        return to != kUnknown ? to : make_step(state, byte);
    }
    /// From here on so many steps may be taken until the next call; one more is limit_exceeded. What was asked before
    /// is remembered and costs no step.
    void allow(std::uint64_t max_steps) noexcept { max_steps_ = steps_left_ = max_steps; }
    [[nodiscard]] std::uint64_t steps_left() const noexcept { return steps_left_; }
    [[nodiscard]] bool accepts(State state) const noexcept { return states_[state].accepts; }
    /// The state that stands for all with the same allowed tokens as far as counters go.
    [[nodiscard]] State abstract(State state);
    /// Adds where a token as a whole leads; kDead where nowhere.
    [[nodiscard]] State step_token(State state, std::uint32_t token, bool is_eog);
    [[nodiscard]] bool has_token_items(State state) const;
    /// The token items that the state is at: (token, is any other one).
    void token_items(State state, std::vector<std::pair<std::uint32_t, bool>>& out) const;
    [[nodiscard]] State unite(State a, State b);

    /// A stack that stands in a string or a key, between two characters.
    struct InString {
        State parent;
        Frame frame;
        Frame below;  ///< of a key: that of the object
    };
    /// Whether the state has a stack in a string or a key.
    [[nodiscard]] bool is_in_string(State state) const noexcept;
    /// Appends the stacks of the state that stand so; returns the state of the others.
    [[nodiscard]] State split_strings(State state, std::vector<InString>& strings);
    /// Behind the quote that closes the string, wherever in the string it stands.
    [[nodiscard]] State close_string(const InString& at);
    /// What follows a key: the rule of its value, kNone where it may not end so, and where the object is then.
    struct KeyEnd {
        std::uint32_t entry = kNone, next = 0;
        bool operator==(const KeyEnd&) const = default;
    };
    [[nodiscard]] State close_key(const InString& at, const KeyEnd& end);

    // The rules of strings and keys, by the state of their automaton, the number of characters or the node of the
    // names (kNone: left them), and the frame of the object.
    static constexpr std::uint32_t kFarBelow = 0xFFFFFFFD, kFarInside = 0xFFFFFFFE;  // counters that no token moves
    [[nodiscard]] static constexpr bool is_far(std::uint32_t count) noexcept {
        return count == kFarBelow || count == kFarInside;
    }
    static constexpr std::uint32_t kLeftNames = 0xFFFFFFFE;  // of Frame::a of a key: no declared name begins so
    /// Whether a string can still end.
    [[nodiscard]] static bool string_lives(const StringTerminal& string, std::uint32_t state,
                                           std::uint32_t count) noexcept;
    [[nodiscard]] static std::uint32_t count_after(const StringTerminal& string, std::uint32_t count) noexcept;
    [[nodiscard]] static bool string_ends(const StringTerminal& string, std::uint32_t state,
                                          std::uint32_t count) noexcept;
    /// Whether a string lives with a character out of the ranges.
    [[nodiscard]] static bool string_begins(const StringTerminal& string, std::uint32_t state, std::uint32_t count,
                                            const CharStep& begun) noexcept;
    [[nodiscard]] static bool key_lives(const ObjectTerminal& object, const Frame& frame, std::uint32_t names,
                                        std::uint32_t state) noexcept;
    [[nodiscard]] static KeyEnd key_end(const ObjectTerminal& object, const Frame& frame, std::uint32_t names,
                                        std::uint32_t state) noexcept;
    [[nodiscard]] static bool key_begins(const ObjectTerminal& object, const Frame& frame, std::uint32_t names,
                                         std::uint32_t state, const CharStep& begun) noexcept;
    /// Appends what follows where the text goes on in one way, and moves the state behind it; false where there is a
    /// choice, an end or a token item. A character of a string is spelled without an escape that it does not need.
    [[nodiscard]] bool append_forced(State& state, std::string& out);

    /// A state as numbers that another machine of the same program understands, and back.
    [[nodiscard]] std::vector<std::uint32_t> save(State state) const;
    [[nodiscard]] State load(std::span<const std::uint32_t> saved);

    [[nodiscard]] std::size_t n_states() const noexcept { return states_.size(); }
    [[nodiscard]] std::size_t n_stacks() const noexcept { return stacks_.size(); }
    [[nodiscard]] std::size_t memory() const noexcept {
        return row_bytes_ + rows_.capacity() * sizeof(Row*) + states_.capacity() * sizeof(StateRecord) +
               stacks_.capacity() * sizeof(Stack) + tops_.capacity() * 4;
    }
    [[nodiscard]] const Program& program() const noexcept { return *program_; }

private:
    static constexpr std::uint32_t kEmptyStack = 0;
    static constexpr std::uint32_t kUnknown = 0xFFFFFFFF;

    [[nodiscard]] int forced_byte(State state);
    [[nodiscard]] std::uint32_t forced_char(State state) const;

    using Row = std::array<std::uint32_t, 256>;  // the successors of a state, kUnknown until asked for

    struct Stack {
        State parent;  // all that may lie below the frame; below a key that of its object alone
        Frame frame;
        State alone = kUnknown;     // the state of this stack, kUnknown until asked for
        std::uint32_t left_in = 0;  // the step that left its rule last
    };
    struct StateRecord {
        std::uint32_t first, count;  // in tops_, ascending
        std::uint32_t abstracted;    // kUnknown until asked for
        bool accepts;
    };
    struct Item {
        State parent;
        std::uint32_t node, a, b;
        bool operator==(const Item&) const = default;
    };

    void begin_step() {
        out_.clear();
        work_.clear();
        seen_.clear();
        seen_table_.clear();
        if (++n_steps_ != 0) return;
        for (Stack& stack : stacks_) stack.left_in = 0;
        n_steps_ = 1;
    }
    [[nodiscard]] Row* new_row();
    State make_step(State state, std::uint8_t byte);
    void step_stack(const Stack& stack, std::uint8_t byte);
    void step_string(const Stack& stack, std::uint8_t byte);
    void step_key(const Stack& stack, std::uint8_t byte);
    void visit(const Item& item);
    void take_steps(std::uint64_t n, std::uint32_t node) {
        if (n > steps_left_) refuse_steps(node);
        steps_left_ -= n;
    }
    [[noreturn]] void refuse_steps(std::uint32_t node) const;
    void close();
    void settle(State parent, const Frame& frame) { out_.push_back(push(parent, frame)); }
    void leave(State parent);
    void expand(const Item& item);
    void enter_choice(const Item& item);
    void enter_object(State parent, std::uint32_t node, std::uint32_t index, std::uint32_t count);
    std::uint32_t push(State parent, const Frame& frame);
    [[nodiscard]] State alone(std::uint32_t stack);
    [[nodiscard]] State on(State parent, const Frame& frame) { return alone(push(parent, frame)); }
    [[nodiscard]] const Stack& object_below(State parent) const { return stacks_[tops_[states_[parent].first]]; }
    [[nodiscard]] bool is_key(const Stack& stack) const;
    [[nodiscard]] State below(std::uint32_t stack) const;
    void merge(std::vector<std::uint32_t>& stacks);
    [[nodiscard]] State far_repeats(State parent);
    [[nodiscard]] State state_of(std::span<const std::uint32_t> stacks);
    State intern();

    std::shared_ptr<const Program> program_;
    std::uint32_t max_piece_;
    std::size_t few_stacks_;
    std::vector<Stack> stacks_;
    std::vector<std::uint32_t> stack_table_, state_table_;  // open addressing, kUnknown where free
    std::vector<StateRecord> states_;
    std::vector<std::uint32_t> tops_;
    std::vector<Row*> rows_;  // {states}: no_row_ until a step from the state is asked for
    std::unique_ptr<Row> no_row_;
    std::vector<std::unique_ptr<Row[]>> row_blocks_;  // which do not move when there are more
    std::size_t rows_left_ = 0, row_bytes_ = 0;
    State start_ = kDead;
    std::uint64_t max_steps_ = ~std::uint64_t{0}, steps_left_ = ~std::uint64_t{0};
    // Of one step:
    std::uint32_t n_steps_ = 1;
    std::vector<std::uint32_t> out_, below_;
    std::vector<Item> work_, seen_;
    std::vector<std::uint32_t> seen_table_;
};

}  // namespace tinfer::grammar
