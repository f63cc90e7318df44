// SPDX-License-Identifier: MIT
// The chain as a value: order of links, a user's own link anywhere, copies with their state, refusals.
#include "sampling/chain.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

using namespace tinfer;
using namespace tinfer::sampling;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> logits_of(std::size_t n) {
    std::vector<float> logits(n);
    for (std::size_t i = 0; i < n; ++i) logits[i] = std::sin(static_cast<float>(i * i)) * 3.0f;
    return logits;
}

std::vector<Token> draw(Chain& chain, std::span<const float> logits, int n) {
    std::vector<Token> tokens;
    for (int i = 0; i < n; ++i) tokens.push_back(chain.sample(logits));
    return tokens;
}

/// Bans one token and counts what happens to it.
class Ban final : public SamplerLink {
public:
    struct Log {
        int applied = 0, accepted = 0, resets = 0;
        std::size_t seen = 0;
    };
    Ban(std::int32_t id, Log& log) : id_(id), log_(&log) {}
    [[nodiscard]] std::string_view name() const noexcept override { return "ban"; }
    void apply(CandidateArray& candidates) override {
        ++log_->applied;
        log_->seen = candidates.data.size();
        for (auto& candidate : candidates.data)
            if (candidate.id == id_) candidate.logit = -kInfinity;
    }
    void accept(Token) override { ++log_->accepted; }
    void reset() override { ++log_->resets; }
    [[nodiscard]] std::unique_ptr<SamplerLink> clone() const override { return std::make_unique<Ban>(*this); }

private:
    std::int32_t id_;
    Log* log_;
};

/// A link of one function.
class Call final : public SamplerLink {
public:
    explicit Call(void (*function)(CandidateArray&)) : function_(function) {}
    [[nodiscard]] std::string_view name() const noexcept override { return "call"; }
    void apply(CandidateArray& candidates) override { function_(candidates); }
    [[nodiscard]] std::unique_ptr<SamplerLink> clone() const override { return std::make_unique<Call>(*this); }

private:
    void (*function_)(CandidateArray&);
};

template <class Function>
std::string refusal(Function&& function) {
    try {
        function();
        return "no error";
    } catch (const Error& error) {
        return std::string(to_string(error.code())) + ": " + error.what();
    }
}

std::string refusal_of(SamplerOptions options) {
    return refusal([&] { Chain chain(10, options); });
}

}  // namespace

TEST_CASE("chain: links stand in the order of the options, bias first and the draw last") {
    const Chain chain(10, {.seed = 1});
    CHECK(chain.names() == std::vector<std::string>{"logit_bias", "penalties", "dry", "top_n_sigma", "top_k",
                                                    "typical_p", "top_p", "min_p", "xtc", "temperature", "dist"});
    const Chain other(10, {.order = "tk", .seed = 1});
    CHECK(other.names() == std::vector<std::string>{"logit_bias", "temperature", "top_k", "dist"});
    const Chain greedy(10, {.temp = 0.0f, .order = "kept"});
    CHECK(greedy.names() == std::vector<std::string>{"logit_bias", "penalties", "greedy"});
    const Chain mirostat(10, {.mirostat = 2, .seed = 1});
    CHECK(mirostat.names() == std::vector<std::string>{"logit_bias", "temperature", "mirostat_v2"});
    const Chain adaptive(10, {.adaptive_target = 0.4f, .order = "top_k;temperature", .seed = 1});
    CHECK(adaptive.names() == std::vector<std::string>{"logit_bias", "top_k", "temperature", "adaptive_p"});
}

TEST_CASE("chain: a letter of the order makes the link of its name") {
    const std::string text = refusal_of({.order = "?"});
    std::string_view rows = std::string_view(text).substr(text.find('(') + 1);  // "e penalties, d dry, …)"
    int n_links = 0;
    for (std::size_t end = 0; end != std::string_view::npos; ++n_links) {
        end = rows.find(", ");
        const std::string row(rows.substr(0, end == std::string_view::npos ? rows.size() - 1 : end));
        rows.remove_prefix(std::min(rows.size(), row.size() + 2));
        CAPTURE(row);
        REQUIRE(row.size() > 2);
        if (row == "i infill" || row == "a adaptive_p") continue;  // needs a vocabulary; is asked for by a field
        CHECK(Chain(10, {.order = row.substr(0, 1), .seed = 1}).names().at(1) == row.substr(2));
    }
    CHECK(n_links >= 11);
}

TEST_CASE("[S2][S3] chain: temperature 0 takes the best, ties by lowest id, after bias and penalties") {
    Chain chain(6, {.penalty_repeat = 1.5f, .temp = 0.0f});
    const std::vector<float> logits{1, 4, 2, 4, 3.5f, 0};
    CHECK(chain.sample(logits) == Token{1});
    CHECK(chain.last_p() == 1.0f);
    CHECK(chain.sample(logits) == Token{3});  // 4 / 1.5 is less than 4
    CHECK(chain.sample(logits) == Token{4});
    Chain biased(6, {.logit_bias = {{Token{5}, 10.0f}}, .temp = 0.0f});
    CHECK(biased.sample(logits) == Token{5});
}

TEST_CASE("[S1] chain: a user's link at any place sees and changes the candidates") {
    const auto logits = logits_of(100);
    SamplerOptions options{.top_k = 10, .top_p = 1.0f, .min_p = 0.0f, .seed = 5};
    Chain plain(100, options);
    const Token usual = plain.sample(logits);
    for (std::size_t place = 0; place < plain.names().size(); ++place) {
        Ban::Log log;
        Chain chain(100, options);
        chain.insert(place, std::make_unique<Ban>(static_cast<std::int32_t>(usual), log));
        CHECK(chain.names()[place] == "ban");
        for (const Token token : draw(chain, logits, 50)) CHECK(token != usual);
        CHECK(log.applied == 50);
        CHECK(log.accepted == 50);
        CHECK(log.seen == (place <= 4 ? 100 : 10));  // top_k stands fifth
        chain.reset();
        CHECK(log.resets == 1);
        chain.remove(place);
        CHECK(chain.sample(logits) == usual);
        CHECK(log.applied == 50);
    }
}

TEST_CASE("[S1] chain: a user's link may select, shrink, or bring candidates of its own") {
    const auto logits = logits_of(20);
    Chain chain(20, {.seed = 1});
    chain.insert(chain.names().size(), std::make_unique<Call>([](CandidateArray& candidates) {
                     candidates.data = candidates.data.first(1);
                     candidates.selected = 0;
                 }));
    for (int i = 0; i < 10; ++i) (void)chain.sample(logits);
    CHECK(chain.last_candidates() == 1);

    static Candidate own[] = {{7, 0.0f, 0.0f}, {3, 1.0f, 0.0f}};  // unsorted, whatever the flag says
    Chain other(20, {.top_p = 0.5f, .order = "p", .seed = 1});
    other.insert(1, std::make_unique<Call>([](CandidateArray& candidates) {
                     candidates.data = own;
                     candidates.sorted = true;
                 }));
    CHECK(other.sample(logits) == Token{3});
    REQUIRE(other.probs(5).size() == 1);
    CHECK(other.probs(5)[0].id == 3);
}

TEST_CASE("chain: what a user's link breaks is refused by name") {
    const auto logits = logits_of(20);
    const auto with = [&](std::size_t place, void (*function)(CandidateArray&)) {
        Chain chain(20, {.seed = 1});
        chain.insert(place, std::make_unique<Call>(function));
        return refusal([&] { (void)chain.sample(logits); });
    };
    CHECK(with(2, [](CandidateArray& c) { c.data[4].logit = std::nanf(""); }) ==
          "non_finite_logits: link 'call' made the logit of token 4 NaN");
    CHECK(with(2, [](CandidateArray& c) { c.data = {}; }) == "no_candidates: no candidate token is left");
    const std::size_t n_links = Chain(20, {.seed = 1}).names().size();
    CHECK(with(n_links, [](CandidateArray& c) {
              c.selected = 99;
          }).starts_with("no_candidates: the chain selected candidate 99 of "));
    Chain chain(20, {.seed = 1});
    const std::string n = std::to_string(n_links), behind = std::to_string(n_links + 1);
    CHECK(refusal([&] { chain.insert(n_links + 1, std::make_unique<Call>([](CandidateArray&) {})); }) ==
          "index_out_of_range: insert: place " + behind + " outside [0," + n + "]");
    CHECK(refusal([&] { chain.insert(0, nullptr); }) == "bad_parameter: insert: the link is null");
    CHECK(refusal([&] { chain.remove(n_links); }) ==
          "index_out_of_range: remove: place " + n + " outside [0," + n + ")");
}

TEST_CASE("[S10] chain: a seed repeats, reset starts over, copies go on alike") {
    const auto logits = logits_of(500);
    const SamplerOptions options{.penalty_repeat = 1.2f, .penalty_freq = 0.1f, .top_k = 100, .temp = 1.5f, .seed = 77};
    Chain first(500, options), second(500, options);
    const auto tokens = draw(first, logits, 40);
    CHECK(draw(second, logits, 40) == tokens);
    Chain copy(first);
    CHECK(copy.recent(64) == tokens);
    const auto next = draw(first, logits, 40);
    CHECK(draw(copy, logits, 40) == next);
    CHECK(next != tokens);
    first.reset();
    CHECK(first.recent(64).empty());
    CHECK(draw(first, logits, 40) == tokens);
    Chain other(500, {.penalty_repeat = 1.2f, .penalty_freq = 0.1f, .top_k = 100, .temp = 1.5f, .seed = 78});
    CHECK(draw(other, logits, 40) != tokens);
}

TEST_CASE("chain: a seed from the hardware is reported and repeats what it drew") {
    const auto logits = logits_of(500);
    Chain chosen(500, {.temp = 2.0f});
    CHECK(chosen.seed() != kRandomSeed);
    Chain again(500, {.temp = 2.0f, .seed = chosen.seed()});
    CHECK(draw(again, logits, 30) == draw(chosen, logits, 30));
}

TEST_CASE("chain: recent tokens are those accepted last, oldest first, at most 64") {
    Chain chain(1000, {.seed = 1});
    CHECK(chain.recent(3).empty());
    for (int i = 0; i < 100; ++i) chain.accept(Token{i});
    CHECK(chain.recent(3) == std::vector{Token{97}, Token{98}, Token{99}});
    CHECK(chain.recent(1000).size() == 64);
    CHECK(chain.recent(1000).front() == Token{36});
}

TEST_CASE("chain: probs are those after the chain, descending, and add up to one") {
    const auto logits = logits_of(100);
    Chain chain(100, {.top_k = 5, .top_p = 1.0f, .min_p = 0.0f, .seed = 1});
    CHECK(chain.probs(3).empty());
    (void)chain.sample(logits);
    const auto probs = chain.probs(100);
    REQUIRE(probs.size() == 5);
    CHECK(chain.last_candidates() == 5);
    float sum = 0;
    for (std::size_t i = 0; i < 5; ++i) {
        sum += probs[i].p;
        if (i > 0) CHECK(probs[i].p <= probs[i - 1].p);
    }
    CHECK(sum == doctest::Approx(1.0f));
    CHECK(chain.probs(2).size() == 2);
}

TEST_CASE("chain: rows without a legal winner are refused, an infinite logit wins") {
    Chain chain(3, {.temp = 2.0f, .seed = 1});
    const auto sample = [&](std::vector<float> logits) { return refusal([&] { (void)chain.sample(logits); }); };
    CHECK(sample({}) == "no_candidates: a row of 0 logits has no candidate tokens");
    CHECK(sample({1, std::nanf(""), 2}) == "non_finite_logits: logit of token 1 is NaN");
    CHECK(sample({-kInfinity, -kInfinity, -kInfinity}) == "no_candidates: no candidate token is left");
    for (int i = 0; i < 20; ++i) CHECK(chain.sample(std::vector<float>{5, kInfinity, kInfinity}) == Token{1});
    CHECK(chain.recent(64).size() == 20);  // refused rows accept nothing
}

TEST_CASE("options: each bound is refused with field and value") {
    const float nan = std::nanf("");
    CHECK(refusal_of({.temp = nan}) == "bad_parameter: temp = nan is not finite");
    CHECK(refusal_of({.top_p = 1.5f}) == "bad_parameter: top_p = 1.5 outside [0,1]");
    CHECK(refusal_of({.min_p = -0.5f}) == "bad_parameter: min_p = -0.5 outside [0,1]");
    CHECK(refusal_of({.min_keep = -1}) == "bad_parameter: min_keep = -1 is negative");
    CHECK(refusal_of({.penalty_last_n = -2}) == "bad_parameter: penalty_last_n = -2 outside [-1,16777216]");
    CHECK(refusal_of({.penalty_repeat = 0.0f}) == "bad_parameter: penalty_repeat = 0 is not positive");
    CHECK(refusal_of({.dry_multiplier = -1.0f}) == "bad_parameter: dry_multiplier = -1 is below 0");
    CHECK(refusal_of({.top_p = nan}) == "bad_parameter: top_p = nan outside [0,1]");
    CHECK(refusal_of({.mirostat = 3}) == "bad_parameter: mirostat = 3 outside [0,2]");
    CHECK(refusal_of({.adaptive_target = 1.5f}) == "bad_parameter: adaptive_target = 1.5 is above 1");
    CHECK_NOTHROW(SamplerOptions{.top_k = -7, .adaptive_target = -2.0f}.validate());  // off
    CHECK(refusal_of({.penalty_freq = kInfinity}).starts_with("bad_parameter: penalty_freq = inf"));
    CHECK(refusal_of({.logit_bias = {{Token{4}, nan}}}) == "bad_parameter: logit_bias of token 4 is NaN");
    CHECK(
        refusal_of({.order = "ekz"}) ==
        "bad_parameter: order: no sampler has the letter 'z' (e penalties, d dry, s top_n_sigma, k top_k, y typical_p, "
        "p top_p, m min_p, x xtc, t temperature, i infill, a adaptive_p)");
}

TEST_CASE("[S16] chain: a draw is explained: candidates left after each link, the chosen and the next five") {
    const auto logits = logits_of(100);
    Chain chain(100, {.top_k = 20, .top_p = 0.8f, .min_p = 0.2f, .seed = 6});
    CHECK(chain.report().links.empty());
    chain.explain(true);
    for (int i = 0; i < 50; ++i) {
        const Token token = chain.sample(logits);
        const DrawReport report = chain.report();
        REQUIRE(report.links.size() == chain.names().size());
        std::size_t before = 100;
        for (std::size_t k = 0; k < report.links.size(); ++k) {
            CHECK(report.links[k].name == chain.names()[k]);
            CHECK(report.links[k].n_left <= before);
            before = report.links[k].n_left;
            if (report.links[k].name == "top_k") CHECK(before == 20);
        }
        CHECK(before == chain.survivors().size());
        CHECK(report.chosen.id == static_cast<std::int32_t>(token));
        CHECK(report.others.size() == std::min<std::size_t>(5, before - 1));
        float p = 1;
        for (const Candidate& other : report.others) {
            CHECK(other.id != report.chosen.id);
            CHECK(other.p <= p);
            p = other.p;
        }
        const auto found = chain.probs(before);
        const auto chosen = std::ranges::find(found, report.chosen.id, &Candidate::id);
        REQUIRE(chosen != found.end());
        CHECK(chosen->p == doctest::Approx(report.chosen.p).epsilon(1e-6));
    }
    Chain quiet(100, {.top_k = 20, .top_p = 0.8f, .min_p = 0.2f, .seed = 6});
    chain.reset();
    for (int i = 0; i < 20; ++i) CHECK(quiet.sample(logits) == chain.sample(logits));
}
