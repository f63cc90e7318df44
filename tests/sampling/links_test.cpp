// SPDX-License-Identifier: MIT
// The links one by one: formulas against plain double-precision evaluations, ties, and the ends of the number line.
#include "sampling/links.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "sampling/candidates.hpp"

using namespace tinfer;
using namespace tinfer::sampling;

namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();

std::vector<Candidate> array_of(const std::vector<float>& logits) {
    std::vector<Candidate> out;
    for (const float logit : logits) out.push_back({static_cast<std::int32_t>(out.size()), logit, 0.0f});
    return out;
}

std::vector<float> logits_of_seed(std::size_t n, std::uint32_t seed, float step = 0.0f) {
    std::mt19937 random(seed);
    std::vector<float> logits(n);
    for (float& logit : logits) {
        logit = static_cast<float>(random() % 20000) * 1e-3f - 10.0f;
        if (step > 0.0f) logit = std::round(logit / step) * step;  // many ties
    }
    return logits;
}

std::vector<std::int32_t> ids(std::span<const Candidate> data) {
    std::vector<std::int32_t> out;
    for (const auto& candidate : data) out.push_back(candidate.id);
    return out;
}

std::vector<Candidate> sorted(std::vector<Candidate> data) {
    std::ranges::sort(data, comes_before);
    return data;
}

std::vector<double> softmax(const std::vector<Candidate>& data) {
    double max = -kInfinite, sum = 0;
    for (const auto& c : data) max = std::max(max, static_cast<double>(c.logit));
    std::vector<double> p;
    for (const auto& c : data) p.push_back(std::exp(c.logit - max));
    for (const double value : p) sum += value;
    for (double& value : p) value /= sum;
    return p;
}

}  // namespace

TEST_CASE("[S2] greedy: the largest logit, on ties the lowest id, whatever the order of the array") {
    auto data = array_of({1, 3, 2, 3, 3});
    std::ranges::reverse(data);
    const auto before = ids(data);
    CandidateArray candidates{data, -1, false};
    make_greedy()->apply(candidates);
    CHECK(candidates.data[static_cast<std::size_t>(candidates.selected)].id == 1);
    CHECK(ids(candidates.data) == before);
}

TEST_CASE("[S3] temperature: logits are divided, order is kept, zero leaves the best alone") {
    for (const float t : {0.1f, 0.7f, 1.0f, 3.0f}) {
        auto data = array_of({-2, 0.5f, 7, 7, -kInfinite});
        CandidateArray candidates{data, -1, false};
        make_temperature(t)->apply(candidates);
        CHECK(data[0].logit == -2.0f / t);
        CHECK(data[1].logit == 0.5f / t);
        CHECK(data[3].logit == 7.0f / t);
        CHECK(data[4].logit == -kInfinite);
    }
    // 1e-40 makes every quotient infinite, -3 / 1e-40 too; the best stays the best.
    for (const float t : {0.0f, -1.0f, 1e-40f})
        for (const auto& logits :
             {std::vector<float>{-2, 7, 7}, std::vector<float>{-5, -3, -4}, std::vector<float>{1, kInfinite, 2}}) {
            auto data = array_of(logits);
            CandidateArray candidates{data, -1, false};
            make_temperature(t)->apply(candidates);
            CHECK(data[0].logit == -kInfinite);
            CHECK(data[1].logit == logits[1]);
            CHECK(data[2].logit == -kInfinite);
        }
}

TEST_CASE("[S4] top_k: exactly k survive, sorted, ties by id") {
    for (const std::size_t n : {1u, 7u, 100u, 5000u})
        for (const float step : {0.0f, 1.0f, 30.0f}) {
            const auto logits = logits_of_seed(n, static_cast<std::uint32_t>(n), step);
            const auto expected = sorted(array_of(logits));
            for (const int k : {1, 2, 40, 99, 700, 4999, 5000, 9000}) {
                auto data = array_of(logits);
                CandidateArray candidates{data, -1, false};
                make_top_k(k)->apply(candidates);
                const auto kept = std::min(static_cast<std::size_t>(k), n);
                REQUIRE(candidates.data.size() == kept);
                CHECK(candidates.sorted);
                CHECK(ids(candidates.data) == ids(std::span(expected).first(kept)));
            }
            auto data = array_of(logits);
            CandidateArray candidates{data, -1, false};
            make_top_k(0)->apply(candidates);
            CHECK(ids(candidates.data) == ids(expected));
        }
    auto data = array_of({1, -kInfinite, 0, -kInfinite});
    CandidateArray candidates{data, -1, false};
    make_top_k(3)->apply(candidates);  // what is banned counts as removed
    CHECK(ids(candidates.data) == std::vector{0, 2});
}

TEST_CASE("[S5] top_p: the smallest prefix with mass >= p survives, at least min_keep, sorted array or not") {
    std::mt19937 random(3);
    for (int trial = 0; trial < 200; ++trial) {
        const std::size_t n = 1 + random() % 3000;
        auto logits = logits_of_seed(n, trial + 1u);
        const float sharpness = static_cast<float>(random() % 100) * 0.02f;
        for (float& logit : logits) logit *= sharpness;
        const float p = static_cast<float>(random() % 1000) / 1000.0f;
        const int min_keep = static_cast<int>(random() % 4);
        const auto expected = sorted(array_of(logits));
        const auto mass = softmax(expected);
        auto data = trial % 2 == 0 ? array_of(logits) : expected;
        CandidateArray candidates{data, -1, trial % 2 != 0};
        make_top_p(n, p, min_keep)->apply(candidates);
        const std::size_t kept = candidates.data.size();
        CHECK(candidates.sorted);
        REQUIRE(ids(candidates.data) == ids(std::span(expected).first(kept)));
        // float32 rounding of up to 3000 terms: 3000 · 2^-24 < 2e-4.
        const double up_to = std::accumulate(mass.begin(), mass.begin() + static_cast<std::ptrdiff_t>(kept), 0.0);
        CHECK((up_to >= p - 2e-4 || kept == n));
        if (kept > static_cast<std::size_t>(std::max(min_keep, 1))) CHECK(up_to - mass[kept - 1] < p + 2e-4);
        CHECK(kept >= std::min<std::size_t>(n, static_cast<std::size_t>(min_keep)));
    }
    auto data = array_of({3, 1, 2});
    CandidateArray all{data, -1, false};
    make_top_p(3, 1.0f, 0)->apply(all);
    CHECK(ids(all.data) == std::vector{0, 1, 2});
    CHECK_FALSE(all.sorted);
}

TEST_CASE("min_p: those at least p times as probable as the best survive in place, or the min_keep best") {
    for (std::uint32_t seed = 1; seed < 60; ++seed) {
        const auto logits = logits_of_seed(50 + seed, seed);
        const float p = 0.01f * static_cast<float>(seed);
        const float max = *std::ranges::max_element(logits);
        std::vector<std::int32_t> expected;
        for (std::size_t i = 0; i < logits.size(); ++i)
            if (std::exp(static_cast<double>(logits[i]) - max) >= p) expected.push_back(static_cast<std::int32_t>(i));
        auto data = array_of(logits);
        CandidateArray candidates{data, -1, false};
        make_min_p(p, 0)->apply(candidates);
        CHECK(ids(candidates.data) == expected);

        auto again = array_of(logits);
        CandidateArray kept{again, -1, false};
        make_min_p(p, 20)->apply(kept);
        const auto in_order = sorted(array_of(logits));
        if (expected.size() < 20) CHECK(ids(kept.data) == ids(std::span(in_order).first(20)));
        else CHECK(ids(kept.data) == expected);
    }
}

TEST_CASE("[S6] penalties: the formula over the window, in identity order and in any other") {
    for (const int last_n : {-1, 1, 5, 64}) {
        std::mt19937 random(static_cast<std::uint32_t>(last_n + 2));
        const float repeat = 1.3f, frequency = 0.25f, presence = -0.5f;
        const auto link = make_penalties(40, {last_n, repeat, frequency, presence});
        std::vector<int> history;
        for (int i = 0; i < 100; ++i) {
            std::map<int, int> counts;
            const auto window =
                last_n < 0 ? history.size() : std::min(history.size(), static_cast<std::size_t>(last_n));
            for (std::size_t j = history.size() - window; j < history.size(); ++j) ++counts[history[j]];
            const auto logits = logits_of_seed(40, static_cast<std::uint32_t>(i));
            auto data = array_of(logits);
            if (i % 2 == 1) std::ranges::shuffle(data, random);
            CandidateArray candidates{data, -1, true};
            link->apply(candidates);
            for (const auto& candidate : data) {
                float expected = logits[static_cast<std::size_t>(candidate.id)];
                if (const int count = counts[candidate.id]; count > 0) {
                    expected = expected <= 0 ? expected * repeat : expected / repeat;
                    expected -= static_cast<float>(count) * frequency + presence;
                }
                REQUIRE(candidate.logit == expected);
            }
            if (!history.empty()) CHECK_FALSE(candidates.sorted);
            history.push_back(static_cast<int>(random() % 50));  // some ids are no candidates
            link->accept(Token{history.back()});
        }
        link->reset();
        auto data = array_of({1, 2, 3});
        CandidateArray candidates{data, -1, false};
        link->apply(candidates);
        CHECK(data[1].logit == 2);
    }
}

TEST_CASE("logit_bias: biases add up, infinite ones ban and force, foreign ids are ignored") {
    auto data = array_of({1, 2, 3, kInfinite});
    CandidateArray candidates{data, -1, true};
    make_logit_bias({{Token{0}, 2.0f},
                     {Token{0}, 0.5f},
                     {Token{1}, -kInfinite},
                     {Token{9}, 1.0f},
                     {Token{-1}, 1.0f},
                     {Token{3}, -kInfinite}})
        ->apply(candidates);
    CHECK(data[0].logit == 3.5f);
    CHECK(data[1].logit == -kInfinite);
    CHECK(data[2].logit == 3);
    CHECK(data[3].logit == -kInfinite);
    CHECK_FALSE(candidates.sorted);
}

TEST_CASE("logit_bias and DRY: a list of any length takes one pass over candidates in any order") {
    struct Entry {
        std::int32_t id;
        float add;
    };
    const auto work = [](std::size_t n, bool is_reversed) {
        auto data = array_of(std::vector<float>(n, 1.0f));
        if (is_reversed) std::ranges::reverse(data);
        std::vector<Entry> entries;
        for (std::size_t i = 0; i < n; ++i) entries.push_back({static_cast<std::int32_t>(i), 1.0f});
        entries.push_back({static_cast<std::int32_t>(n) - 1, 2.0f});
        std::size_t n_looks = 0;
        for_each_listed(
            std::span(data), std::span<const Entry>(entries),
            [&](const Entry& entry) { return ++n_looks, Token{entry.id}; },
            [](Candidate& candidate, const Entry& entry) { candidate.logit += entry.add; });
        for (const Candidate& candidate : data)
            REQUIRE(candidate.logit == (candidate.id + 1 == static_cast<std::int32_t>(n) ? 4.0f : 2.0f));
        return n_looks;
    };
    for (const bool is_reversed : {false, true}) CHECK(work(40'000, is_reversed) < 3 * work(20'000, is_reversed));
}

TEST_CASE("[S10] dist: draws follow the probabilities (chi-squared) and repeat with the seed") {
    // Eleven of twelve candidates can be drawn: 10 degrees of freedom; P(X² > 29.59) = 0.001 for a fixed seed chosen
    // freely.
    const std::vector<float> logits{0, 1, -1, 2, 0.5f, -kInfinite, 1.5f, 0, -2, 1, 0.25f, -0.5f};
    const auto probabilities = softmax(array_of(logits));
    constexpr int kDraws = 100000;
    for (const std::uint32_t seed : {1u, 42u, 4294967294u}) {
        const auto link = make_dist(logits.size(), seed), same = make_dist(logits.size(), seed);
        std::vector<int> counts(logits.size());
        auto data = array_of(logits);
        for (int i = 0; i < kDraws; ++i) {
            CandidateArray candidates{data, -1, false};
            link->apply(candidates);
            ++counts[static_cast<std::size_t>(candidates.selected)];
            if (i % 1000 != 0) continue;
            const auto clone = link->clone();
            CandidateArray next{data, -1, false}, next_of_clone{data, -1, false};
            link->clone()->apply(next);
            clone->apply(next_of_clone);
            CHECK(next.selected == next_of_clone.selected);
        }
        double chi_squared = 0;
        for (std::size_t i = 0; i < logits.size(); ++i) {
            const double expected = probabilities[i] * kDraws;
            if (expected == 0) CHECK(counts[i] == 0);
            else chi_squared += (counts[i] - expected) * (counts[i] - expected) / expected;
        }
        CHECK(chi_squared < 29.59);

        link->reset();
        for (int i = 0; i < 100; ++i) {
            CandidateArray a{data, -1, false}, b{data, -1, false};
            link->apply(a);
            same->apply(b);
            REQUIRE(a.selected == b.selected);
        }
    }
}

TEST_CASE("softmax: sums to one, and an infinite logit wins alone, the lowest id of several") {
    for (const std::size_t n : {1u, 15u, 16u, 17u, 1000u}) {
        auto data = array_of(logits_of_seed(n, 5));
        const auto expected = softmax(data);
        Softmax softmax_of(n);
        softmax_of.apply(data);
        for (std::size_t i = 0; i < n; ++i) CHECK(data[i].p == doctest::Approx(expected[i]).epsilon(1e-5));
    }
    auto data = array_of({1, kInfinite, 2, kInfinite});
    Softmax(4).apply(data);
    CHECK(data[0].p == 0);
    CHECK(data[1].p == 1);
    CHECK(data[3].p == 0);
    auto none = array_of({-kInfinite, -kInfinite});
    CHECK_THROWS_AS(Softmax(2).apply(none), Error);
}
