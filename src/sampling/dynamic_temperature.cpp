// SPDX-License-Identifier: MIT
// A temperature that follows the entropy: low where the model is sure, high where many candidates are as good.
#include <algorithm>

#include "base/math.hpp"
#include "sampling/candidates.hpp"
#include "sampling/links.hpp"
#include "sampling/logit_row.hpp"

namespace tinfer::sampling {
namespace {

class DynamicTemperature final : public ArrayLink {
public:
    DynamicTemperature(std::size_t n_vocab, float t, float range, float exponent, const RowOps& ops)
        : low_(std::max(0.0, static_cast<double>(t) - static_cast<double>(range))),
          high_(static_cast<double>(t) + static_cast<double>(range)), exponent_(exponent), softmax_(n_vocab, ops) {}
    [[nodiscard]] std::string_view name() const noexcept override { return "temperature"; }
    [[nodiscard]] std::unique_ptr<SamplerLink> clone() const override {
        return std::make_unique<DynamicTemperature>(*this);
    }

    void apply(CandidateArray& candidates) override {
        if (candidates.data.size() <= 1) return;
        softmax_.apply(candidates.data);
        double entropy = 0;
        for (const Candidate& candidate : candidates.data)
            if (const auto p = static_cast<double>(candidate.p); p > 0.0) entropy -= p * math::log(p);
        const double share = std::clamp(entropy / math::log(static_cast<double>(candidates.data.size())), 0.0, 1.0);
        const double power = exponent_ == 0.0 ? 1.0 : share <= 0.0 ? 0.0 : math::pow(share, exponent_);
        apply_temperature(candidates, static_cast<float>(low_ + (high_ - low_) * power));
    }

private:
    double low_, high_, exponent_;
    Softmax softmax_;
};

}  // namespace

LinkPtr make_dynamic_temperature(std::size_t n_vocab, float t, float range, float exponent, const RowOps& ops) {
    if (range <= 0.0f) return make_temperature(t);
    return std::make_unique<DynamicTemperature>(n_vocab, t, range, exponent, ops);
}

}  // namespace tinfer::sampling
