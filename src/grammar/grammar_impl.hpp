// SPDX-License-Identifier: MIT
// The implementation of tinfer::Grammar, and the factories of its constraints.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "grammar/checker.hpp"
#include "grammar/matcher.hpp"
#include "grammar/property_names.hpp"
#include "tinfer/grammar.hpp"

struct tinfer::Grammar::Impl {
    std::shared_ptr<const grammar::Program> program;
    GrammarOptions options;
    std::shared_ptr<grammar::Checker> checker;  ///< validates complete texts against a schema; null for other grammars
    std::size_t n_bytes = 0;                    ///< of the compiled form
    bool has_open_objects = false;              ///< JSON in it may have undeclared names, and must not repeat them
    mutable std::mutex printing;                ///< std::call_once would need thread-local storage
    mutable bool is_printed = false;
    mutable std::string printed;
    mutable std::mutex mutex;
    mutable std::vector<std::pair<std::weak_ptr<const grammar::TokenTrie>, std::shared_ptr<const grammar::QuoteTokens>>>
        quote_tokens;
    mutable std::vector<std::weak_ptr<grammar::Matcher>> matchers;  ///< one for each vocabulary in use

    Impl(std::shared_ptr<const grammar::Program> given, const GrammarOptions& bounds,
         std::shared_ptr<grammar::Checker> of_schema = nullptr)
        : program(std::move(given)), options(bounds), checker(std::move(of_schema)),
          n_bytes(sizeof(Impl) + program->memory() + (checker != nullptr ? checker->memory() : 0)) {
        has_open_objects = program->has_witnesses;
        for (const auto& object : program->objects)
            has_open_objects = has_open_objects || object.other_names != nullptr;
    }
    /// Bytes of the compiled form and of the matchers.
    [[nodiscard]] std::size_t memory() const noexcept;
    /// The tokens of a vocabulary that contain quotes and so may end a name.
    [[nodiscard]] std::shared_ptr<const grammar::QuoteTokens>
    quotes(const std::shared_ptr<const grammar::TokenTrie>& trie) const;
    /// The grammar as given; that of a schema is printed on the first call.
    [[nodiscard]] const std::string& text() const noexcept;
    /// The matcher that all constraints with this vocabulary share.
    [[nodiscard]] std::shared_ptr<grammar::Matcher>
    matcher(const std::shared_ptr<const grammar::TokenTrie>& trie) const;
};

namespace tinfer::grammar {

/// What Grammar::parse() and Schema::parse() do, within a budget. `vocab` null: token items are errors.
[[nodiscard]] std::shared_ptr<const Grammar::Impl> compile_gbnf(std::string_view gbnf, const Vocab* vocab,
                                                                const GrammarOptions& options, SchemaWork& work);
[[nodiscard]] std::shared_ptr<const Grammar::Impl> compile_schema(std::string_view json, const SchemaOptions& options,
                                                                  SchemaWork& work, std::vector<std::string>& warnings);

/// The trie of a vocabulary, built on the first call and cached with it.
[[nodiscard]] std::shared_ptr<const TokenTrie> trie_of(const Vocab& vocab);

/// A constraint that is active from the first token on.
[[nodiscard]] std::unique_ptr<TokenConstraint> make_constraint(std::shared_ptr<const Grammar::Impl> grammar,
                                                               std::shared_ptr<const TokenTrie> trie,
                                                               const Vocab* vocab);
/// A constraint that becomes active at a trigger. Throws bad_parameter.
[[nodiscard]] std::unique_ptr<TokenConstraint> make_lazy(std::shared_ptr<const Grammar::Impl> grammar,
                                                         std::shared_ptr<const TokenTrie> trie, const Vocab* vocab,
                                                         GrammarTriggers triggers);

}  // namespace tinfer::grammar
