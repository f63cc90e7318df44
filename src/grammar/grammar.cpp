// SPDX-License-Identifier: MIT
// tinfer::Grammar: the public face.
#include "tinfer/grammar.hpp"

#include <algorithm>
#include <utility>

#include "base/access.hpp"
#include "base/error.hpp"
#include "grammar/gbnf.hpp"
#include "grammar/grammar_impl.hpp"
#include "grammar/print.hpp"
#include "grammar/text_walk.hpp"
#include "tokenizer/vocab.hpp"

namespace tinfer {
namespace {

constexpr std::string_view kWhere = "grammar: an allocation failed";

}  // namespace

std::shared_ptr<grammar::Matcher> Grammar::Impl::matcher(const std::shared_ptr<const grammar::TokenTrie>& trie) const {
    const std::scoped_lock lock(mutex);
    std::erase_if(matchers, [](const auto& known) { return known.expired(); });
    for (const auto& known : matchers)
        if (auto found = known.lock(); found != nullptr && found->shared_trie() == trie) return found;
    auto made = std::make_shared<grammar::Matcher>(program, trie, options);
    matchers.push_back(made);
    return made;
}

std::shared_ptr<const grammar::QuoteTokens>
Grammar::Impl::quotes(const std::shared_ptr<const grammar::TokenTrie>& trie) const {
    const std::scoped_lock lock(mutex);
    std::erase_if(quote_tokens, [](const auto& known) { return known.first.expired(); });
    for (const auto& [of, tokens] : quote_tokens)
        if (of.lock() == trie) return tokens;
    return quote_tokens.emplace_back(trie, std::make_shared<const grammar::QuoteTokens>(*trie)).second;
}

std::size_t Grammar::Impl::memory() const noexcept {
    std::size_t n = n_bytes;
    const std::scoped_lock lock(mutex);
    for (const auto& known : matchers)
        if (const auto matcher = known.lock(); matcher != nullptr) n += matcher->memory();
    return n;
}

const std::string& Grammar::Impl::text() const noexcept {
    constexpr std::size_t kMaxBytes = 1u << 20;
    if (checker == nullptr) return program->text;
    try {
        const std::scoped_lock lock(printing);
        if (!std::exchange(is_printed, true)) printed = grammar::print_gbnf(*program, kMaxBytes);
    } catch (...) {  // out of memory: empty, as if it were too long
    }
    return printed;
}

std::shared_ptr<const Grammar::Impl> grammar::compile_gbnf(std::string_view gbnf, const Vocab* vocab,
                                                           const GrammarOptions& options, SchemaWork& work) {
    TokenOfText token_of;
    if (vocab != nullptr)
        token_of = [vocab](std::string_view text) -> std::optional<std::uint32_t> {
            const auto tokens = vocab->encode(text, {.add_special = false, .parse_special = true});
            if (tokens.size() != 1) return std::nullopt;
            return static_cast<std::uint32_t>(tokens[0]);
        };
    return std::make_shared<const Grammar::Impl>(parse_gbnf(gbnf, token_of, options.max_nodes, &work), options);
}

Grammar Grammar::parse(std::string_view gbnf, const GrammarOptions& options) {
    return reporting_memory(kWhere, [&] {
        grammar::SchemaWork work;
        return Grammar(grammar::compile_gbnf(gbnf, nullptr, options, work));
    });
}

Grammar Grammar::parse(std::string_view gbnf, const Vocab& vocab, const GrammarOptions& options) {
    return reporting_memory(kWhere, [&] {
        grammar::SchemaWork work;
        return Grammar(grammar::compile_gbnf(gbnf, &vocab, options, work));
    });
}

bool Grammar::matches(std::string_view text) const {
    return reporting_memory(kWhere, [&] {
        // With warnings, parts of the schema are not enforced: then match what generation allows.
        if (impl_->checker != nullptr && impl_->checker->warnings().empty()) return impl_->checker->matches(text);
        grammar::TextWalk walk(*impl_);
        return std::ranges::all_of(text, [&](char byte) { return walk.read(byte); }) && walk.may_end();
    });
}

std::unique_ptr<TokenConstraint> Grammar::constraint(const Vocab& vocab, GrammarTriggers triggers) const {
    return reporting_memory(kWhere, [&] {
        auto trie = grammar::trie_of(vocab);
        return triggers.empty() ? grammar::make_constraint(impl_, std::move(trie), &vocab)
                                : grammar::make_lazy(impl_, std::move(trie), &vocab, std::move(triggers));
    });
}

std::size_t Grammar::n_rules() const noexcept { return impl_->program->n_rules; }
std::size_t Grammar::n_nodes() const noexcept { return impl_->program->nodes.size(); }
const std::string& Grammar::text() const& noexcept { return impl_->text(); }
const std::vector<std::string>& Grammar::warnings() const& noexcept { return impl_->program->warnings; }

namespace grammar {

std::shared_ptr<const TokenTrie> trie_of(const Vocab& vocab) {
    auto& slot = detail::impl_of(vocab).token_trie;
    const std::scoped_lock lock(slot.mutex);
    if (slot.value == nullptr) {
        std::vector<std::string> pieces(vocab.size());
        std::vector<bool> is_eog(vocab.size());
        for (std::size_t t = 0; t < pieces.size(); ++t) {
            const Token token{static_cast<std::int32_t>(t)};
            pieces[t] = vocab.piece(token, true);
            is_eog[t] = vocab.is_eog(token);
        }
        slot.value = std::make_shared<const TokenTrie>(std::move(pieces), std::move(is_eog));
    }
    return std::static_pointer_cast<const TokenTrie>(slot.value);
}

}  // namespace grammar
}  // namespace tinfer
