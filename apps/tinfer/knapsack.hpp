// SPDX-License-Identifier: MIT
// The multiple-choice knapsack: one choice of each group, the least sum of values with a bounded sum of weights.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace tinfer::app {

/// One way to have a group. Neither is negative.
struct Choice {
    double weight = 0, value = 0;
};

struct Packing {
    std::vector<std::size_t> chosen;  ///< by group
    double weight = 0, value = 0;     ///< sums
    double bound = 0;                 ///< no selection within the limit has a smaller value
    /// 0 where the selection is the best one.
    [[nodiscard]] double gap() const { return value > bound ? (value - bound) / value : 0; }
};

/// The best selection whose weights sum to at most `limit`; nullopt where even the lightest is too heavy. Partial
/// selections that no other one is lighter and better than are extended group by group, and left where the linear
/// relaxation of the rest says that they cannot win (H. Kellerer, U. Pferschy, D. Pisinger, Knapsack Problems, ch. 11).
/// `most_partial` bounds them; what is given up for that is stated in Packing::bound. The same result everywhere.
[[nodiscard]] std::optional<Packing> choose_one_of_each(std::span<const std::vector<Choice>> groups, double limit,
                                                        std::size_t most_partial = 16384);

}  // namespace tinfer::app
