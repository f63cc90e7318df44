// SPDX-License-Identifier: MIT
// Graphs and plans for people: Graphviz and plain text. The same graph gives the same bytes. Names may come from a
// hostile file: in DOT they only ever stand inside quoted strings, in text they are escaped.
#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "graph/plan.hpp"
#include "graph/text.hpp"

namespace tinfer::graph {

namespace {

// The inside of a DOT quoted string. escaped() has removed control characters and broken UTF-8; its backslashes and the
// quote are what DOT would still interpret. \n marks the line breaks of labels.
std::string dot_text(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        out += c;
    }
    return out;
}
std::string dot_name(const Value& value) { return dot_text(escaped(name_of(value))); }

// What a plan knows about each node; without a plan all of it is absent.
struct PlanLookup {
    const Plan* plan = nullptr;
    std::span<const std::string_view> kernels;
    std::vector<std::uint32_t> step_of;  ///< per node; kNone for views
    std::vector<bool> elided;            ///< per value

    PlanLookup() = default;
    PlanLookup(const Graph& graph, const Plan& p, std::span<const std::string_view> k)
        : plan(&p), kernels(k), step_of(graph.nodes().size(), kNone), elided(graph.values().size(), false) {
        for (std::uint32_t i = 0; i < p.steps.size(); ++i)
            for (std::uint32_t n = 0; n < p.steps[i].n_nodes; ++n) step_of[p.step_nodes[p.steps[i].first_node + n]] = i;
        for (const StepOperand& operand : p.operands)
            if (operand.elided) elided[operand.value] = true;
    }
    [[nodiscard]] std::string kernel(std::uint32_t step) const {
        return step < kernels.size() && !kernels[step].empty() ? escaped(kernels[step])
                                                               : std::string(to_string(plan->steps[step].op));
    }
    [[nodiscard]] bool fused(std::uint32_t node) const {
        return plan != nullptr && step_of[node] != kNone && plan->steps[step_of[node]].n_nodes > 1;
    }
    [[nodiscard]] std::string place(std::uint32_t value) const {
        if (elided[value]) return "elided";
        return plan->offsets[value] == kNotInArena ? std::string() : cat('@', plan->offsets[value]);
    }
};

class DotWriter {
public:
    DotWriter(const Graph& graph, PlanLookup lookup)
        : nodes_(graph.nodes()), values_(graph.values()), lookup_(std::move(lookup)) {}

    std::string write() {
        out_ = "digraph tinfer {\n  rankdir=TB;\n  node [fontname=\"Helvetica\", fontsize=10];\n  edge [fontsize=8];\n";
        for (std::uint32_t i = 0; i < values_.size(); ++i)
            if (values_[i].node == kNone) leaf(i);
        clusters();
        for (std::uint32_t i = 0; i < nodes_.size(); ++i) edges(i);
        return std::move(out_) + "}\n";
    }

private:
    // Weights are boxes, caches cylinders, inputs ellipses. Graph nodes alone are called n<number>.
    void leaf(std::uint32_t id) {
        const Value& value = values_[id];
        const char* look = "shape=box, style=filled, fillcolor=\"#e0e0e0\"";
        if (value.tensor_class == TensorClass::input) look = "shape=ellipse";
        else if (value.tensor_class != TensorClass::weight) look = "shape=cylinder";
        out_ += cat("  t", id, " [label=\"", dot_name(value), "\\n", to_string(value.type), ' ', shape_text(value.ne),
                    "\", ", look, "];\n");
    }

    void node(std::uint32_t number, int depth) {
        const Node& n = nodes_[number];
        const Value& result = values_[n.output];
        std::string label =
            cat(dot_name(result), "\\n", to_string(n.op), "\\n", to_string(result.type), ' ', shape_text(result.ne));
        if (lookup_.plan != nullptr && n.op != Op::alias) {
            const std::uint32_t step = lookup_.step_of[number];
            if (!lookup_.fused(number)) label += cat("\\nstep ", step, ": ", dot_text(lookup_.kernel(step)));
            if (const std::string place = lookup_.place(n.output); !place.empty()) label += cat("\\n", place);
        }
        const char* look = n.op == Op::alias ? "shape=plaintext"
                           : result.output   ? "shape=ellipse, peripheries=2"
                                             : "shape=box, style=rounded";
        out_ += cat(indent(depth), 'n', number, " [label=\"", label, "\", ", look, "];\n");
    }

    // Where a node is drawn: layer, part, and the step it is fused into. Fused nodes stay together at their step's
    // place.
    struct Place {
        std::int32_t layer;
        Part part;
        std::uint32_t fused_step;
        bool operator==(const Place&) const = default;
    };
    [[nodiscard]] Place place_of(std::uint32_t number) const {
        if (!lookup_.fused(number)) return {nodes_[number].layer, nodes_[number].part, kNone};
        const Step& step = lookup_.plan->steps[lookup_.step_of[number]];
        return {step.layer, step.part, lookup_.step_of[number]};
    }

    void clusters() {
        std::vector<std::uint32_t> order(nodes_.size());
        std::iota(order.begin(), order.end(), 0u);
        std::ranges::stable_sort(order, [&](std::uint32_t a, std::uint32_t b) {
            const Place x = place_of(a), y = place_of(b);
            return std::tie(x.layer, x.part, x.fused_step) < std::tie(y.layer, y.part, y.fused_step);
        });
        Place open{kNoLayer, Part::none, kNone};
        for (const std::uint32_t number : order) {
            const Place place = place_of(number);
            move_to(open, place);
            node(number, depth(place));
            open = place;
        }
        move_to(open, {kNoLayer, Part::none, kNone});
    }

    [[nodiscard]] static int depth(const Place& place) {
        return (place.layer >= 0 ? 1 : 0) + (place.part != Part::none ? 1 : 0) + (place.fused_step != kNone ? 1 : 0);
    }
    [[nodiscard]] static std::string indent(int depth) {
        return std::string(static_cast<std::size_t>(2 * depth + 2), ' ');
    }

    // Closes the clusters of one place and opens those of the next, as far as they differ.
    void move_to(const Place& from, const Place& to) {
        const bool other_layer = from.layer != to.layer, other_part = other_layer || from.part != to.part;
        const bool other_step = other_part || from.fused_step != to.fused_step;
        int level = depth(from);
        if (other_step && from.fused_step != kNone) out_ += indent(--level) + "}\n";
        if (other_part && from.part != Part::none) out_ += indent(--level) + "}\n";
        if (other_layer && from.layer >= 0) out_ += indent(--level) + "}\n";
        if (other_layer && to.layer >= 0) open_cluster(level++, cat("layer ", to.layer), "solid");
        if (other_part && to.part != Part::none) open_cluster(level++, to_string(to.part), "dotted");
        if (other_step && to.fused_step != kNone)
            open_cluster(level++, cat("step ", to.fused_step, ": ", dot_text(lookup_.kernel(to.fused_step))), "dashed");
    }
    void open_cluster(int level, std::string_view label, std::string_view style) {
        out_ += cat(indent(level), "subgraph cluster_", n_clusters_++, " {\n", indent(level + 1), "label=\"", label,
                    "\"; style=", style, ";\n");
    }

    void edges(std::uint32_t number) {
        const Node& n = nodes_[number];
        for (std::uint32_t i = 0; i < n.n_inputs; ++i) {
            if (n.inputs[i] == kNone) continue;
            const Value& input = values_[n.inputs[i]];
            const std::string source = input.node == kNone ? cat('t', n.inputs[i]) : cat('n', input.node);
            out_ += cat("  ", source, " -> n", number, " [label=\"", i + 1, "\"];\n");
        }
        const Value& result = values_[n.output];  // writes into a cache, slot 0
        if (n.op != Op::alias && result.is_view)
            out_ += cat("  n", number, " -> t", result.root, " [label=\"0\", style=dashed, constraint=false];\n");
    }

    std::span<const Node> nodes_;
    std::span<const Value> values_;
    PlanLookup lookup_;
    std::string out_;
    int n_clusters_ = 0;
};

// ---- text -----------------------------------------------------------------------------------------------------------

void pad(std::string& line, std::size_t column) { line.resize(std::max(line.size() + 1, column), ' '); }

std::string place_text(std::int32_t layer, Part part) {
    return layer >= 0 ? cat("layer ", layer, ' ', to_string(part)) : std::string(to_string(part));
}

// A value as an operand: results with the number of their node, so that equal names stay apart.
std::string reference(const Graph& graph, std::uint32_t id) {
    if (id == kNone) return "-";
    const Value& value = graph.values()[id];
    return value.node == kNone ? escaped(name_of(value)) : cat('n', value.node, ':', escaped(name_of(value)));
}

std::string typed(const Graph& graph, std::uint32_t id) {
    const Value& value = graph.values()[id];
    return cat(reference(graph, id), ' ', to_string(value.type), ' ', shape_text(value.ne));
}

}  // namespace

std::string to_dot(const Graph& graph) { return DotWriter(graph, {}).write(); }

std::string to_dot(const Graph& graph, const Plan& plan, std::span<const std::string_view> kernels) {
    return DotWriter(graph, PlanLookup(graph, plan, kernels)).write();
}

std::string to_text(const Graph& graph) {
    std::string out = cat("graph: ", graph.nodes().size(), " nodes, ", graph.values().size(), " values\n");
    for (std::uint32_t id = 0; id < graph.values().size(); ++id) {
        const Value& value = graph.values()[id];
        if (value.node == kNone) out += cat(to_string(value.tensor_class), ' ', typed(graph, id), '\n');
    }
    for (std::size_t number = 0; number < graph.nodes().size(); ++number) {
        const Node& node = graph.nodes()[number];
        std::string line = cat('n', number);
        pad(line, 6);
        line += place_text(node.layer, node.part);
        pad(line, 26);
        line += cat(to_string(node.op), '(');
        for (std::uint32_t i = 0; i < node.n_inputs; ++i)
            line += cat(i > 0 ? ", " : "", reference(graph, node.inputs[i]));
        line += cat(") -> ", typed(graph, node.output), graph.values()[node.output].output ? " output" : "", '\n');
        out += line;
    }
    return out;
}

std::string to_text(const Graph& graph, const Plan& plan, std::span<const std::string_view> kernels) {
    const PlanLookup lookup(graph, plan, kernels);
    std::string out = cat("plan: ", plan.steps.size(), " steps for ", plan.step_nodes.size(), " nodes, arena ",
                          plan.arena_bytes, " bytes\n");
    for (std::uint32_t number = 0; number < plan.steps.size(); ++number) {
        const Step& step = plan.steps[number];
        std::string line = cat('s', number);
        pad(line, 6);
        line += place_text(step.layer, step.part);
        pad(line, 26);
        line += lookup.kernel(number);
        pad(line, 56);
        line += "nodes";
        for (std::uint32_t i = 0; i < step.n_nodes; ++i) line += cat(' ', plan.step_nodes[step.first_node + i]);
        out += line + '\n';
        for (const StepOperand& operand : std::span(plan.operands).subspan(step.first_operand, step.n_operands)) {
            const std::string place = lookup.place(operand.value);
            const char* mode = operand.mode == AccessMode::read ? "read" : "write";
            out += cat("        ", operand.slot, ' ', operand.elided ? "none" : mode, ' ', typed(graph, operand.value));
            out += place.empty() ? "\n" : cat(' ', place, '\n');
        }
    }
    return out;
}

}  // namespace tinfer::graph
