// SPDX-License-Identifier: MIT
// The token constraint of a grammar: the state after the tokens so far, and earlier states so that callers can rewind.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "grammar/grammar_impl.hpp"

namespace tinfer::grammar {

class GrammarConstraint final : public TokenConstraint {
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

    /// Reads bytes that need not be whole tokens. Returns false, with nothing changed, if the grammar does not allow
    /// them.
    [[nodiscard]] bool accept_bytes(std::string_view bytes);

private:
    static constexpr std::size_t kRemembered = 1024;  // tokens that rewind() can undo
    void make_room();
    void remember(Machine::State next, const GivenNames::Place& before);

    std::shared_ptr<const Grammar::Impl> grammar_;
    std::shared_ptr<const TokenTrie> trie_;
    std::optional<Vocab> vocab_;
    std::shared_ptr<Matcher> matcher_;
    Machine::State state_;
    bool has_ended_ = false;               // an end-of-generation token was accepted
    std::vector<Machine::State> history_;  // ring buffer: the states before the last tokens
    std::size_t n_accepted_ = 0, n_remembered_ = 0;
    std::vector<std::uint64_t> mask_;
    // Only for schemas whose objects are open: the member names so far, and their state before each of the last tokens.
    std::shared_ptr<const QuoteTokens> quotes_;
    GivenNames names_;
    std::vector<GivenNames::Place> places_;  // ring buffer
    std::array<Token, 64> forced_{};
};

}  // namespace tinfer::grammar
