// SPDX-License-Identifier: MIT
// A plan as Graphviz: operations or kernels, their inputs, and the distribution of time. Layers of equal structure are
// drawn once.
#include <algorithm>
#include <filesystem>

#include "export.hpp"

namespace tinfer::app {

namespace {

namespace format = tinfer::trace_format;

std::string dot_text(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        out += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '.' : c;
    }
    return out + "\"";
}

constexpr const char* kShades[] = {"#eff3ff", "#bdd7e7", "#6baed6", "#3182bd", "#08519c"};

struct StepCost {
    double ms = 0;
    std::uint64_t bytes = 0;
};

class StepCosts : public Visitor {
public:
    using Visitor::Visitor;
    void see(const tinfer::KernelEvent& event) override {
        StepCost& cost = costs[{event.run->plan->id, event.step->number}];
        cost.ms += double(event.end - event.begin) / 1e6;
        cost.bytes += event.bytes_read + event.bytes_written;
    }
    std::map<std::pair<std::uint32_t, std::uint32_t>, StepCost> costs;
};

/// Draws one plan. A box is a graph node, or with --steps a step; aliases are replaced by their source.
class Drawing {
public:
    Drawing(const tinfer::TraceReader& trace, const tinfer::RecordedPlan& plan, const ExportArgs& args,
            const StepCosts& costs)
        : trace_(trace), plan_(plan), args_(args), selection_(args.selection()) {
        for (std::size_t n = 0; n < plan.nodes.size(); ++n)
            producer_[plan.nodes[n].value].push_back(static_cast<std::uint32_t>(n));
        for (const format::Step& step : plan.steps) {
            const auto found = costs.costs.find({plan.header.id, step.number});
            costs_.push_back(found == costs.costs.end() ? StepCost{} : found->second);
            most_ = std::max(most_, costs_.back().ms);
        }
        for (const format::Value& value : plan.values) values_[value.id] = &value;
        find_alike();
    }

    std::string operator()() {
        out_ = "digraph plan {\n  rankdir=TB; node [fontname=\"sans-serif\" fontsize=10 style=\"rounded,filled\" "
               "shape=box fillcolor=\"#eff3ff\"];\n";
        std::map<std::uint16_t, std::map<std::uint8_t, std::string>> clusters;
        for (std::size_t n = 0; n < plan_.nodes.size(); ++n)
            if (is_drawn(n)) clusters[plan_.nodes[n].layer][plan_.nodes[n].part] += box(n);
        for (const auto& [layer, parts] : clusters) {
            const bool is_layer = layer != format::kNoLayer16;
            if (is_layer)
                out_ +=
                    "  subgraph cluster_" + std::to_string(layer) + " { label=" + dot_text(layer_label(layer)) + ";\n";
            for (const auto& [part, boxes] : parts) {
                const auto name = trace_.session_value("part." + std::to_string(part));
                out_ += "  subgraph cluster_" + std::to_string(layer) + "_" + std::to_string(part) +
                        " { style=dotted; label=" + dot_text(name) + ";\n" + boxes + "  }\n";
            }
            if (is_layer) out_ += "  }\n";
        }
        for (std::size_t n = 0; n < plan_.nodes.size(); ++n)
            if (is_drawn(n)) edges(n);
        out_ += weights_;
        if (most_ > 0) {
            out_ += "  subgraph cluster_legend { label=\"share of the most expensive step\";\n";
            for (int i = 0; i < 5; ++i)
                out_ += "    legend" + std::to_string(i) + " [label=\"" + std::to_string(20 * i) + " to " +
                        std::to_string(20 * (i + 1)) + " %\" fillcolor=\"" + kShades[i] + "\"];\n";
            out_ += "  }\n";
        }
        return out_ + "}\n";
    }

private:
    /// Finds layers equal to an earlier one, by ops, parts and names of their nodes.
    void find_alike() {
        std::map<std::uint16_t, std::string> shapes;
        for (const format::Node& node : plan_.nodes) {
            if (node.layer == format::kNoLayer16) continue;
            std::string name(trace_.text(node.name));
            name.resize(std::min(name.rfind('-'), name.size()));
            shapes[node.layer] += name + ":" + std::to_string(node.op) + ":" + std::to_string(node.part) + ":" +
                                  std::to_string(node.n_inputs) + ";";
        }
        std::map<std::string, std::uint16_t> first;
        for (const auto& [layer, shape] : shapes) {
            const std::uint16_t same = args_.full ? layer : first.emplace(shape, layer).first->second;
            like_[layer] = same;
            group_[same].push_back(layer);
        }
    }
    [[nodiscard]] std::string layer_label(std::uint16_t layer) const {
        const auto& group = group_.at(layer);
        if (group.size() == 1) return "layer " + std::to_string(layer);
        std::string list;
        for (std::size_t i = 0; i < group.size();) {
            std::size_t last = i;
            while (last + 1 < group.size() && group[last + 1] == group[last] + 1) ++last;
            list += (list.empty() ? "" : ", ") + std::to_string(group[i]) +
                    (last > i ? "–" + std::to_string(group[last]) : "");
            i = last + 1;
        }
        return "× " + std::to_string(group.size()) + " (layers " + list + ")";
    }
    [[nodiscard]] bool is_drawn(std::size_t n) const {
        const format::Node& node = plan_.nodes[n];
        if (node.step == format::kNone) return false;
        if (node.layer != format::kNoLayer16 && like_.at(node.layer) != node.layer) return false;
        if (!selection_.layers.empty() &&
            !selection_.layers.contains(node.layer == format::kNoLayer16 ? tinfer::kNoLayer : node.layer))
            return false;
        if (!selection_.parts.empty() &&
            !selection_.parts.contains(std::string(trace_.session_value("part." + std::to_string(node.part)))))
            return false;
        return !args_.steps || id_of(n) == n;
    }
    /// With --steps, a step is represented by its last node.
    [[nodiscard]] std::size_t id_of(std::size_t n) const {
        const format::Node& node = plan_.nodes[n];
        if (!args_.steps || node.step == format::kNone) return n;
        const format::Step& step = plan_.steps[node.step];
        return step.n_nodes > 0 ? plan_.step_nodes[step.first_step_node + step.n_nodes - 1u] : n;
    }
    [[nodiscard]] std::string box(std::size_t n) const {
        const format::Node& node = plan_.nodes[n];
        const format::Step& step = plan_.steps[node.step];
        std::string label =
            harmless_text(trace_.text(node.name)) + "\n" +
            std::string(args_.steps ? trace_.text(step.kernel) : trace_.session_value("op." + std::to_string(node.op)));
        if (const auto value = values_.find(node.value & ~format::kValueBit);
            (node.value & format::kValueBit) != 0 && value != values_.end()) {
            label += "\n" + std::string(trace_.session_value("type." + std::to_string(value->second->type))) + " {";
            for (std::size_t d = 0; d < 4 && (d == 0 || value->second->ne[d] > 1); ++d)
                label += (d > 0 ? ", " : "") + std::to_string(value->second->ne[d]);
            label += "}";
        }
        const StepCost& cost = costs_[node.step];
        std::string style;
        if (most_ > 0 && (args_.steps || id_of(n) == n)) {
            const int shade = std::clamp(int(5 * cost.ms / most_), 0, 4);
            style = std::string(" fillcolor=\"") + kShades[shade] + "\"" + (shade >= 3 ? " fontcolor=white" : "");
            label += "\n" + fixed(cost.ms, 3) + " ms, " + size_text(cost.bytes);
        }
        if ((step.flags & format::fused) != 0) style += " style=\"rounded,filled,dashed\"";
        return "    n" + std::to_string(n) + " [label=" + text_of_lines(label) + style + "];\n";
    }
    static std::string text_of_lines(const std::string& lines) {
        std::string out = "\"";
        for (const char c : lines) {
            if (c == '\n') out += "\\n";
            else if (c == '"' || c == '\\') out += std::string("\\") + c;
            else out += c;
        }
        return out + "\"";
    }
    void edges(std::size_t n) {
        std::vector<std::size_t> nodes{n};
        if (args_.steps) {
            const format::Step& step = plan_.steps[plan_.nodes[n].step];
            nodes.clear();
            for (std::uint32_t i = 0; i < step.n_nodes; ++i)
                nodes.push_back(plan_.step_nodes[step.first_step_node + i]);
        }
        for (const std::size_t each : nodes) {
            const format::Node& node = plan_.nodes[each];
            for (std::uint32_t k = 0; k < node.n_inputs; ++k) edge(n, each, plan_.inputs[node.first_input + k], k + 1);
        }
    }
    void edge(std::size_t to, std::size_t of_node, std::uint32_t ref, std::uint32_t slot) {
        if (ref == format::kNone) return;
        const std::string end =
            " -> n" + std::to_string(to) + " [label=\"" + std::to_string(slot) + "\" fontsize=8];\n";
        if ((ref & format::kValueBit) == 0) {
            if (args_.no_weights) return;
            const auto* tensor = trace_.tensor(ref);
            const std::string name = "w" + std::to_string(ref);
            if (tensor != nullptr && drawn_weights_.insert(ref).second)
                weights_ += "  " + name + " [label=" + dot_text(trace_.text(tensor->name)) +
                            (tensor->tensor_class == 0 ? " style=filled fillcolor=\"#dddddd\""
                                                       : " shape=cylinder style=filled fillcolor=\"#eeeeee\"") +
                            "];\n";
            weights_ += "  " + name + end;
            return;
        }
        // The last node before this one that produces the value; for a layer that is not drawn, its equivalent.
        const auto makers = producer_.find(ref);
        std::size_t from = plan_.nodes.size();
        if (makers != producer_.end())
            for (const std::uint32_t maker : makers->second)
                if (maker < of_node && plan_.nodes[maker].step != format::kNone) from = maker;
        if (from == plan_.nodes.size()) {
            const auto value = values_.find(ref & ~format::kValueBit);
            if (value == values_.end()) return;
            const std::string name = "v" + std::to_string(ref & ~format::kValueBit);
            if (drawn_weights_.insert(ref).second)
                weights_ += "  " + name + " [shape=ellipse style=filled fillcolor=white label=" +
                            dot_text(trace_.text(value->second->name)) + "];\n";
            weights_ += "  " + name + end;
            return;
        }
        from = id_of(from);
        if (from == to) return;
        if (is_drawn(from)) {
            out_ += "  n" + std::to_string(from) + end;
        } else if (const std::uint16_t layer = plan_.nodes[from].layer;
                   layer != format::kNoLayer16 && like_.at(layer) != layer) {
            for (std::size_t n = 0; n < plan_.nodes.size(); ++n)
                if (is_drawn(n) && plan_.nodes[n].layer == like_.at(layer) && stem(n) == stem(from)) {
                    out_ += "  n" + std::to_string(n) + end;
                    break;
                }
        }
    }
    [[nodiscard]] std::string_view stem(std::size_t n) const {
        const auto name = trace_.text(plan_.nodes[n].name);
        return name.substr(0, name.rfind('-'));
    }

    const tinfer::TraceReader& trace_;
    const tinfer::RecordedPlan& plan_;
    const ExportArgs& args_;
    Selection selection_;
    std::map<std::uint32_t, std::vector<std::uint32_t>> producer_;  // nodes by the value they produce
    std::map<std::uint32_t, const format::Value*> values_;
    std::map<std::uint16_t, std::uint16_t> like_;
    std::map<std::uint16_t, std::vector<std::uint16_t>> group_;
    std::vector<StepCost> costs_;
    double most_ = 0;
    std::set<std::uint32_t> drawn_weights_;
    std::string out_, weights_;
};

}  // namespace

void export_dot(const tinfer::TraceReader& trace, const ExportArgs& args, Out& out) {
    StepCosts costs(trace, args.selection());
    costs.visit();
    if (args.dot_dir.empty()) {
        const tinfer::RecordedPlan* plan = nullptr;  // of the last selected run, which is usually one token
        for (const auto& run : trace.runs())
            if (const auto* one = trace.plan(run.record.plan);
                run.found && one != nullptr && costs.costs.contains({run.record.plan, 0}))
                plan = one;
        if (plan == nullptr)
            throw tinfer::Error(tinfer::ErrorCode::bad_parameter, args.file + ": no run with a plan is left");
        return out.write(Drawing(trace, *plan, args, costs)());
    }
    std::filesystem::create_directories(args.dot_dir);
    std::string index = "run,decode,phase,tokens,plan,file\n";
    std::set<std::uint32_t> written;
    for (const auto& run : trace.runs()) {
        const auto* plan = trace.plan(run.record.plan);
        if (!run.found || plan == nullptr) continue;
        const std::string number = std::to_string(run.record.plan);
        const std::string file =
            "plan_" + std::string(number.size() < 5 ? 5 - number.size() : 0, '0') + number + ".dot";
        if (written.insert(run.record.plan).second)
            write_file(args.dot_dir + "/" + file, Drawing(trace, *plan, args, costs)());
        index += std::to_string(run.record.run) + "," + std::to_string(run.record.decode) + "," +
                 std::string(trace.session_value("phase." + std::to_string(run.record.phase))) + "," +
                 std::to_string(run.record.n_tokens) + "," + number + "," + file + "\n";
    }
    write_file(args.dot_dir + "/index.csv", index);
}

}  // namespace tinfer::app
