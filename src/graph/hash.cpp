// SPDX-License-Identifier: MIT
// The plan hash: equal for equal work. It covers structure, names, shapes, types, attributes, fusion and kernels;
// addresses, arena offsets, registry ids, thread count, scratch and time are left out, so two machines agree on it.
#include <algorithm>
#include <type_traits>

#include "graph/plan.hpp"
#include "tinfer/hash.hpp"

namespace tinfer::graph {

namespace {

/// Takes numbers and enumerators, too: their bytes as they lie in memory (little-endian on every supported machine).
class PlanHash : public Sha256 {
public:
    using Sha256::update;
    // clang-format off
    template <class T>
        requires(std::is_arithmetic_v<T> || std::is_enum_v<T>)
    void update(T value) noexcept { update(std::as_bytes(std::span(&value, 1))); }
    // clang-format on
};

void hash_text(PlanHash& hash, std::string_view text) {
    hash.update(static_cast<std::uint32_t>(text.size()));  // lengths keep neighbours apart
    hash.update(text);
}

void hash_value(PlanHash& hash, const Value& value) {
    hash_text(hash, value.role);
    hash.update(value.tensor_class);
    hash.update(value.type);
    hash.update(value.layer);
    hash.update(value.node);
    hash.update(value.root);
    hash.update(static_cast<std::uint8_t>((value.output ? 1 : 0) | (value.is_view ? 2 : 0)));
    hash.update(value.offset);
    hash.update(std::as_bytes(std::span(value.ne)));
    hash.update(std::as_bytes(std::span(value.nb)));
}

void hash_node(PlanHash& hash, const Node& node) {
    hash_text(hash, to_string(node.op));
    hash_text(hash, to_string(node.part));
    hash.update(node.layer);
    hash.update(node.output);
    hash.update(node.n_inputs);
    hash.update(std::as_bytes(std::span(node.inputs).first(node.n_inputs)));
    hash.update(std::as_bytes(std::span(&node.params, 1)));
}

void hash_step(PlanHash& hash, const Step& step, const Plan& plan, std::string_view kernel) {
    hash_text(hash, to_string(step.op));
    hash_text(hash, kernel);
    hash.update(step.n_nodes);
    hash.update(std::as_bytes(std::span(plan.step_nodes).subspan(step.first_node, step.n_nodes)));
    hash.update(step.n_operands);
    for (const StepOperand& operand : std::span(plan.operands).subspan(step.first_operand, step.n_operands)) {
        hash.update(operand.value);
        hash.update(operand.mode);
        hash.update(operand.slot);
        hash.update(static_cast<std::uint8_t>(operand.elided ? 1 : 0));
    }
}

}  // namespace

std::array<std::uint8_t, 16> plan_hash(const Graph& graph, const Plan& plan,
                                       std::span<const std::string_view> kernels) {
    PlanHash hash;
    hash.update(static_cast<std::uint32_t>(graph.values().size()));
    for (const Value& value : graph.values()) hash_value(hash, value);
    hash.update(static_cast<std::uint32_t>(graph.nodes().size()));
    for (const Node& node : graph.nodes()) hash_node(hash, node);
    hash.update(static_cast<std::uint32_t>(plan.steps.size()));
    for (std::size_t i = 0; i < plan.steps.size(); ++i)
        hash_step(hash, plan.steps[i], plan, i < kernels.size() ? kernels[i] : std::string_view());
    const Sha256::Digest digest = hash.finish();
    std::array<std::uint8_t, 16> first{};
    std::copy_n(digest.begin(), first.size(), first.begin());
    return first;
}

}  // namespace tinfer::graph
