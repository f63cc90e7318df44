// SPDX-License-Identifier: MIT
// tinfer trace show: one line per access, or per event, in order.
#include "trace.hpp"

namespace tinfer::app {

namespace {

std::string range_text(const tinfer::Access& access) {
    if (access.kind == tinfer::AccessKind::elided) return "elided";
    if (access.kind == tinfer::AccessKind::whole) return "whole";
    if (access.ranges.empty()) return "none";
    const auto& r = access.ranges[0];
    std::string text = std::to_string(r.offset) + "+" + std::to_string(r.length);
    if (r.count > 1) text += " x" + std::to_string(r.count) + " every " + std::to_string(r.stride);
    if (access.ranges.size() > 1) text += " and " + std::to_string(access.ranges.size() - 1) + " more";
    return text;
}

class Show : public Visitor {
public:
    Show(const tinfer::TraceReader& of, const TraceArgs& args, bool events)
        : Visitor(of, args.selection()), args_(args), by_event_(events),
          table(events ? std::vector<Column>{{"event", Unit::count},
                                             {"time", Unit::ms},
                                             {"token", Unit::count},
                                             {"run", Unit::count},
                                             {"phase"},
                                             {"layer"},
                                             {"part"},
                                             {"op"},
                                             {"kernel"},
                                             {"read", Unit::bytes},
                                             {"written", Unit::bytes},
                                             {"duration", Unit::ms},
                                             {"nodes"}}
                       : std::vector<Column>{{"event", Unit::count},
                                             {"time", Unit::ms},
                                             {"token", Unit::count},
                                             {"layer"},
                                             {"op"},
                                             {"kernel"},
                                             {"mode"},
                                             {"tensor"},
                                             {"range"},
                                             {"size", Unit::bytes},
                                             {"duration", Unit::ms}}) {}

    void see(const tinfer::KernelEvent& event) override {
        if (by_event_) return add_event(event);
        for (const auto& access : event.accesses) {
            if (access.scratch || !selection.keeps(*access.tensor) || full()) continue;
            table.add({event.index, double(event.begin) / 1e6, event.run->decode, layer_cell(event.step->layer),
                       std::string(to_string(event.step->op)), std::string(event.step->kernel),
                       std::string(to_string(access.mode)), std::string(access.tensor->name), range_text(access),
                       access.bytes(), double(event.end - event.begin) / 1e6});
        }
    }

private:
    [[nodiscard]] bool full() {
        const bool is = args_.is_full(table.size());
        more_ = more_ || is;
        return is;
    }
    void add_event(const tinfer::KernelEvent& event) {
        if (full()) return;
        std::string nodes;
        for (const auto* node : event.step->nodes) nodes += (nodes.empty() ? "" : " ") + std::string(node->name);
        table.add({event.index, double(event.begin) / 1e6, event.run->decode, event.run->run,
                   std::string(to_string(event.run->phase)), layer_cell(event.step->layer),
                   std::string(to_string(event.step->part)), std::string(to_string(event.step->op)),
                   std::string(event.step->kernel), event.bytes_read, event.bytes_written,
                   double(event.end - event.begin) / 1e6, nodes});
    }
    const TraceArgs& args_;
    bool by_event_, more_ = false;

public:
    Table table;
    [[nodiscard]] bool has_more() const { return more_; }
};

}  // namespace

Verb add_show(CLI::App& trace) {
    auto args = std::make_shared<TraceArgs>();
    auto events = std::make_shared<bool>(false);
    auto* verb = trace.add_subcommand("show", "Prints one line per access, in the order in which they happened.");
    args->add_file(*verb);
    args->add_selection(*verb);
    args->add_output(*verb);
    args->add_limit(*verb, 20);
    verb->add_flag("--events", *events, "one line per event")->group("Output");
    verb->footer("\nExamples:\n  tinfer trace show t.tntrace --layer 5 --token 3\n"
                 "  tinfer trace show t.tntrace --events --csv > events.csv");
    return [args, events] {
        const auto reader = args->open();
        Show show(reader, *args, *events);
        show.visit();
        print_result(args->style, Json::object(), *events ? "events" : "accesses", show.table);
        if (show.has_more() && !args->style.as_json && !args->style.as_csv)
            note("more follow (see --limit)", Look::dim);
        return 0;
    };
}

}  // namespace tinfer::app
