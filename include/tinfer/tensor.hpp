// SPDX-License-Identifier: MIT
// Tensors and the bytes in them. Chapters: element types, tensors, quantized rows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tinfer/base.hpp"

// =================================================== element types ===================================================
// Element types of tensors: those of GGUF files, and two of activations that exist in memory only.
//
//     std::cout << to_string(tinfer::DType::q4_k) << '\n';   // "q4_k"
namespace tinfer {

/// Element type of a tensor. Values below 0x1000 are the ids of the GGUF format; the others exist in memory only.
// clang-format off
enum class DType : std::uint32_t {
    f32 = 0, f16 = 1, q4_0 = 2, q4_1 = 3, q5_0 = 6, q5_1 = 7, q8_0 = 8, q8_1 = 9, q2_k = 10, q3_k = 11, q4_k = 12,
    q5_k = 13, q6_k = 14, q8_k = 15, iq2_xxs = 16, iq2_xs = 17, iq3_xxs = 18, iq1_s = 19, iq4_nl = 20, iq3_s = 21,
    iq2_s = 22, iq4_xs = 23, i8 = 24, i16 = 25, i32 = 26, i64 = 27, f64 = 28, iq1_m = 29, bf16 = 30, tq1_0 = 34,
    tq2_0 = 35, mxfp4 = 39, nvfp4 = 40, q1_0 = 41, q2_0 = 42,
    x8_32 = 0x1000,    ///< activations as int8 with one float scale per 32 values (partner of 32-value weights)
    x8_256 = 0x1001,   ///< activations as int8 with one float scale per 256 values (partner of 256-value weights)
    none = 0xFFFF,
};
// clang-format on

/// "q4_k" for DType::q4_k; "unknown" for ids that are not in the list.
[[nodiscard]] TINFER_API std::string_view to_string(DType type) noexcept;

}  // namespace tinfer

// ====================================================== tensors ======================================================
// One tensor as files, graphs and traces know it.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     for (const tinfer::TensorInfo& tensor : model.file().tensors())
//         std::cout << tensor.name << ' ' << tensor.type << ' ' << tensor.ne[0] << " x " << tensor.ne[1] << '\n';
namespace tinfer {

/// What kind of memory a tensor is.
enum class TensorClass : std::uint8_t {
    weight,
    cache_k,
    cache_v,
    recurrent,
    adapter,
    input,
    output,
    constant,
    value,
    scratch
};
/// Part of a block a node belongs to.
enum class Part : std::uint8_t {
    none,
    embed,
    attn_norm,
    attn,
    attn_out,
    ffn_norm,
    ffn,
    router,
    experts,
    shared_expert,
    state,
    head,
    pool
};
[[nodiscard]] TINFER_API std::string_view to_string(TensorClass c) noexcept;
[[nodiscard]] TINFER_API std::string_view to_string(Part part) noexcept;

/// Of a tensor that lies in no file.
inline constexpr std::uint64_t kNoOffset = ~std::uint64_t{0};
inline constexpr int kNoLayer = -1;  ///< of a tensor that belongs to no block

/// One tensor as files, graphs and traces know it. Weights keep their id (directory order), name and place in the file.
struct TensorInfo {
    std::uint32_t id = 0;
    std::string_view name;  ///< valid as long as the model (or, for values, the plan)
    TensorClass tensor_class = TensorClass::value;
    DType type = DType::f32;
    int layer = kNoLayer;   ///< from `blk.N.`, else kNoLayer
    std::string_view role;  ///< "attn_q" for blk.3.attn_q.weight
    int n_dims = 1;
    std::array<std::int64_t, 4> ne{1, 1, 1, 1};  ///< contiguous dimension first
    std::uint64_t bytes = 0;
    std::uint64_t row_bytes = 0;            ///< bytes of ne[0] elements (of one token's K or V row for caches)
    std::uint64_t slice_bytes = 0;          ///< bytes of one expert of a stacked tensor, else 0
    int file_index = -1;                    ///< shard, -1 where there is no file
    std::uint64_t data_offset = kNoOffset;  ///< inside the data section of its file
    std::uint64_t file_offset = kNoOffset;  ///< inside its file
    const void* address = nullptr;          ///< where the bytes are now; null when not in memory
};

}  // namespace tinfer

// ================================================== quantized rows ===================================================
// Rows of float32 to the bytes of a tensor of any type and back.
//
//     const std::vector<float> rows(2 * 256, 0.5f);                              // two rows of 256
//     std::vector<std::byte> bytes(tinfer::quantized_bytes(tinfer::DType::q4_k, 256) * 2);
//     tinfer::quantize_rows(tinfer::DType::q4_k, rows, 256, bytes);
//     std::vector<float> back(rows.size());
//     tinfer::dequantize_rows(tinfer::DType::q4_k, bytes, 256, back);
//     std::cout << back[0] << '\n';                                              // near 0.5
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
