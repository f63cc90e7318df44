// SPDX-License-Identifier: MIT
// What the verbs of `tinfer trace` share: the file, which part of it is looked at, how results are printed.
#pragma once

#include <map>
#include <optional>
#include <set>

#include "../common.hpp"
#include "table.hpp"

namespace cli {

/// Ends the program with an exit code of its own: 2 a trace that cannot be read, 3 a trace of another model.
class ExitError : public std::runtime_error {
public:
    ExitError(int exit_code, const std::string& message) : std::runtime_error(message), code(exit_code) {}
    int code;
};

/// Which events of a trace are looked at; what is empty leaves all.
struct Selection {
    using Ranges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
    std::set<int> layers;
    std::set<std::string> parts, ops, phases;
    std::vector<std::string> tensors;  ///< globs
    Ranges runs, tokens, sequences;    ///< tokens: numbers of decodes

    [[nodiscard]] bool is_all() const;
    [[nodiscard]] bool keeps(const tinfer::RunInfo& run) const;
    [[nodiscard]] bool keeps(const tinfer::StepView& step) const;  ///< all but tensors
    [[nodiscard]] bool keeps(const tinfer::TensorInfo& tensor) const;
    [[nodiscard]] bool keeps(const tinfer::KernelEvent& event) const;  ///< one of its operands is enough
};

struct TraceArgs {
    std::string file, model;
    std::string layers, parts, ops, tensors, phases, runs, tokens, sequences;
    std::string sort;
    std::uint64_t limit = 0;
    const CLI::Option* limit_option = nullptr;
    TableStyle style;

    void add_file(CLI::App& verb);
    void add_selection(CLI::App& verb);
    void add_model(CLI::App& verb);
    void add_output(CLI::App& verb, bool csv = true);
    void add_limit(CLI::App& verb, std::uint64_t standard);
    /// True where a table has as many rows as were asked for. The standard is for people: CSV and JSON have all rows.
    [[nodiscard]] bool is_full(std::size_t n_rows) const;
    /// Throws ExitError(2) where it cannot be read.
    [[nodiscard]] tinfer::TraceReader open() const;
    [[nodiscard]] Selection selection() const;
    /// Throws ExitError(3) unless the trace, where a model is given, is of it.
    void check_model(const tinfer::TraceReader& trace) const;
};

/// "0,5-7" as ranges. Throws UsageError naming the option.
[[nodiscard]] Selection::Ranges parse_ranges(const std::string& text, std::string_view option);
[[nodiscard]] std::vector<std::string> parse_words(const std::string& text);
/// "256M", "4G", "4096". Throws UsageError naming the option.
[[nodiscard]] std::uint64_t parse_size(const std::string& text, std::string_view option);
[[nodiscard]] bool matches_glob(std::string_view pattern, std::string_view text);

/// Calls `see` for every event that the selection keeps, and tells of runs.
class Visitor : public tinfer::Observer {
public:
    Visitor(const tinfer::TraceReader& of, Selection chosen) : trace(of), selection(std::move(chosen)) {}
    /// Where nothing of the trace is selected, it says so on stderr.
    void visit();
    virtual void see(const tinfer::KernelEvent&) {}
    virtual void begin(const tinfer::RunInfo&) {}
    virtual void end(const tinfer::RunResult&) {}

    void on_run_begin(const tinfer::RunInfo& run) final;
    void on_events(std::span<const tinfer::KernelEvent> events) final;
    void on_run_end(const tinfer::RunResult& result) final;

    const tinfer::TraceReader& trace;
    Selection selection;
    bool in_run = false;  ///< the running run is looked at

private:
    bool has_seen_ = false;
};

/// The operand's bytes as one whole range, or its ranges.
[[nodiscard]] std::vector<tinfer::AccessRange> ranges_of(const tinfer::Access& access);
/// Unique bytes times passes.
[[nodiscard]] std::uint64_t streamed_bytes(const tinfer::Access& access);
[[nodiscard]] inline bool is_weight(const tinfer::Access& access) {
    return access.tensor->tensor_class == tinfer::TensorClass::weight && access.kind != tinfer::AccessKind::elided;
}
[[nodiscard]] std::string layer_text(int layer);
/// The layer as a table shows it; nothing where there is none.
[[nodiscard]] inline Cell layer_cell(int layer) {
    return layer == tinfer::kNoLayer ? Cell() : Cell(static_cast<std::uint64_t>(layer));
}

/// Prints a table, with the summary as `fields` of the JSON document or lines above.
void print_result(const TableStyle& style, const json& summary, const std::string& key, const Table& table);

using Verb = std::function<int()>;
Verb add_record(CLI::App& trace);
Verb add_show(CLI::App& trace);
Verb add_stats(CLI::App& trace);
Verb add_layers(CLI::App& trace);
Verb add_validate(CLI::App& trace);
Verb add_tensors(CLI::App& trace);
Verb add_reuse(CLI::App& trace);
Verb add_experts(CLI::App& trace);
Verb add_roofline(CLI::App& trace);
Verb add_cold(CLI::App& trace);
Verb add_io(CLI::App& trace);
Verb add_disk(CLI::App& trace);
Verb add_hash(CLI::App& trace);
Verb add_diff(CLI::App& trace);
Verb add_export(CLI::App& trace);
Verb add_cut(CLI::App& trace);
Verb add_recover(CLI::App& trace);

}  // namespace cli
