// SPDX-License-Identifier: MIT
// What observers are shown of a plan: registry entries for its values, node and step views, and the operands that
// kernels declare. Made once per plan, when it first runs with an observer attached.
#pragma once

#include <deque>
#include <new>
#include <string>
#include <vector>

#include "graph/plan.hpp"
#include "graph/tensor_registry.hpp"
#include "kernels/kernel.hpp"
#include "trace/expected.hpp"

namespace tinfer::trace {

/// A plan bound to kernels and memory, as far as observers are shown it.
struct BoundSteps {
    const graph::Plan* plan = nullptr;
    std::span<const kernels::KernelDescriptor* const> kernels;  ///< per step
    std::span<const kernels::KernelCall> calls;                 ///< per step
    std::uint32_t id = 0;                                       ///< counts plans of the context, from 1
};

/// A draft head, as the observers of its target's context are shown it: its tensors by its own ids, each of them one of
/// the session's.
struct HeadView {
    std::string_view architecture;
    std::vector<const TensorInfo*> tensors;
};

/// What the ids of a graph name.
struct GraphTensors {
    graph::TensorRegistry session;
    const HeadView* head = nullptr;  ///< null: ids of the session
    [[nodiscard]] const TensorInfo& operator[](std::uint32_t id) const noexcept {
        return head != nullptr ? *head->tensors[id] : session[id];
    }
};

/// An access whose ranges lie in a growing array: spans are made from it when the array is complete.
struct PendingAccess {
    Access access;
    std::uint32_t first_range = 0, n_ranges = 0;
    bool dynamic = false;   ///< declared: what is touched, the run decides
    bool resolved = false;  ///< the run has decided
};

/// Unique bytes that a step moves. Scratch does not count.
struct MovedBytes {
    std::uint64_t read = 0, written = 0, weights = 0;
    MovedBytes() = default;
    explicit MovedBytes(std::span<const Access> accesses) noexcept;
    bool operator==(const MovedBytes&) const = default;
};

/// Collects what one kernel declares or resolves. Slots are turned into tensors by the plan.
class AccessCollector final : public kernels::AccessSink {
public:
    AccessCollector(std::vector<PendingAccess>& accesses, std::vector<AccessRange>& ranges)
        : accesses_(accesses), ranges_(ranges) {}
    void start() noexcept { first_ = accesses_.size(); }
    void whole(std::uint16_t slot, AccessMode mode, std::uint16_t passes) override;
    void range(std::uint16_t slot, AccessMode mode, const AccessRange& range) override;
    void dynamic(std::uint16_t slot, AccessMode mode) override;
    /// Throws the std::bad_alloc that collecting met: kernels are noexcept, so it must not pass through them.
    void check() const {
        if (out_of_memory_) throw std::bad_alloc();
    }

private:
    template <class Fn>
    void collect(Fn&& fn) noexcept;
    PendingAccess& add(std::uint16_t slot, AccessMode mode, AccessKind kind);
    bool out_of_memory_ = false;
    std::vector<PendingAccess>& accesses_;
    std::vector<AccessRange>& ranges_;
    std::size_t first_ = 0;
};

class TracePlan {
public:
    TracePlan(const graph::Graph& graph, const BoundSteps& bound, const GraphTensors& tensors, std::string_view table,
              std::string_view architecture, std::uint32_t n_tokens, std::uint32_t id,
              const std::array<std::uint8_t, 16>& hash);
    /// What plans of equal structure and kernels share (PlanView::hash).
    [[nodiscard]] static std::array<std::uint8_t, 16> hash_of(const graph::Graph& graph, const BoundSteps& bound,
                                                              std::string_view table);
    TracePlan(const TracePlan&) = delete;
    TracePlan& operator=(const TracePlan&) = delete;

    [[nodiscard]] const PlanView& view() const noexcept { return view_; }
    [[nodiscard]] std::span<const PendingAccess> declared(std::size_t step) const noexcept;
    /// Where the accesses of a step are from: the plan knows all before it runs (StepView::operands), its kernel
    /// resolves some from the step's data, or an earlier step of the run has resolved the same, of its own tensors
    /// (same_as).
    enum class Source : std::uint8_t { plan, kernel, same_as };
    [[nodiscard]] Source source(std::size_t step) const noexcept { return sources_[step]; }
    /// What a step of source `plan` does.
    struct Known {
        MovedBytes bytes;
        std::uint64_t macs;
    };
    [[nodiscard]] const Known& known(std::size_t step) const noexcept { return known_[step]; }
    /// Steps of the other sources, in order.
    [[nodiscard]] std::span<const std::uint32_t> data_dependent() const noexcept { return data_dependent_; }
    /// Bytes of weights that the first `n_steps` read, without those of `data_dependent`.
    [[nodiscard]] std::uint64_t known_weight_bytes(std::size_t n_steps) const noexcept {
        return known_weights_[n_steps];
    }
    /// Bytes of weights that the nodes of the first `n_steps` must read by the meaning of their ops; `data` as
    /// expect wants it.
    [[nodiscard]] std::uint64_t expected_weight_bytes(std::size_t n_steps, const DataOf& data) const;
    [[nodiscard]] std::span<const AccessRange> declared_ranges() const noexcept { return ranges_; }
    /// Of a step of source `same_as`, the earlier one: the same kernel on the same ids of the graph's input, as of the
    /// attention of all layers with one cache table. Both move the same bytes.
    [[nodiscard]] std::uint32_t same_as(std::size_t step) const noexcept { return same_as_[step]; }
    /// The tensor in a slot of a step, or null.
    [[nodiscard]] const TensorInfo* tensor(std::size_t step, std::uint16_t slot) const noexcept;
    /// Turns what a kernel of a step named (slots, offsets inside its views) into tensors and offsets inside them.
    void complete(std::size_t step, std::span<PendingAccess> accesses, std::vector<AccessRange>& ranges) const noexcept;
    struct GraphInput {
        const TensorInfo* tensor;
        std::string_view role;
    };
    [[nodiscard]] std::span<const GraphInput> inputs() const noexcept { return inputs_; }

private:
    std::string_view keep(std::string text);
    void add_values(const graph::Graph& graph, const GraphTensors& tensors);
    void add_nodes(const graph::Graph& graph, const graph::Plan& plan);
    void add_steps(const graph::Graph& graph, const BoundSteps& bound, std::string_view table);
    void add_slots(const graph::Graph& graph, const BoundSteps& bound, std::size_t s);
    void add_accesses(const BoundSteps& bound, std::size_t s);
    void add_view(const BoundSteps& bound, std::size_t s, std::string_view table);
    void add_operands();
    void add_expectations();
    [[nodiscard]] std::uint64_t expected_of(std::size_t step, const DataOf& data) const;
    void find_repeats(const BoundSteps& bound);
    [[nodiscard]] bool resolve_same(const BoundSteps& bound, std::size_t a, std::size_t b) const noexcept;

    struct Slot {
        const TensorInfo* tensor = nullptr;
        std::uint64_t offset = 0;  ///< of the view inside the tensor
    };
    struct StepPart {
        std::uint32_t first_access = 0, n_accesses = 0;
        std::array<Slot, kernels::kMaxOperands> slots{};
    };
    PlanView view_;
    std::deque<std::string> texts_;
    std::vector<TensorInfo> values_;          ///< results and inputs
    std::vector<const TensorInfo*> tensors_;  ///< per graph value: the owner of its memory
    std::vector<TensorInfo*> own_;            ///< the same where it is one of values_, else null
    std::vector<NodeView> nodes_;
    std::vector<const TensorInfo*> node_inputs_;
    std::vector<ViewShape> node_shapes_;
    std::vector<StepView> steps_;
    std::vector<const NodeView*> step_nodes_;
    std::vector<StepPart> parts_;
    std::vector<PendingAccess> accesses_;
    std::vector<Access> operands_;
    std::vector<AccessRange> ranges_;
    std::vector<Source> sources_;
    std::vector<Known> known_;
    std::vector<std::uint32_t> data_dependent_;
    std::vector<std::uint32_t> expectation_needs_data_;            ///< steps whose data decides what they must read
    std::vector<std::uint64_t> known_weights_, expected_weights_;  ///< of all steps before each, without those
    std::vector<std::uint32_t> same_as_;
    std::vector<GraphInput> inputs_;
    TensorInfo scratch_;
};

}  // namespace tinfer::trace
