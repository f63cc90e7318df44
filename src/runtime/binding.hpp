// SPDX-License-Identifier: MIT
// A plan bound to memory and kernels: for every step the descriptor of one table and a call whose operands have their
// pointers. All memory of a context is placed once, so a bound plan is reused as it is.
#pragma once

#include <span>
#include <vector>

#include "graph/plan.hpp"
#include "graph/tensor_registry.hpp"
#include "kernels/kernel.hpp"
#include "model/model.hpp"
#include "runtime/step_time.hpp"

namespace tinfer::runtime {

using graph::InputPlace;
using graph::TensorRegistry;

/// Where the roots of a graph's values lie.
struct MemoryMap {
    TensorRegistry tensors;  ///< with their addresses
    std::byte* arena = nullptr;
    std::byte* scratch = nullptr;
    std::uint64_t scratch_bytes = 0;
    std::span<const InputPlace> inputs;
    kernels::Processor processor;               ///< what every call is told (KernelCall)
    std::span<const gguf::PagedPlace> paged{};  ///< by tensor id; empty: no weight is paged
};

/// What a step needs that may not be in memory: the experts of a group that its operand of ids names, or all of it.
struct PagedNeed {
    std::int32_t group = -1;  ///< of the pager; -1: nothing
    std::uint32_t first = 0;  ///< the first step that needs the same: they stay from there on
    bool by_ids = false;
    bool releases = false;             ///< what an earlier step needed is not needed any more
    std::int32_t asks_for_group = -1;  ///< the step is a router's: what it multiplies tells of the next group
};

/// A value that leaves the graph: floats without gaps, all of a value's memory or a view of it.
struct OutputValue {
    std::string_view role;  ///< as graph::Value::role
    int layer = kNoLayer;
    std::uint64_t offset = 0;         ///< in the arena
    std::size_t width = 0, size = 0;  ///< numbers of a row, and of all rows

    [[nodiscard]] std::span<const float> in(const std::byte* arena) const noexcept {
        return {reinterpret_cast<const float*>(arena + offset), size};
    }
};
inline constexpr std::size_t kMaxOutputs = 16;  ///< of a graph, beside those that the caller wants kept

inline constexpr std::size_t kMaxStepsBetweenBarriers = 4;

struct BoundPlan {
    graph::Plan plan;
    std::vector<const kernels::KernelDescriptor*> kernels;  ///< per step
    std::vector<kernels::KernelCall> calls;                 ///< per step
    std::vector<std::uint8_t> barriers;                     ///< per step: 1 where all threads meet after it
    std::vector<OutputValue> outputs;                       ///< in the order of the graph's values
    std::vector<DeclaredBytes> declared;                    ///< per step
    std::vector<PagedNeed> needs;                           ///< per step
    std::uint32_t id = 0;                                   ///< counts plans of the context, from 1

    void reserve(const graph::PlanSize& size, std::size_t n_kept);
    [[nodiscard]] static std::uint64_t bytes(const graph::PlanSize& size,
                                             std::size_t n_kept) noexcept;  ///< of reserve()
};

/// The kernel of every step. Throws unsupported_tensor_type naming step, tensor and type where the table has none.
void choose_kernels(const graph::Graph& graph, const graph::Plan& plan, const kernels::KernelTable& table,
                    std::vector<const kernels::KernelDescriptor*>& out);
/// Operand shapes of one step, without data.
[[nodiscard]] kernels::KernelCall make_call(const graph::Graph& graph, const graph::Plan& plan, const graph::Step& step,
                                            int n_threads);
/// Scratch that the steps of a plan need at most.
[[nodiscard]] std::uint64_t scratch_bytes(const graph::Graph& graph, const graph::Plan& plan,
                                          std::span<const kernels::KernelDescriptor* const> kernels, int n_threads);
/// Fills kernels and calls of a bound plan whose `plan` is made. Allocates nothing once capacities are warm.
void bind(const graph::Graph& graph, const kernels::KernelTable& table, const MemoryMap& memory, int n_threads,
          BoundPlan& bound);

}  // namespace tinfer::runtime
