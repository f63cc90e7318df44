// SPDX-License-Identifier: MIT
#include <cmath>

#include "sampling/candidates.hpp"
#include "sampling/links.hpp"

namespace tinfer::sampling {
namespace {

class LogitBias final : public SamplerLink {
public:
    explicit LogitBias(std::vector<std::pair<Token, float>> biases) : biases_(std::move(biases)) {}
    [[nodiscard]] std::string_view name() const noexcept override { return "logit_bias"; }
    [[nodiscard]] LinkPtr clone() const override { return std::make_unique<LogitBias>(*this); }

    void apply(CandidateArray& candidates) override {
        for (const auto& [token, bias] : biases_) {
            Candidate* const candidate = find_candidate(candidates.data, token);
            if (candidate == nullptr) continue;
            // An infinite bias replaces the logit: it bans or forces, whatever is there (∞ − ∞ included).
            candidate->logit = std::isinf(bias) ? bias : candidate->logit + bias;
            candidates.sorted = false;
        }
    }

private:
    std::vector<std::pair<Token, float>> biases_;
};

}  // namespace

LinkPtr make_logit_bias(std::vector<std::pair<Token, float>> biases) {
    return std::make_unique<LogitBias>(std::move(biases));
}

}  // namespace tinfer::sampling
