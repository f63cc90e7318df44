// SPDX-License-Identifier: MIT
#include "recipe_search.hpp"

#include <algorithm>

#include "common.hpp"
#include "quantize_steps.hpp"
#include "recipe.hpp"

namespace tinfer::app {

namespace {

constexpr int kMaxRounds = 8;
constexpr double kCloseEnough = 0.97;  ///< of the budget: a further round gains next to nothing

TextWindows some_windows(const TextWindows& text, std::size_t first, std::size_t count) {
    TextWindows out{{}, text.bos, text.length, count};
    const auto tokens = std::span(text.tokens).subspan(first * text.length, count * text.length);
    out.tokens.assign(tokens.begin(), tokens.end());
    return out;
}

}  // namespace

SplitText split_text(const TextWindows& text, std::size_t n) {
    const std::size_t measuring = n < text.count ? n : text.count / 2;
    return {some_windows(text, 0, measuring),
            some_windows(text, measuring, std::min(text.count - measuring, 4 * measuring))};
}

std::vector<tinfer::DType> RecipeFinder::types_of(const Packing& selection) const {
    std::vector<tinfer::DType> types;
    for (const auto& tensor : in_.base.file().tensors()) types.push_back(tensor.type);
    for (std::size_t g = 0; g < in_.groups.size(); ++g)
        for (const auto* tensor : in_.groups[g].tensors)
            if (selection.chosen[g] > 0) types[tensor->id] = in_.groups[g].types[selection.chosen[g]].type;
    return types;
}

FoundRecipe RecipeFinder::verify(const Packing& selection, double expected, double bytes) const {
    FoundRecipe found{types_of(selection), static_cast<std::uint64_t>(bytes), expected, selection.gap(), {}};
    const TemporaryFile trial(in_.trial);
    {
        const auto& file = in_.base.file();
        const auto steps = steps_of({}, file, found.types, true);
        tinfer::ModelWriter writer(in_.trial);
        declare_steps(file, steps, main_file_type(steps).number, writer);
        write_steps(file, steps, in_.encoder, writer);
        writer.finish();
    }
    const LoadModel load = [&] { return tinfer::Model::load(in_.trial); };
    auto reports = compare_with_base(in_.held_out, in_.base, std::span(&load, 1), in_.context);
    if (!reports) throw tinfer::Error(tinfer::ErrorCode::cancelled, "verifying was interrupted");
    found.held_out = std::move(reports->front());
    note(size_text(found.bytes) + " of matrices: KL " + fixed(found.kl(), 6) + " over " +
         counted(in_.held_out.count, "window") + " that were held out, " + fixed(expected, 6) + " by the costs");
    return found;
}

FoundRecipe RecipeFinder::by_size(std::uint64_t limit) const {
    std::vector<std::vector<Choice>> choices;
    double least = 0;
    for (const auto& group : in_.groups) {
        auto& of_group = choices.emplace_back();
        for (const auto& type : group.types) of_group.push_back({static_cast<double>(type.bytes), type.kl});
        least += std::ranges::min(of_group, {}, &Choice::weight).weight;
    }
    const auto selection = choose_one_of_each(choices, static_cast<double>(limit));
    if (!selection)
        throw tinfer::Error(tinfer::ErrorCode::limit_exceeded,
                            "matrices take " + size_text(static_cast<std::uint64_t>(least)) +
                                " in the smallest types, " + size_text(limit) + " are left for them");
    return verify(*selection, selection->value, selection->weight);
}

std::optional<Packing> RecipeFinder::smallest_within(double kl) const {
    std::vector<std::vector<Choice>> choices;
    for (const auto& group : in_.groups) {
        auto& of_group = choices.emplace_back();
        for (const auto& type : group.types) of_group.push_back({type.kl, static_cast<double>(type.bytes)});
    }
    return choose_one_of_each(choices, kl);
}

FoundRecipe RecipeFinder::by_kl(double limit) const {
    std::optional<FoundRecipe> best;
    std::vector<std::vector<std::size_t>> tried;
    double budget = limit, within = 0, beyond = std::numeric_limits<double>::infinity();
    for (int round = 0; round < kMaxRounds; ++round) {
        const auto selection = smallest_within(budget).value();  // what they are costs nothing
        if (std::ranges::find(tried, selection.chosen) != tried.end()) break;
        tried.push_back(selection.chosen);
        auto found = verify(selection, selection.weight, selection.value);
        const double kl = found.kl();
        if (kl <= limit) {
            within = budget;
            if (!best || found.bytes < best->bytes) best = std::move(found);
            if (kl >= kCloseEnough * limit) break;
        } else beyond = budget;
        // The sum of costs and the whole grow together, so the next budget is in proportion, unless that is known.
        const double aim = kl > 0 ? budget * std::min(4.0, 0.99 * limit / kl) : 4 * budget;
        budget = aim > within && aim < beyond ? aim : beyond < 1e30 ? (within + beyond) / 2 : 4 * budget;
    }
    if (best) return std::move(*best);
    return verify(smallest_within(0).value(), 0, 0);
}

}  // namespace tinfer::app
