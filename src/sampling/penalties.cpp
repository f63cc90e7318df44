// SPDX-License-Identifier: MIT
// Penalties for tokens that occurred in the last n tokens. On a row of logits only the tokens of that window are
// touched; on candidates one pass looks up the count of each.
#include <algorithm>
#include <cstdlib>

#include "sampling/candidates.hpp"
#include "sampling/links.hpp"
#include "sampling/logit_row.hpp"

namespace tinfer::sampling {
namespace {

class Penalties final : public RowLink {
public:
    Penalties(std::size_t n_vocab, const PenaltyOptions& options) : options_(options) {
        if (is_neutral()) return;
        counts_.resize(n_vocab);
        if (options.last_n > 0) window_.resize(static_cast<std::size_t>(options.last_n));
    }
    [[nodiscard]] std::string_view name() const noexcept override { return "penalties"; }
    [[nodiscard]] std::unique_ptr<SamplerLink> clone() const override { return std::make_unique<Penalties>(*this); }

    void apply(CandidateArray& candidates) override {
        if (is_neutral() || n_accepted_ == 0) return;
        candidates.sorted = false;
        for (Candidate& candidate : candidates.data)
            if (const auto id = static_cast<std::uint32_t>(candidate.id); id < counts_.size() && counts_[id] > 0)
                candidate.logit = penalized(candidate.logit, counts_[id]);
    }

    [[nodiscard]] bool can_use(const LogitRow& row) const noexcept override {
        return !row.is_ordered() || is_neutral();
    }
    Left apply_to_row(LogitRow& row, std::vector<Candidate>&, CandidateArray&) override {
        if (is_neutral() || n_accepted_ == 0) return Left::row;
        const auto penalize = [&](std::size_t id) { row.set(id, penalized(row.logits()[id], counts_[id])); };
        const std::size_t n = std::min(counts_.size(), row.size());
        if (window_.empty()) {  // the window is all tokens since the reset: only counts are kept
            for (std::size_t id = 0; id < n; ++id)
                if (counts_[id] > 0) penalize(id);
            return Left::row;
        }
        // The first pass makes the count of a token negative once it is penalized; a second pass restores it.
        const auto window = std::span(window_).first(std::min(window_.size(), n_accepted_));
        for (const Token token : window) {
            const auto id = static_cast<std::uint32_t>(token);
            if (id >= n || counts_[id] < 0) continue;
            penalize(id);
            counts_[id] = -counts_[id];
        }
        for (const Token token : window)
            if (const auto id = static_cast<std::uint32_t>(token); id < n) counts_[id] = std::abs(counts_[id]);
        return Left::row;
    }

    void accept(Token token) override {
        if (is_neutral()) return;
        if (!window_.empty()) {
            Token& oldest = window_[n_accepted_ % window_.size()];
            if (n_accepted_ >= window_.size()) count(oldest, -1);
            oldest = token;
        }
        count(token, 1);
        ++n_accepted_;
    }

    void reset() override {
        std::ranges::fill(counts_, 0);
        n_accepted_ = 0;
    }

private:
    [[nodiscard]] bool is_neutral() const noexcept {
        return options_.last_n == 0 ||
               (options_.repeat == 1.0f && options_.frequency == 0.0f && options_.presence == 0.0f);
    }
    void count(Token token, std::int32_t change) noexcept {
        if (const auto id = static_cast<std::uint32_t>(token); id < counts_.size()) counts_[id] += change;
    }

    [[nodiscard]] float penalized(float l, std::int32_t occurrences) const noexcept {
        l = l > 0.0f ? l / options_.repeat : l * options_.repeat;
        return l - (static_cast<float>(occurrences) * options_.frequency + options_.presence);
    }

    PenaltyOptions options_;
    std::vector<std::int32_t> counts_;  // {n_vocab}: occurrences in the window
    std::vector<Token> window_;         // ring of the last last_n tokens; empty where all count
    std::size_t n_accepted_ = 0;        // since the last reset
};

}  // namespace

LinkPtr make_penalties(std::size_t n_vocab, const PenaltyOptions& options) {
    return std::make_unique<Penalties>(n_vocab, options);
}

}  // namespace tinfer::sampling
