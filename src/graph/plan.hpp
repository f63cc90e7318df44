// SPDX-License-Identifier: MIT
// From graph to plan: fusion, the order of steps, and where every result lies in the arena. Pure functions of the
// graph. A step is one kernel call; every node that is not a view belongs to exactly one step.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.hpp"

namespace tinfer::graph {

/// How a node accesses an input: recurrent states are read and written, everything else is read.
[[nodiscard]] constexpr AccessMode input_mode(const Value& value) noexcept {
    return value.tensor_class == TensorClass::recurrent ? AccessMode::read_write : AccessMode::read;
}

/// One operand of a step. `slot` as in kernels/ops.hpp.
struct StepOperand {
    std::uint32_t value = kNone;
    AccessMode mode = AccessMode::read;
    std::uint16_t slot = 0;
    bool elided = false;  ///< result of a fused node, never stored; listed for observers only
};

struct Step {
    Op op = Op::none;
    Part part = Part::none;
    std::int32_t layer = kNoLayer;
    OpParams params{};
    std::uint32_t first_node = 0, n_nodes = 0;        ///< into Plan::step_nodes
    std::uint32_t first_operand = 0, n_operands = 0;  ///< into Plan::operands
    std::uint32_t first_dead = 0, n_dead = 0;         ///< into Plan::dead: results nobody reads after this step
};

inline constexpr std::uint64_t kNotInArena = ~std::uint64_t{0};

/// Capacity is kept when a plan is made anew in the same object, so planning allocates nothing after warm-up.
struct Plan {
    std::vector<Step> steps;
    std::vector<std::uint32_t> step_nodes;
    std::vector<StepOperand> operands;
    std::vector<std::uint32_t> dead;
    /// Per value: byte offset in the arena, or kNotInArena: weights, caches, inputs, elided values, views.
    std::vector<std::uint64_t> offsets;
    std::uint64_t arena_bytes = 0;  ///< the planner's figure for peak activation memory
    std::uint64_t signature = 0;    ///< of the graph it was made from
};

/// Lengths of the lists of a plan, or the largest ones of several.
struct PlanSize {
    std::size_t n_steps = 0, n_nodes = 0, n_operands = 0, n_dead = 0, n_values = 0;
    void include(const Plan& plan) noexcept;
    void reserve(Plan& plan) const;
    [[nodiscard]] std::uint64_t bytes() const noexcept;  ///< of reserve()
};

struct PlanOptions {
    bool fuse = true;
};

/// Bytes of the memory a root value owns (rows padded only as its strides say), a multiple of 64.
[[nodiscard]] std::uint64_t storage_bytes(const Value& value) noexcept;

class Planner {
public:
    Planner(std::uint32_t max_nodes, std::uint32_t max_values);  ///< working memory, allocated once
    ~Planner();
    Planner(Planner&&) noexcept;
    Planner& operator=(Planner&&) noexcept;
    [[nodiscard]] static std::uint64_t bytes(std::uint32_t max_nodes,
                                             std::uint32_t max_values) noexcept;  ///< of that memory
    /// Fuses (if asked), orders and places. Results marked `output` live to the end. Offsets are multiples of 64.
    void make(const Graph& graph, const PlanOptions& options, Plan& plan);

private:
    struct Work;
    std::unique_ptr<Work> work_;
};

/// One row per op says what is legal; throws compute_failed naming node and rule. Run after building and after each
/// pass in checked builds, and by tests.
void verify(const Graph& graph);
void verify(std::span<const Node> nodes, std::span<const Value> values);
/// Every node that is no view lies in exactly one step, operands are produced before they are read, live results do not
/// overlap in the arena. Throws compute_failed.
void verify(const Graph& graph, const Plan& plan);

/// SHA-256 (first 16 bytes) of structure, names and the given kernel names (one per step, may be empty): no address,
/// thread count or time.
[[nodiscard]] std::array<std::uint8_t, 16> plan_hash(const Graph& graph, const Plan& plan,
                                                     std::span<const std::string_view> kernels);

/// Graphviz. Node names are n<number>, never pointers; hostile names are escaped; deterministic.
[[nodiscard]] std::string to_dot(const Graph& graph);
[[nodiscard]] std::string to_dot(const Graph& graph, const Plan& plan, std::span<const std::string_view> kernels);
[[nodiscard]] std::string to_text(const Graph& graph);
[[nodiscard]] std::string to_text(const Graph& graph, const Plan& plan, std::span<const std::string_view> kernels);

}  // namespace tinfer::graph
