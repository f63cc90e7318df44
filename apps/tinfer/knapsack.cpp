// SPDX-License-Identifier: MIT
#include "knapsack.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace tinfer::app {

namespace {

/// A choice of a group that none of the same group is lighter and better than.
struct Useful {
    double weight, value;
    std::size_t index;  ///< in the group
};

/// By weight, with falling values.
std::vector<Useful> useful_of(std::span<const Choice> group) {
    std::vector<Useful> sorted, out;
    for (std::size_t i = 0; i < group.size(); ++i) sorted.push_back({group[i].weight, group[i].value, i});
    std::ranges::stable_sort(sorted, [](const Useful& a, const Useful& b) {
        return a.weight != b.weight ? a.weight < b.weight : a.value < b.value;
    });
    for (const Useful& choice : sorted)
        if (out.empty() || choice.value < out.back().value) out.push_back(choice);
    return out;
}

/// From one choice to a heavier one on the lower convex hull.
struct Exchange {
    double weight, value;  ///< how much heavier, and how much better (positive)
    std::size_t group, to;
    [[nodiscard]] double rate() const { return value / weight; }
};

void add_hull(std::span<const Useful> choices, std::size_t group, std::vector<Exchange>& out) {
    std::vector<std::size_t> hull;
    const auto rate = [&](std::size_t a, std::size_t b) {
        return (choices[a].value - choices[b].value) / (choices[b].weight - choices[a].weight);
    };
    for (std::size_t i = 0; i < choices.size(); ++i) {
        while (hull.size() > 1 && rate(hull[hull.size() - 2], hull.back()) <= rate(hull.back(), i)) hull.pop_back();
        hull.push_back(i);
    }
    for (std::size_t k = 1; k < hull.size(); ++k) {
        const Useful &from = choices[hull[k - 1]], &to = choices[hull[k]];
        out.push_back({to.weight - from.weight, from.value - to.value, group, hull[k]});
    }
}

/// The linear relaxation of the groups from one on: the least value for any room beyond the lightest choices.
struct Relaxation {
    double lightest = 0, worst = 0;      ///< weight and value of the lightest choices
    std::vector<double> weight, saving;  ///< sums of exchanges, the best rate first

    [[nodiscard]] double value(double room) const {
        if (room <= 0 || weight.empty()) return worst;
        const auto k = static_cast<std::size_t>(std::ranges::upper_bound(weight, room) - weight.begin());
        if (k == weight.size()) return worst - saving.back();
        const double before_w = k > 0 ? weight[k - 1] : 0, before_s = k > 0 ? saving[k - 1] : 0;
        return worst - before_s - (room - before_w) * (saving[k] - before_s) / (weight[k] - before_w);
    }
};

/// A selection of the groups so far.
struct Partial {
    double weight, value, bound;
    std::uint32_t parent, choice;
};

class Knapsack {
public:
    Knapsack(std::span<const std::vector<Choice>> groups, double limit, std::size_t most_partial)
        : limit_(limit), most_partial_(most_partial) {
        for (const auto& group : groups) choices_.push_back(useful_of(group));
        for (std::size_t g = 0; g < choices_.size(); ++g) add_hull(choices_[g], g, exchanges_);
        std::ranges::stable_sort(exchanges_, std::ranges::greater{}, &Exchange::rate);
        for (std::size_t g = 0; g <= choices_.size(); ++g) rest_.push_back(relax_from(g));
    }

    std::optional<Packing> solve() {
        if (choices_.empty() || rest_[0].lightest > limit_) return std::nullopt;
        const std::vector<std::size_t> greedy = greedy_choices();
        best_ = sum_of(greedy);
        lost_ = std::numeric_limits<double>::infinity();
        std::vector<std::vector<Partial>> steps{{{0, 0, 0, 0, 0}}};
        for (std::size_t g = 0; g < choices_.size(); ++g) steps.push_back(extend(g, steps.back()));
        std::vector<std::size_t> chosen = greedy;
        if (!steps.back().empty()) chosen = trace_back(steps);
        Packing out = sum_of(chosen);
        if (out.value > best_.value) out = best_, chosen = greedy;
        out.bound = std::min(out.value, lost_);
        for (std::size_t g = 0; g < chosen.size(); ++g) out.chosen.push_back(choices_[g][chosen[g]].index);
        return out;
    }

private:
    [[nodiscard]] Relaxation relax_from(std::size_t first) const {
        Relaxation out;
        for (std::size_t g = first; g < choices_.size(); ++g) {
            out.lightest += choices_[g].front().weight;
            out.worst += choices_[g].front().value;
        }
        double weight = 0, saving = 0;
        for (const Exchange& exchange : exchanges_) {
            if (exchange.group < first) continue;
            out.weight.push_back(weight += exchange.weight);
            out.saving.push_back(saving += exchange.value);
        }
        return out;
    }

    /// Exchanges by their rate, each that still fits: a selection to begin with.
    [[nodiscard]] std::vector<std::size_t> greedy_choices() const {
        std::vector<std::size_t> chosen(choices_.size(), 0);
        double weight = rest_[0].lightest;
        for (const Exchange& exchange : exchanges_) {
            const auto& group = choices_[exchange.group];
            const double more = group[exchange.to].weight - group[chosen[exchange.group]].weight;
            if (weight + more > limit_) continue;
            weight += more;
            chosen[exchange.group] = exchange.to;
        }
        return sum_of(chosen).weight <= limit_ ? chosen : std::vector<std::size_t>(choices_.size(), 0);
    }

    [[nodiscard]] Packing sum_of(std::span<const std::size_t> chosen) const {
        Packing sum;
        for (std::size_t g = 0; g < chosen.size(); ++g) {
            sum.weight += choices_[g][chosen[g]].weight;
            sum.value += choices_[g][chosen[g]].value;
        }
        return sum;
    }

    /// Every partial selection with every choice of group g, those that may win.
    std::vector<Partial> extend(std::size_t g, std::span<const Partial> before) {
        std::vector<Partial> all, out;
        const Relaxation& rest = rest_[g + 1];
        for (std::uint32_t p = 0; p < before.size(); ++p)
            for (std::uint32_t c = 0; c < choices_[g].size(); ++c) {
                const double weight = before[p].weight + choices_[g][c].weight;
                const double value = before[p].value + choices_[g][c].value;
                const double room = limit_ - weight - rest.lightest;
                if (room < -1e-9 * limit_ || weight > limit_) break;  // choices get heavier
                const double bound = value + rest.value(room);
                if (bound < best_.value * (1 - 1e-12)) all.push_back({weight, value, bound, p, c});
            }
        std::ranges::stable_sort(all, [](const Partial& a, const Partial& b) {
            return a.weight != b.weight ? a.weight < b.weight : a.value < b.value;
        });
        for (const Partial& partial : all)
            if (out.empty() || partial.value < out.back().value) out.push_back(partial);
        if (out.size() > most_partial_) {
            std::ranges::stable_sort(out, {}, &Partial::bound);
            lost_ = std::min(lost_, out[most_partial_].bound);
            out.resize(most_partial_);
        }
        return out;
    }

    [[nodiscard]] std::vector<std::size_t> trace_back(std::span<const std::vector<Partial>> steps) const {
        std::vector<std::size_t> chosen(choices_.size());
        const auto best = std::ranges::min_element(steps.back(), {}, &Partial::value);
        auto at = static_cast<std::size_t>(best - steps.back().begin());
        for (std::size_t g = choices_.size(); g-- > 0;) {
            const Partial& partial = steps[g + 1][at];
            chosen[g] = partial.choice;
            at = partial.parent;
        }
        return chosen;
    }

    double limit_;
    std::size_t most_partial_;
    std::vector<std::vector<Useful>> choices_;  ///< by group
    std::vector<Exchange> exchanges_;           ///< of all groups, the best rate first
    std::vector<Relaxation> rest_;              ///< of the groups from each on
    Packing best_;
    double lost_ = 0;  ///< the least bound of what was given up
};

}  // namespace

std::optional<Packing> choose_one_of_each(std::span<const std::vector<Choice>> groups, double limit,
                                          std::size_t most_partial) {
    return Knapsack(groups, limit, most_partial).solve();
}

}  // namespace tinfer::app
