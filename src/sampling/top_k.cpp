// SPDX-License-Identifier: MIT
#include "sampling/candidates.hpp"
#include "sampling/links.hpp"
#include "sampling/logit_row.hpp"

namespace tinfer::sampling {
namespace {

class TopK final : public RowLink {
public:
    explicit TopK(int k) : k_(k) {}
    [[nodiscard]] std::string_view name() const noexcept override { return "top_k"; }
    [[nodiscard]] std::unique_ptr<SamplerLink> clone() const override { return std::make_unique<TopK>(*this); }

    void apply(CandidateArray& candidates) override {
        keep_front(candidates, k_ <= 0 ? candidates.data.size() : static_cast<std::size_t>(k_));
    }

    Left apply_to_row(LogitRow& row, std::vector<Candidate>& out, CandidateArray& candidates) override {
        if (k_ <= 0) {  // only ordered: the link that cuts next need not sort all of it
            row.order();
            return Left::row;
        }
        row.collect_front(static_cast<std::size_t>(k_), out);
        candidates.sorted = true;
        return Left::candidates;
    }

private:
    int k_;
};

}  // namespace

LinkPtr make_top_k(int k) { return std::make_unique<TopK>(k); }

}  // namespace tinfer::sampling
