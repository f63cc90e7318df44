// SPDX-License-Identifier: MIT
#include "trace/observers/value_rows.hpp"

#include <algorithm>

#include "base/bytes.hpp"
#include "base/dtype.hpp"
#include "base/half.hpp"
#include "base/ops.hpp"

namespace tinfer::trace {

bool holds_numbers(DType type) noexcept { return is_float(type) || is_activation(type); }

ValueRows::ValueRows(std::span<const std::byte> data, DType type, std::int64_t n, const ViewShape& view)
    : data_(data), type_(type), n_(n), view_(view) {
    if (!holds_numbers(type) || n <= 0) return;
    row_bytes_ = static_cast<std::uint64_t>(row_bytes(type, n));
    n_rows_ = view.whole ? static_cast<std::int64_t>(data.size() / row_bytes_)
                         : static_cast<std::int64_t>(view.count[0] * view.count[1] * view.count[2]);
}

bool ValueRows::read(std::int64_t i, std::span<float> into) const {
    if (i < 0 || i >= n_rows_ || static_cast<std::int64_t>(into.size()) != n_) return false;
    const auto number = static_cast<std::uint64_t>(i);
    std::uint64_t at = number * row_bytes_;
    if (!view_.whole)
        at = view_.offset + number % view_.count[0] * view_.stride[0] +
             number / view_.count[0] % view_.count[1] * view_.stride[1] +
             number / (view_.count[0] * view_.count[1]) * view_.stride[2];
    if (at > data_.size() || row_bytes_ > data_.size() - at) return false;
    const std::byte* row = data_.data() + at;
    if (is_activation(type_)) {
        const std::int64_t block = type_ == DType::x8_32 ? 32 : 256;
        const std::int64_t d_offset = activation_layout(type_, n_).d_offset;
        for (std::int64_t k = 0; k < n_; ++k)
            into[static_cast<std::size_t>(k)] = static_cast<float>(load<std::int8_t>(row + k)) *
                                                load<float>(row + d_offset + k / block * std::int64_t{sizeof(float)});
        return true;
    }
    for (std::size_t k = 0; k < into.size(); ++k) {
        if (type_ == DType::f32) into[k] = load<float>(row + 4 * k);
        else if (type_ == DType::f16) into[k] = f16_to_f32(load<std::uint16_t>(row + 2 * k));
        else into[k] = bf16_to_f32(load<std::uint16_t>(row + 2 * k));
    }
    return true;
}

std::optional<ProductInput> product_input(const KernelEvent& event, const StepValues& values) {
    const auto nodes = event.step->nodes;
    const auto found = std::ranges::find_if(nodes, [](const NodeView* node) { return is_product(node->op); });
    if (found == nodes.end()) return std::nullopt;
    const NodeView& node = **found;
    const TensorInfo* weight = node.inputs.empty() ? nullptr : node.inputs[0];
    const auto x = values.value(2);
    if (weight == nullptr || weight->tensor_class != TensorClass::weight || x.data.empty()) return std::nullopt;
    const std::int64_t n = weight->ne[0];
    if (n <= 0 || !holds_numbers(x.tensor->type) || n % find_dtype(x.tensor->type)->block_elems != 0)
        return std::nullopt;
    ProductInput input{weight, n, 1,
                       ValueRows(x.data, x.tensor->type, n, node.shapes.size() > 1 ? node.shapes[1] : ViewShape{})};
    if (node.op == Op::mul_mat) return input;
    input.n_matrices = std::max<std::int64_t>(weight->ne[2], 1);
    if (node.op == Op::mul_mat_heads) {
        for (std::int64_t i = 0; i < input.rows.n_rows(); ++i)
            input.matrix.push_back(static_cast<std::int32_t>(i % input.n_matrices));
        return input;
    }
    // x is {K, 1, T}, the same for every chosen expert, or {K, k, T}; ids are {k, T}.
    const auto ids = values.value(3);
    if (ids.data.empty()) return std::nullopt;
    const ViewShape view = node.shapes.size() > 2 ? node.shapes[2] : ViewShape{};
    const std::int64_t k = view.whole ? ids.tensor->ne[0] : static_cast<std::int64_t>(view.length / 4);
    if (k <= 0) return std::nullopt;
    const std::int64_t n_tokens =
        view.whole ? static_cast<std::int64_t>(ids.data.size()) / (4 * k) : static_cast<std::int64_t>(view.count[0]);
    const bool shared = input.rows.n_rows() < k * n_tokens;
    for (std::int64_t t = 0; t < n_tokens; ++t)
        for (std::int64_t j = 0; j < k; ++j) {
            const auto at = view.whole ? static_cast<std::uint64_t>(4 * (t * k + j))
                                       : view.offset + static_cast<std::uint64_t>(t) * view.stride[0] +
                                             static_cast<std::uint64_t>(4 * j);
            if (at + 4 > ids.data.size()) return std::nullopt;
            input.matrix.push_back(load<std::int32_t>(ids.data.data() + at));
            input.source.push_back(shared ? t : t * k + j);
        }
    return input;
}

}  // namespace tinfer::trace
