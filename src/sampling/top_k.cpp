// SPDX-License-Identifier: MIT
#include "sampling/candidates.hpp"
#include "sampling/links.hpp"

namespace tinfer::sampling {
namespace {

class TopK final : public SamplerLink {
public:
    explicit TopK(int k) : k_(k) {}
    [[nodiscard]] std::string_view name() const noexcept override { return "top_k"; }
    [[nodiscard]] LinkPtr clone() const override { return std::make_unique<TopK>(*this); }

    void apply(CandidateArray& candidates) override {
        keep_front(candidates, k_ <= 0 ? candidates.data.size() : static_cast<std::size_t>(k_));
    }

private:
    int k_;
};

}  // namespace

LinkPtr make_top_k(int k) { return std::make_unique<TopK>(k); }

}  // namespace tinfer::sampling
