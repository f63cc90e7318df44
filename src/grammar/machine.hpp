// SPDX-License-Identifier: MIT
// Runs a Program over bytes. A state of the match is a set of stacks; stacks and states are kept once each under a
// number, with the successors that were asked for, so that a grammar becomes, as it is used, a table that a walk over
// the vocabulary only reads. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "grammar/json_text.hpp"
#include "grammar/program.hpp"

namespace tinfer::grammar {

/// One entry of a stack: a node and how far inside it the match is.
struct Frame {
    std::uint32_t node = 0;
    std::uint32_t a = 0;  ///< repeat: times; string: characters; object: next property; key: node of the trie
    std::uint32_t b = 0;  ///< lexeme, string, key: state of the automaton; object: members so far
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

    /// `max_piece` is the largest number of bytes in a token: what a bound farther away than that does, no token sees.
    Machine(std::shared_ptr<const Program> program, std::size_t max_piece);

    [[nodiscard]] State start() const noexcept { return start_; }
    [[nodiscard]] State step(State state, std::uint8_t byte) {
        const std::uint32_t to = rows_[static_cast<std::size_t>(state) * 256 + byte];
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
    /// Inside a string all of whose further characters are free: how many of them, at most; 0 elsewhere.
    [[nodiscard]] std::uint32_t free_characters(State state) const;

    /// Whether the text so far was read in one way only.
    [[nodiscard]] bool is_alone(State state) const noexcept { return states_[state].count == 1; }
    /// The one byte that can follow, −1 where there is a choice, an end or a token item.
    [[nodiscard]] int forced_byte(State state);

    /// A state as numbers that another machine of the same program understands, and back.
    [[nodiscard]] std::vector<std::uint32_t> save(State state) const;
    [[nodiscard]] State load(std::span<const std::uint32_t> saved);

    [[nodiscard]] std::size_t n_states() const noexcept { return states_.size(); }
    [[nodiscard]] std::size_t memory() const noexcept {
        return rows_.capacity() * 4 + stacks_.capacity() * sizeof(Stack) + tops_.capacity() * 4;
    }
    [[nodiscard]] const Program& program() const noexcept { return *program_; }
    [[nodiscard]] const std::shared_ptr<const Program>& shared_program() const noexcept { return program_; }

private:
    static constexpr std::uint32_t kEmptyStack = 0;
    static constexpr std::uint32_t kLeftNames = 0xFFFFFFFE;  // of Frame::a of a key: no declared name begins so
    static constexpr std::uint32_t kUnknown = 0xFFFFFFFF;
    static constexpr std::uint32_t kFarBelow = 0xFFFFFFFD, kFarInside = 0xFFFFFFFE;  // counters that no token moves

    struct Stack {
        std::uint32_t parent;
        Frame frame;
    };
    struct StateRecord {
        std::uint32_t first, count;  // in tops_, ascending
        std::uint32_t abstracted;    // kUnknown until asked for
        bool accepts;
    };
    struct Item {
        std::uint32_t parent, node, a, b;
        bool operator==(const Item&) const = default;
    };

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
    void settle(std::uint32_t parent, const Frame& frame) { out_.push_back(push(parent, frame)); }
    void leave(std::uint32_t parent);
    void expand(const Item& item);
    void enter_object(std::uint32_t parent, std::uint32_t node, std::uint32_t index, std::uint32_t count);
    [[nodiscard]] bool string_lives(const StringTerminal& string, std::uint32_t state,
                                    std::uint32_t count) const noexcept;
    /// The properties, first and last, that may be the next member.
    [[nodiscard]] static std::pair<std::uint32_t, std::uint32_t> next_properties(const ObjectTerminal& object,
                                                                                 const Frame& frame) noexcept;
    [[nodiscard]] bool key_lives(const ObjectTerminal& object, const Frame& frame, std::uint32_t trie,
                                 std::uint32_t state) const noexcept;
    std::uint32_t push(std::uint32_t parent, const Frame& frame);
    State intern();

    std::shared_ptr<const Program> program_;
    std::uint32_t max_piece_;
    std::vector<Stack> stacks_;
    std::vector<std::uint32_t> stack_table_, state_table_;  // open addressing, kUnknown where free
    std::vector<StateRecord> states_;
    std::vector<std::uint32_t> tops_, rows_;
    State start_ = kDead;
    std::uint64_t max_steps_ = ~std::uint64_t{0}, steps_left_ = ~std::uint64_t{0};
    // Of one step:
    std::vector<std::uint32_t> out_;
    std::vector<Item> work_, seen_;
    std::vector<std::uint32_t> seen_table_;
};

}  // namespace tinfer::grammar
