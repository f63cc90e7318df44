// SPDX-License-Identifier: MIT
// tinfer trace tensors: one line per tensor of the registry, with when and how much it was touched.
#include "trace.hpp"

namespace tinfer::app {

namespace {

struct Touched {
    std::uint64_t n_accesses = 0, bytes = 0, first = 0, last = 0, n_runs = 0, last_run = ~std::uint64_t{0};
};

class Tensors : public Visitor {
public:
    using Visitor::Visitor;
    void see(const tinfer::KernelEvent& event) override {
        for (const auto& access : event.accesses) {
            if (access.scratch || access.kind == tinfer::AccessKind::elided) continue;
            Touched& t = touched[access.tensor->id];
            if (t.n_accesses++ == 0) t.first = event.index;
            t.last = event.index;
            t.bytes += access.bytes();
            if (t.last_run != event.run->run) ++t.n_runs;
            t.last_run = event.run->run;
        }
    }
    std::map<std::uint32_t, Touched> touched;
};

int show_tensors(const TraceArgs& args, bool unused) {
    const auto trace = args.open();
    args.check_model(trace);
    Tensors tensors(trace, args.selection());
    tensors.visit();
    Table table({{"id", Unit::count},
                 {"tensor"},
                 {"class"},
                 {"type"},
                 {"layer"},
                 {"role"},
                 {"size", Unit::bytes},
                 {"accesses", Unit::count},
                 {"bytes", Unit::bytes},
                 {"runs", Unit::count},
                 {"first_event", Unit::count},
                 {"last_event", Unit::count}});
    for (const auto& tensor : trace.tensors()) {
        const std::string name(trace.text(tensor.name));
        if (!tensors.selection.tensors.empty() &&
            std::ranges::none_of(tensors.selection.tensors, [&](const auto& glob) { return matches_glob(glob, name); }))
            continue;
        const auto found = tensors.touched.find(tensor.id);
        const bool is_used = found != tensors.touched.end();
        if (unused && (is_used || tensor.tensor_class != 0)) continue;
        if (args.is_full(table.size())) break;
        const Touched t = is_used ? found->second : Touched{};
        const auto session = [&](const std::string& key) { return std::string(trace.session_value(key)); };
        table.add({std::uint64_t{tensor.id}, name, session("class." + std::to_string(tensor.tensor_class)),
                   session("type." + std::to_string(tensor.type)),
                   tensor.layer == tinfer::trace_format::kNoLayer16 ? std::string("-") : std::to_string(tensor.layer),
                   tensor.role == 0 ? std::string() : session("role." + std::to_string(tensor.role)), tensor.bytes,
                   t.n_accesses, t.bytes, t.n_runs, is_used ? Cell(t.first) : Cell(), is_used ? Cell(t.last) : Cell()});
    }
    print_result(args.style, Json::object(), "tensors", table);
    return 0;
}

}  // namespace

Verb add_tensors(CLI::App& trace) {
    auto args = std::make_shared<TraceArgs>();
    auto unused = std::make_shared<bool>(false);
    auto* verb =
        trace.add_subcommand("tensors", "Lists every tensor with when, how often and how much of it was touched.");
    args->add_file(*verb);
    args->add_model(*verb);
    args->add_selection(*verb);
    verb->add_flag("--unused", *unused, "weights that nothing has read")->group("Selection");
    args->add_output(*verb);
    args->add_limit(*verb, 0);
    verb->footer(
        "\nExamples:\n  tinfer trace tensors t.tntrace --tensor 'blk.0.*'\n  tinfer trace tensors t.tntrace --unused");
    return [args, unused] { return show_tensors(*args, *unused); };
}

}  // namespace tinfer::app
