// SPDX-License-Identifier: MIT
// The row of logits: its answers against sorting the whole row, and chains that use it against chains that cannot.
#include "sampling/logit_row.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "sampling/candidates.hpp"
#include "sampling/chain.hpp"

using namespace tinfer;
using namespace tinfer::sampling;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Values between -8 and 8 in steps of `step` (ties where it is large), some of them -infinity.
std::vector<float> random_row(std::size_t n, std::mt19937& random, float step, unsigned removed_percent) {
    std::vector<float> row(n);
    for (float& logit : row) {
        logit = std::round(static_cast<float>(random() % 16001) * 1e-3f / step) * step - 8.0f;
        if (random() % 100 < removed_percent) logit = -kInfinity;
    }
    return row;
}

std::vector<Candidate> sorted_candidates(std::span<const float> row) {
    std::vector<Candidate> all;
    for (const float logit : row) all.push_back({static_cast<std::int32_t>(all.size()), logit, 0.0f});
    std::ranges::sort(all, comes_before);
    while (!all.empty() && all.back().logit == -kInfinity) all.pop_back();
    return all;
}

bool same(std::span<const Candidate> a, std::span<const Candidate> b) {
    return std::ranges::equal(
        a, b, [](const Candidate& x, const Candidate& y) { return x.id == y.id && x.logit == y.logit; });
}

/// Leaves everything as it is, but has the chain make candidates of the row.
class Nothing final : public SamplerLink {
public:
    [[nodiscard]] std::string_view name() const noexcept override { return "nothing"; }
    void apply(CandidateArray&) override {}
    [[nodiscard]] std::unique_ptr<SamplerLink> clone() const override { return std::make_unique<Nothing>(); }
};

}  // namespace

TEST_CASE("row: the best, the k first and those above a threshold are those of the sorted row, also after changes") {
    std::mt19937 random(7);
    LogitRow row(10, reference_row_ops);
    std::vector<Candidate> out;
    for (const std::size_t n : {1u, 5u, 255u, 256u, 257u, 5000u, 70001u})
        for (const float step : {0.001f, 1.0f, 20.0f}) {
            auto logits = random_row(n, random, step, n == 5000 ? 100 : 5);
            row.assign(logits);
            for (int changes = 0; changes < 200; changes += 40) {
                for (int i = 0; i < changes; ++i) {
                    const std::size_t id = random() % n;
                    logits[id] = random() % 8 == 0 ? -kInfinity : static_cast<float>(random() % 17) - 8.0f;
                    row.set(id, logits[id]);
                }
                const auto sorted = sorted_candidates(logits);
                CHECK(row.best() == (sorted.empty() ? -1 : sorted.front().id));
                CHECK(row.max() == (sorted.empty() ? -kInfinity : sorted.front().logit));
                for (const std::size_t k :
                     {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{40}, n / 2, n, n + 9}) {
                    row.collect_front(k, out);
                    CHECK(same(out, std::span(sorted).first(std::min(k, sorted.size()))));
                }
                for (const float threshold : {-9.0f, 0.0f, 7.5f, 9.0f}) {
                    row.collect(threshold, out);
                    CHECK(std::ranges::is_sorted(out, {}, &Candidate::id));
                    std::ranges::sort(out, comes_before);
                    const auto end = std::ranges::find_if(sorted, [&](const auto& c) { return c.logit < threshold; });
                    CHECK(same(out, {sorted.begin(), end}));
                }
            }
        }
}

TEST_CASE("chain: what the links do on a row is what they do on its candidates") {
    const SamplerOptions all_options[] = {
        {},
        {.temp = 0.0f},
        {.penalty_repeat = 1.3f, .penalty_freq = 0.2f, .temp = 0.0f},
        {.penalty_last_n = -1, .penalty_repeat = 1.3f, .penalty_present = 0.5f, .temp = 1.5f},
        {.logit_bias = {{Token{3}, 4.0f}, {Token{700}, -kInfinity}, {Token{3}, 1.0f}, {Token{99999}, 1.0f}},
         .temp = 2.0f},
        {.logit_bias = {{Token{1}, kInfinity}}},
        {.penalty_repeat = 0.7f, .top_k = 5, .temp = 3.0f},
        {.top_k = 0, .top_p = 0.9f, .min_p = 0.0f, .temp = 2.0f},
        {.top_k = 0, .top_p = 0.999f, .min_p = 0.0f, .min_keep = 50, .temp = 4.0f},
        {.top_k = 0, .top_p = 1.0f, .min_p = 0.02f, .min_keep = 3},
        {.top_k = 0, .top_p = 1.0f, .min_p = 0.9f, .min_keep = 7, .temp = 5.0f},
        {.top_k = 0, .top_p = 1.0f, .min_p = 0.0f},
        {.temp = 1.7f, .order = "tk"},
        {.temp = 0.6f, .order = "t"},
        {.logit_bias = {{Token{7}, 3.0f}, {Token{8}, -kInfinity}}, .temp = 0.8f, .order = "et"},
        {.temp = 1e-38f, .order = "t"},
        {.temp = 1.0f, .order = ""},
        {.top_p = 0.9f, .order = "p"},
        {.top_p = 0.5f, .min_keep = 900, .temp = 2.0f, .order = "ptk"},
        {.logit_bias = {{Token{5}, kInfinity}}, .top_p = 0.9f, .min_keep = 3, .order = "ep"},
        {.penalty_repeat = 1.3f, .top_k = -1, .temp = 3.0f, .order = "ket"},
    };
    std::mt19937 random(11);
    for (SamplerOptions options : all_options) {
        options.seed = 99;
        const std::size_t n = 3000;
        Chain on_row(n, options), on_candidates(n, options);
        on_candidates.insert(0, std::make_unique<Nothing>());
        for (int i = 0; i < 60; ++i) {
            const auto logits = random_row(n, random, i % 3 == 0 ? 2.0f : 0.001f, i % 4 == 0 ? 90 : 2);
            const Token token = on_row.sample(logits);
            CHECK(on_candidates.sample(logits) == token);
            CHECK(on_row.last_p() == on_candidates.last_p());
            CHECK(on_row.last_candidates() == on_candidates.last_candidates());
            const auto p = on_row.probs(8), q = on_candidates.probs(8);
            REQUIRE(same(p, q));
            for (std::size_t j = 0; j < p.size(); ++j) CHECK(p[j].p == q[j].p);
            Chain copy(on_row);
            CHECK(same(copy.survivors(), on_row.survivors()));
        }
    }
}
