// SPDX-License-Identifier: MIT
// tinfer trace experts: which experts were chosen, how evenly, the overlap between tokens, hit rates of an expert
// cache, the union over several tokens, and how well choices can be predicted.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "predict.hpp"
#include "prefetch.hpp"
#include "reuse.hpp"

namespace tinfer::app {

namespace {

struct ExpertsArgs : TraceArgs {
    std::string caches, policies = "lru,lfu,opt", unions, disk, router_inputs;
    bool matrix = false, predict = false, prefetch = false;
    int top = 0;
    /// Null if no inputs were recorded.
    [[nodiscard]] std::unique_ptr<Routers> routers(const tinfer::TraceReader& trace) const {
        if (router_inputs.empty()) return nullptr;
        if (model.empty()) throw UsageError("--router-inputs needs --model, whose routers are asked");
        check_model(trace);
        return std::make_unique<Routers>(model, router_inputs);
    }
};

using ByLayer = std::map<int, std::vector<const Route*>>;

ByLayer by_layer(const Routes& routes) {
    ByLayer layers;
    for (const auto& route : routes.list) layers[route.layer].push_back(&route);
    return layers;
}

std::size_t n_common(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b) {
    return static_cast<std::size_t>(
        std::ranges::count_if(a, [&](std::uint32_t e) { return std::ranges::find(b, e) != b.end(); }));
}

/// What was read for each layer of the runs at hand, by a model under a memory limit: experts that steps needed (each
/// once for a run), and of these those that had to be read.
struct Measured {
    std::uint64_t needed = 0, read = 0, ahead = 0;

    static std::map<int, Measured> by_layer(const tinfer::TraceReader& trace, const Routes& routes) {
        using Place = std::tuple<std::uint64_t, int, std::uint32_t>;
        std::set<Place> needed, read;
        std::map<int, Measured> layers;
        if (trace.reads().empty()) return layers;
        for (const auto& route : routes.list)
            for (const auto expert : route.experts)
                if (needed.insert({route.run, route.layer, expert}).second) ++layers[route.layer].needed;
        for (const auto& one : trace.reads()) {
            const Place place{one.run, one.layer, one.unit};
            if (!needed.contains(place) || !read.insert(place).second) continue;  // once for all of its tensors
            ++((one.flags & tinfer::trace_format::read_ahead) != 0 ? layers[one.layer].ahead : layers[one.layer].read);
        }
        return layers;
    }
};

/// Counts, skew and overlap of each layer.
Table table_of_layers(const Routes& routes, const std::map<int, Measured>& measured) {
    std::vector<Column> columns{{"layer"},
                                {"experts", Unit::count},
                                {"touched", Unit::count},
                                {"coverage", Unit::percent},
                                {"tokens", Unit::count},
                                {"picks", Unit::count},
                                {"hottest", Unit::count},
                                {"load_max_over_mean", Unit::real},
                                {"entropy_over_log2", Unit::real},
                                {"overlap_next", Unit::percent},
                                {"jaccard_next", Unit::percent}};
    if (!measured.empty())
        columns.insert(columns.end(), {{"read", Unit::count}, {"read_ahead", Unit::count}, {"found", Unit::percent}});
    Table table(std::move(columns));
    for (const auto& [layer, list] : by_layer(routes)) {
        const std::uint32_t n = routes.n_experts.contains(layer) ? routes.n_experts.at(layer) : 0;
        std::map<std::uint32_t, std::uint64_t> counts;
        std::map<std::uint32_t, const Route*> before;  // by sequence
        double overlap = 0, jaccard = 0;
        std::uint64_t n_pairs = 0, n_picks = 0;
        for (const Route* route : list) {
            for (const auto expert : route->experts) ++counts[expert], ++n_picks;
            const Route*& last = before[route->sequence];
            if (last != nullptr && !route->experts.empty()) {
                const auto common = double(n_common(route->experts, last->experts));
                overlap += common / double(route->experts.size());
                jaccard += common / (double(route->experts.size() + last->experts.size()) - common);
                ++n_pairs;
            }
            last = route;
        }
        double entropy = 0;
        std::uint64_t most = 0, hottest = 0;
        for (const auto& [expert, count] : counts) {
            const double p = double(count) / double(n_picks);
            entropy -= p * std::log2(p);
            if (count > most) most = count, hottest = expert;
        }
        const double pairs = double(std::max<std::uint64_t>(n_pairs, 1));
        std::vector<Cell> row{layer_cell(layer),
                              std::uint64_t{n},
                              std::uint64_t{counts.size()},
                              n > 0 ? double(counts.size()) / n : 0,
                              std::uint64_t{list.size()},
                              n_picks,
                              hottest,
                              n_picks > 0 ? double(most) * n / double(n_picks) : 0,
                              n > 1 ? entropy / std::log2(double(n)) : 0,
                              overlap / pairs,
                              jaccard / pairs};
        if (const auto of_layer = measured.find(layer); of_layer != measured.end()) {
            const Measured& m = of_layer->second;
            const double found = 1 - double(m.read) / double(std::max<std::uint64_t>(m.needed, 1));
            row.insert(row.end(), {m.read, m.ahead, found});
        }
        table.add(std::move(row));
    }
    return table;
}

/// Fraction of a layer's experts touched by the first 1, 2, 4, … tokens, mean over layers.
Table coverage_curve(const Routes& routes) {
    Table table({{"tokens", Unit::count}, {"coverage", Unit::percent}});
    const auto layers = by_layer(routes);
    std::size_t most = 0;
    for (const auto& [layer, list] : layers) most = std::max(most, list.size());
    for (std::size_t n = 1; n < 2 * most; n *= 2) {
        const std::size_t first = std::min(n, most);
        double sum = 0;
        for (const auto& [layer, list] : layers) {
            std::set<std::uint32_t> seen;
            for (std::size_t i = 0; i < std::min(first, list.size()); ++i)
                seen.insert(list[i]->experts.begin(), list[i]->experts.end());
            sum += double(seen.size()) / double(std::max<std::uint32_t>(routes.n_experts.at(layer), 1));
        }
        table.add({std::uint64_t{first}, sum / double(layers.size())});
    }
    return table;
}

/// Hit rates of caches by experts per layer; "static" keeps the hottest ones of the first half of the tokens, tested on
/// the second half; "measured" is what the run itself had, where experts were read when they were needed.
Table cache_table(const Routes& routes, const ExpertsArgs& args, const std::map<int, Measured>& measured) {
    Table table({{"cache", Unit::count},
                 {"policy"},
                 {"hits", Unit::count},
                 {"picks", Unit::count},
                 {"hit_rate", Unit::percent},
                 {"saved_bytes_per_token", Unit::bytes}});
    const auto layers = by_layer(routes);
    for (const auto& [size, unused] : parse_ranges(args.caches, "--cache")) {
        auto policies = parse_words(args.policies);
        policies.emplace_back("static");
        for (const auto& policy : policies) {
            std::uint64_t hits = 0, picks = 0, saved = 0, tokens = 0;
            for (const auto& [layer, list] : layers) {
                std::uint64_t layer_hits = 0;
                if (policy == "static") {
                    std::map<std::uint32_t, std::uint64_t> counts;
                    const std::size_t half = list.size() / 2;
                    for (std::size_t i = 0; i < half; ++i)
                        for (const auto e : list[i]->experts) ++counts[e];
                    std::vector<std::pair<std::uint64_t, std::uint32_t>> hot;
                    for (const auto& [e, n] : counts) hot.emplace_back(n, e);
                    std::ranges::sort(hot, [](const auto& a, const auto& b) {
                        return a.first != b.first ? a.first > b.first : a.second < b.second;
                    });
                    hot.resize(std::min<std::size_t>(hot.size(), size));
                    for (std::size_t i = half; i < list.size(); ++i)
                        for (const auto e : list[i]->experts) {
                            ++picks;
                            layer_hits +=
                                std::ranges::any_of(hot, [&](const auto& h) { return h.second == e; }) ? 1 : 0;
                        }
                    tokens = std::max<std::uint64_t>(tokens, list.size() - half);
                } else {
                    std::vector<Touch> touches;
                    for (const Route* route : list)
                        for (const auto e : route->experts) touches.push_back({e, 1});
                    constexpr double kHalfLife = 16;  // passes, as the pager has it
                    const double picks_each = double(touches.size()) / double(std::max<std::size_t>(list.size(), 1));
                    layer_hits =
                        simulate_cache(touches, size, policy_of(policy), std::max(kHalfLife * picks_each, 1.0)).hits;
                    picks += touches.size();
                    tokens = std::max<std::uint64_t>(tokens, list.size());
                }
                hits += layer_hits;
                saved += layer_hits * routes.expert_bytes.at(layer);
            }
            table.add({size, policy, hits, picks, picks > 0 ? double(hits) / double(picks) : 0,
                       tokens > 0 ? saved / tokens : 0});
        }
    }
    std::uint64_t hits = 0, needed = 0, saved = 0, tokens = 0;
    for (const auto& [layer, m] : measured) {
        hits += m.needed - m.read;
        needed += m.needed;
        saved += (m.needed - m.read) * routes.expert_bytes.at(layer);
        tokens = std::max<std::uint64_t>(tokens, layers.at(layer).size());
    }
    if (needed > 0)
        table.add({Cell(), "measured", hits, needed, double(hits) / double(needed), tokens > 0 ? saved / tokens : 0});
    return table;
}

/// Distinct experts of the verifications of n tokens of a sequence, by run and layer.
struct Verified {
    std::uint64_t n = 0, distinct = 0;

    Verified(const Routes& routes, std::uint64_t n_tokens) {
        std::map<std::tuple<std::uint64_t, int, std::uint32_t>, std::pair<std::uint64_t, std::set<std::uint32_t>>> runs;
        for (const auto& route : routes.list) {
            if (!route.verified) continue;
            auto& [tokens, experts] = runs[{route.run, route.layer, route.sequence}];
            ++tokens;
            experts.insert(route.experts.begin(), route.experts.end());
        }
        for (const auto& [place, run] : runs)
            if (run.first == n_tokens) ++n, distinct += run.second.size();
    }
};

/// Distinct experts needed by n consecutive tokens of a sequence, as for verifying a draft, beside those that
/// verifications of n tokens needed.
Table union_table(const Routes& routes, const ExpertsArgs& args) {
    Table table({{"tokens", Unit::count},
                 {"windows", Unit::count},
                 {"mean_distinct", Unit::real},
                 {"min", Unit::count},
                 {"max", Unit::count},
                 {"of_separate", Unit::percent},
                 {"mean_bytes_all_layers", Unit::bytes},
                 {"verified", Unit::count},
                 {"verified_distinct", Unit::real}});
    for (const auto& [n, unused] : parse_ranges(args.unions, "--union")) {
        std::uint64_t windows = 0, sum = 0, separate = 0, least = ~std::uint64_t{0}, most = 0;
        double bytes = 0;
        const Verified verified(routes, n);
        for (const auto& [layer, list] : by_layer(routes)) {
            std::map<std::uint32_t, std::vector<const Route*>> sequences;
            for (const Route* route : list) sequences[route->sequence].push_back(route);
            std::uint64_t layer_windows = 0, layer_sum = 0;
            for (const auto& [sequence, tokens] : sequences)
                for (std::size_t first = 0; n > 0 && first + n <= tokens.size(); ++first) {
                    std::set<std::uint32_t> distinct;
                    for (std::size_t i = first; i < first + n; ++i) {
                        distinct.insert(tokens[i]->experts.begin(), tokens[i]->experts.end());
                        separate += tokens[i]->experts.size();
                    }
                    ++layer_windows, layer_sum += distinct.size();
                    least = std::min<std::uint64_t>(least, distinct.size());
                    most = std::max<std::uint64_t>(most, distinct.size());
                }
            windows += layer_windows, sum += layer_sum;
            if (layer_windows > 0)
                bytes += double(layer_sum) / double(layer_windows) * double(routes.expert_bytes.at(layer));
        }
        table.add({n, windows, windows > 0 ? double(sum) / double(windows) : 0, windows > 0 ? least : 0, most,
                   separate > 0 ? double(sum) / double(separate) : 0, std::uint64_t(bytes), verified.n,
                   verified.n > 0 ? Cell(double(verified.distinct) / double(verified.n)) : Cell()});
    }
    return table;
}

/// How well a token's experts in a layer can be predicted. Counts are learnt on the first half of the tokens and tested
/// on the second half.
Table predictor_table(const Routes& routes, std::size_t top, const Routers* routers) {
    struct Result {
        std::uint64_t told = 0, right = 0, told_cold = 0, right_cold = 0;
    };
    std::map<std::string, Result> results;
    ExpertPredictor predictor(routers);
    const auto score = [&](PredictBy by, const Route& route, const Route* layer_before) {
        const auto told = predictor.tell(by, route, layer_before, top > 0 ? top : route.experts.size());
        if (!told) return;
        Result& r = results[to_string(by)];
        for (const auto e : route.experts) {
            const bool right = std::ranges::find(*told, e) != told->end();
            ++r.told, r.right += right ? 1 : 0;
            if (predictor.is_hot(route.layer, e)) continue;
            ++r.told_cold, r.right_cold += right ? 1 : 0;
        }
    };
    const auto tokens = routes_by_token(routes);
    std::size_t i = 0;
    for (const auto& [number, token] : tokens) {
        if (i++ < tokens.size() / 2) {
            predictor.learn(token);
            continue;
        }
        const Route* previous = nullptr;
        for (const auto& [layer, route] : token) {
            for (const PredictBy by : kPredictors) score(by, *route, previous);
            previous = route;
        }
        predictor.remember(token);
    }
    Table table({{"predictor"},
                 {"told", Unit::count},
                 {"right", Unit::count},
                 {"accuracy", Unit::percent},
                 {"accuracy_without_hot", Unit::percent}});
    for (const auto& [name, r] : results)
        table.add({name, r.told, r.right, r.told > 0 ? double(r.right) / double(r.told) : 0,
                   r.told_cold > 0 ? Cell(double(r.right_cold) / double(r.told_cold)) : Cell()});
    return table;
}

/// Rows of sequence, layer, expert and count.
Table matrix_of(const Routes& routes) {
    std::map<std::tuple<std::uint32_t, int, std::uint32_t>, std::uint64_t> counts;
    for (const auto& route : routes.list)
        for (const auto e : route.experts) ++counts[{route.sequence, route.layer, e}];
    Table table({{"sequence", Unit::count}, {"layer", Unit::count}, {"expert", Unit::count}, {"tokens", Unit::count}});
    for (const auto& [place, n] : counts)
        table.add({std::uint64_t{std::get<0>(place)}, std::uint64_t(std::get<1>(place)),
                   std::uint64_t{std::get<2>(place)}, n});
    return table;
}

int show_experts(const ExpertsArgs& args) {
    const auto trace = args.open();
    const Routes routes = read_routes(trace, args.selection());
    if (routes.skipped_tokens > 0)
        note(counted(routes.skipped_tokens, "token") + " of prompts left out: record with --extras router to see them",
             Look::warning);
    const auto measured = Measured::by_layer(trace, routes);
    const auto show = [&](const char* key, const Table& table) {
        print_result(args.style,
                     {{"from", routes.from_router ? "router" : "slices"}, {"skipped_tokens", routes.skipped_tokens}},
                     key, table);
        return 0;
    };
    if (args.matrix) return show("matrix", matrix_of(routes));
    if (!args.unions.empty()) return show("union", union_table(routes, args));
    const auto routers = args.routers(trace);
    if (args.predict)
        return show("predictors", predictor_table(routes, static_cast<std::size_t>(args.top), routers.get()));
    if (args.prefetch) {
        if (args.disk.empty()) throw UsageError("--prefetch needs --disk, the curve of a storage");
        const auto sizes = parse_ranges(args.caches.empty() ? "0" : args.caches, "--cache");
        if (sizes.size() != 1) throw UsageError("--prefetch takes one --cache");
        return show("prefetch", prefetch_table(simulate_prefetch(routes, read_storage_curve(args.disk),
                                                                 times_of_layers(trace, routes), sizes[0].first,
                                                                 static_cast<std::size_t>(args.top), routers.get())));
    }
    if (!args.caches.empty()) return show("caches", cache_table(routes, args, measured));
    const Table layers = table_of_layers(routes, measured), curve = coverage_curve(routes);
    if (!args.style.as_json) {
        print_result(args.style, {}, "", layers);
        if (!args.style.as_csv)
            print("\nshare of experts touched by the first tokens\n" + curve.text(args.style.exact));
        return 0;
    }
    print_line({{"from", routes.from_router ? "router" : "slices"},
                {"skipped_tokens", routes.skipped_tokens},
                {"layers", layers.to_json()},
                {"coverage", curve.to_json()}});
    return 0;
}

}  // namespace

Verb add_experts(CLI::App& trace) {
    auto args = std::make_shared<ExpertsArgs>();
    auto* verb = trace.add_subcommand(
        "experts", "Shows which experts were chosen, how evenly, and what a cache of them would hit.");
    args->add_file(*verb);
    args->add_selection(*verb);
    args->add_model(*verb);
    const std::string group = "Question";
    verb->add_flag("--matrix", args->matrix, "counts of every layer and expert, per sequence")->group(group);
    verb->add_option("--cache", args->caches, "experts kept per layer, as 8,16,32")->type_name("LIST")->group(group);
    verb->add_option("--policy", args->policies,
                     "lru, mru, fifo, lfu, aged, opt; a static set of the hottest is always shown")
        ->type_name("LIST")
        ->group(group);
    verb->add_option("--union", args->unions, "distinct experts of so many tokens in a row, as 2,4,8")
        ->type_name("LIST")
        ->group(group);
    verb->add_flag("--predict", args->predict,
                   "how well choices are told beforehand, learnt on one half of the tokens, tested on the other")
        ->group(group);
    verb->add_flag(
            "--prefetch", args->prefetch,
            "what reading experts ahead of the router would gain, with --disk, and --cache experts kept per layer")
        ->group(group);
    verb->add_option("--router-inputs", args->router_inputs,
                     "what `record --router-inputs` wrote: with --model, asks each router for the input of the layer "
                     "before")
        ->type_name("FILE")
        ->group(group);
    verb->add_option("--disk", args->disk, "the storage's curve, by `tinfer trace disk`")
        ->type_name("FILE")
        ->group(group);
    verb->add_option("--top", args->top, "experts that a predictor may name; 0 = as many as are chosen")
        ->check(whole(0))
        ->type_name("N")
        ->group(group);
    args->add_output(*verb);
    verb->footer("\nExamples:\n  tinfer trace experts t.tntrace --cache 8,16\n  tinfer trace experts t.tntrace --union "
                 "2,4,8 --json");
    return [args] { return show_experts(*args); };
}

}  // namespace tinfer::app
