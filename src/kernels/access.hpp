// SPDX-License-Identifier: MIT
// What each op touches and how much work it is, apart from how it is computed: shared by the kernels of every table, so
// that a trace of one instruction set reads like a trace of another. trace-design §6.1 is the contract.
//
// Offsets of ranges count from the operand's own first byte; where an operand is a view, whoever owns the sink knows
// where in the tensor it begins. Ranges of one operand come sorted, disjoint and merged. resolve functions look at
// nothing but the operands of the call and allocate nothing.
#pragma once

#include "kernels/kernel.hpp"

namespace tinfer::kernels {

/// Output written, inputs read, each as a whole or, for views, as its pieces.
void declare_operands(const StepShape& shape, AccessSink& sink) noexcept;
void declare_rms_norm_quantize(const StepShape& shape, AccessSink& sink) noexcept;  ///< slot 3 is a second output
void declare_get_rows(const StepShape& shape, AccessSink& sink) noexcept;
void declare_mul_mat_id(const StepShape& shape, AccessSink& sink) noexcept;
void declare_add_id(const StepShape& shape, AccessSink& sink) noexcept;
void declare_select_keys(const StepShape& shape, AccessSink& sink) noexcept;
void declare_kv_write(const StepShape& shape, AccessSink& sink) noexcept;
void declare_attention(const StepShape& shape, AccessSink& sink) noexcept;
void declare_in_cache(const StepShape& shape, AccessSink& sink) noexcept;  ///< writes and reads listed rows of a cache

/// Recurrent ops: the state's slot, state_rows in the next one.
template <int StateSlot>
void declare_recurrent(const StepShape& shape, AccessSink& sink) noexcept;
template <int StateSlot>
void resolve_recurrent(const KernelCall& call, AccessSink& sink) noexcept;  ///< rows; weight = tokens

void resolve_get_rows(const KernelCall& call, AccessSink& sink) noexcept;  ///< rows; tag = id, weight = how often
/// Slices; tag = expert, weight = rows routed.
void resolve_mul_mat_id(const KernelCall& call, AccessSink& sink) noexcept;
void resolve_add_id(const KernelCall& call, AccessSink& sink) noexcept;  ///< biases; tag = expert, weight = rows routed
void resolve_select_keys(const KernelCall& call, AccessSink& sink) noexcept;       ///< runs of visible KV slots
void resolve_sparse_attention(const KernelCall& call, AccessSink& sink) noexcept;  ///< the KV slots chosen
/// Visible tokens; entries chosen.
void resolve_compressed_attention(const KernelCall& call, AccessSink& sink) noexcept;
void resolve_latest_mark(const KernelCall& call, AccessSink& sink) noexcept;  ///< marks of visible tokens
void resolve_kv_write(const KernelCall& call, AccessSink& sink) noexcept;     ///< logical rows of the KV slots
/// Runs of visible KV slots; weight = the most queries that see one of them.
void resolve_attention(const KernelCall& call, AccessSink& sink) noexcept;
/// The same for kernels that load K by groups of interleaved positions: slots that no query sees are padding.
void resolve_attention_by_groups(const KernelCall& call, AccessSink& sink) noexcept;
void resolve_key_shift(const KernelCall& call, AccessSink& sink) noexcept;  ///< logical rows of the KV slots
void resolve_kv_copy_page(const KernelCall& call, AccessSink& sink) noexcept;
void resolve_kv_move(const KernelCall& call, AccessSink& sink) noexcept;  ///< logical rows of the slots

std::uint64_t macs_mul_mat(const KernelCall& call) noexcept;
std::uint64_t macs_mul_mat_id(const KernelCall& call) noexcept;
std::uint64_t macs_attention(const KernelCall& call) noexcept;
std::uint64_t macs_select_keys(const KernelCall& call) noexcept;
std::uint64_t macs_sparse_attention(const KernelCall& call) noexcept;
std::uint64_t macs_compressed_attention(const KernelCall& call) noexcept;
std::uint64_t macs_moe_sum(const KernelCall& call) noexcept;
std::uint64_t macs_causal_conv(const KernelCall& call) noexcept;
/// A state's elements take the same number of multiply-adds from every token.
template <int StateSlot, int PerElement>
std::uint64_t macs_recurrent(const KernelCall& call) noexcept;  // in access.cpp, for no instruction set

/// One row of floats per thread, as long as the output's rows.
std::uint64_t scratch_row(const StepShape& shape) noexcept;
/// Per thread two vectors of head_dim_v floats, one of the chunk and one of all chunks, and a quantized query.
std::uint64_t scratch_attention(const StepShape& shape) noexcept;
/// Per thread a score, a KV slot and a place in the order for every token that a query may see.
std::uint64_t scratch_select_keys(const StepShape& shape) noexcept;
/// One head per thread, where KV slots are quantized.
std::uint64_t scratch_kv_write(const StepShape& shape) noexcept;

template <int StateSlot>
constexpr void describe_recurrent(KernelDescriptor& kernel) noexcept {
    kernel.declare = declare_recurrent<StateSlot>;
    kernel.resolve = resolve_recurrent<StateSlot>;
}

/// The descriptor of a kernel with everything that follows from its op. Tables with other scratch needs overwrite that
/// field.
constexpr KernelDescriptor describe(std::string_view name, Op op, DType type, RunFn& run) noexcept {
    KernelDescriptor kernel(name, op, type, run, declare_operands);
    switch (op) {
        case Op::get_rows:
            kernel.declare = declare_get_rows;
            kernel.resolve = resolve_get_rows;
            break;
        case Op::mul_mat:
        case Op::mul_mat_add:
        case Op::mul_mat_heads: kernel.macs = macs_mul_mat; break;
        case Op::mul_mat_id:
            kernel.declare = declare_mul_mat_id;
            kernel.resolve = resolve_mul_mat_id;
            kernel.macs = macs_mul_mat_id;
            break;
        case Op::add_id:
            kernel.declare = declare_add_id;
            kernel.resolve = resolve_add_id;
            break;
        case Op::rms_norm_quantize:
            kernel.declare = declare_rms_norm_quantize;
            kernel.scratch_bytes = scratch_row;
            break;
        case Op::silu_mul_quantize: kernel.scratch_bytes = scratch_row; break;
        case Op::kv_write:
        case Op::rope_kv_write:
            kernel.declare = declare_kv_write;
            kernel.resolve = resolve_kv_write;
            if (type == DType::q8_0 || type == DType::q4_0) kernel.scratch_bytes = scratch_kv_write;
            break;
        case Op::select_keys:
            kernel.declare = declare_select_keys;
            kernel.resolve = resolve_select_keys;
            kernel.macs = macs_select_keys;
            kernel.scratch_bytes = scratch_select_keys;
            break;
        case Op::sparse_attention:
            kernel.declare = declare_attention;
            kernel.resolve = resolve_sparse_attention;
            kernel.macs = macs_sparse_attention;
            kernel.scratch_bytes = scratch_attention;
            break;
        case Op::compressed_attention:
            kernel.declare = declare_attention;
            kernel.resolve = resolve_compressed_attention;
            kernel.macs = macs_compressed_attention;
            kernel.scratch_bytes = scratch_attention;
            break;
        case Op::latest_mark:
            kernel.declare = declare_select_keys;
            kernel.resolve = resolve_latest_mark;
            break;
        case Op::attention:
            kernel.declare = declare_attention;
            kernel.resolve = resolve_attention;
            kernel.macs = macs_attention;
            kernel.scratch_bytes = scratch_attention;
            break;
        case Op::key_shift:
            kernel.declare = declare_in_cache;
            kernel.resolve = resolve_key_shift;
            kernel.scratch_bytes = scratch_kv_write;
            break;
        case Op::kv_copy_page:
            kernel.declare = declare_in_cache;
            kernel.resolve = resolve_kv_copy_page;
            break;
        case Op::kv_move:
            kernel.declare = declare_in_cache;
            kernel.resolve = resolve_kv_move;
            kernel.scratch_bytes = scratch_kv_write;
            break;
        case Op::causal_conv:
            describe_recurrent<4>(kernel);
            kernel.macs = macs_causal_conv;
            break;
        case Op::compress_keys: describe_recurrent<5>(kernel); break;
        case Op::ngram_rows: describe_recurrent<3>(kernel); break;
        case Op::token_shift: describe_recurrent<2>(kernel); break;
        case Op::selective_scan:
            describe_recurrent<7>(kernel);
            kernel.macs = macs_recurrent<7, 3>;
            break;
        case Op::wkv6:
            describe_recurrent<6>(kernel);
            kernel.macs = macs_recurrent<6, 4>;
            break;
        case Op::wkv7:
            describe_recurrent<7>(kernel);
            kernel.macs = macs_recurrent<7, 5>;
            break;
        case Op::delta_rule:
            describe_recurrent<6>(kernel);
            kernel.macs = macs_recurrent<6, 4>;
            break;
        case Op::decay_rule:
            describe_recurrent<4>(kernel);
            kernel.macs = macs_recurrent<4, 3>;
            break;
        case Op::moe_sum: kernel.macs = macs_moe_sum; break;
        default: break;
    }
    return kernel;
}

}  // namespace tinfer::kernels
