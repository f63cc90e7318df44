// SPDX-License-Identifier: MIT
// tinfer trace layers: a table of layers by parts, or by roles: what was read of each, and what was not.
#include <algorithm>

#include "trace.hpp"

namespace tinfer::app {

namespace {

struct LayersArgs : TraceArgs {
    std::string by = "part", show = "bytes";
};

/// The part of a block that weights of this role usually belong to, for weights that were never read.
std::string usual_part(const std::string& role) {
    const auto has = [&](std::string_view word) { return role.find(word) != role.npos; };
    if (role == "token_embd" || has("embd")) return "embed";
    if (role == "output" || role.starts_with("output")) return "head";
    if (has("_shexp")) return "shared_expert";
    if (has("_exps")) return "experts";
    if (has("ffn_gate_inp")) return "router";
    if (role == "attn_norm") return "attn_norm";
    if (role == "ffn_norm") return "ffn_norm";
    if (role == "attn_output") return "attn_out";
    if (role.starts_with("attn")) return "attn";
    if (role.starts_with("ffn")) return "ffn";
    if (role.starts_with("ssm") || role.starts_with("time_mix")) return "state";
    return "none";
}

struct MatrixCell {
    std::uint64_t bytes = 0, n_read = 0, n_weights = 0;
    double ms = 0;
    std::vector<std::string> missing;
};

class Matrix : public Visitor {
public:
    Matrix(const tinfer::TraceReader& of, const LayersArgs& args) : Visitor(of, args.selection()), by_(args.by) {}
    void see(const tinfer::KernelEvent& event) override {
        std::uint64_t all = 0;
        for (const auto& access : event.accesses)
            if (is_weight(access)) all += streamed_bytes(access);
        const double ms = double(event.end - event.begin) / 1e6;
        all_ms += ms;
        if (all == 0 && by_ == "part") cells[{event.step->layer, std::string(to_string(event.step->part))}].ms += ms;
        for (const auto& access : event.accesses) {
            if (!is_weight(access) || !selection.keeps(*access.tensor)) continue;
            const std::string part(to_string(event.step->part));
            MatrixCell& cell = cells[{access.tensor->layer, by_ == "role" ? std::string(access.tensor->role) : part}];
            if (access.bytes() > 0 && read.emplace(access.tensor->id, part).second) ++cell.n_read;
            part_of_role.emplace(access.tensor->role, part);
            cell.bytes += access.bytes();
            if (all > 0) cell.ms += ms * double(streamed_bytes(access)) / double(all);
        }
    }
    void end(const tinfer::RunResult&) override { ++n_runs; }

    /// Assigns every weight of the registry to its cell.
    void add_weights() {
        for (const auto& tensor : trace.tensors()) {
            if (tensor.tensor_class != 0) continue;
            const int layer = tensor.layer == tinfer::trace_format::kNoLayer16 ? tinfer::kNoLayer : tensor.layer;
            if (!selection.layers.empty() && !selection.layers.contains(layer)) continue;
            const std::string name(trace.text(tensor.name));
            if (!selection.tensors.empty() &&
                std::ranges::none_of(selection.tensors, [&](const auto& g) { return matches_glob(g, name); }))
                continue;
            const std::string role(tensor.role == 0 ? "" : trace.session_value("role." + std::to_string(tensor.role)));
            const auto seen = read.find(tensor.id);
            const auto same = part_of_role.find(role);
            const std::string part = seen != read.end()           ? seen->second
                                     : same != part_of_role.end() ? same->second
                                                                  : usual_part(role);
            if (!selection.parts.empty() && !selection.parts.contains(part)) continue;
            MatrixCell& cell = cells[{layer, by_ == "role" ? role : part}];
            ++cell.n_weights;
            auto& [n, n_seen] = types[std::string(trace.session_value("type." + std::to_string(tensor.type)))];
            ++n, n_seen += seen != read.end() ? 1 : 0;
            if (seen == read.end()) cell.missing.push_back(name);
        }
    }

    std::map<std::pair<int, std::string>, MatrixCell> cells;
    std::map<std::uint32_t, std::string> read;  // weights that were read, with the first part that did
    std::map<std::string, std::string, std::less<>> part_of_role;
    std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> types;
    std::uint64_t n_runs = 0;
    double all_ms = 0;

private:
    std::string by_;
};

std::string cell_text(const MatrixCell& cell, const LayersArgs& args, double all_ms) {
    if (!cell.missing.empty()) return "MISSING";
    if (args.show == "ms") return fixed(cell.ms, 3);
    if (args.show == "share") return fixed(all_ms > 0 ? 100 * cell.ms / all_ms : 0, 1) + " %";
    return cell.n_weights > 0 ? bytes_text(cell.bytes, args.style.exact) : "";
}

void print_matrix(const Matrix& matrix, const LayersArgs& args, std::uint64_t n_missing) {
    std::vector<std::string> names;
    std::set<int> layers;
    for (const auto& [place, cell] : matrix.cells) {
        if (cell.n_weights == 0 && args.show == "bytes") continue;
        layers.insert(place.first);
        if (std::ranges::find(names, place.second) == names.end()) names.push_back(place.second);
    }
    const auto place_of = [](const std::string& name) {  // parts in the order of a block
        for (int part = 0; part <= int(tinfer::Part::pool); ++part)
            if (to_string(static_cast<tinfer::Part>(part)) == name) return part;
        return 0;
    };
    std::ranges::stable_sort(names, {}, place_of);
    std::vector<Column> columns{{"layer"}};
    for (const auto& name : names) columns.push_back({name});
    Table table(columns);
    for (const int layer : layers) {
        std::vector<Cell> row{layer_cell(layer)};
        for (const auto& name : names) {
            const auto found = matrix.cells.find({layer, name});
            row.emplace_back(found == matrix.cells.end() ? std::string()
                                                         : cell_text(found->second, args, matrix.all_ms));
        }
        table.add(row);
    }
    std::string out =
        counted(matrix.n_runs, "run") + ", " + args.show + " by layer and " + args.by + "\n" + table.text(false);
    std::string separator;
    bool all_seen = true;
    for (const auto& [type, n] : matrix.types) {
        std::string upper = type;
        std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return char(std::toupper(c)); });
        out += std::exchange(separator, ", ") + upper + " " + std::to_string(n.first);
        if (n.second < n.first) out += " (" + std::to_string(n.first - n.second) + " missing)", all_seen = false;
    }
    print(out + " tensors: " + (all_seen ? "all seen" : counted(n_missing, "tensor") + " missing") + "\n");
}

int show_layers(const LayersArgs& args) {
    const auto trace = args.open();
    args.check_model(trace);
    Matrix matrix(trace, args);
    matrix.visit();
    matrix.add_weights();
    std::uint64_t n_missing = 0;
    Table rows({{"layer"},
                {args.by},
                {"tensors", Unit::count},
                {"tensors_read", Unit::count},
                {"bytes", Unit::bytes},
                {"ms", Unit::real},
                {"share", Unit::percent},
                {"status"},
                {"missing"}});
    for (const auto& [place, cell] : matrix.cells) {
        n_missing += cell.missing.size();
        std::string missing;
        for (const auto& name : cell.missing) missing += (missing.empty() ? "" : " ") + name;
        rows.add({layer_cell(place.first), place.second, cell.n_weights, cell.n_read, cell.bytes, cell.ms,
                  matrix.all_ms > 0 ? cell.ms / matrix.all_ms : 0,
                  std::string(!cell.missing.empty() ? "MISSING"
                              : cell.n_weights > 0  ? "ok"
                                                    : "no weights"),
                  missing});
    }
    if (args.style.as_json || args.style.as_csv) {
        Json types = Json::array();
        for (const auto& [type, n] : matrix.types)
            types.push_back({{"type", type}, {"tensors", n.first}, {"seen", n.second}});
        print_result(args.style, {{"runs", matrix.n_runs}, {"missing", n_missing}, {"types", types}}, "cells", rows);
    } else {
        print_matrix(matrix, args, n_missing);
    }
    return n_missing > 0 ? 1 : 0;
}

}  // namespace

Verb add_layers(CLI::App& trace) {
    auto args = std::make_shared<LayersArgs>();
    auto* verb = trace.add_subcommand(
        "layers", "Shows layers by parts: what was read of each; exit 1 where something is missing.");
    args->add_file(*verb);
    args->add_model(*verb);
    args->add_selection(*verb);
    verb->add_option("--by", args->by, "columns: part or role")
        ->check(one_of({"part", "role"}))
        ->type_name("WHAT")
        ->group("Output");
    verb->add_option("--show", args->show, "bytes of weights, ms or share of the time")
        ->check(one_of({"bytes", "ms", "share"}))
        ->type_name("WHAT")
        ->group("Output");
    args->add_output(*verb);
    verb->footer("\nExamples:\n  tinfer trace layers t.tntrace\n  tinfer trace layers t.tntrace --by role --phase "
                 "decode --show ms");
    return [args] { return show_layers(*args); };
}

}  // namespace tinfer::app
