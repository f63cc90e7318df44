// SPDX-License-Identifier: MIT
// The types of a model's tensors for a budget of divergence or of bytes: costs are measured for each tensor and type,
// the choice is a knapsack, and what comes of it is measured as a whole on text that the costs have not seen.
#pragma once

#include <tinfer/tinfer.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kl_report.hpp"
#include "knapsack.hpp"
#include "type_costs.hpp"

namespace tinfer::app {

/// Windows that measure costs, and windows that judge the recipe.
struct SplitText {
    TextWindows measuring, held_out;
};
/// The first `n` windows measure, or half where there are not more; at most four times as many of the others judge.
[[nodiscard]] SplitText split_text(const TextWindows& text, std::size_t n);

struct FoundRecipe {
    std::vector<tinfer::DType> types;  ///< by tensor of the file
    std::uint64_t bytes = 0;           ///< of the tensors that were chosen for
    double expected_kl = 0;            ///< the sum of the costs
    double gap = 0;                    ///< how much better a choice may be, as a fraction; 0: none is
    KlReport held_out;
    [[nodiscard]] double kl() const { return held_out.mean().mean; }
};

class RecipeFinder {
public:
    /// All of it outlives the object. `trial` is written and removed.
    struct Inputs {
        const tinfer::Model& base;
        const std::vector<TensorGroup>& groups;  ///< measured
        const TextWindows& held_out;
        const TensorEncoder& encoder;
        MakeContextOptions context;
        std::filesystem::path trial;
    };
    explicit RecipeFinder(const Inputs& in) : in_(in) {}

    /// The least sum of costs in a file of at most `limit` bytes. Throws limit_exceeded, with the least that is
    /// possible; cancelled.
    [[nodiscard]] FoundRecipe by_size(std::uint64_t limit) const;
    /// The smallest file whose divergence on the text that was held out is at most `limit`. Costs of single tensors
    /// add up to less or more than the whole, so the budget of the sum is adjusted, in a few rounds.
    [[nodiscard]] FoundRecipe by_kl(double limit) const;

private:
    [[nodiscard]] std::vector<tinfer::DType> types_of(const Packing& selection) const;
    [[nodiscard]] FoundRecipe verify(const Packing& selection, double expected, double bytes) const;
    [[nodiscard]] std::optional<Packing> smallest_within(double kl) const;

    Inputs in_;
};

}  // namespace tinfer::app
