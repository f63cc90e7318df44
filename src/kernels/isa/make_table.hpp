// SPDX-License-Identifier: MIT
// The complete list of what one instruction set does, made at compile time. Each file of kernels/isa/ includes this
// once. Ops that gain nothing from vectors run the reference kernel, which is compiled without special instructions.
#pragma once

#include <cstddef>

#include "kernels/access.hpp"
#include "kernels/attention/chosen.hpp"
#include "kernels/attention/indexer.hpp"
#include "kernels/attention/schedule.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/elementwise/hadamard.hpp"
#include "kernels/elementwise/row_ops.hpp"
#include "kernels/matmul/mul_mat.hpp"
#include "kernels/recurrent/compress.hpp"
#include "kernels/recurrent/linear_attention.hpp"
#include "kernels/recurrent/scan.hpp"
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

#define TINFER_PRODUCT_KERNELS(type, Weights)                                                                          \
    with_scratch(describe("mul_mat." #type, Op::mul_mat, DType::type, mul_mat<Arch, Weights>),                         \
                 mul_mat_scratch<Arch, Weights>),                                                                      \
        with_scratch(describe("mul_mat_add." #type, Op::mul_mat_add, DType::type, mul_mat_add<Arch, Weights>),         \
                     mul_mat_scratch<Arch, Weights>),                                                                  \
        with_scratch(describe("mul_mat_id." #type, Op::mul_mat_id, DType::type, mul_mat_id<Arch, Weights>),            \
                     mul_mat_id_scratch<Arch, Weights>),                                                               \
        with_scratch(describe("mul_mat_heads." #type, Op::mul_mat_heads, DType::type, mul_mat_id<Arch, Weights>),      \
                     mul_mat_id_scratch<Arch, Weights>),
#define TINFER_ROW_KERNELS(type) describe("get_rows." #type, Op::get_rows, DType::type, ref::get_rows),
#define TINFER_COMMA ,
#define TINFER_FLOAT_KERNELS(type)                                                                                     \
    TINFER_PRODUCT_KERNELS(type, FloatWeights<Arch TINFER_COMMA DType::type>) TINFER_ROW_KERNELS(type)
#define TINFER_BLOCK_KERNELS(type, Format)                                                                             \
    TINFER_PRODUCT_KERNELS(type, BlockWeights<Arch TINFER_COMMA Format>) TINFER_ROW_KERNELS(type)
#define TINFER_ACTIVATION_KERNELS(type)                                                                                \
    describe("quantize." #type, Op::quantize, DType::type, quantize<Arch>),                                            \
        describe("rms_norm_quantize." #type, Op::rms_norm_quantize, DType::type, rms_norm_quantize<Arch>),             \
        describe("silu_mul_quantize." #type, Op::silu_mul_quantize, DType::type, silu_mul_quantize<Arch>)
#define TINFER_CACHE_KERNELS(type)                                                                                     \
    describe("kv_write." #type, Op::kv_write, DType::type, kv_write<Arch>),                                            \
        describe("rope_kv_write." #type, Op::rope_kv_write, DType::type, rope_kv_write<Arch>),                         \
        describe("key_shift." #type, Op::key_shift, DType::type, ref::key_shift),                                      \
        describe("kv_copy_page." #type, Op::kv_copy_page, DType::type, ref::kv_copy_page),                             \
        describe("kv_move." #type, Op::kv_move, DType::type, ref::kv_move)

template <class Arch>
inline constexpr KernelDescriptor kKernels[] = {
    TINFER_FLOAT_KERNELS(f32) TINFER_FLOAT_KERNELS(f16) TINFER_FLOAT_KERNELS(bf16)
        TINFER_BLOCK_FORMATS(TINFER_BLOCK_KERNELS) TINFER_ACTIVATION_KERNELS(x8_32),
    TINFER_ACTIVATION_KERNELS(x8_256),
    TINFER_CACHE_KERNELS(f32),
    TINFER_CACHE_KERNELS(f16),
    TINFER_CACHE_KERNELS(bf16),
    TINFER_CACHE_KERNELS(q8_0),
    TINFER_CACHE_KERNELS(q4_0),
    describe("rms_norm", Op::rms_norm, DType::none, rms_norm<Arch>),
    describe("layer_norm", Op::layer_norm, DType::none, layer_norm<Arch>),
    describe("l2_norm", Op::l2_norm, DType::none, l2_norm<Arch>),
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
    describe("exp", Op::exp, DType::none, exp<Arch>),
    describe("softplus", Op::softplus, DType::none, softplus<Arch>),
    describe("xielu", Op::xielu, DType::none, ref::xielu),
    describe("signed_sqrt", Op::signed_sqrt, DType::none, ref::signed_sqrt),
    describe("sinkhorn", Op::sinkhorn, DType::none, ref::sinkhorn),
    describe("get_rows.i32", Op::get_rows, DType::i32, ref::get_rows),
    describe("softmax", Op::softmax, DType::none, softmax<Arch>),
    describe("sum_rows", Op::sum_rows, DType::none, ref::sum_rows),
    describe("copy", Op::copy, DType::none, ref::copy),
    describe("concat", Op::concat, DType::none, ref::concat),
    describe("silu_mul", Op::silu_mul, DType::none, silu_mul<Arch>),
    describe("rope_table", Op::rope_table, DType::none, ref::rope_table),
    describe("rope", Op::rope, DType::none, rope<Arch>),
    describe("hadamard", Op::hadamard, DType::none, hadamard<Arch>),
    describe("relative_bias", Op::relative_bias, DType::none, ref::relative_bias),
    with_scratch(describe("select_keys", Op::select_keys, DType::none, select_keys<Arch>), select_keys_scratch<Arch>),
    with_scratch(describe("compressed_attention", Op::compressed_attention, DType::none, compressed_attention<Arch>),
                 compressed_attention_scratch<Arch>),
    describe("latest_mark", Op::latest_mark, DType::none, ref::latest_mark),
    with_scratch(describe("sparse_attention", Op::sparse_attention, DType::none, sparse_attention<Arch>),
                 sparse_attention_scratch<Arch>),
    with_resolve(
        with_scratch(describe("attention", Op::attention, DType::none, attention<Arch>), attention_scratch<Arch>),
        resolve_attention_by_groups),
    describe("compress_keys", Op::compress_keys, DType::none, compress_keys<Arch>),
    describe("ngram_rows", Op::ngram_rows, DType::none, ref::ngram_rows),
    describe("causal_conv", Op::causal_conv, DType::none, causal_conv<Arch>),
    describe("token_shift", Op::token_shift, DType::none, token_shift<Arch>),
    describe("selective_scan", Op::selective_scan, DType::none, selective_scan<Arch>),
    describe("wkv6", Op::wkv6, DType::none, wkv6<Arch>),
    describe("wkv7", Op::wkv7, DType::none, wkv7<Arch>),
    describe("delta_rule", Op::delta_rule, DType::none, delta_rule<Arch>),
    describe("decay_rule", Op::decay_rule, DType::none, decay_rule<Arch>),
    describe("top_k", Op::top_k, DType::none, ref::top_k),
    describe("moe_weights", Op::moe_weights, DType::none, ref::moe_weights),
    describe("moe_sum", Op::moe_sum, DType::none, moe_sum<Arch>),
    describe("keep_groups", Op::keep_groups, DType::none, ref::keep_groups),
    describe("divide_ids", Op::divide_ids, DType::none, ref::divide_ids),
    describe("add_id", Op::add_id, DType::none, ref::add_id),
    describe("log_temperature", Op::log_temperature, DType::none, ref::log_temperature),
    describe("segment_sum", Op::segment_sum, DType::none, ref::segment_sum),
};

// Where both are built, the amx table has the products of block formats alone and takes everything else from
// avx512vnni, whose vector routes it shares. In the single header, which compiles all that a table needs once more for
// each, it is whole.
#if defined(TINFER_TABLE_AVX512VNNI) && !defined(TINFER_TABLE_REGION)
#    define TINFER_SHARES_AVX512VNNI 1

template <class Arch>
inline constexpr KernelDescriptor kMatrixUnitKernels[] = {
#    define TINFER_MATRIX_UNIT_KERNELS(type, Format)                                                                   \
        TINFER_PRODUCT_KERNELS(type, BlockWeights<Arch TINFER_COMMA Format>)
    TINFER_BLOCK_FORMATS(TINFER_MATRIX_UNIT_KERNELS)
#    undef TINFER_MATRIX_UNIT_KERNELS
};
#    if defined(__AVX512VNNI__)
#        define TINFER_SHARED_PRODUCT(type, Format) extern template struct VectorProduct<avx512vnni, Format>;
TINFER_BLOCK_FORMATS(TINFER_SHARED_PRODUCT)
#        undef TINFER_SHARED_PRODUCT
#        define TINFER_DEFINE_SHARED_PRODUCT(type, Format)                                                             \
            template struct tinfer::kernels::VectorProduct<tinfer::kernels::avx512vnni, tinfer::kernels::Format>;
#    endif
#endif

template <class Arch>
constexpr KernelTable make_table(std::string_view name) noexcept {
#if defined(TINFER_SHARES_AVX512VNNI)
    if constexpr (Arch::kHasAmx)
        return {name, kMatrixUnitKernels<Arch>, sizeof(kMatrixUnitKernels<Arch>) / sizeof(KernelDescriptor),
                &avx512vnni_row_ops, &avx512vnni_table};
    else
#endif
        return {name, kKernels<Arch>, sizeof(kKernels<Arch>) / sizeof(KernelDescriptor), &kRowOps<Arch>};
}

#undef TINFER_PRODUCT_KERNELS
#undef TINFER_ROW_KERNELS
#undef TINFER_FLOAT_KERNELS
#undef TINFER_BLOCK_KERNELS
#undef TINFER_ACTIVATION_KERNELS
#undef TINFER_CACHE_KERNELS
#undef TINFER_COMMA

}  // namespace tinfer::kernels
