// SPDX-License-Identifier: MIT
// tinfer trace validate: whether a trace is consistent and complete.
#include "validate.hpp"

#include <charconv>

namespace tinfer::app {

namespace format = tinfer::trace_format;

Examined::Examined(const tinfer::TraceReader& reader) : trace(reader) {
    const auto flags = trace.header().flags;
    is_filtered = (flags & format::Flags::filtered) != 0;
    has_ids = (flags & format::Flags::token_ids) != 0;
    starts_late = (flags & format::Flags::mid_session) != 0;
    has_times = trace.header().level > 0;
    for (const auto& [key, value] : trace.session()) {
        std::uint16_t number = 0;
        if (key.starts_with("op.") &&
            std::from_chars(key.data() + 3, key.data() + key.size(), number).ec == std::errc())
            ops[number] = value;
    }
}

std::string Examined::name_of(std::uint32_t tensor) const {
    const auto* record = trace.tensor(tensor);
    return record == nullptr ? "tensor " + std::to_string(tensor) : harmless_text(trace.text(record->name));
}

bool Examined::is_complete(const tinfer::RecordedRun& run) const {
    return run.found && run.end && run.end->status == 0 && run.end->n_dropped == 0;
}

namespace {

struct Rule {
    const char *name, *title;
    void (*check)(const Examined&, Verdict&);
};
constexpr Rule kRules[] = {
    {"V1", "blocks and checksums", check_blocks},
    {"V2", "closed", check_close},
    {"V3", "event numbers without gaps", check_indices},
    {"V4", "every step once, in order", check_steps},
    {"V5", "times", check_times},
    {"V6", "references and names", check_references},
    {"V7", "every node in one step", check_partition},
    {"V8", "ranges inside tensors", check_ranges},
    {"V9", "weights read as the graph means", check_weights},
    {"V10", "embedding rows are tokens", check_embedding},
    {"V11", "expert slices are the router's", check_experts},
    {"V12", "cache rows", check_cache},
    {"V13", "registry is the file's directory", nullptr},
    {"V14", "layers and roles agree with names", check_names},
    {"V15", "totals of runs", check_totals},
    {"V16", "equal plans are equal", check_static_parts},
    {"V17", "nothing dropped", check_drops},
    {"V18", "filter is said", check_filter},
    {"V19", "steps fill their runs", check_gaps},
};

std::string_view word_of(Verdict::State state) {
    switch (state) {
        case Verdict::State::ok: return "ok";
        case Verdict::State::not_applicable: return "n/a";
        case Verdict::State::warn: return "warn";
        case Verdict::State::fail: return "FAIL";
    }
    return "FAIL";
}

int validate(const TraceArgs& args) {
    const auto trace = args.open_silently();
    std::optional<tinfer::ModelFile> file;
    if (!args.model.empty()) {
        file = tinfer::ModelFile::open(args.model);
        args.check_model(trace);
    }
    const Examined examined(trace);
    Table table({{"rule"}, {"state"}, {"title"}, {"cases", Unit::count}, {"reason"}});
    Json rules = Json::array();
    std::string text;
    std::uint64_t n_failed = 0, n_warned = 0;
    for (const Rule& rule : kRules) {
        Verdict verdict;
        if (rule.check != nullptr) rule.check(examined, verdict);
        else if (file) check_directory(examined, *file, verdict);
        else verdict.skip("no --model");
        n_failed += verdict.state == Verdict::State::fail ? 1 : 0;
        n_warned += verdict.state == Verdict::State::warn ? 1 : 0;
        const std::string word(word_of(verdict.state));
        table.add({std::string(rule.name), word, std::string(rule.title), verdict.n_cases, verdict.reason});
        rules.push_back({{"rule", rule.name},
                         {"state", word},
                         {"title", rule.title},
                         {"reason", verdict.reason},
                         {"n_cases", verdict.n_cases},
                         {"cases", verdict.cases}});
        std::string line(rule.name);
        line += std::string(5 - line.size(), ' ') + word;
        line += std::string(11 - line.size(), ' ') + rule.title;
        if (!verdict.reason.empty()) line += " (" + verdict.reason + ")";
        if (verdict.n_cases > 0) line += ": " + counted(verdict.n_cases, "case");
        text += line + "\n";
        for (const auto& example : verdict.cases) text += "             " + example + "\n";
    }
    if (args.style.as_json)
        print_line({{"file", args.file},
                    {"valid", n_failed == 0},
                    {"failed", n_failed},
                    {"warnings", n_warned},
                    {"rules", rules}});
    else print(args.style.as_csv ? table.csv() : text);
    return n_failed > 0 ? 1 : 0;
}

}  // namespace

Verb add_validate(CLI::App& trace) {
    auto args = std::make_shared<TraceArgs>();
    auto* verb = trace.add_subcommand("validate",
                                      "Checks a trace by all rules; exit 1 on a finding, 3 where --model is another.");
    args->add_file(*verb);
    args->add_model(*verb);
    args->add_output(*verb);
    verb->footer(
        "\nExamples:\n  tinfer trace validate t.tntrace\n  tinfer trace validate t.tntrace --model model.gguf --json");
    return [args] { return validate(*args); };
}

}  // namespace tinfer::app
