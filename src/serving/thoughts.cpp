// SPDX-License-Identifier: MIT
#include "serving/thoughts.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace tinfer::serving {

ThoughtsConstraint::ThoughtsConstraint(const Vocab& vocab, ThoughtsLimit limit, std::vector<Token> shown,
                                       std::unique_ptr<TokenConstraint> inner, bool is_sliced)
    : vocab_(vocab), limit_(std::move(limit)), shown_(std::move(shown)), inner_(std::move(inner)),
      is_sliced_(is_sliced), base_(limit_.reader->clone()), reader_(limit_.reader->clone()) {}

ThoughtsConstraint::ThoughtsConstraint(const ThoughtsConstraint& other)
    : vocab_(other.vocab_), limit_(other.limit_), shown_(other.shown_),
      inner_(other.inner_ == nullptr ? nullptr : other.inner_->clone()), is_sliced_(other.is_sliced_),
      base_(other.base_->clone()), reader_(other.reader_->clone()), steps_(other.steps_), place_(other.place_),
      is_decided_(other.is_decided_) {}

grammar::SlicedConstraint* ThoughtsConstraint::sliced() const noexcept {
    return is_sliced_ ? static_cast<grammar::SlicedConstraint*>(inner_.get()) : nullptr;
}

/// What is left of the mark that has to be written now; empty where nothing has.
std::span<const Token> ThoughtsConstraint::closing() {
    if (!is_decided_) {
        if (!place_.closing && place_.count.reaches(limit_) && reader_->is_thinking())
            place_.closing = grammar::closing_mark(limit_, inner_.get());
        is_decided_ = true;
    }
    if (!place_.closing) return {};
    return std::span<const Token>(limit_.closings[*place_.closing]).subspan(place_.n_written);
}

bool ThoughtsConstraint::allows(Token token) {
    if (const auto mark = closing(); !mark.empty()) return token == mark.front();
    return inner_ == nullptr || inner_->allows(token);
}

std::span<const std::uint64_t> ThoughtsConstraint::mask() {
    const auto mark = closing();
    if (mark.empty() && inner_ != nullptr) return inner_->mask();
    mask_.assign((vocab_.size() + 63) / 64, mark.empty() ? ~std::uint64_t{0} : 0);
    if (!mark.empty()) {
        const auto id = static_cast<std::uint32_t>(mark.front());
        mask_.at(id / 64) |= std::uint64_t{1} << (id % 64);
    }
    return mask_;
}

/// The text that Generation makes of a token.
void ThoughtsConstraint::read_piece(ContentReader& reader, Token token) const {
    if (!vocab_.is_eog(token)) reader.read(vocab_.piece(token, std::ranges::find(shown_, token) != shown_.end()));
}

/// Reads a token that was accepted.
void ThoughtsConstraint::read(Token token) {
    const bool was_thinking = reader_->is_thinking();
    read_piece(*reader_, token);
    place_.count.add(was_thinking && !place_.closing);
    if (place_.closing && ++place_.n_written == limit_.closings[*place_.closing].size())
        place_.closing.reset(), place_.n_written = 0;
    is_decided_ = false;
}

void ThoughtsConstraint::accept(Token token) {
    if (const auto mark = closing(); !mark.empty() && token != mark.front())
        fail(ErrorCode::grammar_violation, cat("the limit of thoughts does not allow token ",
                                               static_cast<std::int32_t>(token), " here: they are being closed"));
    if (steps_.size() == 2 * kRemembered) {
        auto next = base_->clone();
        for (std::size_t i = 0; i < kRemembered; ++i) read_piece(*next, steps_[i].token);
        base_ = std::move(next);
        steps_.erase(steps_.begin(), steps_.begin() + kRemembered);
    }
    steps_.reserve(2 * kRemembered);
    if (inner_ != nullptr) inner_->accept(token);
    steps_.push_back({token, place_});
    read(token);
}

void ThoughtsConstraint::rewind(std::size_t n) {
    if (n > steps_.size())
        fail(ErrorCode::bad_parameter, cat("rewind: ", n, " tokens, but ", steps_.size(), " are remembered"));
    if (n == 0) return;
    auto earlier = base_->clone();
    const std::size_t left = steps_.size() - n;
    for (std::size_t i = 0; i < left; ++i) read_piece(*earlier, steps_[i].token);
    if (inner_ != nullptr) inner_->rewind(n);
    place_ = steps_[left].before;
    steps_.resize(left);
    reader_ = std::move(earlier);
    is_decided_ = false;
}

void ThoughtsConstraint::reset() {
    base_ = limit_.reader->clone();
    reader_ = limit_.reader->clone();
    if (inner_ != nullptr) inner_->reset();
    steps_.clear();
    place_ = {};
    is_decided_ = false;
}

std::unique_ptr<TokenConstraint> ThoughtsConstraint::clone() const {
    return std::make_unique<ThoughtsConstraint>(*this);
}

std::span<const Token> ThoughtsConstraint::forced() {
    if (const auto mark = closing(); !mark.empty()) return mark;
    return inner_ == nullptr ? std::span<const Token>() : inner_->forced();
}

bool ThoughtsConstraint::prepare(std::uint64_t n_steps) {
    grammar::SlicedConstraint* const inner = sliced();
    return inner == nullptr || !closing().empty() || inner->prepare(n_steps);
}

void ThoughtsConstraint::pause_after(std::uint64_t n) noexcept {
    if (grammar::SlicedConstraint* const inner = sliced(); inner != nullptr) inner->pause_after(n);
}

const std::shared_ptr<const Grammar::Impl>& ThoughtsConstraint::grammar() const noexcept {
    const grammar::SlicedConstraint* const inner = sliced();
    return inner == nullptr ? no_grammar_ : inner->grammar();
}

}  // namespace tinfer::serving
