// SPDX-License-Identifier: MIT
// Values of a step as rows of float32, for observers of values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tinfer/trace.hpp"

namespace tinfer::trace {

/// The rows of an operand, contiguous dimension first, whatever part of its tensor the operand is.
class ValueRows {
public:
    /// Rows of n values of `data`, which holds a tensor of `type`; those that `view` names, else all of them in order.
    ValueRows(std::span<const std::byte> data, DType type, std::int64_t n, const ViewShape& view = {});

    [[nodiscard]] std::int64_t n_rows() const noexcept { return n_rows_; }
    /// Row i as float32: quantized activations as code · scale. `into` has n values. False where it reaches beyond the
    /// data or the type holds no numbers that this can read.
    [[nodiscard]] bool read(std::int64_t i, std::span<float> into) const;

private:
    std::span<const std::byte> data_;
    DType type_;
    std::int64_t n_, n_rows_ = 0;
    std::uint64_t row_bytes_ = 0;
    ViewShape view_;
};

/// True for float32, float16, bfloat16 and quantized activations.
[[nodiscard]] bool holds_numbers(DType type) noexcept;

/// What a product of weights multiplies.
struct ProductInput {
    const TensorInfo* weight = nullptr;
    std::int64_t n_columns = 0, n_matrices = 1;  ///< of the weight: values of a row; experts or heads
    ValueRows rows;
    std::vector<std::int32_t> matrix{};  ///< {rows}: the expert or head each row meets; −1 for none; empty: 0
    std::vector<std::int64_t> source{};  ///< {matrix.size()}: row of `rows`; empty: the same number
};
/// Of a step with a product whose weight comes from the file; nullopt for other steps and where a value is not at hand.
[[nodiscard]] std::optional<ProductInput> product_input(const KernelEvent& event, const StepValues& values);

}  // namespace tinfer::trace
