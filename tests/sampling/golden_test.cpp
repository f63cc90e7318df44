// SPDX-License-Identifier: MIT
// Every case of golden/sampling.json whose sampler we have. "Survivors" are the candidates with a logit above
// -infinity.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "sampling/candidates.hpp"
#include "sampling/chain.hpp"
#include "sampling/links.hpp"
#include "support/golden.hpp"

using namespace tinfer;
using namespace tinfer::sampling;
using nlohmann::json;

namespace {

constexpr double kTolerance = 2e-5;  // absolute, of the golden file: its probabilities are exact, ours float32

std::optional<json> golden_sampling() {
    const auto file = golden_file("sampling.json");
    return file ? std::optional(json::parse(std::ifstream(*file))) : std::nullopt;
}

std::vector<Candidate> candidates_of(const json& logits) {
    std::vector<Candidate> out;
    for (const auto& logit : logits) out.push_back({static_cast<std::int32_t>(out.size()), logit.get<float>(), 0.0f});
    return out;
}

std::shared_ptr<const DryBreakers> breakers_of(const json& list) {
    auto breakers = std::make_shared<DryBreakers>();
    for (const json& breaker : list)
        breakers->add(breaker.is_array() ? breaker.get<std::vector<std::int32_t>>()
                                         : std::vector{breaker.get<std::int32_t>()});
    return breakers;
}

/// A part of a link that draws.
class OneStep final : public ArrayLink {
public:
    explicit OneStep(std::function<void(CandidateArray&)> step) : step_(std::move(step)) {}
    [[nodiscard]] std::string_view name() const noexcept override { return "step"; }
    [[nodiscard]] std::unique_ptr<SamplerLink> clone() const override { return std::make_unique<OneStep>(*this); }
    void apply(CandidateArray& candidates) override { step_(candidates); }

private:
    std::function<void(CandidateArray&)> step_;
};

/// The one link of a case, null for another kind of case.
LinkPtr link_of(const std::string& sampler, const json& p, std::size_t n) {
    if (sampler == "greedy") return make_greedy();
    if (sampler == "top_k") return make_top_k(p.at("k"));
    if (sampler == "top_p") return make_top_p(n, p.at("p"), p.at("min_keep"));
    if (sampler == "min_p") return make_min_p(p.at("p"), p.at("min_keep"));
    if (sampler == "temp") return make_temperature(p.at("t"));
    if (sampler == "penalties")
        return make_penalties(n, {p.at("last_n"), p.at("repeat"), p.at("frequency"), p.at("presence")});
    if (sampler == "temp_ext") return make_dynamic_temperature(n, p.at("t"), p.at("delta"), p.at("exponent"));
    if (sampler == "top_n_sigma") return make_top_n_sigma(p.at("n"));
    if (sampler == "typical") return make_typical(n, p.at("p"), p.at("min_keep"));
    if (sampler == "xtc") return make_xtc(n, {p.at("probability"), p.at("threshold"), p.at("min_keep")}, 1);
    if (sampler == "dry")
        return make_dry(
            {p.at("multiplier"), p.at("base"), p.at("allowed_length"), p.at("penalty_last_n"), p.at("context_size")},
            breakers_of(p.at("breakers")));
    if (sampler == "mirostat_v2_truncate")
        return std::make_unique<OneStep>([n, mu = p.at("mu").get<double>()](CandidateArray& candidates) {
            Softmax(n).apply(candidates.data);
            keep_surprise(candidates, mu);
        });
    if (sampler == "adaptive_p_transform")
        return std::make_unique<OneStep>([n, p](CandidateArray& candidates) {
            Softmax(n).apply(candidates.data);
            adaptive_transform(candidates, adaptive_target(p.at("target"), p.at("weighted_sum"), p.at("total_weight")));
        });
    if (sampler == "logit_bias") {
        std::vector<std::pair<Token, float>> biases;
        for (const auto& pair : p.at("bias")) biases.emplace_back(Token{pair[0].get<int>()}, pair[1].get<float>());
        return make_logit_bias(std::move(biases));
    }
    return nullptr;
}

void check_survivors(CandidateArray candidates, const json& expect) {
    if (candidates.selected >= 0)
        candidates.data = candidates.data.subspan(static_cast<std::size_t>(candidates.selected), 1);
    std::vector<Candidate> left;
    std::ranges::copy_if(candidates.data, std::back_inserter(left), [](const auto& c) { return !std::isinf(c.logit); });
    Softmax(left.size()).apply(left);
    std::ranges::sort(left, {}, &Candidate::id);
    std::vector<std::int32_t> ids;
    for (const auto& candidate : left) ids.push_back(candidate.id);
    REQUIRE(ids == expect.at("survivors").get<std::vector<std::int32_t>>());
    for (const auto& pair : expect.at("probs")) {
        const auto found = std::ranges::find(left, pair[0].get<std::int32_t>(), &Candidate::id);
        REQUIRE(found != left.end());
        CHECK(std::abs(found->p - pair[1].get<double>()) <= kTolerance);
    }
}

}  // namespace

TEST_CASE("[S2][S3][S4][S5][S6][S14][golden] sampling: each link leaves the survivors and probabilities of the golden "
          "cases") {
    if (skip_without_golden()) return;
    int n_cases = 0;
    std::set<std::string> others;
    const auto golden = golden_sampling();
    if (!golden) return;
    for (const auto& test : golden->at("cases")) {
        const auto sampler = test.at("sampler").get<std::string>();
        auto data = candidates_of(test.at("logits"));
        const auto link = link_of(sampler, test.at("params"), data.size());
        if (link == nullptr) {
            others.insert(sampler);
            continue;
        }
        CAPTURE(test.dump());
        if (test.contains("history"))
            for (const auto& token : test.at("history")) link->accept(Token{token.get<int>()});
        CandidateArray candidates{data, -1, false};
        link->apply(candidates);
        check_survivors(candidates, test.at("expect"));
        ++n_cases;
    }
    CHECK(others == std::set<std::string>{"chain_default", "mirostat_v1_k"});  // have tests of their own
    MESSAGE(n_cases << " cases");
}

TEST_CASE("[S7][golden] sampling: mirostat 1 estimates how many candidates to keep as the golden cases do") {
    if (skip_without_golden()) return;
    const auto golden = golden_sampling();
    if (!golden) return;
    for (const auto& test : golden->at("cases")) {
        if (test.at("sampler") != "mirostat_v1_k") continue;
        CAPTURE(test.dump());
        auto sorted = candidates_of(test.at("logits"));
        std::ranges::sort(sorted, comes_before);
        Softmax(sorted.size()).apply(sorted);
        const auto& p = test.at("params");
        const auto head = std::span(sorted).first(std::min(sorted.size(), p.at("m").get<std::size_t>()));
        const double k = mirostat_k(head, p.at("mu"), p.at("n_vocab"));
        CHECK(k == doctest::Approx(test.at("expect").at("k_real").get<double>()).epsilon(1e-3));
        CHECK(std::max(1.0, std::floor(k)) == test.at("expect").at("k").get<double>());
    }
}

TEST_CASE("[S1][golden] sampling: the default chain, link by link in its order") {
    if (skip_without_golden()) return;
    int n_cases = 0;
    const auto golden = golden_sampling();
    if (!golden) return;
    for (const auto& test : golden->at("cases")) {
        if (test.at("sampler") != "chain_default") continue;
        const auto& p = test.at("params");
        CAPTURE(test.dump());
        const auto logits = test.at("logits").get<std::vector<float>>();
        Chain chain(logits.size(), {.penalty_last_n = p.at("penalty_last_n"),
                                    .penalty_repeat = p.at("penalty_repeat"),
                                    .penalty_freq = p.at("penalty_freq"),
                                    .top_k = p.at("top_k"),
                                    .top_p = p.at("top_p"),
                                    .min_p = p.at("min_p"),
                                    .temp = p.at("temp"),
                                    .seed = 1});
        chain.remove(2);  // breakers of a case are tokens, those of a chain texts
        chain.insert(2, make_dry({p.value("dry_multiplier", 0.0f), p.value("dry_base", 1.75f),
                                  p.value("dry_allowed_length", 2), -1, p.at("context_size")},
                                 breakers_of(p.value("dry_breakers", json::array()))));
        for (const auto& token : test.at("history")) chain.accept(Token{token.get<int>()});
        (void)chain.sample(logits);
        std::vector<Candidate> left = chain.survivors();
        check_survivors({left, -1, false}, test.at("expect"));
        ++n_cases;
    }
    CHECK(n_cases > 0);
}

TEST_CASE("[S10][golden] sampling: seeded draws give the golden ids") {
    if (skip_without_golden()) return;
    const auto golden = golden_sampling();
    if (!golden) return;
    for (const auto& test : golden->at("dist_draws").at("cases")) {
        CAPTURE(test.dump());
        const auto seed = test.at("seed").get<std::uint32_t>();
        std::mt19937 generator(seed);
        for (const auto& raw : test.at("raw_u32")) CHECK(generator() == raw.get<std::uint32_t>());
        auto sorted = candidates_of(test.at("logits"));
        std::ranges::sort(sorted, comes_before);
        const auto dist = make_dist(sorted.size(), seed);
        for (const auto& id : test.at("ids")) {
            CandidateArray candidates{sorted, -1, true};
            dist->apply(candidates);
            REQUIRE(candidates.selected >= 0);
            CHECK(sorted[static_cast<std::size_t>(candidates.selected)].id == id.get<std::int32_t>());
        }
    }
}
