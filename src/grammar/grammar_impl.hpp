// SPDX-License-Identifier: MIT
// What stands behind tinfer::Grammar, and the constraint it makes.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "grammar/matcher.hpp"
#include "tinfer/grammar.hpp"

struct tinfer::Grammar::Impl {
    std::shared_ptr<const grammar::Program> program;
    GrammarOptions options;
    mutable std::mutex mutex;
    mutable std::vector<std::weak_ptr<grammar::Matcher>> matchers;  ///< one for each vocabulary in use

    Impl(std::shared_ptr<const grammar::Program> given, const GrammarOptions& bounds)
        : program(std::move(given)), options(bounds) {}
    /// The matcher that constraints of this vocabulary share.
    [[nodiscard]] std::shared_ptr<grammar::Matcher>
    matcher(const std::shared_ptr<const grammar::TokenTrie>& trie) const;
};

namespace tinfer::grammar {

/// The trie of a vocabulary, made at the first call and kept with it.
[[nodiscard]] std::shared_ptr<const TokenTrie> trie_of(const Vocab& vocab);

/// A constraint that binds from the first token on.
[[nodiscard]] std::unique_ptr<TokenConstraint> make_constraint(std::shared_ptr<const Grammar::Impl> grammar,
                                                               std::shared_ptr<const TokenTrie> trie,
                                                               const Vocab* vocab);
/// The same, waiting for a trigger. Throws bad_parameter.
[[nodiscard]] std::unique_ptr<TokenConstraint> make_lazy(std::shared_ptr<const Grammar::Impl> grammar,
                                                         std::shared_ptr<const TokenTrie> trie, const Vocab* vocab,
                                                         GrammarTriggers triggers);

}  // namespace tinfer::grammar
