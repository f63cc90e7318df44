// SPDX-License-Identifier: MIT
#include "sampling/chain.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <limits>
#include <random>
#include <utility>

#include "base/error.hpp"
#include "base/fp_env.hpp"
#include "sampling/candidates.hpp"
#include "sampling/chain_text.hpp"
#include "sampling/links.hpp"

namespace tinfer::sampling {
namespace {

/// A seed from the hardware; never the value that asks for one, so that it can be given again.
std::uint32_t hardware_seed() {
    try {
        std::random_device device;
        std::uint32_t seed = device();
        while (seed == kRandomSeed) seed = device();
        return seed;
    } catch (const std::exception& error) {
        fail(ErrorCode::not_available, cat("seed: no hardware source of random numbers: ", error.what()));
    }
}

LinkPtr make_link(char letter, std::size_t n_vocab, const SamplerOptions& o, std::uint32_t seed, const Vocab* vocab,
                  const RowOps& ops) {
    switch (letter) {
        case 'e':
            return make_penalties(n_vocab, {o.penalty_last_n, o.penalty_repeat, o.penalty_freq, o.penalty_present});
        case 'd': {
            auto breakers = std::make_shared<DryBreakers>();
            if (o.dry_multiplier != 0.0f && vocab != nullptr)
                *breakers =
                    DryBreakers::of(*vocab, o.dry_breakers.value_or(std::vector<std::string>{"\n", ":", "\"", "*"}));
            return make_dry({o.dry_multiplier, o.dry_base, o.dry_allowed_length, o.dry_penalty_last_n},
                            std::move(breakers));
        }
        case 's': return make_top_n_sigma(o.top_n_sigma);
        case 'k': return make_top_k(o.top_k);
        case 'y': return make_typical(n_vocab, o.typical_p, o.min_keep, ops);
        case 'p': return make_top_p(n_vocab, o.top_p, o.min_keep, ops);
        case 'm': return make_min_p(o.min_p, o.min_keep);
        case 'x': return make_xtc(n_vocab, {o.xtc_probability, o.xtc_threshold, o.min_keep}, seed, ops);
        case 'i':
            if (vocab == nullptr) fail(ErrorCode::bad_parameter, "order: infill needs a vocabulary");
            return make_infill(*vocab, ops);
        default: return make_dynamic_temperature(n_vocab, o.temp, o.dynatemp_range, o.dynatemp_exponent, ops);
    }
}

/// Candidates with a logit above -infinity.
std::size_t count_left(std::span<const float> logits) noexcept {
    return static_cast<std::size_t>(
        std::ranges::count_if(logits, [](float l) { return l != -std::numeric_limits<float>::infinity(); }));
}
std::size_t count_left(std::span<const Candidate> candidates) noexcept {
    return static_cast<std::size_t>(std::ranges::count_if(
        candidates, [](const Candidate& c) { return c.logit != -std::numeric_limits<float>::infinity(); }));
}

/// The library's own links sort by logit and trust `sorted`, so a NaN or a wrong flag must not reach them.
void check_users_link(const SamplerLink& link, CandidateArray& candidates) {
    for (const Candidate& candidate : candidates.data)
        if (std::isnan(candidate.logit))
            fail(ErrorCode::non_finite_logits,
                 cat("link '", link.name(), "' made the logit of token ", candidate.id, " NaN"));
    candidates.sorted = candidates.sorted && std::ranges::is_sorted(candidates.data, comes_before);
}

}  // namespace

Chain::Chain(std::size_t n_vocab, const SamplerOptions& options, const RowOps& ops, const Vocab* vocab)
    : row_(n_vocab, ops), is_greedy_(options.temp <= 0.0f),
      seed_(options.seed == kRandomSeed ? hardware_seed() : options.seed) {
    options.validate();
    candidates_.reserve(n_vocab);
    append(make_logit_bias(options.logit_bias));
    const auto link = [&](char letter) { append(make_link(letter, n_vocab, options, seed_, vocab, ops)); };
    if (options.mirostat != 0 && !is_greedy_) {
        link('t');
        append(make_mirostat(n_vocab,
                             {.version = options.mirostat, .tau = options.mirostat_tau, .eta = options.mirostat_eta},
                             seed_, ops));
        return;
    }
    // Temperature 0 makes the rest of the list superfluous: what truncates never drops the best.
    for (const char letter : letters_of(options.order))
        if (letter != 'a' && (!is_greedy_ || letter == 'e' || letter == 'd')) link(letter);
    if (is_greedy_) append(make_greedy());
    else if (options.adaptive_target < 0.0f) append(make_dist(n_vocab, seed_, ops));
    else
        append(make_adaptive_p(n_vocab, {options.adaptive_target, options.adaptive_decay, options.adaptive_use_current},
                               seed_, ops));
}

Chain::Chain(const Chain& other)
    : row_(other.row_), is_greedy_(other.is_greedy_), left_row_(other.left_row_), begin_(other.begin_),
      size_(other.size_), recent_(other.recent_), n_accepted_(other.n_accepted_), last_p_(other.last_p_),
      seed_(other.seed_) {
    explains_ = other.explains_;
    left_by_ = other.left_by_;
    chosen_ = other.chosen_;
    if (other.constraint_ != nullptr) constraint_ = other.constraint_->clone();
    was_redrawn_ = other.was_redrawn_;
    redraws_next_ = other.redraws_next_;
    candidates_.reserve(other.candidates_.capacity());
    candidates_ = other.candidates_;
    links_.reserve(other.links_.size());
    for (const Link& link : other.links_) {
        auto copy = link.link->clone();
        // A clone is of its original's class.
        auto* const row_link = link.row_link != nullptr ? static_cast<RowLink*>(copy.get()) : nullptr;
        links_.push_back({std::move(copy), row_link, link.is_users});
    }
}

void Chain::append(std::unique_ptr<RowLink> link) {
    auto* const row_link = link.get();
    links_.push_back({std::move(link), row_link, false});
}

// ---- sampling -------------------------------------------------------------------------------------------------------

Token Chain::sample(std::span<const float> logits) {
    const Token token = draw(logits);
    accept(token, true);
    return token;
}

void Chain::undo_draw() noexcept {
    redraws_next_ = was_redrawn_;
    for (const Link& link : links_)
        if (link.row_link != nullptr) link.row_link->undo();
}

/// First draws a token as without a constraint, which nearly always is allowed, and asks about that token alone. Only
/// one that is not allowed costs a mask and a second draw.
Token Chain::draw(std::span<const float> logits) {
    was_redrawn_ = std::exchange(redraws_next_, false);
    if (!was_redrawn_) {
        const Token token = draw_once(logits, false);
        if (constraint_ == nullptr || constraint_->allows(token)) return token;
        for (const Link& link : links_)
            if (link.row_link != nullptr) link.row_link->redraw();
        was_redrawn_ = true;
    }
    const Token token = draw_once(logits, true);
    if (!constraint_->allows(token))
        fail(ErrorCode::no_candidates,
             cat("a link selected token ", static_cast<std::int32_t>(token), ", which the constraint does not allow"));
    return token;
}

Token Chain::draw_once(std::span<const float> logits, bool is_masked) {
    const FpEnvironment guard;
    begin_ = size_ = 0;
    left_row_ = false;
    row_.assign(logits);
    for (const Link& link : links_)
        if (link.row_link != nullptr) link.row_link->begin(logits);
    if (is_masked) {
        redraws_next_ = true;  // where there is no mask yet, the next draw goes on from here
        const auto mask = constraint_->mask();
        redraws_next_ = false;
        row_.mask(mask);
        if (row_.best() < 0) fail(ErrorCode::no_candidates, "the constraint leaves no candidate token");
    }
    CandidateArray candidates;
    const bool is_row = apply(candidates);
    const bool any_left = is_row ? row_.best() >= 0 : best_candidate(candidates.data) != nullptr;
    if (!any_left) fail(ErrorCode::no_candidates, "no candidate token is left");
    const std::size_t n_left = is_row ? row_.size() : candidates.data.size();
    if (candidates.selected < 0 || static_cast<std::size_t>(candidates.selected) >= n_left)
        fail(ErrorCode::no_candidates, cat("the chain selected candidate ", candidates.selected, " of ", n_left));
    const auto selected = static_cast<std::size_t>(candidates.selected);
    Candidate chosen = is_row ? row_.chosen() : candidates.data[selected];
    if (is_greedy_) keep({std::span(&chosen, 1), 0, true});  // as a draw at temperature 0 would leave it
    else if (is_row) row_.hold();
    else keep(candidates);
    left_row_ = is_row && !is_greedy_;
    if (!left_row_) row_.release();
    last_p_ = chosen.p;
    chosen_ = chosen;
    return Token{chosen.id};
}

/// Runs the links: on the row for as long as they can, then on candidates. True where the row is what is left.
bool Chain::apply(CandidateArray& candidates) {
    bool is_row = true;
    left_by_.clear();
    for (const auto& [link, row_link, is_users] : links_) {
        if (is_row && row_link != nullptr && row_link->can_use(row_)) {
            is_row = row_link->apply_to_row(row_, candidates_, candidates) == RowLink::Left::row;
            if (!is_row) candidates.data = candidates_;
        } else {
            if (is_row) {
                row_.collect(candidates_);
                candidates.data = candidates_;
                candidates.sorted = row_.is_ordered();
                is_row = false;
            }
            link->apply(candidates);
            if (is_users) check_users_link(*link, candidates);
        }
        if (explains_)
            left_by_.push_back(
                {std::string(link->name()), is_row ? count_left(row_.logits()) : count_left(candidates.data)});
    }
    return is_row;
}

/// Remembers what is left, also where a user's link put its own storage in place of ours.
void Chain::keep(const CandidateArray& candidates) {
    const Candidate* const begin = candidates_.data();
    const Candidate* const data = candidates.data.data();
    const std::less<> before;  // pointers into different arrays
    if (before(data, begin) || !before(data, begin + candidates_.size())) {
        candidates_.assign(candidates.data.begin(), candidates.data.end());
        begin_ = 0;
    } else {
        begin_ = static_cast<std::size_t>(data - begin);
    }
    size_ = candidates.data.size();
}

void Chain::accept(Token token, bool is_generated) {
    if (is_generated && constraint_ != nullptr) constraint_->accept(token);
    recent_[n_accepted_++ % kRecent] = token;
    for (const Link& link : links_) link.link->accept(token);
}

void Chain::reset() {
    n_accepted_ = begin_ = size_ = 0;
    left_row_ = false;
    row_.release();
    last_p_ = 0;
    for (const Link& link : links_) link.link->reset();
    if (constraint_ != nullptr) constraint_->reset();
    was_redrawn_ = redraws_next_ = false;
}

// ---- links ----------------------------------------------------------------------------------------------------------

void Chain::insert(std::size_t index, std::unique_ptr<SamplerLink> link) {
    if (link == nullptr) fail(ErrorCode::bad_parameter, "insert: the link is null");
    if (index > links_.size())
        fail(ErrorCode::index_out_of_range, cat("insert: place ", index, " outside [0,", links_.size(), "]"));
    links_.insert(links_.begin() + static_cast<std::ptrdiff_t>(index), Link{std::move(link), nullptr, true});
}

void Chain::remove(std::size_t index) {
    if (index >= links_.size())
        fail(ErrorCode::index_out_of_range, cat("remove: place ", index, " outside [0,", links_.size(), ")"));
    links_.erase(links_.begin() + static_cast<std::ptrdiff_t>(index));
}

std::vector<std::string> Chain::names() const {
    std::vector<std::string> names;
    for (const Link& link : links_) names.emplace_back(link.link->name());
    return names;
}

// ---- what happened --------------------------------------------------------------------------------------------------

std::vector<Candidate> Chain::survivors() const {
    std::vector<Candidate> left;
    if (left_row_) row_.collect(left);
    else
        left.assign(candidates_.begin() + static_cast<std::ptrdiff_t>(begin_),
                    candidates_.begin() + static_cast<std::ptrdiff_t>(begin_ + size_));
    return left;
}

std::uint32_t Chain::last_candidates() const noexcept {
    if (left_row_) return static_cast<std::uint32_t>(count_left(row_.logits()));
    return static_cast<std::uint32_t>(count_left(std::span(candidates_).subspan(begin_, size_)));
}

DrawReport Chain::report() const {
    if (left_by_.empty()) return {};
    DrawReport report{left_by_, chosen_, probs(6)};
    std::erase_if(report.others, [&](const Candidate& other) { return other.id == chosen_.id; });
    report.others.resize(std::min<std::size_t>(report.others.size(), 5));
    return report;
}

std::vector<Candidate> Chain::probs(std::size_t k) const {
    const FpEnvironment guard;
    std::vector<Candidate> left = survivors();
    if (left.empty()) return {};
    CandidateArray candidates;
    candidates.data = left;
    Softmax(left.size()).apply(candidates.data);
    keep_front(candidates, k);
    left.resize(candidates.data.size());
    return left;
}

std::vector<Token> Chain::recent(std::size_t n) const {
    n = std::min({n, n_accepted_, kRecent});
    std::vector<Token> tokens;
    tokens.reserve(n);
    for (std::size_t i = n_accepted_ - n; i < n_accepted_; ++i) tokens.push_back(recent_[i % kRecent]);
    return tokens;
}

}  // namespace tinfer::sampling
