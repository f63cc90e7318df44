// SPDX-License-Identifier: MIT
// Shared by the verbs of `tinfer trace`: the file, the selection, and the output of results.
#pragma once

#include <map>
#include <optional>
#include <set>

#include "../common.hpp"
#include "table.hpp"

namespace tinfer::app {

/// Ends the program with a specific exit code: 2 unreadable trace, 3 trace of another model or damaged.
class ExitError : public std::runtime_error {
public:
    ExitError(int exit_code, const std::string& message) : std::runtime_error(message), code(exit_code) {}
    int code;
};

/// The selected events of a trace; empty fields select all.
struct Selection {
    using Ranges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
    std::set<int> layers;
    std::set<std::string> parts, ops, phases;
    std::vector<std::string> tensors;  ///< globs
    Ranges runs, tokens, sequences;    ///< tokens: indices of decodes

    [[nodiscard]] bool is_all() const;
    [[nodiscard]] bool keeps(const tinfer::RunInfo& run) const;
    [[nodiscard]] bool keeps(const tinfer::StepView& step) const;  ///< everything except tensors
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
    bool allow_damage = false;

    void add_file(CLI::App& verb);
    void add_selection(CLI::App& verb);
    void add_model(CLI::App& verb);
    void add_output(CLI::App& verb, bool csv = true);
    void add_limit(CLI::App& verb, std::uint64_t standard);
    /// Whether a table has as many rows as the limit. The default limit applies to text; CSV and JSON have all rows.
    [[nodiscard]] bool is_full(std::size_t n_rows) const;
    /// Says on stderr what of it is damaged; the exit code is 3 then, see exit_code(). Throws ExitError(2) if it cannot
    /// be read.
    [[nodiscard]] tinfer::TraceReader open() const;
    /// For a verb whose answer is the damage.
    [[nodiscard]] tinfer::TraceReader open_silently() const;
    [[nodiscard]] Selection selection() const;
    /// Throws ExitError(3) if a model is given and the trace is of another one.
    void check_model(const tinfer::TraceReader& trace) const;
};

/// What is damaged, a sentence for each place: bytes that cannot be read, blocks that are missing, an end that is not
/// where the header says. Empty for whole traces.
[[nodiscard]] std::vector<std::string> damage_of(const tinfer::TraceReader& trace);
/// The option that takes the exit code of a damaged trace away.
void add_allow_damage(CLI::App& verb, bool& allow_damage);
/// The one rule for damage: says it once for each file, and makes the exit code 3 unless it is allowed.
void report_damage(const std::string& file, const std::vector<std::string>& damage, bool allow_damage);
/// What a verb ends with: its own code, or 3 where a trace was damaged.
[[nodiscard]] int exit_code(int of_verb) noexcept;

/// Parses ranges such as "0,5-7". Throws UsageError naming the option.
[[nodiscard]] Selection::Ranges parse_ranges(const std::string& text, std::string_view option);
[[nodiscard]] std::vector<std::string> parse_words(const std::string& text);
/// Parses sizes such as "256M", "4G", "4096". Throws UsageError naming the option.
[[nodiscard]] std::uint64_t parse_size(const std::string& text, std::string_view option);
[[nodiscard]] bool matches_glob(std::string_view pattern, std::string_view text);

/// Calls `see` for every selected event, and `begin` and `end` for runs.
class Visitor : public tinfer::Observer {
public:
    Visitor(const tinfer::TraceReader& of, Selection chosen) : trace(of), selection(std::move(chosen)) {}
    /// Prints a note to stderr if nothing is selected.
    void visit();
    virtual void see(const tinfer::KernelEvent&) {}
    virtual void begin(const tinfer::RunInfo&) {}
    virtual void end(const tinfer::RunResult&) {}

    void on_run_begin(const tinfer::RunInfo& run) final;
    void on_events(std::span<const tinfer::KernelEvent> events) final;
    void on_run_end(const tinfer::RunResult& result) final;

    const tinfer::TraceReader& trace;
    Selection selection;
    bool in_run = false;  ///< the current run is selected

private:
    bool has_seen_ = false;
};

/// The ranges of an operand; a single one if it is accessed as a whole.
[[nodiscard]] std::vector<tinfer::AccessRange> ranges_of(const tinfer::Access& access);
/// Unique bytes times passes.
[[nodiscard]] std::uint64_t streamed_bytes(const tinfer::Access& access);
[[nodiscard]] inline bool is_weight(const tinfer::Access& access) {
    return access.tensor->tensor_class == tinfer::TensorClass::weight && access.kind != tinfer::AccessKind::elided;
}
[[nodiscard]] std::string layer_text(int layer);
/// The layer as a table cell; empty if there is none.
[[nodiscard]] inline Cell layer_cell(int layer) {
    return layer == tinfer::kNoLayer ? Cell() : Cell(static_cast<std::uint64_t>(layer));
}

/// Prints a table, with the summary as `fields` of the JSON document or lines above.
void print_result(const TableStyle& style, const Json& summary, const std::string& key, const Table& table);

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

}  // namespace tinfer::app
