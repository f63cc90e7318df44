// SPDX-License-Identifier: MIT
// A chain under a constraint.
#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "sampling/chain.hpp"

using namespace tinfer;
using namespace tinfer::sampling;

namespace {

/// Allows multiples of `step`, and counts what it is asked.
class Multiples final : public TokenConstraint {
public:
    Multiples(std::size_t n, int step) : step_(step), bits_((n + 63) / 64) {
        for (std::size_t t = 0; t < n; t += static_cast<std::size_t>(step)) bits_[t / 64] |= 1ull << (t % 64);
    }
    bool allows(Token token) override { return static_cast<int>(token) % step_ == 0; }
    std::span<const std::uint64_t> mask() override {
        ++n_masks;
        return bits_;
    }
    void accept(Token token) override {
        if (!allows(token)) throw Error(ErrorCode::grammar_violation, "no multiple");
        ++n_accepted;
    }
    void rewind(std::size_t n) override { n_accepted -= static_cast<int>(n); }
    void reset() override { n_accepted = 0; }
    std::unique_ptr<TokenConstraint> clone() const override { return std::make_unique<Multiples>(*this); }
    int n_masks = 0, n_accepted = 0;

private:
    int step_;
    std::vector<std::uint64_t> bits_;
};

std::vector<float> random_logits(std::size_t n, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<float> out(n);
    for (float& logit : out) logit = static_cast<float>(random() % 1000) / 100.0f;
    return out;
}

}  // namespace

TEST_CASE("[S8] chain: under a constraint only what it allows is drawn, and a mask is made only after a miss") {
    for (const float temp : {0.0f, 0.8f}) {
        Chain chain(300, {.temp = temp, .seed = 3});
        auto constraint = std::make_unique<Multiples>(300, 3);
        const Multiples* const watched = constraint.get();
        chain.constrain(std::move(constraint));
        int n_redrawn = 0;
        for (std::uint32_t i = 0; i < 100; ++i) {
            CHECK(static_cast<int>(chain.sample(random_logits(300, i))) % 3 == 0);
            n_redrawn += chain.was_redrawn() ? 1 : 0;
        }
        CHECK(watched->n_accepted == 100);
        CHECK(watched->n_masks == n_redrawn);
        CHECK(n_redrawn > 20);
        CHECK(n_redrawn < 100);
        chain.accept(Token{1});  // of a prompt: the constraint does not read it
        Chain copy(chain);
        CHECK(copy.sample(random_logits(300, 7)) == chain.sample(random_logits(300, 7)));
        chain.reset();
        CHECK(watched->n_accepted == 0);
    }
}

TEST_CASE("[S8] chain: a constraint that leaves nothing is no_candidates, and nothing is accepted") {
    Chain chain(10, {.seed = 1});
    chain.constrain(std::make_unique<Multiples>(10, 3));
    std::vector<float> logits(10, 1.0f);
    for (const int t : {0, 3, 6, 9}) logits[static_cast<std::size_t>(t)] = -INFINITY;
    CHECK_THROWS_AS(chain.sample(logits), Error);
    CHECK(chain.recent(5).empty());
    chain.constrain(nullptr);
    CHECK_NOTHROW((void)chain.sample(logits));
}

TEST_CASE("[S8][S10] chain: a draw under a constraint that is taken back comes again") {
    for (std::uint32_t i = 0; i < 50; ++i) {
        for (const int mirostat : {0, 1, 2}) {
            Chain chain(300, {.mirostat = mirostat, .seed = i});
            chain.constrain(std::make_unique<Multiples>(300, 3));
            const auto logits = random_logits(300, i);
            const Token token = chain.draw(logits);
            const bool was_redrawn = chain.was_redrawn();
            chain.undo_draw();
            CHECK(chain.draw(logits) == token);
            CHECK(chain.was_redrawn() == was_redrawn);
        }
    }
}

TEST_CASE("[S11] chain: tokens of a prompt are history for the penalties, and nothing to the constraint") {
    std::vector<float> logits(30, 0.0f);
    logits[6] = 10;
    logits[9] = 8;
    for (const bool has_prompt : {false, true}) {
        CAPTURE(has_prompt);
        Chain chain(30, {.penalty_repeat = 2.0f, .temp = 0});
        auto constraint = std::make_unique<Multiples>(30, 3);
        const Multiples* const watched = constraint.get();
        chain.constrain(std::move(constraint));
        const std::vector<Token> prompt{Token{1}, Token{6}, Token{2}};  // two of them it would refuse
        if (has_prompt)
            for (const Token token : prompt) chain.accept(token);
        CHECK(watched->n_accepted == 0);
        CHECK(chain.recent(5) == (has_prompt ? prompt : std::vector<Token>{}));
        CHECK(chain.sample(logits) == (has_prompt ? Token{9} : Token{6}));
        CHECK(watched->n_accepted == 1);
    }
}

TEST_CASE("[S8] chain: under a constraint tokens are drawn with the probabilities that are left") {
    Chain chain(6, {.top_k = 0, .top_p = 1.0f, .min_p = 0.0f, .temp = 1.0f, .seed = 11});
    chain.constrain(std::make_unique<Multiples>(6, 2));
    const std::vector<float> logits{0.0f, 2.0f, 1.0f, 1.5f, -1.0f, 0.3f};
    std::vector<int> counts(6);
    constexpr int kDraws = 20'000;
    for (int i = 0; i < kDraws; ++i) ++counts[static_cast<std::size_t>(chain.sample(logits))];
    const double total = std::exp(0.0) + std::exp(1.0) + std::exp(-1.0);
    double chi2 = 0;
    for (const int t : {0, 2, 4}) {
        const double expected = kDraws * std::exp(static_cast<double>(logits[static_cast<std::size_t>(t)])) / total;
        chi2 += (counts[static_cast<std::size_t>(t)] - expected) * (counts[static_cast<std::size_t>(t)] - expected) /
                expected;
    }
    CHECK(chi2 < 13.8);  // two degrees of freedom, 0.1 %
}
