// SPDX-License-Identifier: MIT
// The length of drafts in a world whose costs and chances are known: never much slower than plain steps, and near the
// best that is possible where drafted tokens are accepted.
#include <doctest/doctest.h>

#include "generation/draft_length.hpp"
#include "support/random_blocks.hpp"

namespace tinfer::generation {

namespace {

struct World {
    double asking = 0, per_token = 0.15;  // a step of one token takes 1
    double chance = 0;                    // of each drafted token
    double noise = 0;                     // a step takes up to so much more or less of its time
};

/// Seconds of n tokens, in terms of plain steps.
double time_of(const World& world, int n, std::uint64_t seed = 1, std::size_t limit = 15) {
    DraftLength length;
    test::Random random(seed);
    double seconds = 0;
    for (int tokens = 0; tokens < n;) {
        std::size_t drafted = length.wanted(limit);
        const double asked = drafted > 0 ? world.asking : 0;
        drafted = length.worth(3, drafted);
        std::size_t right = 0;
        while (right < drafted && static_cast<double>(random.below(1u << 20)) < world.chance * (1u << 20)) ++right;
        const double exact = asked + 1 + world.per_token * static_cast<double>(drafted);
        const double spent = exact * (1 + world.noise * (static_cast<double>(random.below(2001)) / 1000 - 1));
        seconds += exact;
        if (drafted == 0) length.note_plain(spent, asked);
        else length.note_verification(3, drafted, right, spent);
        tokens += static_cast<int>(right) + 1;
    }
    return seconds / n;
}

}  // namespace

// A model of costs: that of real decodes is measured by benchmarks/bench_speculation.cpp, with the same floor.
TEST_CASE("[J1] length of drafts: where costs are known no text runs below 0.98 of plain steps, whatever checks cost") {
    for (const double per_token : {0.02, 0.1, 0.3, 0.6, 1.0})
        for (const double chance : {0.0, 0.05, 0.2, 0.4})
            for (const double asking : {0.0, 0.05, 0.5})
                for (const double noise : {0.0, 0.05, 0.1})
                    for (std::uint64_t seed = 1; seed < 4; ++seed) {
                        CAPTURE(per_token);
                        CAPTURE(chance);
                        CAPTURE(asking);
                        CAPTURE(noise);
                        CHECK(time_of({asking, per_token, chance, noise}, 400, seed) < 1 / 0.98);
                    }
}

TEST_CASE("[J1] length of drafts: where drafted tokens are accepted they are long, and short where that pays more") {
    CHECK(time_of({0, 0.15, 1.0}, 400) < 0.3);   // 16 tokens in 3.25 steps
    CHECK(time_of({0, 0.15, 0.9}, 400) < 0.42);  // 1 + .9 + … against 1 + .15 m
    CHECK(time_of({0, 0.15, 0.6}, 400) < 0.75);  // about 1 + .6 + .36 in 1.3 steps
    CHECK(time_of({0.1, 0.3, 0.95}, 400) < 0.55);
}

TEST_CASE("[J1] length of drafts: a text that changes is followed") {
    DraftLength length;
    length.note_plain(1, 0);
    length.note_plain(1, 0);
    for (int i = 0; i < 40; ++i) {
        const auto n = length.worth(5, 15);
        if (n == 0) length.note_plain(1, 0);
        else length.note_verification(5, n, n, 1 + 0.15 * static_cast<double>(n));
    }
    CHECK(length.worth(5, 15) >= 11);
    double lost = 0;
    for (int i = 0; i < 100; ++i) {  // from here on all are wrong
        const auto n = length.worth(5, 15);
        if (n == 0) length.note_plain(1, 0);
        else length.note_verification(5, n, 0, 1 + 0.15 * static_cast<double>(n));
        lost += 0.15 * static_cast<double>(n);
    }
    CHECK(lost < 15);
    CHECK(length.worth(5, 15) <= 1);
}

TEST_CASE("[J3] length of drafts: tokens that are forced go at once, from the first step on, while they are right") {
    constexpr int kForced = DraftLength::kForced;
    DraftLength length;
    CHECK(length.worth(kForced, 11) == 11);  // nothing is measured yet
    CHECK(length.worth(kForced, 63) == 15);
    length.note_verification(kForced, 15, 15, 2);
    CHECK(length.worth(kForced, 40) == 40);
    CHECK(length.worth(kForced, 200) == 63);
    CHECK(length.worth(3, 15) == 0);  // of others nothing is known
    length.note_plain(1, 0);
    CHECK(length.worth(3, 15) > 0);
    CHECK(length.plain() == 1);

    // A model that spells the bytes by other tokens: as with all other drafted from then on.
    DraftLength other;
    double lost = 0;
    for (int i = 0; i < 300; ++i) {
        const auto n = other.worth(kForced, 63);
        if (n == 0) other.note_plain(1, 0);
        else other.note_verification(kForced, n, 0, 1 + 0.15 * static_cast<double>(n));
        lost += 0.15 * static_cast<double>(n);
    }
    CHECK(lost < 0.03 * 300);
}

TEST_CASE("[J1] length of drafts: with experts a check touches the union of theirs") {
    CHECK(touched({}, 8) == doctest::Approx(1));
    const StepShape moe{.expert_fraction = 0.8, .experts_used = 1.0 / 16};
    CHECK(touched(moe, 1) == doctest::Approx(1));
    CHECK(touched(moe, 2) == doctest::Approx(0.2 + 0.8 * (2 - 1.0 / 16)));
    CHECK(touched(moe, 1000) == doctest::Approx(0.2 + 0.8 * 16));
    // So a drafted token that is worth it in a dense model is not in this one, before anything is measured.
    DraftLength dense, experts(moe);
    for (DraftLength* length : {&dense, &experts}) length->note_plain(1, 0);
    CHECK(dense.worth(2, 7) > 0);
    CHECK(experts.worth(2, 7) == 0);
}

}  // namespace tinfer::generation
