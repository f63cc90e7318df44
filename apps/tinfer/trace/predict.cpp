// SPDX-License-Identifier: MIT
#include "predict.hpp"

#include <algorithm>

namespace tinfer::app {

const char* to_string(PredictBy by) {
    constexpr const char* kNames[] = {
        "oracle", "frequency", "layer_before", "token_before", "token_before_counts", "stale_router", "own_router"};
    return kNames[static_cast<std::size_t>(by)];
}

std::map<std::uint64_t, TokenRoutes> routes_by_token(const Routes& routes) {
    std::map<std::uint64_t, TokenRoutes> tokens;
    for (const auto& route : routes.list) tokens[route.token][route.layer] = &route;
    return tokens;
}

const Route* ExpertPredictor::before(const Route& route) const {
    const auto at = last_.find({route.sequence, route.layer});
    return at == last_.end() ? nullptr : at->second;
}

void ExpertPredictor::learn(const TokenRoutes& token) {
    const Route* previous = nullptr;
    for (const auto& [layer, route] : token) {
        for (const auto e : route->experts) {
            ++frequency_[layer][e];
            if (previous != nullptr)
                for (const auto from : previous->experts) ++by_layer_[{layer, from}][e];
            if (const Route* old = before(*route); old != nullptr)
                for (const auto from : old->experts) ++by_token_[{layer, from}][e];
        }
        ++n_learnt_[layer];
        previous = route;
    }
    remember(token);
}

void ExpertPredictor::remember(const TokenRoutes& token) {
    for (const auto& [layer, route] : token) last_[{route->sequence, layer}] = route;
}

ExpertPredictor::Experts ExpertPredictor::best(const Counts& counts, std::size_t n) {
    std::vector<std::pair<std::uint64_t, std::uint32_t>> order;
    for (const auto& [e, count] : counts) order.emplace_back(count, e);
    std::ranges::sort(order, [](const auto& a, const auto& b) {
        return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    Experts out;
    for (const auto& [count, e] : order)
        if (out.size() < n) out.push_back(e);
    return out;
}

ExpertPredictor::Experts ExpertPredictor::best_after(const CountsAfter& counts, int layer, const Experts& from,
                                                     std::size_t n) {
    Counts sum;
    for (const auto given : from)
        if (const auto found = counts.find({layer, given}); found != counts.end())
            for (const auto& [e, count] : found->second) sum[e] += count;
    return best(sum, n);
}

std::optional<ExpertPredictor::Experts> ExpertPredictor::tell(PredictBy by, const Route& route,
                                                              const Route* layer_before, std::size_t n) const {
    const Route* old = before(route);
    switch (by) {
        case PredictBy::oracle: return route.experts;
        case PredictBy::frequency: {
            const auto counts = frequency_.find(route.layer);
            return counts == frequency_.end() ? Experts() : best(counts->second, n);
        }
        case PredictBy::layer_before:
            if (layer_before == nullptr) return std::nullopt;
            return best_after(by_layer_, route.layer, layer_before->experts, n);
        case PredictBy::token_before:
            if (old == nullptr) return std::nullopt;
            return old->experts;
        case PredictBy::token_before_counts:
            if (old == nullptr) return std::nullopt;
            return best_after(by_token_, route.layer, old->experts, n);
        case PredictBy::stale_router:
            if (routers_ == nullptr || layer_before == nullptr) return std::nullopt;
            return routers_->choose(route.layer, *layer_before, n);
        case PredictBy::own_router: return routers_ == nullptr ? std::nullopt : routers_->choose(route.layer, route, n);
    }
    return std::nullopt;
}

bool ExpertPredictor::is_hot(int layer, std::uint32_t expert) const {
    const auto counts = frequency_.find(layer);
    if (counts == frequency_.end()) return false;
    const auto found = counts->second.find(expert);
    return found != counts->second.end() && 10 * found->second >= 9 * n_learnt_.at(layer);
}

}  // namespace tinfer::app
