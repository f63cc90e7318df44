// SPDX-License-Identifier: MIT
// Runs a Program over bytes. A state is a set of stacks, and below the top of a stack lies again a set of stacks (a
// graph-structured stack: Tomita, Computational Linguistics 13, 1987), so that different derivations that reach the
// same node are followed together. Stacks and states are interned, and a state caches its successors: with use a
// grammar becomes a transition table, which a walk over the vocabulary only reads. Not thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "grammar/json_text.hpp"
#include "grammar/program.hpp"

namespace tinfer::grammar {

/// Thrown where the steps of a slice are used up. Not an error.
struct Paused {};

/// One entry of a stack: a node and the progress inside it.
struct Frame {
    std::uint32_t node = 0;
    /// repeat: repetitions; string: characters; object: next property; key: node of the name trie; choice: lower bits
    /// of the set of values used
    std::uint32_t a = 0;
    std::uint32_t b = 0;  ///< lexeme, string, key: state of the DFA; object: members so far; choice: upper bits
    std::uint32_t c = 0;  ///< string, key: position within a character
    bool operator==(const Frame&) const = default;
};

class Machine {
public:
    using State = std::uint32_t;
    static constexpr State kDead = 0;
    /// More stacks in one state are grammar_too_ambiguous.
    static constexpr std::size_t kMaxStacks = 100'000;
    /// More states in one machine are limit_exceeded; each takes a kilobyte.
    static constexpr std::size_t kMaxStates = 400'000;

    /// Up to this many stacks are kept apart; beyond, stacks with equal frames are merged.
    static constexpr std::size_t kFewStacks = 16;

    /// `max_piece` is the length in bytes of the longest token: no token can reach a bound that is farther away.
    Machine(std::shared_ptr<const Program> program, std::size_t max_piece, std::size_t few_stacks = kFewStacks);

    [[nodiscard]] State start() const noexcept { return start_; }
    [[nodiscard]] State step(State state, std::uint8_t byte) {
        const std::uint32_t to = (*rows_[state])[byte];
        return to != kUnknown ? to : make_step(state, byte);
    }
    /// Sets the budget of steps until the next call; exceeding it is limit_exceeded. Cached successors cost no step.
    void allow(std::uint64_t max_steps) noexcept {
        max_steps_ = steps_left_ = max_steps;
        pause_at_ = kNoPause;
    }
    /// Goes on with a budget of which `steps_left` are left, and throws Paused after about n of them, between two
    /// bytes. What was computed is known then, so whoever begins again comes further.
    void go_on(std::uint64_t max_steps, std::uint64_t steps_left, std::uint64_t n) noexcept {
        max_steps_ = max_steps;
        steps_left_ = steps_left;
        pause_at_ = static_cast<std::int64_t>(steps_left - std::min(std::max<std::uint64_t>(n, 1), steps_left));
    }
    [[nodiscard]] std::uint64_t steps_left() const noexcept { return steps_left_; }
    [[nodiscard]] bool accepts(State state) const noexcept { return states_[state].accepts; }
    /// Whether the next byte may belong to a JSON document (Program::add_document).
    [[nodiscard]] bool in_document(State state) const noexcept { return states_[state].in_document; }
    /// A representative of all states that differ only in counters which no token can drive to a bound, so that they
    /// share one mask.
    [[nodiscard]] State abstract(State state);
    /// The state after a token item of the grammar that matches this token; kDead if there is none.
    [[nodiscard]] State step_token(State state, std::uint32_t token, bool is_eog);
    [[nodiscard]] bool has_token_items(State state) const;
    /// The token items expected in this state: (token, whether any token but this one is meant).
    void token_items(State state, std::vector<std::pair<std::uint32_t, bool>>& out) const;
    [[nodiscard]] State unite(State a, State b);

    /// A stack whose top is a string or a key, between two characters.
    struct InString {
        State parent;
        Frame frame;
        Frame below;  ///< of a key: that of the object
    };
    /// Whether the state has a stack inside a string or a key.
    [[nodiscard]] bool is_in_string(State state) const noexcept;
    /// Appends the stacks that are so; returns the state made of the others.
    [[nodiscard]] State split_strings(State state, std::vector<InString>& strings);
    /// The state after the quote that closes the string.
    [[nodiscard]] State close_string(const InString& at);
    /// What follows a key: the rule of its value, kNone if the key may not end here, and the object's next property.
    struct KeyEnd {
        std::uint32_t entry = kNone, next = 0;
        bool operator==(const KeyEnd&) const = default;
    };
    [[nodiscard]] State close_key(const InString& at, const KeyEnd& end);

    static constexpr std::uint32_t kFarBelow = 0xFFFFFFFD, kFarInside = 0xFFFFFFFE;  // no token reaches a bound
    [[nodiscard]] static constexpr bool is_far(std::uint32_t count) noexcept {
        return count == kFarBelow || count == kFarInside;
    }
    static constexpr std::uint32_t kLeftNames = 0xFFFFFFFE;  // Frame::a of a key that is no prefix of a declared name
    // The rules of strings and keys. `state` is the state of their DFA, `count` the number of characters, `names` the
    // node of the name trie (kNone: the text is no prefix of a declared name), `frame` that of the object.
    /// Whether the string can still be completed.
    [[nodiscard]] static bool string_lives(const StringTerminal& string, std::uint32_t state,
                                           std::uint32_t count) noexcept;
    [[nodiscard]] static std::uint32_t count_after(const StringTerminal& string, std::uint32_t count) noexcept;
    [[nodiscard]] static bool string_ends(const StringTerminal& string, std::uint32_t state,
                                          std::uint32_t count) noexcept;
    /// The same after one of the characters that `begun` can still become.
    [[nodiscard]] static bool string_begins(const StringTerminal& string, std::uint32_t state, std::uint32_t count,
                                            const CharStep& begun) noexcept;
    [[nodiscard]] static bool key_lives(const ObjectTerminal& object, const Frame& frame, std::uint32_t names,
                                        std::uint32_t state) noexcept;
    [[nodiscard]] static KeyEnd key_end(const ObjectTerminal& object, const Frame& frame, std::uint32_t names,
                                        std::uint32_t state) noexcept;
    [[nodiscard]] static bool key_begins(const ObjectTerminal& object, const Frame& frame, std::uint32_t names,
                                         std::uint32_t state, const CharStep& begun) noexcept;
    /// If the text can continue in only one way, appends that byte or character and advances the state; false if there
    /// is a choice, a possible end or a token item. Characters of strings are escaped only if they have to be.
    [[nodiscard]] bool append_forced(State& state, std::string& out);

    /// Serializes a state for another machine of the same program.
    [[nodiscard]] std::vector<std::uint32_t> save(State state) const;
    [[nodiscard]] State load(std::span<const std::uint32_t> saved);

    [[nodiscard]] std::size_t n_states() const noexcept { return states_.size(); }
    [[nodiscard]] std::size_t n_stacks() const noexcept { return stacks_.size(); }
    [[nodiscard]] std::size_t memory() const noexcept {
        return row_bytes_ + rows_.capacity() * sizeof(Row*) + states_.capacity() * sizeof(StateRecord) +
               stacks_.capacity() * sizeof(Stack) + (work_.capacity() + seen_.capacity()) * sizeof(Item) +
               (tops_.capacity() + stack_table_.capacity() + state_table_.capacity() + seen_table_.capacity() +
                out_.capacity() + below_.capacity()) *
                   sizeof(std::uint32_t);
    }
    /// More is limit_exceeded from now on.
    void limit_memory(std::size_t bytes) noexcept { max_memory_ = bytes; }
    [[nodiscard]] const Program& program() const noexcept { return *program_; }

private:
    static constexpr std::uint32_t kEmptyStack = 0;
    static constexpr std::uint32_t kUnknown = 0xFFFFFFFF;

    [[nodiscard]] int forced_byte(State state);
    [[nodiscard]] std::uint32_t forced_char(State state) const;

    using Row = std::array<std::uint32_t, 256>;  // the successors of a state, kUnknown until computed

    struct Stack {
        State parent;  // the stacks below the frame; below a key only the object's stack
        Frame frame;
        State alone = kUnknown;     // the state that has only this stack, kUnknown until computed
        std::uint32_t left_in = 0;  // the last step in which leave() returned to it
    };
    struct StateRecord {
        std::uint32_t first, count;  // range of tops_, ascending
        std::uint32_t abstracted;    // kUnknown until computed
        bool accepts, in_document;
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
    /// Refuses an allocation of so many bytes that the limit does not allow.
    void take_memory(std::size_t bytes) const;
    /// Makes room for n more elements.
    template <class T>
    void grow(std::vector<T>& list, std::size_t n = 1) {
        if (list.capacity() - list.size() >= n) return;
        const std::size_t capacity = std::max(2 * list.size() + 16, list.size() + n);
        take_memory(capacity * sizeof(T));
        list.reserve(capacity);
    }
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
    std::vector<Row*> rows_;  // {states}: no_row_ until the first step from the state
    std::unique_ptr<Row> no_row_;
    std::vector<std::unique_ptr<Row[]>> row_blocks_;  // in blocks, so that rows keep their addresses
    std::size_t rows_left_ = 0, row_bytes_ = 0;
    State start_ = kDead;
    static constexpr std::int64_t kNoPause = -1;
    std::uint64_t max_steps_ = ~std::uint64_t{0}, steps_left_ = ~std::uint64_t{0};
    std::int64_t pause_at_ = kNoPause;  // with so many steps left, or fewer
    std::size_t max_memory_ = ~std::size_t{0};
    // Of one step:
    std::uint32_t n_steps_ = 1;
    std::vector<std::uint32_t> out_, below_;
    std::vector<Item> work_, seen_;
    std::vector<std::uint32_t> seen_table_;
};

}  // namespace tinfer::grammar
