// SPDX-License-Identifier: MIT
#include "grammar/constraint.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace tinfer::grammar {

GrammarConstraint::GrammarConstraint(std::shared_ptr<const Grammar::Impl> grammar,
                                     std::shared_ptr<const TokenTrie> trie, const Vocab* vocab)
    : grammar_(std::move(grammar)), trie_(std::move(trie)), matcher_(grammar_->matcher(trie_)), history_(kRemembered),
      mask_(trie_->n_words()) {
    if (vocab != nullptr) vocab_ = *vocab;
    if (grammar_->has_open_objects) {
        quotes_ = grammar_->quotes(trie_);
        names_before_.resize(kRemembered);
    }
    const std::scoped_lock lock(matcher_->mutex);
    state_ = matcher_->machine().start();
}

/// What matching remembers is bounded: beyond that a new machine takes over, with the states that are still needed.
void GrammarConstraint::make_room() {
    std::vector<std::vector<std::uint32_t>> saved;
    {
        const std::scoped_lock lock(matcher_->mutex);
        if (matcher_->machine().memory() <= grammar_->options.max_cache_bytes) return;
        saved.push_back(matcher_->machine().save(state_));
        for (std::size_t i = 0; i < n_remembered_; ++i)
            saved.push_back(matcher_->machine().save(history_[(n_accepted_ - n_remembered_ + i) % kRemembered]));
    }
    auto fresh = std::make_shared<Matcher>(grammar_->program, trie_);
    fresh->max_steps = grammar_->options.max_steps;
    {
        const std::scoped_lock lock(grammar_->mutex);
        for (auto& known : grammar_->matchers)
            if (known.lock() == matcher_) known = fresh;
    }
    const std::scoped_lock lock(fresh->mutex);
    state_ = fresh->machine().load(saved[0]);
    for (std::size_t i = 0; i < n_remembered_; ++i)
        history_[(n_accepted_ - n_remembered_ + i) % kRemembered] = fresh->machine().load(saved[i + 1]);
    matcher_ = std::move(fresh);
}

bool GrammarConstraint::allows(Token token) {
    const auto id = static_cast<std::uint32_t>(token);
    if (id >= trie_->size() || has_ended_) return false;
    make_room();
    const std::scoped_lock lock(matcher_->mutex);
    if (trie_->is_eog(id) && matcher_->machine().accepts(state_)) return true;
    return matcher_->step(state_, id) != Machine::kDead && (quotes_ == nullptr || names_.allows(trie_->piece(id)));
}

std::span<const std::uint64_t> GrammarConstraint::mask() {
    if (has_ended_) {
        std::ranges::fill(mask_, 0);
        return mask_;
    }
    make_room();
    const std::scoped_lock lock(matcher_->mutex);
    matcher_->mask(state_, mask_);
    if (quotes_ != nullptr) quotes_->forbid(names_, *trie_, mask_);
    return mask_;
}

void GrammarConstraint::remember(Machine::State next, GivenNames names) {
    if (quotes_ != nullptr) names_before_[n_accepted_ % kRemembered] = std::exchange(names_, std::move(names));
    history_[n_accepted_++ % kRemembered] = state_;
    n_remembered_ = std::min(n_remembered_ + 1, kRemembered);
    state_ = next;
}

void GrammarConstraint::accept(Token token) {
    const auto id = static_cast<std::uint32_t>(token);
    const auto refuse = [&] {
        fail(ErrorCode::grammar_violation,
             cat("the grammar does not allow token ", static_cast<std::int32_t>(token),
                 id < trie_->size() ? cat(" '", escaped(trie_->piece(id)), "'") : std::string(), " here"));
    };
    if (id >= trie_->size() || has_ended_) refuse();
    make_room();
    const std::scoped_lock lock(matcher_->mutex);
    const Machine::State next = matcher_->step(state_, id);
    if (next != Machine::kDead) {
        GivenNames names = names_;
        if (quotes_ != nullptr && !names.read(trie_->piece(id))) refuse();
        return remember(next, std::move(names));
    }
    if (!trie_->is_eog(id) || !matcher_->machine().accepts(state_)) refuse();
    remember(state_, names_);
    has_ended_ = true;
}

bool GrammarConstraint::accept_bytes(std::string_view bytes) {
    make_room();
    const std::scoped_lock lock(matcher_->mutex);
    matcher_->machine().allow(matcher_->max_steps);
    Machine::State next = state_;
    for (const char byte : bytes) next = matcher_->machine().step(next, static_cast<std::uint8_t>(byte));
    if (next == Machine::kDead) return false;
    if (quotes_ != nullptr) {
        GivenNames names = names_;
        if (!names.read(bytes)) return false;
        names_ = std::move(names);
    }
    state_ = next;
    return true;
}

void GrammarConstraint::rewind(std::size_t n) {
    if (n > n_remembered_)
        fail(ErrorCode::bad_parameter, cat("rewind: ", n, " tokens, but ", n_remembered_, " are remembered"));
    if (n == 0) return;
    n_accepted_ -= n;
    n_remembered_ -= n;
    state_ = history_[n_accepted_ % kRemembered];
    if (quotes_ != nullptr) names_ = names_before_[n_accepted_ % kRemembered];
    has_ended_ = false;
}

void GrammarConstraint::reset() {
    const std::scoped_lock lock(matcher_->mutex);
    state_ = matcher_->machine().start();
    n_accepted_ = n_remembered_ = 0;
    names_ = {};
    has_ended_ = false;
}

std::unique_ptr<TokenConstraint> GrammarConstraint::clone() const { return std::make_unique<GrammarConstraint>(*this); }

std::vector<Token> GrammarConstraint::forced() {
    constexpr std::size_t kLongest = 4096;  // bytes
    if (has_ended_ || !vocab_) return {};
    std::string bytes;
    bool ends = false;
    {
        make_room();
        const std::scoped_lock lock(matcher_->mutex);
        GivenNames names = names_;
        matcher_->machine().allow(matcher_->max_steps);
        for (Machine::State state = state_; bytes.size() < kLongest;) {
            const int byte = matcher_->machine().forced_byte(state);
            const char text[] = {static_cast<char>(byte)};
            if (byte < 0 || (quotes_ != nullptr && !names.read({text, 1}))) {
                ends = byte < 0 && matcher_->machine().accepts(state);
                break;
            }
            bytes += static_cast<char>(byte);
            state = matcher_->machine().step(state, static_cast<std::uint8_t>(byte));
        }
    }
    if (bytes.empty()) return {};
    std::vector<Token> tokens = vocab_->encode(bytes, {.add_special = false});
    // The last token may be the begin of a longer one, whose rest is the model's choice.
    if (!ends && !tokens.empty()) tokens.pop_back();
    std::string spelled;
    for (const Token token : tokens) spelled += trie_->piece(static_cast<std::uint32_t>(token));
    // A vocabulary may put a space in front of a text; such tokens are not these bytes.
    if (!bytes.starts_with(spelled)) return {};
    return tokens;
}

std::unique_ptr<TokenConstraint> make_constraint(std::shared_ptr<const Grammar::Impl> grammar,
                                                 std::shared_ptr<const TokenTrie> trie, const Vocab* vocab) {
    return std::make_unique<GrammarConstraint>(std::move(grammar), std::move(trie), vocab);
}

}  // namespace tinfer::grammar
