// SPDX-License-Identifier: MIT
#include "knapsack.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <random>

namespace tinfer::app {

namespace {

using Groups = std::vector<std::vector<Choice>>;

/// Whole numbers, so that sums are exact in any order.
Groups random_groups(std::mt19937& random, std::size_t n_groups, std::size_t n_choices, int most) {
    std::uniform_int_distribution<int> number(0, most);
    Groups groups(n_groups);
    for (auto& group : groups)
        for (std::size_t i = 0; i < n_choices; ++i)
            group.push_back({static_cast<double>(number(random)), static_cast<double>(number(random))});
    return groups;
}

/// Every selection, one by one.
double best_of_all(const Groups& groups, double limit, std::size_t at = 0) {
    if (at == groups.size()) return limit >= 0 ? 0 : std::numeric_limits<double>::infinity();
    double best = std::numeric_limits<double>::infinity();
    for (const Choice& choice : groups[at])
        best = std::min(best, choice.value + best_of_all(groups, limit - choice.weight, at + 1));
    return best;
}

void check_sums(const Groups& groups, double limit, const Packing& found) {
    double weight = 0, value = 0;
    REQUIRE(found.chosen.size() == groups.size());
    for (std::size_t g = 0; g < groups.size(); ++g) {
        weight += groups[g].at(found.chosen[g]).weight;
        value += groups[g].at(found.chosen[g]).value;
    }
    CHECK(found.weight == weight);
    CHECK(found.value == value);
    CHECK(weight <= limit);
    CHECK(found.bound <= found.value);
}

}  // namespace

TEST_CASE("[Q6] knapsack: the best of all selections, or that there is none") {
    std::mt19937 random(7);
    for (int round = 0; round < 300; ++round) {
        const auto groups = random_groups(random, 1 + random() % 6, 1 + random() % 4, round % 3 == 0 ? 4 : 1000);
        const double limit = static_cast<double>(random() % 3000);
        const double expected = best_of_all(groups, limit);
        const auto found = choose_one_of_each(groups, limit);
        CHECK(found.has_value() == (expected < std::numeric_limits<double>::infinity()));
        if (!found) continue;
        check_sums(groups, limit, *found);
        CHECK(found->value == expected);
        CHECK(found->gap() == 0);
    }
    CHECK_FALSE(choose_one_of_each({}, 1).has_value());
}

TEST_CASE("[Q6] knapsack: with few partial selections the gap says what may have been lost") {
    std::mt19937 random(11);
    int gaps = 0;
    for (int round = 0; round < 40; ++round) {
        const auto groups = random_groups(random, 60, 6, 1'000'000);
        const double limit = 20'000'000;
        const auto exact = choose_one_of_each(groups, limit), rough = choose_one_of_each(groups, limit, 2);
        REQUIRE((exact && rough));
        check_sums(groups, limit, *exact);
        check_sums(groups, limit, *rough);
        CHECK(rough->value >= exact->value);
        CHECK(rough->bound <= exact->value);
        CHECK(exact->gap() < 1e-4);
        gaps += rough->gap() > 0 ? 1 : 0;
    }
    CHECK(gaps > 0);
}

}  // namespace tinfer::app
