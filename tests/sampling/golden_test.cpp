// SPDX-License-Identifier: MIT
// Every case of golden/sampling.json whose sampler we have. "Survivors" are the candidates with a logit above
// -infinity.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
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

/// The one link of a case, null for samplers that are not built yet.
LinkPtr link_of(const std::string& sampler, const json& p, std::size_t n) {
    if (sampler == "greedy") return make_greedy();
    if (sampler == "top_k") return make_top_k(p.at("k"));
    if (sampler == "top_p") return make_top_p(n, p.at("p"), p.at("min_keep"));
    if (sampler == "min_p") return make_min_p(p.at("p"), p.at("min_keep"));
    if (sampler == "temp") return make_temperature(p.at("t"));
    if (sampler == "penalties")
        return make_penalties(n, {p.at("last_n"), p.at("repeat"), p.at("frequency"), p.at("presence")});
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

TEST_CASE(
    "[S2][S3][S4][S5][S6][golden] sampling: each link leaves the survivors and probabilities of the golden cases") {
    if (skip_without_golden()) return;
    int n_cases = 0, n_without_link = 0;
    const auto golden = golden_sampling();
    if (!golden) return;
    for (const auto& test : golden->at("cases")) {
        const auto sampler = test.at("sampler").get<std::string>();
        auto data = candidates_of(test.at("logits"));
        const auto link = link_of(sampler, test.at("params"), data.size());
        if (link == nullptr) {
            n_without_link += sampler != "chain_default";
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
    MESSAGE(n_cases << " cases; " << n_without_link << " of samplers that do not exist yet skipped");
}

TEST_CASE("[golden] sampling: the default chain, where the links we lack have nothing to do") {
    if (skip_without_golden()) return;
    int n_cases = 0, n_skipped = 0;
    const auto golden = golden_sampling();
    if (!golden) return;
    for (const auto& test : golden->at("cases")) {
        if (test.at("sampler") != "chain_default") continue;
        const auto& p = test.at("params");
        // Of the links in the file's order that we lack only dry has parameters, and no effect on so short a history.
        if (p.value("dry_multiplier", 0.0f) > 0.0f &&
            test.at("history").size() > p.at("dry_allowed_length").get<std::size_t>()) {
            ++n_skipped;
            continue;
        }
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
        for (const auto& token : test.at("history")) chain.accept(Token{token.get<int>()});
        (void)chain.sample(logits);
        std::vector<Candidate> left = chain.survivors();
        check_survivors({left, -1, false}, test.at("expect"));
        ++n_cases;
    }
    MESSAGE(n_cases << " cases; " << n_skipped << " need dry and are skipped");
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
