// SPDX-License-Identifier: MIT
// tinfer trace diff: whether two traces did the same, where they first differ, and which groups of steps differ in
// time.
#include <algorithm>

#include "trace.hpp"

namespace tinfer::app {

namespace {

struct DiffArgs : TraceArgs {
    std::string other;
};

std::string step_text(const tinfer::TraceReader& trace, const tinfer::RecordedPlan& plan,
                      const tinfer::trace_format::Step& step) {
    std::string out = "step " + std::to_string(step.number) + " " + harmless_text(trace.text(step.kernel));
    if (step.n_nodes > 0)
        out += " (" +
               harmless_text(trace.text(plan.nodes[plan.step_nodes[step.first_step_node + step.n_nodes - 1u]].name)) +
               ")";
    return out;
}

struct Found {
    Json list = Json::array();
    std::uint64_t n = 0;
    void add(const std::string& kind, const std::string& text, Json more = Json::object()) {
        if (++n > 100) return;
        more["kind"] = kind;
        more["text"] = text;
        list.push_back(std::move(more));
    }
};

void compare_plans(const tinfer::TraceReader& a, const tinfer::RecordedPlan& p, const tinfer::TraceReader& b,
                   const tinfer::RecordedPlan& q, std::uint64_t run, Found& found) {
    if (p.header.hash == q.header.hash) return;
    const std::string where = "run " + std::to_string(run) + ": ";
    if (p.steps.size() != q.steps.size())
        found.add("plan",
                  where + std::to_string(p.steps.size()) + " steps, the other " + std::to_string(q.steps.size()),
                  {{"run", run}});
    if (p.nodes.size() != q.nodes.size())
        found.add("plan",
                  where + std::to_string(p.nodes.size()) + " nodes, the other " + std::to_string(q.nodes.size()),
                  {{"run", run}});
    std::uint64_t n = 0;
    for (std::size_t s = 0; s < std::min(p.steps.size(), q.steps.size()); ++s)
        if (a.text(p.steps[s].kernel) != b.text(q.steps[s].kernel) && ++n == 1)
            found.add("kernel",
                      where + step_text(a, p, p.steps[s]) + ", the other " + harmless_text(b.text(q.steps[s].kernel)),
                      {{"run", run}, {"step", s}});
    if (n > 1) found.add("kernel", where + std::to_string(n) + " kernels differ", {{"run", run}, {"count", n}});
}

bool same_ranges(std::span<const tinfer::trace_format::Range> a, std::span<const tinfer::trace_format::Range> b) {
    return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
        return x.operand == y.operand && x.flags == y.flags && x.tag == y.tag && x.offset == y.offset &&
               x.length == y.length && x.stride == y.stride && x.count == y.count && x.weight == y.weight;
    });
}

std::uint64_t n_events(const tinfer::RecordedRun& run) {
    std::uint64_t n = 0;
    for (const auto& events : run.events) n += events.events.size();
    return n;
}

void compare_runs(const tinfer::TraceReader& a, const tinfer::TraceReader& b, Found& found) {
    const auto runs_a = a.runs(), runs_b = b.runs();
    if (runs_a.size() != runs_b.size())
        found.add("runs", std::to_string(runs_a.size()) + " runs, the other " + std::to_string(runs_b.size()));
    std::uint64_t n_accesses = 0, n_tokens = 0;
    for (std::size_t r = 0; r < std::min(runs_a.size(), runs_b.size()); ++r) {
        const auto &x = runs_a[r], &y = runs_b[r];
        const auto *p = a.plan(x.record.plan), *q = b.plan(y.record.plan);
        if (p != nullptr && q != nullptr) compare_plans(a, *p, b, *q, x.record.run, found);
        const auto of_run = [&](const std::string& what) {
            found.add("lost", "run " + std::to_string(x.record.run) + ": " + what, {{"run", x.record.run}});
        };
        if (x.found != y.found) of_run("its beginning is in one of the traces alone");
        else if ((p == nullptr) != (q == nullptr)) of_run("its plan is in one of the traces alone");
        if (const auto m = n_events(x), n = n_events(y); m != n)
            of_run(std::to_string(m) + " events, the other " + std::to_string(n));
        const bool same_tokens = std::ranges::equal(
            x.tokens, y.tokens, [](const auto& s, const auto& t) { return s.id == t.id && s.position == t.position; });
        if (!same_tokens && ++n_tokens == 1)
            found.add("tokens", "run " + std::to_string(x.record.run) + ": other tokens or positions",
                      {{"run", x.record.run}});
        for (std::size_t e = 0; e < std::min(x.events.size(), y.events.size()); ++e)
            for (std::size_t i = 0; i < std::min(x.events[e].events.size(), y.events[e].events.size()); ++i) {
                const auto &s = x.events[e].events[i], &t = y.events[e].events[i];
                if (s.step == t.step && s.status == t.status && s.bytes == t.bytes &&
                    same_ranges(x.events[e].ranges_of(i), y.events[e].ranges_of(i)))
                    continue;
                if (++n_accesses == 1)
                    found.add(
                        "access",
                        "event " + std::to_string(x.events[e].index(i)) + ": " +
                            (p != nullptr && s.step < p->steps.size() ? step_text(a, *p, p->steps[s.step]) : "a step") +
                            " touches other bytes",
                        {{"event", x.events[e].index(i)}, {"step", s.step}});
            }
    }
    if (n_accesses > 1)
        found.add("access", std::to_string(n_accesses) + " events touch other bytes", {{"count", n_accesses}});
}

/// Finds the first output whose value differs.
void compare_values(const tinfer::TraceReader& a, const tinfer::TraceReader& b, Found& found) {
    const auto h = a.hashes(), k = b.hashes();
    for (std::size_t i = 0; i < std::min(h.size(), k.size()); ++i) {
        if (h[i].event != k[i].event || h[i].operand != k[i].operand || h[i].hash == k[i].hash) continue;
        std::string where = "event " + std::to_string(h[i].event);
        for (const auto& run : a.runs())
            for (const auto& events : run.events)
                for (std::size_t e = 0; e < events.events.size(); ++e)
                    if (const auto* plan = a.plan(run.record.plan);
                        events.index(e) == h[i].event && plan != nullptr && events.events[e].step < plan->steps.size())
                        where += ", run " + std::to_string(run.record.run) + ", " +
                                 step_text(a, *plan, plan->steps[events.events[e].step]);
        return found.add("value", where + ": the first output that differs", {{"event", h[i].event}});
    }
}

class GroupTimes : public Visitor {
public:
    using Visitor::Visitor;
    void see(const tinfer::KernelEvent& event) override {
        times[std::string(to_string(event.run->phase)) + " " + std::string(to_string(event.step->part)) + " " +
              std::string(to_string(event.step->op))]
            .push_back(double(event.end - event.begin) / 1e6);
    }
    std::map<std::string, std::vector<double>> times;
};

struct Spread {
    double median = 0, quartiles = 0;
};
Spread spread_of(std::vector<double> list) {
    if (list.empty()) return {};
    std::ranges::sort(list);
    return {list[list.size() / 2], list[list.size() * 3 / 4] - list[list.size() / 4]};
}

int show_diff(const DiffArgs& args) {
    const auto a = args.open();
    if (args.other.empty()) throw UsageError("two traces are needed: A.tntrace B.tntrace");
    TraceArgs second = args;
    second.file = args.other;
    const auto b = second.open();
    Found found;
    const auto full_a = a.session_value("full_fingerprint"), full_b = b.session_value("full_fingerprint");
    if (a.header().fingerprint != b.header().fingerprint || (!full_a.empty() && !full_b.empty() && full_a != full_b))
        found.add("model", "the traces are of different models");
    compare_runs(a, b, found);
    compare_values(a, b, found);
    GroupTimes times_a(a, args.selection()), times_b(b, args.selection());
    times_a.visit();
    times_b.visit();
    Table times(
        {{"group"}, {"median_a", Unit::ms}, {"median_b", Unit::ms}, {"spread", Unit::ms}, {"ratio", Unit::real}});
    for (const auto& [name, list] : times_a.times) {
        const auto other = times_b.times.find(name);
        if (other == times_b.times.end() || list.size() < 4) continue;
        const Spread x = spread_of(list), y = spread_of(other->second);
        const double spread = std::max(x.quartiles, y.quartiles);
        if (std::abs(x.median - y.median) > 3 * spread && x.median > 0)
            times.add({name, x.median, y.median, spread, y.median / x.median});
    }
    if (args.style.as_json) {
        print_line(
            {{"equal", found.n == 0}, {"differences", found.n}, {"list", found.list}, {"times", times.to_json()}});
    } else if (args.style.as_csv) {
        Table list({{"kind"}, {"text"}});
        for (const auto& one : found.list) list.add({one["kind"].get<std::string>(), one["text"].get<std::string>()});
        print(list.csv());
    } else {
        for (const auto& one : found.list) print(one["text"].get<std::string>() + "\n");
        if (found.n == 0) print("equal: the same steps touched the same bytes\n");
        if (!times.empty()) print("\ntimes that differ by more than three times their spread\n" + times.text(false));
    }
    return found.n > 0 ? 1 : 0;
}

}  // namespace

Verb add_diff(CLI::App& trace) {
    auto args = std::make_shared<DiffArgs>();
    auto* verb = trace.add_subcommand(
        "diff", "Compares two traces: plans, accesses, values, times; exit 1 where they did not do the same.");
    args->add_file(*verb);
    verb->add_option("other", args->other, "the second trace")->type_name("FILE")->group("Trace");
    args->add_selection(*verb);
    args->add_output(*verb);
    verb->footer(
        "\nExamples:\n  tinfer trace diff a.tntrace b.tntrace\n  tinfer trace diff a.tntrace b.tntrace --json");
    return [args] { return show_diff(*args); };
}

}  // namespace tinfer::app
