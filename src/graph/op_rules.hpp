// SPDX-License-Identifier: MIT
// The rule of every op: what its operands, result and parameters must be. Slots and letters are those of
// kernels/ops.hpp; kernels rely on these rules and check nothing. Each returns what is wrong, or null.
#pragma once

#include <array>
#include <span>

#include "base/dtype.hpp"
#include "graph/graph.hpp"
#include "graph/rules.hpp"

namespace tinfer::graph {

using Extents = std::array<std::int64_t, 4>;

// A node with its operands looked up. Slot 0 is the result, slot i the i-th input.
struct Site {
    const Node& node;
    std::span<const Value> values;

    [[nodiscard]] bool has(std::uint32_t slot) const noexcept {
        return slot <= node.n_inputs && node.inputs[slot - 1] != kNone;
    }
    [[nodiscard]] const Value& operator[](std::uint32_t slot) const noexcept {
        return values[slot == 0 ? node.output : node.inputs[slot - 1]];
    }
    [[nodiscard]] const OpParams& params() const noexcept { return node.params; }
};

inline bool is_shape(const Value& v, std::int64_t n0, std::int64_t n1 = 1, std::int64_t n2 = 1) noexcept {
    return v.ne == Extents{n0, n1, n2, 1};
}
inline bool is_f32(const Value& v) noexcept { return v.type == DType::f32 && v.nb[0] == 4; }
inline bool is_i32(const Value& v) noexcept { return v.type == DType::i32 && v.nb[0] == 4; }
inline bool is_cache(const Value& v) noexcept {
    return v.tensor_class == TensorClass::cache_k || v.tensor_class == TensorClass::cache_v;
}
inline bool is_state(const Value& v, std::int64_t size) noexcept {
    return v.tensor_class == TensorClass::recurrent && is_f32(v) && v.ne[0] == size && !v.is_view;
}
inline bool is_gapless(const Value& v) noexcept { return v.nb == contiguous_strides(v.type, v.ne); }

// The activations that weights of this type multiply with; none for types without a product.
inline DType partner(const Value& w) noexcept {
    const DTypeInfo* info = find_dtype(w.type);
    return info == nullptr ? DType::none : info->activation;
}

#define TINFER_RULE(condition, text)                                                                                   \
    if (!(condition)) return text

const char* get_rows_rule(const Site& s) noexcept;
const char* norm_rule(const Site& s) noexcept;
const char* quantize_rule(const Site& s) noexcept;
const char* mul_mat_rule(const Site& s) noexcept;
const char* mul_mat_id_rule(const Site& s) noexcept;
const char* mul_mat_heads_rule(const Site& s) noexcept;
const char* broadcast_rule(const Site& s) noexcept;
const char* elementwise_rule(const Site& s) noexcept;
const char* l2_norm_rule(const Site& s) noexcept;
const char* clamp_rule(const Site& s) noexcept;
const char* concat_rule(const Site& s) noexcept;
const char* softmax_rule(const Site& s) noexcept;
const char* sum_rows_rule(const Site& s) noexcept;
const char* copy_rule(const Site& s) noexcept;
const char* rope_table_rule(const Site& s) noexcept;
const char* rope_rule(const Site& s) noexcept;
const char* hadamard_rule(const Site& s) noexcept;
const char* relative_bias_rule(const Site& s) noexcept;
const char* kv_write_rule(const Site& s) noexcept;
const char* select_keys_rule(const Site& s) noexcept;
const char* sparse_attention_rule(const Site& s) noexcept;
const char* compressed_attention_rule(const Site& s) noexcept;
const char* latest_mark_rule(const Site& s) noexcept;
const char* compress_keys_rule(const Site& s) noexcept;
const char* ngram_rows_rule(const Site& s) noexcept;
const char* sinkhorn_rule(const Site& s) noexcept;
const char* signed_sqrt_rule(const Site& s) noexcept;
const char* attention_rule(const Site& s) noexcept;
const char* causal_conv_rule(const Site& s) noexcept;
const char* token_shift_rule(const Site& s) noexcept;
const char* selective_scan_rule(const Site& s) noexcept;
const char* wkv6_rule(const Site& s) noexcept;
const char* wkv7_rule(const Site& s) noexcept;
const char* delta_rule_rule(const Site& s) noexcept;
const char* decay_rule_rule(const Site& s) noexcept;
const char* top_k_rule(const Site& s) noexcept;
const char* moe_weights_rule(const Site& s) noexcept;
const char* moe_sum_rule(const Site& s) noexcept;
const char* keep_groups_rule(const Site& s) noexcept;
const char* divide_ids_rule(const Site& s) noexcept;
const char* add_id_rule(const Site& s) noexcept;
const char* log_temperature_rule(const Site& s) noexcept;
const char* segment_sum_rule(const Site& s) noexcept;
const char* key_shift_rule(const Site& s) noexcept;
const char* kv_copy_page_rule(const Site& s) noexcept;
const char* kv_move_rule(const Site& s) noexcept;
const char* alias_rule(const Site& s) noexcept;

}  // namespace tinfer::graph
