// SPDX-License-Identifier: MIT
// One tensor as files, graphs and traces know it.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     for (const tinfer::TensorInfo& tensor : model.file().tensors())
//         std::cout << tensor.name << ' ' << tensor.type << ' ' << tensor.ne[0] << " x " << tensor.ne[1] << '\n';
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "tinfer/dtype.hpp"
#include "tinfer/export.hpp"

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
