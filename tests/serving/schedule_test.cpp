// SPDX-License-Identifier: MIT
// The composition of rounds, without a model and without a cache.
#include "serving/schedule.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

using namespace tinfer::serving;

namespace {

using Counts = std::vector<std::size_t>;

constexpr RoundLimits kWide{.n_batch = 512, .n_drafted = 512, .n_rows = 64, .n_free = 4096};

/// A prompt of n tokens, of which n_done are computed.
RoundNeed reads(std::size_t n, std::size_t n_done = 0) {
    return {.n_done = n_done, .n_tokens = n, .n_prompt = n, .n_scored = n};
}
/// An answer to a prompt of n tokens.
RoundNeed generates(std::size_t n) {
    return {.n_done = n + 3, .n_tokens = n + 4, .n_prompt = n, .n_scored = n, .goes_on = true};
}

}  // namespace

TEST_CASE("schedule: who generates has a token each round, prompts share what is left, the oldest first") {
    const std::vector<RoundNeed> needs{reads(300), generates(20), reads(400), generates(9), reads(10)};
    const Round round = schedule(needs, kWide);
    CHECK(round.n_tokens == Counts{300, 1, 210, 1, 0});
    CHECK(round.reads_prompts);
    CHECK(round.n_spare == 0);
    CHECK(wanted_tokens(needs, kWide.n_batch) == 512);
    CHECK(wanted_tokens(std::vector{generates(20), reads(10)}, kWide.n_batch) == 11);
}

TEST_CASE("schedule: more answers than the batch has tokens are not delayed, prompts are; one alone gets a token") {
    RoundLimits limits = kWide;
    limits.n_batch = 2;
    CHECK(schedule(std::vector{generates(5), generates(6), generates(7), reads(50)}, limits).n_tokens ==
          Counts{1, 1, 1, 0});
    limits.n_batch = 0;  // abandoned again and again
    CHECK(schedule(std::vector{reads(50), reads(60)}, limits).n_tokens == Counts{1, 0});
}

TEST_CASE("schedule: a prompt ends its piece where a copy is to be kept, and who waits gets nothing") {
    std::vector<RoundNeed> needs{reads(300, 40), reads(300), reads(300)};
    needs[0].pause = 100;
    needs[1].waits = true;
    needs[2].pause = 128;
    needs[2].other_pause = 64;
    CHECK(schedule(needs, kWide).n_tokens == Counts{60, 0, 64});
    needs[0].n_done = 100;  // a pause that lies behind is none
    CHECK(schedule(needs, kWide).n_tokens == Counts{200, 0, 64});
}

TEST_CASE("schedule: no more tokens than the cache takes, those that go on first") {
    RoundLimits limits = kWide;
    limits.n_free = 7;
    CHECK(schedule(std::vector{reads(300), generates(20)}, limits).n_tokens == Counts{6, 1});
    limits.n_free = 1;
    CHECK(schedule(std::vector{reads(300), generates(20)}, limits).n_tokens == Counts{0, 1});
}

TEST_CASE("schedule: scores take the rows that no other request may come to need") {
    RoundLimits limits = kWide;
    limits.n_rows = 10;
    RoundNeed scored = reads(300);
    scored.n_scored = 1;  // all but the first
    CHECK(schedule(std::vector{scored}, limits).n_tokens == Counts{10});
    CHECK(schedule(std::vector{scored, generates(20)}, limits).n_tokens == Counts{9, 1});
    CHECK(schedule(std::vector{scored, reads(600), reads(5)}, limits).n_tokens == Counts{8, 504, 0});  // a row each
    scored.n_scored = 100;  // those before were scored before they were dropped from the cache
    CHECK(schedule(std::vector{scored, generates(20)}, limits).n_tokens == Counts{108, 1});
}

TEST_CASE("schedule: what is left of rows, batch and cache is for drafts, where no prompt is read") {
    const std::vector<RoundNeed> going{generates(20), generates(30)};
    CHECK(schedule(going, kWide).n_spare == 62);
    RoundLimits limits = kWide;
    limits.n_free = 5;
    CHECK(schedule(going, limits).n_spare == 3);
    limits.n_drafted = 0;
    CHECK(schedule(going, limits).n_spare == 0);
    CHECK(schedule(std::vector{generates(20), reads(5)}, kWide).n_spare == 0);
}

TEST_CASE("schedule: whatever is asked for, limits hold and the oldest that may read does") {
    std::mt19937 random(5);
    const auto below = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
    for (int round_of_many = 0; round_of_many < 5000; ++round_of_many) {
        std::vector<RoundNeed> needs(below(8));
        std::size_t n_going = 0;
        for (RoundNeed& need : needs) {
            const std::size_t n = 2 + below(200);
            need = below(2) == 0 ? generates(n) : reads(n, below(n - 1));
            if (!need.goes_on && below(3) == 0) need.n_scored = 1 + below(n);
            need.waits = !need.goes_on && below(4) == 0;
            need.pause = below(300);
            n_going += need.goes_on ? 1 : 0;
        }
        const RoundLimits limits{.n_batch = below(100),
                                 .n_drafted = below(100),
                                 .n_rows = needs.size() + below(20),
                                 .n_free = n_going + below(100)};
        const Round round = schedule(needs, limits);
        REQUIRE(round.n_tokens.size() == needs.size());
        std::size_t n_all = 0, n_rows = 0, first_reader = needs.size();
        for (std::size_t i = 0; i < needs.size(); ++i) {
            const std::size_t n = round.n_tokens[i];
            CHECK(n <= needs[i].n_left());
            CHECK((!needs[i].goes_on || n == 1));
            CHECK((!needs[i].waits || n == 0));
            n_all += n;
            for (std::size_t end = needs[i].n_done + 1; end <= needs[i].n_done + n; ++end)
                n_rows += needs[i].needs_row(end) ? 1 : 0;
            if (!needs[i].goes_on && !needs[i].waits) first_reader = std::min(first_reader, i);
        }
        CHECK(n_all <= std::max({limits.n_batch, n_going, std::size_t{1}}));
        CHECK(n_all <= limits.n_free);
        CHECK(n_rows <= limits.n_rows);
        CHECK(n_going + round.n_spare <= std::max(n_going, std::min(limits.n_rows, limits.n_free)));
        if (first_reader < needs.size() && limits.n_batch > n_going && limits.n_free > n_going)
            CHECK(round.n_tokens[first_reader] > 0);
    }
}
