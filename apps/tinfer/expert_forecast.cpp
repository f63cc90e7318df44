// SPDX-License-Identifier: MIT
#include "expert_forecast.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "trace/reuse.hpp"

namespace tinfer::app {

namespace {

constexpr double kHalfLife = 16;  // tokens after which the pager counts a pick half
constexpr std::size_t kWarmTokens = 96, kTokens = 160;
constexpr double kMostCertain = 1 - 1e-9;  // an expert that was always chosen

/// A layer's experts: how probable it is that a token uses each.
using Layer = std::vector<double>;

/// n_used times each expert's share of the picks.
Layer frequencies(const tinfer::ExpertPicks& layer, std::size_t n_used) {
    Layer all(layer.picks.size());
    const double sum = std::accumulate(layer.picks.begin(), layer.picks.end(), 0.0);
    std::ranges::transform(layer.picks, all.begin(), [&](std::uint64_t n) {
        return std::min(1.0, static_cast<double>(n) * static_cast<double>(n_used) / std::max(sum, 1.0));
    });
    return all;
}

/// The share of the frequencies' differences that is not chance: their variance, without that which so many draws of
/// equal chances have (James and Stein's estimate, for all layers together).
double certain_share(std::span<const tinfer::ExpertPicks> layers, std::span<const Layer> all, std::size_t n_used) {
    double differences = 0, by_chance = 0;
    for (std::size_t il = 0; il < layers.size(); ++il) {
        const double n_tokens = std::accumulate(layers[il].picks.begin(), layers[il].picks.end(), 0.0) /
                                static_cast<double>(std::max<std::size_t>(n_used, 1));
        if (n_tokens <= 0) continue;
        const double mean = std::accumulate(all[il].begin(), all[il].end(), 0.0) / static_cast<double>(all[il].size());
        for (const double q : all[il]) {
            differences += (q - mean) * (q - mean);
            by_chance += q * (1 - q) / n_tokens;
        }
    }
    return differences > 0 ? std::max(0.0, 1 - by_chance / differences) : 0;
}

/// The share of a token's experts that it has because the token before had them: what is repeated more often than
/// independent choices would.
double copied_share(std::span<const tinfer::ExpertPicks> layers, std::span<const Layer> all, std::size_t n_used) {
    double n_compared = 0, n_repeated = 0, n_by_chance = 0;
    for (std::size_t il = 0; il < layers.size(); ++il) {
        const auto n = static_cast<double>(layers[il].n_compared);
        double both = 0;  // of a token's experts, those that the next one has by chance
        for (const double q : all[il]) both += q * q;
        n_compared += n;
        n_repeated += static_cast<double>(layers[il].n_repeated);
        n_by_chance += n * both / static_cast<double>(std::max<std::size_t>(n_used, 1));
    }
    const double room = n_compared - n_by_chance;
    return room > 0 ? std::clamp((n_repeated - n_by_chance) / room, 0.0, 1.0) : 0;
}

/// Draws the experts of one token after the other.
class Draws {
public:
    Draws(Layer frequencies, std::size_t n_used, double copied)
        : frequencies_(std::move(frequencies)), n_used_(std::min(n_used, frequencies_.size())), copied_(copied) {}

    const std::vector<std::size_t>& next(std::minstd_rand& random) {
        const auto uniform = [&] { return (static_cast<double>(random()) + 0.5) / 2147483648.0; };
        std::erase_if(chosen_, [&](std::size_t) { return uniform() >= copied_; });
        // A race: the first n have each expert as often as its frequency says, if rates are -log(1 - frequency).
        race_.clear();
        for (std::size_t e = 0; e < frequencies_.size(); ++e) {
            if (std::ranges::find(chosen_, e) != chosen_.end()) continue;
            const double rate = -std::log1p(-std::min(frequencies_[e], kMostCertain));
            race_.emplace_back(rate > 0 ? -std::log(uniform()) / rate : std::numeric_limits<double>::max(), e);
        }
        const std::size_t n = n_used_ - chosen_.size();
        std::ranges::partial_sort(race_, race_.begin() + static_cast<std::ptrdiff_t>(n));
        for (std::size_t i = 0; i < n; ++i) chosen_.push_back(race_[i].second);
        return chosen_;
    }

private:
    Layer frequencies_;
    std::size_t n_used_;
    double copied_;
    std::vector<std::size_t> chosen_;
    std::vector<std::pair<double, std::size_t>> race_;
};

}  // namespace

double expected_hit_rate(std::span<const tinfer::ExpertPicks> layers, std::size_t n_used, double share_kept) {
    std::vector<Layer> all;
    std::size_t n_experts = 0;
    for (const tinfer::ExpertPicks& layer : layers) {
        all.push_back(frequencies(layer, n_used));
        n_experts += layer.picks.size();
    }
    const double certain = certain_share(layers, all, n_used);
    for (Layer& layer : all) {
        const double mean = static_cast<double>(n_used) / static_cast<double>(std::max<std::size_t>(layer.size(), 1));
        for (double& q : layer) q = std::min(1.0, mean + certain * (q - mean));
    }
    const double copied = copied_share(layers, all, n_used);
    std::vector<Draws> draws;
    for (Layer& layer : all) draws.emplace_back(std::move(layer), n_used, copied);
    std::minstd_rand random(1);
    std::vector<Touch> touches;
    std::size_t n_warm = 0;
    for (std::size_t t = 0; t < kWarmTokens + kTokens; ++t) {
        if (t == kWarmTokens) n_warm = touches.size();
        for (std::size_t il = 0; il < draws.size(); ++il)
            for (const std::size_t e : draws[il].next(random)) touches.push_back({std::uint64_t{il} << 32 | e, 1});
    }
    const std::size_t n = touches.size() - n_warm;
    if (n == 0) return share_kept;
    const double per_token = static_cast<double>(touches.size()) / static_cast<double>(kWarmTokens + kTokens);
    const auto room = static_cast<std::uint64_t>(share_kept * static_cast<double>(n_experts));
    const CacheResult cache = simulate_cache(touches, room, CachePolicy::aged, kHalfLife * per_token);
    std::size_t n_found = 0;
    for (std::size_t i = n_warm; i < touches.size(); ++i) n_found += cache.missed[i] ? 0 : 1;
    return static_cast<double>(n_found) / static_cast<double>(n);
}

}  // namespace tinfer::app
