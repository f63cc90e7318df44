// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

#include "sampling/candidates.hpp"
#include "sampling/links.hpp"
#include "sampling/logit_row.hpp"

namespace tinfer::sampling {
namespace {

struct Bias {
    Token token;
    float bias;
    std::size_t place;  ///< as given
};

class LogitBias final : public RowLink {
public:
    /// By token; those of one token stay in their order, in which they are added.
    explicit LogitBias(const std::vector<std::pair<Token, float>>& biases) {
        for (const auto& [token, bias] : biases) biases_.push_back({token, bias, biases_.size()});
        std::ranges::sort(biases_, {}, [](const Bias& entry) { return std::pair(entry.token, entry.place); });
    }
    [[nodiscard]] std::string_view name() const noexcept override { return "logit_bias"; }
    [[nodiscard]] std::unique_ptr<SamplerLink> clone() const override { return std::make_unique<LogitBias>(*this); }

    void apply(CandidateArray& candidates) override {
        for_each_listed(candidates.data, std::span<const Bias>(biases_), &Bias::token,
                        [&](Candidate& candidate, const Bias& entry) {
                            candidate.logit = biased(candidate.logit, entry.bias);
                            candidates.sorted = false;
                        });
    }

    [[nodiscard]] bool can_use(const LogitRow& row) const noexcept override { return !row.is_ordered(); }
    Left apply_to_row(LogitRow& row, std::vector<Candidate>&, CandidateArray&) override {
        for (const Bias& entry : biases_)
            if (const auto id = static_cast<std::uint32_t>(entry.token); id < row.size())
                row.set(id, biased(row.logits()[id], entry.bias));
        return Left::row;
    }

private:
    /// An infinite bias replaces the logit: it bans or forces, whatever is there (∞ − ∞ included).
    [[nodiscard]] static float biased(float logit, float bias) noexcept {
        return std::isinf(bias) ? bias : logit + bias;
    }

    std::vector<Bias> biases_;
};

}  // namespace

LinkPtr make_logit_bias(std::vector<std::pair<Token, float>> biases) { return std::make_unique<LogitBias>(biases); }

}  // namespace tinfer::sampling
