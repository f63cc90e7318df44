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

using RuleFn = const char*(const Site&) noexcept;

// The rule of an op, by the column `rule` of tinfer/ops.def.
#define TINFER_RULE_own(name) name##_rule
#define TINFER_RULE_norm(name) norm_rule
#define TINFER_RULE_elementwise(name) elementwise_rule
#define TINFER_RULE_unary(name) elementwise_rule
#define TINFER_RULE_binary(name) broadcast_rule
#define TINFER_RULE_none(name) no_rule
#define TINFER_OP(name, rule, types, touches, macs, scratch, work, tables, operands) RuleFn TINFER_RULE_##rule(name);
#include "tinfer/ops.def"

}  // namespace tinfer::graph
