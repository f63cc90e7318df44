// SPDX-License-Identifier: MIT
// The token constraint of a grammar: the state after the tokens so far, and earlier states so that callers can rewind.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "grammar/grammar_impl.hpp"

namespace tinfer::grammar {

/// Whether the tokens may follow one after the other; without a constraint they may.
[[nodiscard]] bool may_follow(const TokenConstraint* constraint, std::span<const Token> tokens);

/// A constraint whose masks can be made in slices.
class SlicedConstraint : public TokenConstraint {
public:
    /// Does a part of what the next mask() has to: about n steps, as GrammarOptions::max_steps counts them. True once
    /// mask() has nothing left to compute; where it would throw, this throws the same. Other members may be called
    /// between the parts.
    [[nodiscard]] virtual bool prepare(std::uint64_t n_steps) = 0;
    /// With n above 0, mask() itself does no more than such a part, and throws Paused where that is not enough.
    virtual void pause_after(std::uint64_t n) noexcept = 0;
    /// The grammar, whose memory all of its constraints share.
    [[nodiscard]] virtual const std::shared_ptr<const Grammar::Impl>& grammar() const noexcept = 0;
};

class GrammarConstraint final : public SlicedConstraint {
public:
    GrammarConstraint(std::shared_ptr<const Grammar::Impl> grammar, std::shared_ptr<const TokenTrie> trie,
                      const Vocab* vocab);

    [[nodiscard]] bool allows(Token token) override;
    [[nodiscard]] std::span<const std::uint64_t> mask() override;
    void accept(Token token) override;
    void rewind(std::size_t n) override;
    void reset() override;
    [[nodiscard]] std::unique_ptr<TokenConstraint> clone() const override;
    [[nodiscard]] std::span<const Token> forced() override;
    [[nodiscard]] bool prepare(std::uint64_t n_steps) override;
    void pause_after(std::uint64_t n) noexcept override { pause_after_ = n; }
    [[nodiscard]] const std::shared_ptr<const Grammar::Impl>& grammar() const noexcept override { return grammar_; }

    /// Reads bytes that need not be whole tokens. Returns false, with nothing changed, if the grammar does not allow
    /// them.
    [[nodiscard]] bool accept_bytes(std::string_view bytes);

private:
    static constexpr std::size_t kRemembered = 1024;  // tokens that rewind() can undo
    void make_room();
    void forbid_names();
    void forget_mask() noexcept {
        is_prepared_ = false;
        steps_left_.reset();
    }
    void remember(Machine::State next, const PropertyNames::Place& before);

    std::shared_ptr<const Grammar::Impl> grammar_;
    std::shared_ptr<const TokenTrie> trie_;
    std::optional<Vocab> vocab_;
    std::shared_ptr<Matcher> matcher_;
    Machine::State state_;
    bool has_ended_ = false;               // an end-of-generation token was accepted
    std::vector<Machine::State> history_;  // ring buffer: the states before the last tokens
    std::size_t n_accepted_ = 0, n_remembered_ = 0;
    std::vector<std::uint64_t> mask_;
    bool is_prepared_ = false;                 // mask_ is that of the state
    std::uint64_t pause_after_ = 0;            // steps of mask(); 0: all
    std::optional<std::uint64_t> steps_left_;  // of a mask that prepare() has begun
    // Only where objects of JSON are open: the member names so far, and their state before each of the last tokens.
    std::shared_ptr<const QuoteTokens> quotes_;
    PropertyNames names_;
    std::vector<PropertyNames::Place> places_;  // ring buffer
    std::array<Token, 64> forced_{};
};

}  // namespace tinfer::grammar
