// SPDX-License-Identifier: MIT
// tinfer trace stats: the contents of a trace, the cost of a token, and sums by any grouping.
#include <algorithm>
#include <numeric>

#include "ranges.hpp"
#include "trace.hpp"

namespace tinfer::app {

namespace {

struct StatsArgs : TraceArgs {
    std::string by, classes;
    std::uint64_t window = 0;
};

struct Group {
    std::uint64_t calls = 0, read = 0, written = 0, streamed = 0, macs = 0;
    double ms = 0, waited = 0;
    std::vector<double> each;  ///< ms of every event
};

std::string class_name(const tinfer::TensorInfo& tensor) {
    using enum tinfer::TensorClass;
    switch (tensor.tensor_class) {
        case weight: return "weight";
        case cache_k:
        case cache_v: return "kv";
        case recurrent: return "state";
        case adapter: return "adapter";
        default: return "value";
    }
}

/// Sums events by group. If groups are of tensors, an event's time is distributed over its operands by streamed bytes,
/// over its weights only if it has any.
class Grouping : public Visitor {
public:
    Grouping(const tinfer::TraceReader& of, Selection chosen, std::string by, std::set<std::string> classes)
        : Visitor(of, std::move(chosen)), by_(std::move(by)), classes_(std::move(classes)) {}

    void see(const tinfer::KernelEvent& event) override {
        const double ms = double(event.end - event.begin) / 1e6;
        ++n_events;
        event_ms += ms;
        if (by_ == "thread") return see_threads(event);
        if (by_of_event()) {
            Group& group = groups[name_of(event)];
            add(group, ms, event.macs);
            for (const auto& access : event.accesses) add_bytes(group, access);
            return;
        }
        const bool has_weight = std::ranges::any_of(event.accesses, is_weight);
        std::uint64_t all = 0;
        for (const auto& access : event.accesses) all += weight_of(access, has_weight);
        for (const auto& access : event.accesses) {
            if (access.scratch || access.kind == tinfer::AccessKind::elided || !wanted(access)) continue;
            const double share = all > 0 ? double(weight_of(access, has_weight)) / double(all) : 0;
            if (by_ == "expert") {
                see_experts(access, ms * share);
                continue;
            }
            Group& group = groups[name_of(*access.tensor)];
            add(group, ms * share, std::uint64_t(double(event.macs) * share));
            add_bytes(group, access);
        }
    }

    [[nodiscard]] Table table(const StatsArgs& args) const {
        std::vector<std::pair<std::string, const Group*>> rows;
        double all_ms = 0;
        for (const auto& [name, group] : groups) rows.emplace_back(name, &group), all_ms += group.ms;
        const auto key = [&](const auto& row) {
            const Group& g = *row.second;
            return args.sort == "bytes" ? double(g.read + g.written) : args.sort == "calls" ? double(g.calls) : g.ms;
        };
        if (args.sort != "name")
            std::ranges::stable_sort(rows, [&](const auto& a, const auto& b) { return key(a) > key(b); });
        if (by_ == "thread") {
            Table table({{"thread"},
                         {"calls", Unit::count},
                         {"busy", Unit::ms},
                         {"wait", Unit::ms},
                         {"busy_share", Unit::percent}});
            for (const auto& [name, g] : rows)
                table.add({name, g->calls, g->ms, g->waited, g->ms + g->waited > 0 ? g->ms / (g->ms + g->waited) : 0});
            return table;
        }
        Table table({{by_},
                     {"calls", Unit::count},
                     {"time", Unit::ms},
                     {"share", Unit::percent},
                     {"min", Unit::ms},
                     {"median", Unit::ms},
                     {"max", Unit::ms},
                     {"read", Unit::bytes},
                     {"written", Unit::bytes},
                     {"streamed", Unit::bytes},
                     {"macs", Unit::count},
                     {"gbps", Unit::gbps}});
        for (const auto& [name, g] : rows) {
            if (args.is_full(table.size())) break;
            auto each = g->each;
            std::ranges::sort(each);
            table.add({name, g->calls, g->ms, all_ms > 0 ? g->ms / all_ms : 0, each.empty() ? 0 : each.front(),
                       each.empty() ? 0 : each[each.size() / 2], each.empty() ? 0 : each.back(), g->read, g->written,
                       g->streamed, g->macs, g->ms > 0 ? double(g->streamed) / g->ms / 1e6 : 0});
        }
        return table;
    }

    std::map<std::string, Group> groups;
    std::uint64_t n_events = 0, n_unbalanced = 0;
    double event_ms = 0;

private:
    [[nodiscard]] bool by_of_event() const {
        return by_ == "op" || by_ == "kernel" || by_ == "layer" || by_ == "part" || by_ == "phase";
    }
    [[nodiscard]] bool wanted(const tinfer::Access& access) const {
        return classes_.empty() ? by_of_event() || access.tensor->tensor_class == tinfer::TensorClass::weight ||
                                      class_name(*access.tensor) == "kv" || class_name(*access.tensor) == "state"
                                : classes_.contains(class_name(*access.tensor));
    }
    static std::uint64_t weight_of(const tinfer::Access& access, bool has_weight) {
        if (access.scratch || access.kind == tinfer::AccessKind::elided || (has_weight && !is_weight(access))) return 0;
        return streamed_bytes(access);
    }
    [[nodiscard]] std::string name_of(const tinfer::KernelEvent& event) const {
        if (by_ == "op") return std::string(to_string(event.step->op));
        if (by_ == "kernel") return std::string(event.step->kernel);
        if (by_ == "part") return std::string(to_string(event.step->part));
        if (by_ == "phase") return std::string(to_string(event.run->phase));
        if (event.step->layer == tinfer::kNoLayer) return "-";
        const std::string number = std::to_string(event.step->layer);
        return std::string(number.size() < 3 ? 3 - number.size() : 0, ' ') + number;
    }
    [[nodiscard]] std::string name_of(const tinfer::TensorInfo& tensor) const {
        if (by_ == "tensor") return std::string(tensor.name);
        if (by_ == "role") return std::string(tensor.role.empty() ? tensor.name : tensor.role);
        if (by_ == "type")
            return std::string(trace.session_value("type." + std::to_string(std::uint32_t(tensor.type))));
        if (by_ == "class") return class_name(tensor);
        return "as_in_file";
    }
    static void add(Group& group, double ms, std::uint64_t macs) {
        ++group.calls;
        group.ms += ms;
        group.macs += macs;
        group.each.push_back(ms);
    }
    void add_bytes(Group& group, const tinfer::Access& access) const {
        if (access.scratch || !wanted(access)) return;
        if (access.mode != tinfer::AccessMode::write) group.read += access.bytes();
        if (access.mode != tinfer::AccessMode::read) group.written += access.bytes();
        group.streamed += streamed_bytes(access);
    }
    void see_threads(const tinfer::KernelEvent& event) {
        double most = 0, sum = 0;
        for (std::size_t t = 0; t < event.threads.size(); ++t) {
            const double busy = double(event.threads[t].busy) / 1e6, all = double(event.end - event.begin) / 1e6;
            Group& group = groups[std::to_string(t)];
            ++group.calls;
            group.ms += busy;
            group.waited += std::max(all - busy, 0.0);
            most = std::max(most, busy);
            sum += busy;
        }
        if (!event.threads.empty() && most > 0 && sum / double(event.threads.size()) < 0.8 * most) ++n_unbalanced;
    }
    void see_experts(const tinfer::Access& access, double ms) {
        if (access.tensor->slice_bytes == 0 || access.kind != tinfer::AccessKind::ranges) return;
        for (const auto& range : access.ranges) {
            Group& group = groups["layer " + layer_text(access.tensor->layer) + " expert " + std::to_string(range.tag)];
            add(group, ms / double(access.ranges.size()), 0);
            group.read += range.length * range.count;
            group.streamed += range.length * range.count;
        }
    }
    std::string by_;
    std::set<std::string> classes_;
};

/// Totals over the selected runs.
class Summary : public Visitor {
public:
    using Visitor::Visitor;
    void begin(const tinfer::RunInfo& run) override {
        ++phases[std::string(to_string(run.phase))];
        begin_ = run.begin;
        run_events_ns_ = 0;
        run_bytes_ = 0;
    }
    void see(const tinfer::KernelEvent& event) override {
        run_events_ns_ += event.end - event.begin;
        for (const auto& access : event.accesses) {
            if (access.scratch || access.kind == tinfer::AccessKind::elided) continue;
            run_bytes_ += streamed_bytes(access);
            if (is_weight(access)) weights_read.insert(access.tensor->id);
        }
    }
    void end(const tinfer::RunResult& result) override {
        n_tokens += result.run->tokens.size();
        difference += std::max(result.expected_weight_bytes, result.observed_weight_bytes) -
                      std::min(result.expected_weight_bytes, result.observed_weight_bytes);
        if (result.run->phase != tinfer::Phase::decode) return;
        ++n_decode;
        decode_ns += result.end - begin_;
        kernel_ns += run_events_ns_;
        decode_bytes += run_bytes_;
        decode_weight_bytes = std::max(decode_weight_bytes, result.observed_weight_bytes);
    }
    std::map<std::string, std::uint64_t> phases;
    std::set<std::uint32_t> weights_read;
    std::uint64_t n_tokens = 0, n_decode = 0, decode_ns = 0, kernel_ns = 0, decode_bytes = 0, decode_weight_bytes = 0,
                  difference = 0;

private:
    std::uint64_t begin_ = 0, run_events_ns_ = 0, run_bytes_ = 0;
};

Json summary_of(const tinfer::TraceReader& trace, const Summary& s, const StatsArgs& args) {
    std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> types;
    std::uint64_t n_weights = 0;
    std::set<int> layers;
    for (const auto& tensor : trace.tensors()) {
        if (tensor.tensor_class != 0) continue;
        auto& [n, bytes] = types[std::string(trace.session_value("type." + std::to_string(tensor.type)))];
        ++n, bytes += tensor.bytes, ++n_weights;
        if (tensor.layer != tinfer::trace_format::kNoLayer16) layers.insert(tensor.layer);
    }
    Json by_type = Json::array();
    for (const auto& [type, sums] : types)
        by_type.push_back({{"type", type}, {"tensors", sums.first}, {"bytes", sums.second}});
    Json files = Json::array();
    for (const auto& file : trace.files()) files.push_back({{"name", trace.text(file.name)}, {"bytes", file.bytes}});
    std::uint64_t n_events = 0;
    for (const auto& run : trace.runs())
        for (const auto& events : run.events) n_events += events.events.size();
    const auto& header = trace.header();
    const bool is_filtered = (header.flags & tinfer::trace_format::filtered) != 0 || !args.selection().is_all();
    const auto damage = damage_of(trace);
    const bool complete = s.difference == 0 && s.weights_read.size() == n_weights && damage.empty();
    const double decode_ms = s.n_decode > 0 ? double(s.decode_ns) / 1e6 / double(s.n_decode) : 0;
    const double kernels = s.decode_ns > 0 ? double(s.kernel_ns) / double(s.decode_ns) : 0;
    return {{"model", trace.session_value("model")},
            {"architecture", trace.session_value("architecture")},
            {"n_layer", layers.size()},
            {"file_matches", args.model.empty() ? Json(nullptr) : Json(true)},
            {"files", files},
            {"isa", trace.session_value("isa")},
            {"threads", trace.session_value("threads")},
            {"level", trace.session_value("level." + std::to_string(header.level))},
            {"closed", trace.is_closed()},
            {"damage", damage.size()},
            {"runs", std::accumulate(s.phases.begin(), s.phases.end(), std::uint64_t{0},
                                     [](std::uint64_t n, const auto& p) { return n + p.second; })},
            {"phases", s.phases},
            {"tokens", s.n_tokens},
            {"events", n_events},
            {"dropped", header.n_dropped},
            {"filtered", header.n_filtered},
            {"coverage",
             {{"status", is_filtered ? "not applicable"
                         : complete  ? "complete"
                                     : "incomplete"},
              {"weights_read", s.weights_read.size()},
              {"weights", n_weights},
              {"decode_weight_bytes", s.decode_weight_bytes},
              {"difference_bytes", s.difference}}},
            {"per_token",
             {{"decode_ms", decode_ms},
              {"kernels", kernels},
              {"gaps", s.n_decode > 0 ? 1 - kernels : 0},
              {"gbps", s.kernel_ns > 0 ? double(s.decode_bytes) / double(s.kernel_ns) : 0},
              {"streamed_bytes", s.n_decode > 0 ? s.decode_bytes / s.n_decode : 0}}},
            {"by_type", by_type}};
}

void print_summary(const Json& s, bool exact) {
    const auto size = [&](const Json& bytes) { return bytes_text(bytes.get<std::uint64_t>(), exact); };
    const auto text = [](const Json& value) { return harmless_text(value.get<std::string>()); };
    const std::string name =
        text(s["model"]).empty() ? (s["files"].empty() ? "?" : text(s["files"][0]["name"])) : text(s["model"]);
    std::string out = "model      " + name + " (" + text(s["architecture"]) + ", " + s["n_layer"].dump() + " layers)";
    if (!s["file_matches"].is_null()) out += "   file matches: yes";
    out += "\nruns       " + s["runs"].dump() + " (";
    std::string separator;
    for (const auto& [phase, n] : s["phases"].items()) out += std::exchange(separator, ", ") + n.dump() + " " + phase;
    out += ")   events " + s["events"].dump() + "   dropped " + s["dropped"].dump() + "   filtered " +
           s["filtered"].dump();
    if (!s["closed"].get<bool>() || s["damage"] != 0)
        out += s["closed"].get<bool>() ? "   DAMAGED" : "   not closed (see tinfer trace recover)";
    const auto& c = s["coverage"];
    out += "\ncoverage   " + text(c["status"]) + ": " + c["weights_read"].dump() + "/" + c["weights"].dump() +
           " weights, " + size(c["decode_weight_bytes"]) + " per decode token, difference " +
           c["difference_bytes"].dump() + " bytes\n";
    const auto& t = s["per_token"];
    out += "per token  decode " + fixed(t["decode_ms"].get<double>(), 2) + " ms   kernels " +
           fixed(100 * t["kernels"].get<double>(), 1) + " %   gaps " + fixed(100 * t["gaps"].get<double>(), 1) +
           " %   " + fixed(t["gbps"].get<double>(), 1) + " GB/s\nby type    ";
    separator.clear();
    for (const auto& type : s["by_type"]) {
        std::string upper = text(type["type"]);
        std::ranges::transform(upper, upper.begin(), [](unsigned char ch) { return char(std::toupper(ch)); });
        out +=
            std::exchange(separator, " | ") + upper + " " + type["tensors"].dump() + " tensors " + size(type["bytes"]);
    }
    print(out + "\n");
}

class RunSets : public Visitor {
public:
    using Visitor::Visitor;
    using Intervals = std::vector<std::array<std::uint64_t, 3>>;  // tensor, begin, end
    void begin(const tinfer::RunInfo&) override { runs.emplace_back(); }
    void see(const tinfer::KernelEvent& event) override {
        for (const auto& access : event.accesses) {
            if (access.scratch || class_name(*access.tensor) == "value") continue;
            for (const auto& range : ranges_of(access)) {
                check_touches(runs.back().size() + range.count);
                for (std::uint32_t i = 0; i < range.count; ++i)
                    runs.back().push_back({access.tensor->id, range.offset + i * range.stride,
                                           range.offset + i * range.stride + range.length});
            }
        }
    }
    std::vector<Intervals> runs;
};

std::uint64_t size_of_union(RunSets::Intervals all) {
    std::ranges::sort(all);
    std::uint64_t bytes = 0, tensor = ~std::uint64_t{0}, end = 0;
    for (const auto& [id, first, last] : all) {
        if (id != tensor) tensor = id, end = 0;
        if (last > std::max(end, first)) bytes += last - std::max(end, first);
        end = std::max(end, last);
    }
    return bytes;
}

Json window_of(const tinfer::TraceReader& trace, const StatsArgs& args) {
    RunSets sets(trace, args.selection());
    sets.visit();
    std::vector<std::uint64_t> sizes;
    for (std::size_t first = 0; first + args.window <= sets.runs.size(); ++first) {
        RunSets::Intervals all;
        for (std::size_t r = first; r < first + args.window; ++r)
            all.insert(all.end(), sets.runs[r].begin(), sets.runs[r].end());
        sizes.push_back(size_of_union(std::move(all)));
    }
    if (sizes.empty())
        throw UsageError("--window " + std::to_string(args.window) + ": the trace has only " +
                         counted(sets.runs.size(), "run"));
    const double sum =
        std::accumulate(sizes.begin(), sizes.end(), 0.0, [](double a, std::uint64_t b) { return a + double(b); });
    return {{"window", args.window},
            {"windows", sizes.size()},
            {"min_bytes", *std::ranges::min_element(sizes)},
            {"mean_bytes", sum / double(sizes.size())},
            {"max_bytes", *std::ranges::max_element(sizes)}};
}

int show_stats(const StatsArgs& args) {
    const auto trace = args.open();
    args.check_model(trace);
    if (args.window > 0) {
        const Json window = window_of(trace, args);
        if (args.style.as_json) print_line(window);
        else
            print("working set of " + counted(args.window, "run") + ": min " +
                  bytes_text(window["min_bytes"].get<std::uint64_t>(), args.style.exact) + ", mean " +
                  size_text(std::uint64_t(window["mean_bytes"].get<double>())) + ", max " +
                  bytes_text(window["max_bytes"].get<std::uint64_t>(), args.style.exact) + "\n");
        return 0;
    }
    Summary summary(trace, args.selection());
    summary.visit();
    Json document = summary_of(trace, summary, args);
    const auto class_words = parse_words(args.classes);
    Grouping grouping(trace, args.selection(), args.by.empty() ? "op" : args.by,
                      {class_words.begin(), class_words.end()});
    grouping.visit();
    if (args.by == "thread") document["steps_with_over_20_percent_wait"] = grouping.n_unbalanced;
    const Table table = grouping.table(args);
    if (!args.style.as_json && !args.style.as_csv && args.by.empty()) {
        print_summary(document, args.style.exact);
        print("\n");
    }
    print_result(args.style, document, "groups", table);
    return 0;
}

}  // namespace

Verb add_stats(CLI::App& trace) {
    auto args = std::make_shared<StatsArgs>();
    auto* verb =
        trace.add_subcommand("stats", "Sums up a trace: runs, coverage, cost of a token, tables by any grouping.");
    args->add_file(*verb);
    args->add_model(*verb);
    args->add_selection(*verb);
    verb->add_option("--class", args->classes, "bytes of these alone: weight, kv, state, adapter, value")
        ->type_name("LIST")
        ->group("Selection");
    verb->add_option("--by", args->by,
                     "op, kernel, layer, part, phase; tensor, role, type, layout, class, expert: the time of a step is "
                     "shared by bytes; thread (level threads)")
        ->check(one_of({"op", "kernel", "layer", "part", "tensor", "role", "type", "layout", "phase", "thread",
                        "expert", "class"}))
        ->type_name("WHAT")
        ->group("Output");
    args->sort = "time";
    verb->add_option("--sort", args->sort, "time, bytes, name or calls")
        ->check(one_of({"time", "bytes", "name", "calls"}))
        ->type_name("HOW")
        ->group("Output");
    verb->add_option("--window", args->window, "instead: the size of all that N runs in a row touch")
        ->type_name("N")
        ->group("Output");
    args->add_output(*verb);
    args->add_limit(*verb, 0);
    verb->footer("\nExamples:\n  tinfer trace stats t.tntrace --by part --phase decode\n  tinfer trace stats t.tntrace "
                 "--window 8 --json");
    return [args] { return show_stats(*args); };
}

}  // namespace tinfer::app
