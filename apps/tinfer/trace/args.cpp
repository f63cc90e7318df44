// SPDX-License-Identifier: MIT
// Files, selections and their options.
#include <algorithm>
#include <charconv>

#include "model_names.hpp"
#include "ranges.hpp"
#include "trace.hpp"

namespace tinfer::app {

namespace {

[[noreturn]] void refuse_value(std::string_view option, std::string_view text, std::string_view wanted) {
    throw UsageError(std::string(option) + ": '" + std::string(text) + "' is not " + std::string(wanted));
}

bool in_ranges(const Selection::Ranges& ranges, std::uint64_t value) {
    return ranges.empty() ||
           std::ranges::any_of(ranges, [&](const auto& r) { return value >= r.first && value <= r.second; });
}

template <class Enum>
void refuse_unknown(const std::set<std::string>& words, std::string_view option, int n) {
    std::vector<std::string> known;
    for (int i = 0; i < n; ++i) known.emplace_back(to_string(static_cast<Enum>(i)));
    for (const auto& word : words) {
        if (std::ranges::find(known, word) != known.end()) continue;
        const std::string meant = closest(word, known);
        refuse_value(option, word, "a name that traces use" + (meant.empty() ? "" : ": did you mean " + meant + "?"));
    }
}

}  // namespace

bool matches_glob(std::string_view pattern, std::string_view text) {
    std::size_t p = 0, t = 0, star = pattern.npos, resume = 0;
    while (t < text.size()) {
        if (p < pattern.size() && (pattern[p] == '?' || (pattern[p] == text[t] && pattern[p] != '*'))) ++p, ++t;
        else if (p < pattern.size() && pattern[p] == '*') star = p++, resume = t;
        else if (star != pattern.npos) p = star + 1, t = ++resume;
        else return false;
    }
    while (p < pattern.size() && pattern[p] == '*') ++p;
    return p == pattern.size();
}

std::vector<std::string> parse_words(const std::string& text) {
    std::vector<std::string> words;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find(',', at), text.size());
        if (end > at) words.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return words;
}

Selection::Ranges parse_ranges(const std::string& text, std::string_view option) {
    Selection::Ranges ranges;
    for (const auto& word : parse_words(text)) {
        const char* end = word.data() + word.size();
        std::uint64_t first = 0, last = 0;
        auto [at, error] = std::from_chars(word.data(), end, first);
        last = first;
        if (error == std::errc() && at != end && *at == '-') {
            const auto [behind, wrong] = std::from_chars(at + 1, end, last);
            at = behind, error = wrong;
        }
        if (error != std::errc() || at != end || last < first)
            refuse_value(option, word, "a number or a range like 3-10");
        ranges.emplace_back(first, last);
    }
    return ranges;
}

std::uint64_t parse_size(const std::string& text, std::string_view option) {
    double value = 0;
    const char* end = text.data() + text.size();
    auto [at, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && at != end) {
        constexpr std::string_view kUnits = "KMGT";
        const auto unit = kUnits.find(static_cast<char>(std::toupper(static_cast<unsigned char>(*at))));
        if (unit != kUnits.npos) {
            for (std::size_t i = 0; i <= unit; ++i) value *= 1024;
            ++at;
            if (at != end && (*at == 'i')) ++at;
            if (at != end && (*at == 'B')) ++at;
        }
    }
    const bool is_size = value == 0 || (value >= 1 && value <= 1e18);  // NaN is none
    if (error != std::errc() || at != end || !is_size) refuse_value(option, text, "a size like 4096, 256M or 4G");
    return static_cast<std::uint64_t>(value);
}

bool Selection::is_all() const {
    return layers.empty() && parts.empty() && ops.empty() && phases.empty() && tensors.empty() && runs.empty() &&
           tokens.empty() && sequences.empty();
}

bool Selection::keeps(const tinfer::RunInfo& run) const {
    if (!in_ranges(runs, run.run) || !in_ranges(tokens, run.decode)) return false;
    if (!phases.empty() && !phases.contains(std::string(to_string(run.phase)))) return false;
    return sequences.empty() || std::ranges::any_of(run.tokens, [&](const tinfer::TokenView& token) {
               return in_ranges(sequences, static_cast<std::uint64_t>(token.first_seq));
           });
}

bool Selection::keeps(const tinfer::StepView& step) const {
    return (layers.empty() || layers.contains(step.layer)) &&
           (parts.empty() || parts.contains(std::string(to_string(step.part)))) &&
           (ops.empty() || ops.contains(std::string(to_string(step.op))));
}

bool Selection::keeps(const tinfer::TensorInfo& tensor) const {
    return tensors.empty() ||
           std::ranges::any_of(tensors, [&](const std::string& glob) { return matches_glob(glob, tensor.name); });
}

bool Selection::keeps(const tinfer::KernelEvent& event) const {
    return keeps(*event.step) &&
           (tensors.empty() ||
            std::ranges::any_of(event.accesses, [&](const tinfer::Access& access) { return keeps(*access.tensor); }));
}

void TraceArgs::add_file(CLI::App& verb) {
    verb.add_option("trace,-i,--input", file, "the trace, as `tinfer trace record` writes it")
        ->type_name("FILE")
        ->group("Trace");
    add_allow_damage(verb, allow_damage);
}

void TraceArgs::add_model(CLI::App& verb) {
    takes_model(verb.add_option("-m,--model", model, "the model that the trace is of; exit code 3 where it is another"),
                model)
        ->type_name("FILE")
        ->group("Trace");
}

void TraceArgs::add_selection(CLI::App& verb) {
    const std::string group = "Selection";
    const auto add = [&](const char* name, std::string& to, const char* type, const char* text) {
        verb.add_option(name, to, text)->type_name(type)->group(group);
    };
    add("--layer", layers, "LIST", "layers, as 0,5-7; none = steps of no layer");
    add("--part", parts, "LIST", "parts of a block, as attn,ffn");
    add("--op", ops, "LIST", "operations, as mul_mat");
    add("--tensor", tensors, "GLOB", "events that touch such tensors, as 'blk.*.ffn_*'");
    add("--phase", phases, "LIST", "prefill, decode, verify, encode, load, warm_up, maintenance, draft");
    add("--run", runs, "LIST", "runs, as 3-10");
    add("--token", tokens, "LIST", "calls of decode, counted from 0");
    add("--seq", sequences, "LIST", "runs with tokens of these sequences");
}

void TraceArgs::add_output(CLI::App& verb, bool csv) {
    verb.add_flag("--json", style.as_json, "one JSON document")->group("Output");
    if (csv) verb.add_flag("--csv", style.as_csv, "the table as CSV")->group("Output");
    verb.add_flag("--exact", style.exact, "sizes in bytes")->group("Output");
}

void TraceArgs::add_limit(CLI::App& verb, std::uint64_t standard) {
    limit = standard;
    const std::string standard_text = standard == 0 ? "" : "; " + std::to_string(standard) + " unless CSV or JSON";
    limit_option =
        verb.add_option("--limit", limit, "most rows; 0 = all" + standard_text)->type_name("N")->group("Output");
}

bool TraceArgs::is_full(std::size_t n_rows) const {
    const bool is_standard = limit_option == nullptr || limit_option->empty();
    const std::uint64_t most = is_standard && (style.as_json || style.as_csv) ? 0 : limit;
    return most > 0 && n_rows >= most;
}

void add_allow_damage(CLI::App& verb, bool& allow_damage) {
    verb.add_flag("--allow-damage", allow_damage, "what is left of a damaged trace is enough; else exit code 3")
        ->group("Trace");
}

std::vector<std::string> damage_of(const tinfer::TraceReader& trace) {
    namespace format = tinfer::trace_format;
    std::vector<std::string> found;
    const auto at_byte = [&](std::uint64_t byte, const std::string& what) {
        found.push_back("byte " + std::to_string(byte) + ": " + what);
    };
    for (const auto& damage : trace.damage())
        at_byte(damage.offset, counted(damage.bytes, "byte") + ": " + harmless_text(damage.what));
    std::uint64_t next = 0;
    for (const auto& block : trace.blocks()) {
        if (block.header.sequence != next)
            at_byte(block.offset,
                    "block " + std::to_string(block.header.sequence) + " where " + std::to_string(next) + " was due");
        next = block.header.sequence + 1;
    }
    if (!trace.is_closed()) {
        found.emplace_back("the end is missing: its writer did not come to it (see tinfer trace recover)");
        return found;
    }
    const auto& header = trace.header();
    if (header.file_bytes != trace.file_bytes())
        found.push_back("the header says " + counted(header.file_bytes, "byte") + ", the file has " +
                        std::to_string(trace.file_bytes()));
    const auto& blocks = trace.blocks();
    if (blocks.empty() || blocks.back().header.type != format::BlockType::index ||
        blocks.back().offset != header.index_offset)
        found.emplace_back("the index is not where the header says");
    for (const auto& entry : trace.index()) {
        const auto block = std::ranges::lower_bound(blocks, entry.offset, {}, &tinfer::TraceBlock::offset);
        if (block == blocks.end() || block->offset != entry.offset || block->header.type != entry.type)
            found.push_back("the index names a block at byte " + std::to_string(entry.offset) + " that is not there");
    }
    return found;
}

namespace {

bool g_is_damaged = false;  // a trace that was read, and nobody allows it

}  // namespace

void report_damage(const std::string& file, const std::vector<std::string>& damage, bool allow_damage) {
    if (damage.empty()) return;
    std::string text = file + ": damaged: " + damage[0];
    if (damage.size() > 1) text += "; " + counted(damage.size() - 1, "more place") + " (see tinfer trace validate)";
    note_error(text);
    g_is_damaged = g_is_damaged || !allow_damage;
}

int exit_code(int of_verb) noexcept { return g_is_damaged ? 3 : of_verb; }

tinfer::TraceReader TraceArgs::open() const {
    auto trace = open_silently();
    report_damage(file, damage_of(trace), allow_damage);
    return trace;
}

tinfer::TraceReader TraceArgs::open_silently() const {
    if (file.empty()) throw UsageError("a trace is needed: FILE.tntrace");
    try {
        return tinfer::TraceReader::open(file);
    } catch (const tinfer::Error& error) {
        throw ExitError(2, error.what());
    }
}

Selection TraceArgs::selection() const {
    Selection selection;
    for (const auto& word : parse_words(layers)) {
        if (word == "none") {
            selection.layers.insert(tinfer::kNoLayer);
            continue;
        }
        for (const auto& [first, last] : parse_ranges(word, "--layer"))
            for (std::uint64_t layer = first; layer <= std::min<std::uint64_t>(last, 65534); ++layer)
                selection.layers.insert(static_cast<int>(layer));
    }
    const auto set_of = [](const std::string& text) {
        const auto words = parse_words(text);
        return std::set<std::string>(words.begin(), words.end());
    };
    selection.parts = set_of(parts);
    selection.ops = set_of(ops);
    selection.phases = set_of(phases);
    refuse_unknown<tinfer::Part>(selection.parts, "--part", static_cast<int>(tinfer::Part::pool) + 1);
    refuse_unknown<tinfer::Op>(selection.ops, "--op", static_cast<int>(tinfer::Op::count_));
    refuse_unknown<tinfer::Phase>(selection.phases, "--phase", static_cast<int>(tinfer::kLastPhase) + 1);
    selection.tensors = parse_words(tensors);
    selection.runs = parse_ranges(runs, "--run");
    selection.tokens = parse_ranges(tokens, "--token");
    selection.sequences = parse_ranges(sequences, "--seq");
    return selection;
}

void TraceArgs::check_model(const tinfer::TraceReader& trace) const {
    if (model.empty()) return;
    const auto opened = tinfer::ModelFile::open(model);
    const auto full = trace.session_value("full_fingerprint");
    const auto full_now = full.empty() ? std::nullopt : opened.full_fingerprint();
    if (opened.fingerprint() != trace.header().fingerprint || (full_now && tinfer::to_hex(*full_now) != full))
        throw ExitError(3, file + " is a trace of another model than " + model);
}

void Visitor::visit() {
    trace.replay(*this);
    if (has_seen_ || selection.is_all() || trace.runs().empty()) return;
    std::set<int> layers;
    for (const auto& plan : trace.plans())
        for (const auto& step : plan.steps)
            if (step.layer != tinfer::trace_format::kNoLayer16) layers.insert(step.layer);
    std::string text = std::string(trace.name()) + ": no event is selected";
    const bool has_layer = std::ranges::any_of(
        selection.layers, [&](int layer) { return layer == tinfer::kNoLayer || layers.contains(layer); });
    if (!selection.layers.empty() && !has_layer && !layers.empty())
        text += "; its layers are " + std::to_string(*layers.begin()) + " to " + std::to_string(*layers.rbegin());
    const auto& first = trace.runs().front().record;
    const auto& last = trace.runs().back().record;
    if (!selection.runs.empty())
        text += "; its runs are " + std::to_string(first.run) + " to " + std::to_string(last.run);
    if (!selection.tokens.empty())
        text += "; its calls of decode are " + std::to_string(first.decode) + " to " + std::to_string(last.decode);
    note(text, Look::warning);
}

void Visitor::on_run_begin(const tinfer::RunInfo& run) {
    in_run = selection.keeps(run);
    if (in_run) begin(run);
}

void Visitor::on_events(std::span<const tinfer::KernelEvent> events) {
    if (!in_run) return;
    for (const auto& event : events)
        if (selection.keeps(event)) {
            has_seen_ = true;
            see(event);
        }
}

void Visitor::on_run_end(const tinfer::RunResult& result) {
    if (in_run) end(result);
}

bool is_inside(std::uint64_t offset, std::uint64_t length, std::uint64_t stride, std::uint32_t count,
               std::uint64_t size) {
    if (count == 0 || length == 0 || (count == 1 && stride != 0) || (count > 1 && stride < length)) return false;
    if (count > 1 && stride > size / (count - 1)) return false;
    const std::uint64_t last = offset + (count > 1 ? stride * (count - 1) : 0);
    return offset <= size && last <= size && length <= size - last;
}

void check_touches(std::uint64_t n) {
    constexpr std::uint64_t kMax = 1u << 28;
    if (n > kMax)
        throw tinfer::Error(tinfer::ErrorCode::limit_exceeded, "the trace touches more than " + std::to_string(kMax) +
                                                                   " pieces: choose fewer runs or larger pages");
}

std::vector<tinfer::AccessRange> ranges_of(const tinfer::Access& access) {
    if (access.kind == tinfer::AccessKind::elided) return {};
    if (access.kind == tinfer::AccessKind::whole) return {{.offset = 0, .length = access.tensor->bytes}};
    for (const auto& range : access.ranges)
        if (!is_inside(range.offset, range.length, range.stride, range.count, access.tensor->bytes))
            throw tinfer::Error(tinfer::ErrorCode::damaged,
                                "tensor '" + std::string(access.tensor->name) + "': " + std::to_string(range.count) +
                                    " pieces of " + std::to_string(range.length) + " bytes from " +
                                    std::to_string(range.offset) + " on do not lie in its " +
                                    std::to_string(access.tensor->bytes) + " (see tinfer trace validate)");
    return {access.ranges.begin(), access.ranges.end()};
}

std::uint64_t streamed_bytes(const tinfer::Access& access) {
    return access.bytes() * std::max<std::uint64_t>(access.passes, 1);
}

std::string layer_text(int layer) { return layer == tinfer::kNoLayer ? "-" : std::to_string(layer); }

void print_result(const TableStyle& style, const Json& summary, const std::string& key, const Table& table) {
    if (style.as_json) {
        Json document = summary;
        document[key] = table.to_json();
        return print_line(document);
    }
    print(style.as_csv ? table.csv() : table.text(style.exact));
}

}  // namespace tinfer::app
