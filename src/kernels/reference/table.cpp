// SPDX-License-Identifier: MIT
// The table of plain loops: the oracle of every test and the fallback of every machine.
#include <iterator>

#include "kernels/access.hpp"
#include "kernels/quants/formats.hpp"
#include "kernels/reference/mul_mat.hpp"
#include "kernels/reference/ops.hpp"
#include "kernels/tables.hpp"

namespace tinfer::kernels {

namespace {

#define TINFER_WEIGHT_KERNELS(type)                                                                                    \
    describe("mul_mat." #type, Op::mul_mat, DType::type, ref::mul_mat),                                                \
        describe("mul_mat_add." #type, Op::mul_mat_add, DType::type, ref::mul_mat_add),                                \
        describe("mul_mat_id." #type, Op::mul_mat_id, DType::type, ref::mul_mat_id),                                   \
        describe("mul_mat_heads." #type, Op::mul_mat_heads, DType::type, ref::mul_mat_id),                             \
        describe("get_rows." #type, Op::get_rows, DType::type, ref::get_rows),
#define TINFER_FORMAT_KERNELS(type, Format) TINFER_WEIGHT_KERNELS(type)
#define TINFER_ACTIVATION_KERNELS(type)                                                                                \
    describe("quantize." #type, Op::quantize, DType::type, ref::quantize),                                             \
        describe("rms_norm_quantize." #type, Op::rms_norm_quantize, DType::type, ref::rms_norm_quantize),              \
        describe("silu_mul_quantize." #type, Op::silu_mul_quantize, DType::type, ref::silu_mul_quantize)
#define TINFER_CACHE_KERNELS(type)                                                                                     \
    describe("kv_write." #type, Op::kv_write, DType::type, ref::kv_write),                                             \
        describe("rope_kv_write." #type, Op::rope_kv_write, DType::type, ref::rope_kv_write),                          \
        describe("key_shift." #type, Op::key_shift, DType::type, ref::key_shift),                                      \
        describe("kv_copy_page." #type, Op::kv_copy_page, DType::type, ref::kv_copy_page),                             \
        describe("kv_move." #type, Op::kv_move, DType::type, ref::kv_move)

constexpr KernelDescriptor kReferenceKernels[] = {
    TINFER_WEIGHT_KERNELS(f32) TINFER_WEIGHT_KERNELS(f16) TINFER_WEIGHT_KERNELS(bf16)
        TINFER_BLOCK_FORMATS(TINFER_FORMAT_KERNELS) TINFER_ACTIVATION_KERNELS(x8_32),
    TINFER_ACTIVATION_KERNELS(x8_256),
    TINFER_CACHE_KERNELS(f32),
    TINFER_CACHE_KERNELS(f16),
    TINFER_CACHE_KERNELS(bf16),
    TINFER_CACHE_KERNELS(q8_0),
    TINFER_CACHE_KERNELS(q4_0),
    describe("rms_norm", Op::rms_norm, DType::none, ref::rms_norm),
    describe("layer_norm", Op::layer_norm, DType::none, ref::layer_norm),
    describe("l2_norm", Op::l2_norm, DType::none, ref::l2_norm),
    describe("add", Op::add, DType::none, ref::add),
    describe("mul", Op::mul, DType::none, ref::mul),
    describe("div", Op::div, DType::none, ref::div),
    describe("scale", Op::scale, DType::none, ref::scale),
    describe("silu", Op::silu, DType::none, ref::silu),
    describe("gelu", Op::gelu, DType::none, ref::gelu),
    describe("relu", Op::relu, DType::none, ref::relu),
    describe("tanh", Op::tanh, DType::none, ref::tanh),
    describe("sigmoid", Op::sigmoid, DType::none, ref::sigmoid),
    describe("clamp", Op::clamp, DType::none, ref::clamp),
    describe("exp", Op::exp, DType::none, ref::exp),
    describe("softplus", Op::softplus, DType::none, ref::softplus),
    describe("xielu", Op::xielu, DType::none, ref::xielu),
    describe("signed_sqrt", Op::signed_sqrt, DType::none, ref::signed_sqrt),
    describe("sinkhorn", Op::sinkhorn, DType::none, ref::sinkhorn),
    describe("get_rows.i32", Op::get_rows, DType::i32, ref::get_rows),
    describe("softmax", Op::softmax, DType::none, ref::softmax),
    describe("sum_rows", Op::sum_rows, DType::none, ref::sum_rows),
    describe("copy", Op::copy, DType::none, ref::copy),
    describe("concat", Op::concat, DType::none, ref::concat),
    describe("silu_mul", Op::silu_mul, DType::none, ref::silu_mul),
    describe("rope_table", Op::rope_table, DType::none, ref::rope_table),
    describe("rope", Op::rope, DType::none, ref::rope),
    describe("hadamard", Op::hadamard, DType::none, ref::hadamard),
    describe("relative_bias", Op::relative_bias, DType::none, ref::relative_bias),
    describe("select_keys", Op::select_keys, DType::none, ref::select_keys),
    describe("compressed_attention", Op::compressed_attention, DType::none, ref::compressed_attention),
    describe("latest_mark", Op::latest_mark, DType::none, ref::latest_mark),
    describe("sparse_attention", Op::sparse_attention, DType::none, ref::sparse_attention),
    describe("attention", Op::attention, DType::none, ref::attention),
    describe("compress_keys", Op::compress_keys, DType::none, ref::compress_keys),
    describe("ngram_rows", Op::ngram_rows, DType::none, ref::ngram_rows),
    describe("causal_conv", Op::causal_conv, DType::none, ref::causal_conv),
    describe("token_shift", Op::token_shift, DType::none, ref::token_shift),
    describe("selective_scan", Op::selective_scan, DType::none, ref::selective_scan),
    describe("wkv6", Op::wkv6, DType::none, ref::wkv6),
    describe("wkv7", Op::wkv7, DType::none, ref::wkv7),
    describe("delta_rule", Op::delta_rule, DType::none, ref::delta_rule),
    describe("decay_rule", Op::decay_rule, DType::none, ref::decay_rule),
    describe("top_k", Op::top_k, DType::none, ref::top_k),
    describe("moe_weights", Op::moe_weights, DType::none, ref::moe_weights),
    describe("moe_sum", Op::moe_sum, DType::none, ref::moe_sum),
    describe("keep_groups", Op::keep_groups, DType::none, ref::keep_groups),
    describe("divide_ids", Op::divide_ids, DType::none, ref::divide_ids),
    describe("add_id", Op::add_id, DType::none, ref::add_id),
    describe("log_temperature", Op::log_temperature, DType::none, ref::log_temperature),
    describe("segment_sum", Op::segment_sum, DType::none, ref::segment_sum),
};

#undef TINFER_WEIGHT_KERNELS
#undef TINFER_FORMAT_KERNELS
#undef TINFER_ACTIVATION_KERNELS
#undef TINFER_CACHE_KERNELS

}  // namespace

constinit const KernelTable reference_table{"reference", kReferenceKernels, std::size(kReferenceKernels),
                                            &reference_row_ops};

}  // namespace tinfer::kernels
