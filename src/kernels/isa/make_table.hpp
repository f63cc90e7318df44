// SPDX-License-Identifier: MIT
// The complete list of what one instruction set does, made at compile time. Each file of kernels/isa/ includes this
// once. Ops that gain nothing from vectors run the reference kernel, which is compiled without special instructions.
#pragma once

#include <cstddef>

#include "kernels/access.hpp"
#include "kernels/attention/schedule.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/elementwise/row_ops.hpp"
#include "kernels/matmul/mul_mat.hpp"
#include "kernels/reference/mul_mat.hpp"
#include "kernels/reference/ops.hpp"
#include "kernels/tables.hpp"

namespace tinfer::kernels {

constexpr KernelDescriptor with_scratch(KernelDescriptor kernel, ScratchFn& scratch) noexcept {
    kernel.scratch_bytes = &scratch;
    return kernel;
}

constexpr KernelDescriptor with_resolve(KernelDescriptor kernel, ResolveFn& resolve) noexcept {
    kernel.resolve = &resolve;
    return kernel;
}

#define TINFER_WEIGHT_KERNELS(type, Weights) \
    with_scratch(describe("mul_mat." #type, Op::mul_mat, DType::type, mul_mat<Arch, Weights>), mul_mat_scratch<Arch, Weights>), \
    with_scratch(describe("mul_mat_add." #type, Op::mul_mat_add, DType::type, mul_mat_add<Arch, Weights>), \
                 mul_mat_scratch<Arch, Weights>), \
    with_scratch(describe("mul_mat_id." #type, Op::mul_mat_id, DType::type, mul_mat_id<Arch, Weights>), \
                 mul_mat_id_scratch<Arch, Weights>), \
    with_scratch(describe("mul_mat_heads." #type, Op::mul_mat_heads, DType::type, mul_mat_id<Arch, Weights>), \
                 mul_mat_id_scratch<Arch, Weights>), \
    describe("get_rows." #type, Op::get_rows, DType::type, ref::get_rows)
#define TINFER_FLOAT_KERNELS(type) TINFER_WEIGHT_KERNELS(type, FloatWeights<Arch TINFER_COMMA DType::type>)
#define TINFER_COMMA ,
#define TINFER_BLOCK_KERNELS(type, Format) TINFER_WEIGHT_KERNELS(type, BlockWeights<Arch TINFER_COMMA Format>)
#define TINFER_ACTIVATION_KERNELS(type)                                                                     \
    describe("quantize." #type, Op::quantize, DType::type, quantize<Arch>),                                 \
    describe("rms_norm_quantize." #type, Op::rms_norm_quantize, DType::type, rms_norm_quantize<Arch>),      \
    describe("silu_mul_quantize." #type, Op::silu_mul_quantize, DType::type, silu_mul_quantize<Arch>)
#define TINFER_CACHE_KERNELS(type)                                                                          \
    describe("kv_write." #type, Op::kv_write, DType::type, kv_write<Arch>),                                 \
    describe("rope_kv_write." #type, Op::rope_kv_write, DType::type, rope_kv_write<Arch>),                  \
    describe("key_shift." #type, Op::key_shift, DType::type, ref::key_shift), \
    describe("kv_copy_page." #type, Op::kv_copy_page, DType::type, ref::kv_copy_page), \
    describe("kv_move." #type, Op::kv_move, DType::type, ref::kv_move)

template <class Arch>
inline constexpr KernelDescriptor kKernels[] = {
    TINFER_FLOAT_KERNELS(f32),            TINFER_FLOAT_KERNELS(f16),            TINFER_FLOAT_KERNELS(bf16),
    TINFER_BLOCK_KERNELS(q4_0, Q4_0),     TINFER_BLOCK_KERNELS(q4_1, Q4_1),     TINFER_BLOCK_KERNELS(q5_0, Q5_0),
    TINFER_BLOCK_KERNELS(q5_1, Q5_1),     TINFER_BLOCK_KERNELS(q8_0, Q8_0),     TINFER_BLOCK_KERNELS(q2_k, Q2_K),
    TINFER_BLOCK_KERNELS(q3_k, Q3_K),     TINFER_BLOCK_KERNELS(q4_k, Q4_K),     TINFER_BLOCK_KERNELS(q5_k, Q5_K),
    TINFER_BLOCK_KERNELS(q6_k, Q6_K),     TINFER_BLOCK_KERNELS(iq2_xxs, IQ2_XXS), TINFER_BLOCK_KERNELS(iq2_xs, IQ2_XS),
    TINFER_BLOCK_KERNELS(iq2_s, IQ2_S),   TINFER_BLOCK_KERNELS(iq3_xxs, IQ3_XXS), TINFER_BLOCK_KERNELS(iq3_s, IQ3_S),
    TINFER_BLOCK_KERNELS(iq1_s, IQ1_S),   TINFER_BLOCK_KERNELS(iq1_m, IQ1_M),   TINFER_BLOCK_KERNELS(iq4_nl, IQ4_NL),
    TINFER_BLOCK_KERNELS(iq4_xs, IQ4_XS), TINFER_BLOCK_KERNELS(tq1_0, TQ1_0),   TINFER_BLOCK_KERNELS(tq2_0, TQ2_0),
    TINFER_BLOCK_KERNELS(mxfp4, MXFP4),   TINFER_BLOCK_KERNELS(nvfp4, NVFP4),   TINFER_BLOCK_KERNELS(q1_0, Q1_0),
    TINFER_BLOCK_KERNELS(q2_0, Q2_0),
    TINFER_ACTIVATION_KERNELS(x8_32),     TINFER_ACTIVATION_KERNELS(x8_256),
    TINFER_CACHE_KERNELS(f32),            TINFER_CACHE_KERNELS(f16),            TINFER_CACHE_KERNELS(bf16),
    TINFER_CACHE_KERNELS(q8_0),           TINFER_CACHE_KERNELS(q4_0),
    describe("rms_norm", Op::rms_norm, DType::none, rms_norm<Arch>),
    describe("layer_norm", Op::layer_norm, DType::none, layer_norm<Arch>),
    describe("l2_norm", Op::l2_norm, DType::none, ref::l2_norm),
    describe("add", Op::add, DType::none, add<Arch>),
    describe("mul", Op::mul, DType::none, mul<Arch>),
    describe("div", Op::div, DType::none, div<Arch>),
    describe("scale", Op::scale, DType::none, scale<Arch>),
    describe("silu", Op::silu, DType::none, silu<Arch>),
    describe("gelu", Op::gelu, DType::none, gelu<Arch>),
    describe("relu", Op::relu, DType::none, relu<Arch>),
    describe("tanh", Op::tanh, DType::none, tanh<Arch>),
    describe("sigmoid", Op::sigmoid, DType::none, sigmoid<Arch>),
    describe("clamp", Op::clamp, DType::none, clamp<Arch>),
    describe("exp", Op::exp, DType::none, ref::exp),
    describe("softplus", Op::softplus, DType::none, ref::softplus),
    describe("softmax", Op::softmax, DType::none, softmax<Arch>),
    describe("sum_rows", Op::sum_rows, DType::none, ref::sum_rows),
    describe("copy", Op::copy, DType::none, ref::copy),
    describe("concat", Op::concat, DType::none, ref::concat),
    describe("silu_mul", Op::silu_mul, DType::none, silu_mul<Arch>),
    describe("rope_table", Op::rope_table, DType::none, ref::rope_table),
    describe("rope", Op::rope, DType::none, rope<Arch>),
    describe("relative_bias", Op::relative_bias, DType::none, ref::relative_bias),
    with_resolve(with_scratch(describe("attention", Op::attention, DType::none, attention<Arch>), attention_scratch<Arch>),
                 resolve_attention_by_groups),
    describe("causal_conv", Op::causal_conv, DType::none, ref::causal_conv),
    describe("token_shift", Op::token_shift, DType::none, ref::token_shift),
    describe("selective_scan", Op::selective_scan, DType::none, ref::selective_scan),
    describe("wkv6", Op::wkv6, DType::none, ref::wkv6),
    describe("wkv7", Op::wkv7, DType::none, ref::wkv7),
    describe("delta_rule", Op::delta_rule, DType::none, ref::delta_rule),
    describe("top_k", Op::top_k, DType::none, ref::top_k),
    describe("moe_weights", Op::moe_weights, DType::none, ref::moe_weights),
    describe("moe_sum", Op::moe_sum, DType::none, moe_sum<Arch>),
    describe("keep_groups", Op::keep_groups, DType::none, ref::keep_groups),
    describe("add_id", Op::add_id, DType::none, ref::add_id),
    describe("log_temperature", Op::log_temperature, DType::none, ref::log_temperature),
    describe("segment_sum", Op::segment_sum, DType::none, ref::segment_sum),
};

#undef TINFER_WEIGHT_KERNELS
#undef TINFER_FLOAT_KERNELS
#undef TINFER_BLOCK_KERNELS
#undef TINFER_ACTIVATION_KERNELS
#undef TINFER_CACHE_KERNELS
#undef TINFER_COMMA

template <class Arch>
constexpr KernelTable make_table(std::string_view name) noexcept {
    return {name, kKernels<Arch>, sizeof(kKernels<Arch>) / sizeof(KernelDescriptor), &kRowOps<Arch>};
}

}  // namespace tinfer::kernels
