// SPDX-License-Identifier: MIT
#include "prefetch.hpp"

#include <algorithm>
#include <list>

namespace tinfer::app {

namespace {

/// Cached experts of a layer, least recently used first.
class ExpertCache {
public:
    explicit ExpertCache(std::size_t capacity) : capacity_(capacity) {}
    [[nodiscard]] bool has(std::uint32_t expert) const { return std::ranges::find(kept_, expert) != kept_.end(); }
    void use(std::uint32_t expert) {
        kept_.remove(expert);
        kept_.push_back(expert);
        if (kept_.size() > capacity_) kept_.pop_front();
    }

private:
    std::size_t capacity_;
    std::list<std::uint32_t> kept_;
};

/// Simulates tokens one by one through the layers. Times are in ns.
class PrefetchRun {
public:
    PrefetchRun(const Routes& routes, const StorageCurve& curve, const std::map<int, double>& layer_ns,
                std::size_t cache, std::size_t top, const Routers* routers, std::optional<PredictBy> by)
        : routes_(routes), curve_(curve), layer_ns_(layer_ns), cache_(cache), top_(top), by_(by), predictor_(routers) {
        result.policy = by ? to_string(*by) : "on_demand";
    }
    void operator()() {
        const auto tokens = routes_by_token(routes_);
        std::size_t i = 0;
        for (const auto& [number, token] : tokens) {
            if (i++ < tokens.size() / 2) {
                predictor_.learn(token);
                for (const auto& [layer, route] : token)
                    for (const auto e : route->experts) cache_of(layer).use(e);
            } else {
                test(token);
                predictor_.remember(token);
            }
        }
        if (result.tokens == 0) return;
        result.compute_ms /= 1e6 * double(result.tokens);
        result.stall_ms /= 1e6 * double(result.tokens);
    }
    PrefetchResult result;

private:
    ExpertCache& cache_of(int layer) { return caches_.try_emplace(layer, cache_).first->second; }
    /// Completion time of a batch of requests for this layer's experts that is queued now.
    double read(int layer, std::size_t n) {
        const std::uint64_t size = routes_.expert_bytes.at(layer);
        const double rate = n == 1 ? curve_.idle_rate(size) : curve_.saturated_rate(size);
        storage_free_ = std::max(storage_free_, now_) + 1e9 * double(size) * double(n) / rate;
        result.bytes += size * n;
        return storage_free_;
    }
    struct Ahead {
        std::vector<std::uint32_t> experts;
        double ready = 0;
    };
    /// Queues the predicted experts of a layer while the previous one computes.
    Ahead read_ahead(const Route& route, const Route* layer_before) {
        Ahead ahead;
        if (!by_) return ahead;
        const auto told = predictor_.tell(*by_, route, layer_before, top_ > 0 ? top_ : route.experts.size());
        if (!told) return ahead;
        for (const auto e : *told)
            if (!cache_of(route.layer).has(e)) ahead.experts.push_back(e);
        if (!ahead.experts.empty()) ahead.ready = read(route.layer, ahead.experts.size());
        return ahead;
    }
    void test(const TokenRoutes& token) {
        ++result.tokens;
        Ahead ahead;  // for the next layer; nothing is in time for the first one
        for (auto at = token.begin(); at != token.end(); ++at) {
            const Route& route = *at->second;
            serve(route, ahead);
            const auto next = std::next(at);
            ahead = next == token.end() ? Ahead() : read_ahead(*next->second, &route);
            const auto time = layer_ns_.find(route.layer);
            const double compute = time == layer_ns_.end() ? 0 : time->second;
            now_ += compute;
            result.compute_ms += compute;
        }
    }
    /// Waits for the layer's experts.
    void serve(const Route& route, const Ahead& ahead) {
        const double begin = now_;
        std::size_t n_missed = 0;
        bool waits_for_ahead = false;
        for (const auto e : route.experts) {
            if (std::ranges::find(ahead.experts, e) != ahead.experts.end()) {
                ++(ahead.ready <= begin ? result.in_time : result.late);
                waits_for_ahead = waits_for_ahead || ahead.ready > begin;
            } else if (cache_of(route.layer).has(e)) {
                ++result.hits;
            } else {
                ++result.missed;
                ++n_missed;
            }
        }
        for (const auto e : ahead.experts)
            if (std::ranges::find(route.experts, e) == route.experts.end())
                result.wasted += routes_.expert_bytes.at(route.layer);
        double ready = waits_for_ahead ? ahead.ready : begin;
        if (n_missed > 0) ready = std::max(ready, read(route.layer, n_missed));
        now_ = std::max(now_, ready);
        result.stall_ms += now_ - begin;
        for (const auto e : ahead.experts) cache_of(route.layer).use(e);
        for (const auto e : route.experts) cache_of(route.layer).use(e);
    }

    const Routes& routes_;
    const StorageCurve& curve_;
    const std::map<int, double>& layer_ns_;
    std::size_t cache_, top_;
    std::optional<PredictBy> by_;
    ExpertPredictor predictor_;
    std::map<int, ExpertCache> caches_;
    double now_ = 0, storage_free_ = 0;
};

/// Sums kernel times by the next layer with experts.
class LayerTimes : public Visitor {
public:
    LayerTimes(const tinfer::TraceReader& reader, const Routes& routes) : Visitor(reader, {}), routes_(routes) {}
    void begin(const tinfer::RunInfo& run) override {
        is_single_ = run.tokens.size() == 1;
        n_runs_ += is_single_ ? 1 : 0;
    }
    void see(const tinfer::KernelEvent& event) override {
        if (!is_single_ || event.step->layer < 0) return;
        const auto layer = routes_.n_experts.lower_bound(event.step->layer);
        if (layer != routes_.n_experts.end()) sums_[layer->first] += double(event.end - event.begin);
    }
    [[nodiscard]] std::map<int, double> means() const {
        std::map<int, double> means;
        for (const auto& [layer, sum] : sums_) means[layer] = sum / double(std::max<std::uint64_t>(n_runs_, 1));
        return means;
    }

private:
    const Routes& routes_;
    bool is_single_ = false;
    std::uint64_t n_runs_ = 0;
    std::map<int, double> sums_;
};

}  // namespace

std::vector<PrefetchResult> simulate_prefetch(const Routes& routes, const StorageCurve& curve,
                                              const std::map<int, double>& layer_ns, std::size_t cache, std::size_t top,
                                              const Routers* routers) {
    std::vector<PrefetchResult> results;
    const auto run = [&](std::optional<PredictBy> by) {
        PrefetchRun one(routes, curve, layer_ns, cache, top, routers, by);
        one();
        results.push_back(one.result);
    };
    run(std::nullopt);
    for (const PredictBy by : kPredictors)  // own_router knows a layer's input only when it is too late to prefetch
        if (by != PredictBy::own_router && (by != PredictBy::stale_router || routers != nullptr)) run(by);
    return results;
}

Table prefetch_table(const std::vector<PrefetchResult>& results) {
    Table table({{"read_ahead"},
                 {"token", Unit::ms},
                 {"compute", Unit::ms},
                 {"stall", Unit::ms},
                 {"of_on_demand", Unit::percent},
                 {"read_per_token", Unit::bytes},
                 {"wasted_per_token", Unit::bytes},
                 {"cached", Unit::count},
                 {"in_time", Unit::count},
                 {"late", Unit::count},
                 {"not_told", Unit::count}});
    for (const auto& r : results) {
        const std::uint64_t tokens = std::max<std::uint64_t>(r.tokens, 1);
        const double token = r.compute_ms + r.stall_ms, base = results[0].compute_ms + results[0].stall_ms;
        table.add({r.policy, token, r.compute_ms, r.stall_ms, base > 0 ? Cell(token / base) : Cell(), r.bytes / tokens,
                   r.wasted / tokens, r.hits, r.in_time, r.late, r.missed});
    }
    return table;
}

std::map<int, double> times_of_layers(const tinfer::TraceReader& trace, const Routes& routes) {
    LayerTimes times(trace, routes);
    times.visit();
    return times.means();
}

}  // namespace tinfer::app
