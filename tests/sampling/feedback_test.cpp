// SPDX-License-Identifier: MIT
// Links that learn from what was drawn, and those that look at the vocabulary: means converge, copies and draws that
// are taken back keep the state, repetitions end at breakers.
#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <set>
#include <vector>

#include "sampling/candidates.hpp"
#include "sampling/chain.hpp"
#include "sampling/links.hpp"
#include "tokenizer/vocab_support.hpp"

using namespace tinfer;
using namespace tinfer::sampling;

namespace {

/// Zipf's law with noise: a row as of a language.
std::vector<float> row_of(std::mt19937& random, std::size_t n = 400) {
    std::vector<float> logits(n);
    for (std::size_t i = 0; i < n; ++i)
        logits[i] = -1.2f * std::log(static_cast<float>(i + 1)) + static_cast<float>(random() % 1000) * 1e-3f;
    return logits;
}

double probability_of(const std::vector<float>& logits, Token token) { return std::exp(log_prob(logits, token)); }

}  // namespace

TEST_CASE("[S7] mirostat: the mean surprise becomes tau, for both versions") {
    for (const int version : {1, 2})
        for (const float tau : {3.0f, 4.5f}) {
            CAPTURE(version);
            CAPTURE(tau);
            SamplerOptions options{.temp = 1.0f, .seed = 11};
            options.mirostat = version;
            options.mirostat_tau = tau;
            std::mt19937 random(5);
            Chain chain(400, options);
            double surprise = 0;
            constexpr int kWarmUp = 200, kSteps = 3000;
            for (int i = 0; i < kWarmUp + kSteps; ++i) {
                const auto logits = row_of(random);
                (void)chain.sample(logits);
                if (i >= kWarmUp) surprise -= std::log2(static_cast<double>(chain.last_p()));
            }
            CHECK(surprise / kSteps == doctest::Approx(tau).epsilon(0.03));
        }
}

TEST_CASE("[S14] adaptive_p: the mean of the chosen tokens' probability approaches the target") {
    for (const float target : {0.05f, 0.12f}) {
        CAPTURE(target);
        SamplerOptions options{.min_p = 0.02f, .temp = 1.0f, .seed = 4};
        options.adaptive_target = target;
        std::mt19937 random(6);
        Chain chain(400, options);
        double sum = 0;
        constexpr int kSteps = 3000;
        for (int i = 0; i < kSteps; ++i) {
            const auto logits = row_of(random);
            sum += probability_of(logits, chain.sample(logits));
        }
        CHECK(sum / kSteps == doctest::Approx(target).epsilon(0.25));
    }
}

TEST_CASE(
    "[S7][S14] links that learn: copies go on alike, a draw that is taken back is drawn again, reset begins anew") {
    std::vector<SamplerOptions> all(4, SamplerOptions{.temp = 1.0f, .seed = 21});
    all[0].mirostat = 1;
    all[1].mirostat = 2;
    all[2].adaptive_target = 0.3f;
    all[3].xtc_probability = 0.5f;
    all[3].xtc_threshold = 0.02f;
    all[3].dry_multiplier = 1.0f;
    for (const SamplerOptions& options : all) {
        std::mt19937 random(8);
        std::vector<std::vector<float>> rows;
        for (int i = 0; i < 60; ++i) rows.push_back(row_of(random));
        Chain chain(400, options);
        std::vector<Token> first;
        for (const auto& row : rows) first.push_back(chain.sample(row));
        Chain copy(chain);
        for (const auto& row : rows) CHECK(copy.sample(row) == chain.sample(row));
        chain.reset();
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const Token taken_back = chain.draw(rows[i]);
            chain.undo_draw();
            const Token token = chain.sample(rows[i]);
            CHECK(token == taken_back);
            CHECK(token == first[i]);
        }
    }
}

TEST_CASE("[S14] xtc: leaves the best out as often as asked, and never the last of them") {
    SamplerOptions options{.top_k = 0, .top_p = 1.0f, .min_p = 0.0f, .temp = 1.0f, .seed = 2};
    options.xtc_probability = 0.3f;
    options.xtc_threshold = 0.1f;
    const std::vector<float> logits{2.0f, 1.9f, 1.8f, -2.0f, -3.0f};  // three above the threshold
    Chain chain(logits.size(), options);
    int n_cut = 0;
    constexpr int kDraws = 4000;
    for (int i = 0; i < kDraws; ++i) {
        (void)chain.sample(logits);
        std::set<std::int32_t> left;
        for (const Candidate& candidate : chain.survivors()) left.insert(candidate.id);
        CHECK((left == std::set<std::int32_t>{2, 3, 4} || left.size() == 5));
        n_cut += left.size() == 3;
    }
    CHECK(static_cast<double>(n_cut) / kDraws == doctest::Approx(0.3).epsilon(0.1));
}

TEST_CASE("[S14] dry: breakers are the tokens that hold the text, and those that end with a part of it") {
    const Vocab vocab = test::load_vocab(test::small_spm());
    const auto id = [&](std::string_view text) { return static_cast<std::int32_t>(*vocab.find(text)); };
    const std::vector<std::string> texts{"a"};
    const DryBreakers breakers = DryBreakers::of(vocab, texts);
    int n_single = 0;
    for (std::int32_t token = 0; token < static_cast<std::int32_t>(vocab.size()); ++token) {
        const bool holds = vocab.piece(Token{token}, true).find('a') != std::string_view::npos;
        CHECK(breakers.is_single(token) == holds);
        n_single += holds;
    }
    CHECK(n_single > 1);
    CHECK(breakers.is_single(id("aa")));

    const std::vector<std::string> pair{"lo wor"};
    const DryBreakers across = DryBreakers::of(vocab, pair);
    CHECK_FALSE(across.is_single(id("▁hello")));
    // " hello" ends with "lo", the tokens of " wor" follow.
    std::vector<std::int32_t> reversed{id("▁hello")};
    for (const int token : test::ids(vocab.encode(" wor", {.add_special = false, .parse_special = false})))
        reversed.insert(reversed.begin(), token);
    CHECK(across.longest_at(reversed, reversed.size() - 1) == reversed.size());
    reversed.front() = id("aa");
    CHECK(across.longest_at(reversed, reversed.size() - 1) == 0);
}

TEST_CASE("[S14] dry on rows and on candidates changes the same logits, whatever was said") {
    std::mt19937 random(3);
    auto breakers = std::make_shared<DryBreakers>();
    breakers->add({7});
    breakers->add({5, 6});
    for (int round = 0; round < 200; ++round) {
        const DryOptions options{.multiplier = 0.7f, .base = 1.5f, .allowed_length = 1 + round % 3};
        const auto link = make_dry(options, breakers);
        const int n_said = static_cast<int>(random() % 60), n_ids = 3 + static_cast<int>(random() % 8);
        for (int i = 0; i < n_said; ++i) link->accept(Token{static_cast<int>(random() % static_cast<unsigned>(n_ids))});
        std::vector<float> logits(12, 1.0f);
        LogitRow row(logits.size(), reference_row_ops);
        row.assign(logits);
        std::vector<Candidate> candidates, out;
        row.collect(candidates);
        CandidateArray array{candidates, -1, false};
        const auto copy = link->clone();
        copy->apply(array);
        (void)link->apply_to_row(row, out, array);
        for (const Candidate& candidate : candidates)
            CHECK(candidate.logit == row.logits()[static_cast<std::size_t>(candidate.id)]);
    }
}

TEST_CASE("infill: an end with a fair share wins; pieces of which one begins with the other count together") {
    const Vocab vocab = test::load_vocab(test::small_spm());
    const auto ends = vocab.eog_tokens();
    REQUIRE_FALSE(ends.empty());
    const auto end = static_cast<std::int32_t>(ends[0]);
    const auto id = [&](std::string_view text) { return static_cast<std::int32_t>(*vocab.find(text)); };
    const auto run = [&](std::vector<Candidate> data) {
        CandidateArray candidates{data, -1, false};
        make_infill(vocab)->apply(candidates);
        return std::vector<Candidate>(candidates.data.begin(), candidates.data.end());
    };
    const auto logit = [](double p) { return static_cast<float>(std::log(p)); };
    // 3 · 0.15 · 4 > 0.85: it ends.
    const auto ended = run({{end, logit(0.15), 0},
                            {id("aa"), logit(0.4), 0},
                            {id("aaaa"), logit(0.25), 0},
                            {id("▁hello"), logit(0.2), 0}});
    REQUIRE(ended.size() == 1);
    CHECK(ended[0].id == end);
    // 3 · 0.05 · 4 < 0.95: "aa" takes "aaaa" (0.7), the others stay below their share.
    const auto merged = run({{end, logit(0.05), 0},
                             {id("aa"), logit(0.4), 0},
                             {id("aaaa"), logit(0.3), 0},
                             {id("▁hello"), logit(0.25), 0}});
    REQUIRE(merged.size() == 2);
    CHECK(merged[0].id == id("aa"));
    CHECK(merged[1].id == end);
    CHECK(merged[0].p == doctest::Approx(0.7 / 0.75).epsilon(1e-4));
    CHECK(merged[0].logit == doctest::Approx(std::log(0.7 / 0.75)).epsilon(1e-3));
}
