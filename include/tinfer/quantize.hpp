// SPDX-License-Identifier: MIT
// Rows of float32 to the bytes of a tensor of any type and back.
//
//     const std::vector<float> rows(2 * 256, 0.5f);                              // two rows of 256
//     std::vector<std::byte> bytes(tinfer::quantized_bytes(tinfer::DType::q4_k, 256) * 2);
//     tinfer::quantize_rows(tinfer::DType::q4_k, rows, 256, bytes);
//     std::vector<float> back(rows.size());
//     tinfer::dequantize_rows(tinfer::DType::q4_k, bytes, 256, back);
//     std::cout << back[0] << '\n';                                              // near 0.5
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tinfer/dtype.hpp"
#include "tinfer/export.hpp"

namespace tinfer {

/// How hard a block's scales are looked for.
enum class QuantizeSearch : std::uint8_t {
    quick,     ///< for iq4_nl one scale, as for activations; else as `standard`
    standard,  ///< the usual candidates: the bytes that others' quantizers write
    thorough,  ///< more candidates, then scales as the file holds them, refitted: smaller errors, far more work
};
[[nodiscard]] TINFER_API std::string_view to_string(QuantizeSearch search) noexcept;

struct QuantizeOptions {
    /// One weight for each column, finite and not negative, shared by all rows: mean squares of what the columns are
    /// multiplied with (ImportanceMatrix). Types without a search ignore it.
    std::span<const float> importance{};
    QuantizeSearch search = QuantizeSearch::standard;
};

/// Whether quantize_rows writes the type: float32, float16, bfloat16, and every block type of files. Those of codebooks
/// (iq1, iq2, iq3) take many times the work of others.
[[nodiscard]] TINFER_API bool can_quantize(DType type) noexcept;
/// Whether importance changes what is written in a type.
[[nodiscard]] TINFER_API bool uses_importance(DType type) noexcept;
/// Bytes of a row. Throws unsupported_tensor_type for what is no type of a file; bad_tensor_info where n is not a
/// number of whole blocks, at least one.
[[nodiscard]] TINFER_API std::uint64_t quantized_bytes(DType type, std::int64_t n);

/// Writes whole rows of n values; `rows` and `out` have as many. The same bytes on every machine. Throws
/// unsupported_tensor_type, naming the type, for one that cannot be written; bad_parameter for sizes that do not fit or
/// importance that is not finite or negative; non_finite, naming row and column, for a value that is Inf or NaN, or
/// whose square is not finite; bad_tensor_data, naming row and block, where a scale is too large for the type.
TINFER_API void quantize_rows(DType type, std::span<const float> rows, std::int64_t n, std::span<std::byte> out,
                              const QuantizeOptions& options = {});

/// The reverse: what every kernel makes of the bytes, exactly. Reads all types of files but integers and float64.
TINFER_API void dequantize_rows(DType type, std::span<const std::byte> bytes, std::int64_t n, std::span<float> out);

}  // namespace tinfer
