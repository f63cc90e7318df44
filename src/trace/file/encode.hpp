// SPDX-License-Identifier: MIT
// What an observer is shown, as records of a trace file.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "tinfer/trace.hpp"
#include "trace/file/block_writer.hpp"

namespace tinfer::trace {

/// How an operand is known from the plan alone. A range that has a tag, a weight or padding, and several of them, lie
/// with each event.
[[nodiscard]] trace_format::OperandKind operand_kind(const Access& operand) noexcept;
[[nodiscard]] inline std::uint16_t layer16(int layer) noexcept {
    return layer < 0 ? trace_format::kNoLayer16 : static_cast<std::uint16_t>(layer);
}

/// Numbers for the roles of tensors, from 1 on in the order of their first use in a file.
class RoleNumbers {
public:
    std::uint16_t number(std::string_view role);
    [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }

private:
    std::vector<std::string> names_;
};

[[nodiscard]] trace_format::Tensor encode_tensor(const TensorInfo& tensor, StringTable& strings, RoleNumbers& roles,
                                                 bool with_address);
/// The payload of a PLAN block.
[[nodiscard]] std::vector<std::byte> encode_plan(const PlanView& plan, StringTable& strings);

/// The steps of a plan whose events carry ranges.
[[nodiscard]] std::vector<bool> dynamic_steps(const PlanView& plan);

/// Events of one run, as the arrays of an EVENTS block. Memory is kept from batch to batch.
class EventBatch {
public:
    void clear() noexcept;
    [[nodiscard]] bool empty() const noexcept { return events_.empty(); }
    [[nodiscard]] std::size_t size() const noexcept { return events_.size(); }
    [[nodiscard]] std::uint64_t first_event() const noexcept { return header_.first_event; }
    [[nodiscard]] std::uint64_t earliest() const noexcept { return events_.empty() ? 0 : events_.front().begin; }
    [[nodiscard]] std::uint64_t latest() const noexcept { return latest_; }
    [[nodiscard]] std::size_t bytes() const noexcept;
    /// Whether the event may join the batch: of the same run and number of threads, with room for its ranges.
    [[nodiscard]] bool takes(const KernelEvent& event) const noexcept;
    void add(const KernelEvent& event, bool dynamic);
    /// The payload, into a buffer that is cleared before.
    void write(std::vector<std::byte>& payload);

private:
    void add_ranges(const KernelEvent& event, trace_format::Event& record);
    [[nodiscard]] std::size_t place_of(std::size_t first);
    trace_format::EventsHeader header_;
    std::uint64_t latest_ = 0;
    std::vector<trace_format::Event> events_;
    std::vector<trace_format::Range> ranges_;
    // Layers touch their caches alike, and experts of a layer are those of several products: a list of ranges that is
    // there already is not written again. The lists that were written last are looked at.
    struct RangeList {
        std::size_t first = 0, n = 0;
    };
    std::array<RangeList, 8> lists_{};
    std::size_t n_lists_ = 0;
    std::vector<trace_format::Span> spans_;
};

}  // namespace tinfer::trace
