// SPDX-License-Identifier: MIT
// Penalties for tokens that were said lately. While the array is in identity order only the tokens of the window are
// touched; afterwards one pass looks up the count of each candidate.
#include <algorithm>
#include <cstdlib>

#include "sampling/candidates.hpp"
#include "sampling/links.hpp"

namespace tinfer::sampling {
namespace {

class Penalties final : public SamplerLink {
public:
    Penalties(std::size_t n_vocab, const PenaltyOptions& options) : options_(options) {
        if (is_neutral()) return;
        counts_.resize(n_vocab);
        if (options.last_n > 0) window_.resize(static_cast<std::size_t>(options.last_n));
    }
    [[nodiscard]] std::string_view name() const noexcept override { return "penalties"; }
    [[nodiscard]] LinkPtr clone() const override { return std::make_unique<Penalties>(*this); }

    void apply(CandidateArray& candidates) override {
        if (is_neutral() || n_accepted_ == 0) return;
        candidates.sorted = false;
        if (!apply_to_window(candidates.data)) apply_to_all(candidates.data);
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

    void punish(Candidate& candidate, std::int32_t occurrences) const noexcept {
        float& l = candidate.logit;
        l = l > 0.0f ? l / options_.repeat : l * options_.repeat;
        l -= static_cast<float>(occurrences) * options_.frequency + options_.presence;
    }

    void apply_to_all(std::span<Candidate> data) noexcept {
        for (Candidate& candidate : data)
            if (const auto id = static_cast<std::uint32_t>(candidate.id); id < counts_.size() && counts_[id] > 0)
                punish(candidate, counts_[id]);
    }

    /// False, with nothing done, where a token of the window is not at the place of its id.
    bool apply_to_window(std::span<Candidate> data) noexcept {
        const auto window = std::span(window_).first(std::min(window_.size(), n_accepted_));
        if (window.empty() || data.size() < counts_.size()) return false;
        const auto in_place = [&](Token token) {
            const auto id = static_cast<std::uint32_t>(token);
            return id >= counts_.size() || data[id].id == static_cast<std::int32_t>(token);
        };
        if (!std::ranges::all_of(window, in_place)) return false;
        // A count is negative from the first time its token is met until the second pass.
        for (const Token token : window) {
            const auto id = static_cast<std::uint32_t>(token);
            if (id >= counts_.size() || counts_[id] < 0) continue;
            punish(data[id], counts_[id]);
            counts_[id] = -counts_[id];
        }
        for (const Token token : window)
            if (const auto id = static_cast<std::uint32_t>(token); id < counts_.size())
                counts_[id] = std::abs(counts_[id]);
        return true;
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
