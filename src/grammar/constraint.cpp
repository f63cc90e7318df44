// SPDX-License-Identifier: MIT
#include "grammar/constraint.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace tinfer::grammar {
namespace {

/// Whether the pieces of the tokens, joined, are the text; drops the tokens before byte `begin`.
bool spell(std::vector<Token>& tokens, const TokenTrie& trie, std::string_view text, std::size_t begin) {
    std::size_t at = 0, n_dropped = 0;
    for (const Token token : tokens) {
        const std::string_view piece = trie.piece(static_cast<std::uint32_t>(token));
        if (!text.substr(at).starts_with(piece) || (at < begin && at + piece.size() > begin)) return false;
        at += piece.size();
        if (at <= begin) ++n_dropped;
    }
    tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n_dropped));
    return at == text.size();
}

/// How the vocabulary tokenizes the text after its leading newline; no tokens if their bytes would differ from the
/// text.
void find_tokens(const Vocab& vocab, const TokenTrie& trie, std::string_view text, std::vector<Token>& tokens) {
    const auto encode = [&](std::string_view part) {
        tokens.resize(2 * part.size() + 2);
        const std::size_t n = vocab.encode_into(part, {.add_special = false}, tokens);
        tokens.resize(n <= tokens.size() ? n : 0);
    };
    encode(text.substr(1));
    if (spell(tokens, trie, text.substr(1), 0)) return;
    // Some vocabularies prepend a space to a text, but insert none after a newline.
    encode(text);
    if (!tokens.empty() && trie.piece(static_cast<std::uint32_t>(tokens[0])) == " ") tokens.erase(tokens.begin());
    if (!spell(tokens, trie, text, 1)) tokens.clear();
}

}  // namespace

bool may_follow(const TokenConstraint* constraint, std::span<const Token> tokens) {
    if (constraint == nullptr) return true;
    const auto copy = constraint->clone();
    return std::ranges::all_of(tokens, [&](Token token) {
        if (!copy->allows(token)) return false;
        copy->accept(token);
        return true;
    });
}

GrammarConstraint::GrammarConstraint(std::shared_ptr<const Grammar::Impl> grammar,
                                     std::shared_ptr<const TokenTrie> trie, const Vocab* vocab)
    : grammar_(std::move(grammar)), trie_(std::move(trie)), matcher_(grammar_->matcher(trie_)), history_(kRemembered),
      mask_(trie_->n_words()) {
    if (vocab != nullptr) vocab_ = *vocab;
    if (grammar_->has_open_objects) {
        quotes_ = grammar_->quotes(trie_);
        names_ = PropertyNames(true);
        places_.resize(kRemembered);
    }
    const std::scoped_lock lock(matcher_->mutex);
    state_ = matcher_->machine().start();
}

/// Bounds the cache: beyond max_cache_bytes a new machine takes over, with only the states that are still needed.
void GrammarConstraint::make_room() {
    std::vector<std::vector<std::uint32_t>> saved;
    {
        const std::scoped_lock lock(matcher_->mutex);
        if (matcher_->machine().memory() <= grammar_->options.max_cache_bytes) return;
        saved.push_back(matcher_->machine().save(state_));
        for (std::size_t i = 0; i < n_remembered_; ++i)
            saved.push_back(matcher_->machine().save(history_[(n_accepted_ - n_remembered_ + i) % kRemembered]));
    }
    auto fresh = std::make_shared<Matcher>(grammar_->program, trie_, grammar_->options);
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
    return matcher_->step(state_, id) != Machine::kDead &&
           (quotes_ == nullptr || names_.allows(matcher_->machine(), state_, trie_->piece(id)));
}

/// Takes the tokens that would repeat a name out of the mask.
void GrammarConstraint::forbid_names() {
    if (quotes_ == nullptr) return;
    matcher_->machine().allow(matcher_->max_steps);
    quotes_->forbid(names_, matcher_->machine(), state_, *trie_, mask_);
}

std::span<const std::uint64_t> GrammarConstraint::mask() {
    if (has_ended_) {
        std::ranges::fill(mask_, 0);
        return mask_;
    }
    if (is_prepared_) return mask_;
    if (pause_after_ > 0) {
        if (!prepare(pause_after_)) throw Paused{};
        return mask_;
    }
    make_room();
    const std::scoped_lock lock(matcher_->mutex);
    matcher_->mask(state_, mask_);
    forbid_names();
    return mask_;
}

bool GrammarConstraint::prepare(std::uint64_t n_steps) {
    if (has_ended_ || is_prepared_) return true;
    if (!steps_left_) {  // room is made between masks alone: a new machine would begin the mask again
        make_room();
        steps_left_ = grammar_->options.max_steps;
    }
    const std::scoped_lock lock(matcher_->mutex);
    steps_left_ = matcher_->mask_part(state_, mask_, *steps_left_, n_steps);
    if (steps_left_) return false;
    forbid_names();
    is_prepared_ = true;
    return true;
}

void GrammarConstraint::remember(Machine::State next, const PropertyNames::Place& before) {
    if (quotes_ != nullptr) places_[n_accepted_ % kRemembered] = before;
    forget_mask();
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
        if (quotes_ != nullptr) names_.make_room(places_, n_accepted_ - n_remembered_, n_remembered_);
        const PropertyNames::Place before = names_.place();
        if (quotes_ != nullptr && !names_.read(matcher_->machine(), state_, trie_->piece(id))) refuse();
        return remember(next, before);
    }
    if (!trie_->is_eog(id) || !matcher_->machine().accepts(state_)) refuse();
    remember(state_, names_.place());
    has_ended_ = true;
}

bool GrammarConstraint::accept_bytes(std::string_view bytes) {
    make_room();
    const std::scoped_lock lock(matcher_->mutex);
    matcher_->machine().allow(matcher_->max_steps);
    Machine::State next = state_;
    for (const char byte : bytes) next = matcher_->machine().step(next, static_cast<std::uint8_t>(byte));
    if (next == Machine::kDead) return false;
    if (quotes_ != nullptr && !names_.read(matcher_->machine(), state_, bytes)) return false;
    forget_mask();
    state_ = next;
    return true;
}

void GrammarConstraint::rewind(std::size_t n) {
    if (n > n_remembered_)
        fail(ErrorCode::bad_parameter, cat("rewind: ", n, " tokens, but ", n_remembered_, " are remembered"));
    if (n == 0) return;
    forget_mask();
    n_accepted_ -= n;
    n_remembered_ -= n;
    state_ = history_[n_accepted_ % kRemembered];
    if (quotes_ != nullptr) names_.go_back(places_[n_accepted_ % kRemembered]);
    has_ended_ = false;
}

void GrammarConstraint::reset() {
    forget_mask();
    const std::scoped_lock lock(matcher_->mutex);
    state_ = matcher_->machine().start();
    n_accepted_ = n_remembered_ = 0;
    names_.clear();
    has_ended_ = false;
}

std::unique_ptr<TokenConstraint> GrammarConstraint::clone() const { return std::make_unique<GrammarConstraint>(*this); }

std::span<const Token> GrammarConstraint::forced() {
    if (has_ended_ || !vocab_) return {};
    make_room();
    const std::scoped_lock lock(matcher_->mutex);
    Matcher::Forced* const known = matcher_->forced(state_);
    if (known == nullptr) return {};
    if (!known->has_tokens) {
        find_tokens(*vocab_, *trie_, known->text, known->tokens);
        // The text may go on freely, so the last token could be the start of a longer one: that is left to the model.
        if (!known->ends && !known->tokens.empty()) known->tokens.pop_back();
        known->has_tokens = true;
    }
    // The only name that a pattern leaves may be one that the object has already; the mask then reports the dead end.
    if (quotes_ != nullptr && !names_.allows(matcher_->machine(), state_, std::string_view(known->text).substr(1)))
        return {};
    const std::size_t n = std::min(known->tokens.size(), forced_.size());
    std::copy_n(known->tokens.begin(), n, forced_.begin());
    return std::span(forced_).first(n);
}

std::unique_ptr<TokenConstraint> make_constraint(std::shared_ptr<const Grammar::Impl> grammar,
                                                 std::shared_ptr<const TokenTrie> trie, const Vocab* vocab) {
    return std::make_unique<GrammarConstraint>(std::move(grammar), std::move(trie), vocab);
}

}  // namespace tinfer::grammar
