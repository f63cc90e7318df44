// SPDX-License-Identifier: MIT
#include "sampling/chain.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <limits>
#include <random>

#include "base/error.hpp"
#include "base/fp_env.hpp"
#include "sampling/candidates.hpp"
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

LinkPtr make_link(char letter, std::size_t n_vocab, const SamplerOptions& o) {
    switch (letter) {
    case 'e': return make_penalties(n_vocab, {o.penalty_last_n, o.penalty_repeat, o.penalty_freq, o.penalty_present});
    case 'k': return make_top_k(o.top_k);
    case 'p': return make_top_p(n_vocab, o.top_p, o.min_keep);
    case 'm': return make_min_p(o.min_p, o.min_keep);
    default: return make_temperature(o.temp);  // validate() has seen the letters
    }
}

/// Our links sort by logit and trust the flag: neither NaN nor a stale flag may reach them.
void check_users_link(const SamplerLink& link, CandidateArray& candidates) {
    for (const Candidate& candidate : candidates.data)
        if (std::isnan(candidate.logit))
            fail(ErrorCode::non_finite_logits,
                 cat("link '", link.name(), "' made the logit of token ", candidate.id, " NaN"));
    candidates.sorted = candidates.sorted && std::ranges::is_sorted(candidates.data, comes_before);
}

}  // namespace

Chain::Chain(std::size_t n_vocab, const SamplerOptions& options)
    : seed_(options.seed == kRandomSeed ? hardware_seed() : options.seed) {
    options.validate();
    candidates_.reserve(n_vocab);
    append(make_logit_bias(options.logit_bias));
    // Temperature 0 makes the rest of the list superfluous: what truncates never drops the best.
    const bool is_greedy = options.temp <= 0.0f;
    for (const char letter : options.order)
        if (!is_greedy || letter == 'e') append(make_link(letter, n_vocab, options));
    append(is_greedy ? make_greedy() : make_dist(n_vocab, seed_));
}

Chain::Chain(const Chain& other)
    : begin_(other.begin_), size_(other.size_), recent_(other.recent_), n_accepted_(other.n_accepted_),
      last_p_(other.last_p_), seed_(other.seed_) {
    candidates_.reserve(other.candidates_.capacity());
    candidates_ = other.candidates_;
    links_.reserve(other.links_.size());
    for (const Link& link : other.links_) links_.push_back({link.link->clone(), link.is_users});
}

// ---- sampling -------------------------------------------------------------------------------------------------------

void Chain::build_candidates(std::span<const float> logits) {
    if (logits.empty()) fail(ErrorCode::no_candidates, "a row of 0 logits has no candidate tokens");
    if (logits.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
        fail(ErrorCode::bad_parameter, cat("a row of ", logits.size(), " logits exceeds 31-bit token ids"));
    candidates_.resize(logits.size());
    bool has_nan = false;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        candidates_[i] = {static_cast<std::int32_t>(i), logits[i], 0.0f};
        has_nan |= std::isnan(logits[i]);
    }
    if (!has_nan) return;
    const auto first = std::ranges::find_if(logits, [](float x) { return std::isnan(x); }) - logits.begin();
    fail(ErrorCode::non_finite_logits, cat("logit of token ", first, " is NaN"));
}

Token Chain::sample(std::span<const float> logits) {
    const FpEnvironment guard;
    begin_ = size_ = 0;
    build_candidates(logits);
    CandidateArray candidates{candidates_, -1, false};
    for (const auto& [link, is_users] : links_) {
        link->apply(candidates);
        if (is_users) check_users_link(*link, candidates);
    }
    if (best_candidate(candidates.data) == nullptr) fail(ErrorCode::no_candidates, "no candidate token is left");
    if (candidates.selected < 0 || static_cast<std::size_t>(candidates.selected) >= candidates.data.size())
        fail(ErrorCode::no_candidates,
             cat("the chain selected candidate ", candidates.selected, " of ", candidates.data.size()));
    const Candidate chosen = candidates.data[static_cast<std::size_t>(candidates.selected)];
    keep(candidates);
    last_p_ = chosen.p;
    accept(Token{chosen.id});
    return Token{chosen.id};
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

void Chain::accept(Token token) {
    recent_[n_accepted_++ % kRecent] = token;
    for (const Link& link : links_) link.link->accept(token);
}

void Chain::reset() {
    n_accepted_ = begin_ = size_ = 0;
    last_p_ = 0;
    for (const Link& link : links_) link.link->reset();
}

// ---- links ----------------------------------------------------------------------------------------------------------

void Chain::insert(std::size_t index, std::unique_ptr<SamplerLink> link) {
    if (link == nullptr) fail(ErrorCode::bad_parameter, "insert: the link is null");
    if (index > links_.size())
        fail(ErrorCode::index_out_of_range, cat("insert: place ", index, " outside [0,", links_.size(), "]"));
    links_.insert(links_.begin() + static_cast<std::ptrdiff_t>(index), Link{std::move(link), true});
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

std::uint32_t Chain::last_candidates() const noexcept {
    const auto is_left = [](const Candidate& candidate) {
        return candidate.logit != -std::numeric_limits<float>::infinity();
    };
    return static_cast<std::uint32_t>(std::ranges::count_if(survivors(), is_left));
}

std::vector<Candidate> Chain::probs(std::size_t k) const {
    if (size_ == 0) return {};
    const FpEnvironment guard;
    CandidateArray candidates;
    std::vector<Candidate> left(survivors().begin(), survivors().end());
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
