// SPDX-License-Identifier: MIT
// FiniteCheck: looks at every result as it is written.
#include <cmath>

#include "base/bytes.hpp"
#include "base/dtype.hpp"
#include "base/error.hpp"
#include "tinfer/observers.hpp"

namespace tinfer {

struct FiniteCheck::Impl {
    bool fail_decode = false;
    std::optional<NotFinite> first;
    std::uint64_t values = 0;

    void check(const KernelEvent& event, const TensorInfo& tensor, std::span<const std::byte> bytes,
               std::uint64_t offset);
    void report(const KernelEvent& event, const TensorInfo& tensor, std::uint64_t index, float value);
};

void FiniteCheck::Impl::report(const KernelEvent& event, const TensorInfo& tensor, std::uint64_t index, float value) {
    NotFinite found;
    found.run = event.run->run;
    found.step = event.step->number;
    found.layer = event.step->layer;
    found.kernel = event.step->kernel;
    found.tensor = tensor.name;
    for (const NodeView* node : event.step->nodes)
        if (found.node.empty() || node->output == &tensor) found.node = node->name;
    found.index = index;
    found.value = value;
    found.what = cat("run ", found.run, ", step ", found.step, " ", found.kernel, " (", escaped(found.node),
                     "): element ", index, " of '", escaped(found.tensor), "' is ",
                     std::isnan(value) ? "NaN"
                     : value > 0       ? "infinite"
                                       : "minus infinite");
    first = std::move(found);
}

// Bytes from `offset` of a tensor on. Codes are always finite: of quantized activations the scales say it.
void FiniteCheck::Impl::check(const KernelEvent& event, const TensorInfo& tensor, std::span<const std::byte> bytes,
                              std::uint64_t offset) {
    if (tensor.type == DType::f32) {
        for (std::size_t i = 0; i + 4 <= bytes.size() && !first; i += 4) {
            ++values;
            if (const auto value = load<float>(bytes.data() + i); !std::isfinite(value))
                report(event, tensor, (offset + i) / 4, value);
        }
        return;
    }
    const std::int64_t k = tensor.ne[0], block = find_dtype(tensor.type)->block_elems;
    const ActivationLayout layout = activation_layout(tensor.type, k);
    const auto size = static_cast<std::uint64_t>(layout.row_bytes);
    for (std::uint64_t row = (offset + size - 1) / size; (row + 1) * size <= offset + bytes.size(); ++row)
        for (std::int64_t b = 0; b < k / block && !first; ++b) {
            ++values;
            const auto d = load<float>(bytes.data() + (row * size - offset) + layout.d_offset + 4 * b);
            if (!std::isfinite(d))
                report(event, tensor, row * static_cast<std::uint64_t>(k) + static_cast<std::uint64_t>(b * block), d);
        }
}

FiniteCheck::FiniteCheck(bool fail_decode) : impl_(std::make_unique<Impl>()) { impl_->fail_decode = fail_decode; }
FiniteCheck::~FiniteCheck() = default;

const std::optional<NotFinite>& FiniteCheck::first() const& noexcept { return impl_->first; }
std::uint64_t FiniteCheck::values() const noexcept { return impl_->values; }

TraceRequest FiniteCheck::request() const { return {.delivery = Delivery::immediate}; }

void FiniteCheck::on_step_end(const KernelEvent& event, const StepValues& values) {
    if (impl_->first || event.step->op == Op::keep_groups || event.status != EventStatus::ok) return;
    for (const Access& access : event.accesses) {
        const TensorInfo& tensor = *access.tensor;
        const bool is_result = tensor.tensor_class == TensorClass::value || tensor.tensor_class == TensorClass::output;
        if (access.scratch || access.mode == AccessMode::read || access.kind == AccessKind::elided || !is_result ||
            (tensor.type != DType::f32 && !is_activation(tensor.type)))
            continue;
        const auto value = values.value(access.slot);
        if (value.tensor != access.tensor || value.data.empty()) continue;
        if (access.kind == AccessKind::whole) impl_->check(event, tensor, value.data, 0);
        for (const AccessRange& range : access.ranges)
            for (std::uint32_t i = 0; i < range.count; ++i)
                if (const std::uint64_t at = range.offset + i * range.stride; at + range.length <= value.data.size())
                    impl_->check(event, tensor, value.data.subspan(at, range.length), at);
        if (impl_->first && impl_->fail_decode)
            fail(ErrorCode::compute_failed, cat("not finite: ", impl_->first->what));
    }
}

}  // namespace tinfer
