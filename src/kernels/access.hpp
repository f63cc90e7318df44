// SPDX-License-Identifier: MIT
// What each op touches and how much work it is, apart from how it is computed: shared by the kernels of every table, so
// that a trace of one instruction set reads like a trace of another. trace-design §6.1 is the contract.
//
// Offsets of ranges count from the operand's own first byte; where an operand is a view, whoever owns the sink knows
// where in the tensor it begins. Ranges of one operand come sorted, disjoint and merged. resolve functions look at
// nothing but the operands of the call and allocate nothing.
#pragma once

#include "base/ops.hpp"
#include "kernels/kernel.hpp"

namespace tinfer::kernels {

// ---- by the column `touches`: what is known of a step from its shapes, and what its indices decide ------------------

/// Output written, inputs read, each as a whole or, for views, as its pieces.
DeclareFn declare_whole;
DeclareFn declare_norm;    ///< slot 3 is a second output
DeclareFn declare_rows;    ///< slot 1 by indices
DeclareFn declare_biases;  ///< slot 2 by indices
DeclareFn declare_kv_rows;
DeclareFn declare_caches;  ///< slots 2 and 3 by indices
DeclareFn declare_ranked;  ///< slots 1 to 3 by indices
DeclareFn declare_state;
DeclareFn declare_in_cache;  ///< writes and reads listed rows of a cache

ResolveFn resolve_rows;     ///< rows; tag = id, weight = how often
ResolveFn resolve_experts;  ///< slices; tag = expert, weight = rows routed
ResolveFn resolve_biases;   ///< biases; tag = expert, weight = rows routed
ResolveFn resolve_kv_rows;  ///< logical rows of the KV slots
ResolveFn resolve_visible;  ///< runs of visible KV slots; weight = the most queries that see one of them
/// The same for kernels that load K by groups of interleaved positions: slots that no query sees are padding.
ResolveFn resolve_visible_by_groups;
ResolveFn resolve_chosen;   ///< the KV slots chosen
ResolveFn resolve_entries;  ///< visible tokens; entries chosen
ResolveFn resolve_ranked;   ///< runs of visible KV slots
ResolveFn resolve_marks;    ///< marks of visible tokens
ResolveFn resolve_state;    ///< rows; weight = tokens
ResolveFn resolve_shifts;   ///< logical rows of the KV slots
ResolveFn resolve_pages;
ResolveFn resolve_moves;

// ---- by the columns `macs` and `scratch` ----------------------------------------------------------------------------

inline constexpr MacsFn* macs_none = nullptr;
MacsFn macs_mul_mat, macs_experts, macs_visible, macs_chosen, macs_entries, macs_ranked, macs_moe_sum, macs_conv;
MacsFn macs_state3, macs_state4, macs_state5;  ///< so many for each element of the state and each token

inline constexpr ScratchFn* scratch_none = nullptr;
ScratchFn scratch_row;  ///< one row of floats per thread, as long as the output's rows
/// Per thread two vectors of head_dim_v floats, one of the chunk and one of all chunks, and a quantized query.
ScratchFn scratch_query;
/// Per thread a score, a KV slot and a place in the order for every token that a query may see.
ScratchFn scratch_keys;
ScratchFn scratch_head;   ///< one head per thread
ScratchFn scratch_codes;  ///< the same, for caches of codes alone

/// Of a recurrent op: its last operand are the state_rows, before them stands the state.
[[nodiscard]] int state_slot(const StepShape& shape) noexcept;

struct Accesses {
    DeclareFn& declare;
    ResolveFn* resolve = nullptr;
};

constexpr Accesses accesses_of(Touches touches) noexcept {
    switch (touches) {
        case Touches::whole: break;
        case Touches::norm: return {declare_norm};
        case Touches::rows: return {declare_rows, resolve_rows};
        case Touches::experts: return {declare_rows, resolve_experts};
        case Touches::biases: return {declare_biases, resolve_biases};
        case Touches::kv_rows: return {declare_kv_rows, resolve_kv_rows};
        case Touches::visible: return {declare_caches, resolve_visible};
        case Touches::chosen: return {declare_caches, resolve_chosen};
        case Touches::entries: return {declare_caches, resolve_entries};
        case Touches::ranked: return {declare_ranked, resolve_ranked};
        case Touches::marks: return {declare_ranked, resolve_marks};
        case Touches::state: return {declare_state, resolve_state};
        case Touches::shifts: return {declare_in_cache, resolve_shifts};
        case Touches::pages: return {declare_in_cache, resolve_pages};
        case Touches::moves: return {declare_in_cache, resolve_moves};
    }
    return {declare_whole};
}

struct Costs {
    MacsFn* macs;
    ScratchFn* scratch;
};
inline constexpr Costs kCosts[] = {
#define TINFER_OP(name, rule, types, touches, macs, scratch, work, tables, operands) {macs_##macs, scratch_##scratch},
#include "tinfer/ops.def"
};

/// The descriptor of a kernel with everything that follows from its op. Tables with other scratch needs overwrite that
/// field.
constexpr KernelDescriptor describe(std::string_view name, Op op, DType type, RunFn& run) noexcept {
    const Accesses accesses = accesses_of(info(op).touches);
    const Costs& costs = kCosts[static_cast<std::size_t>(op)];
    KernelDescriptor kernel(name, op, type, run, accesses.declare);
    kernel.resolve = accesses.resolve;
    kernel.macs = costs.macs;
    if (costs.scratch != &scratch_codes || type == DType::q8_0 || type == DType::q4_0)
        kernel.scratch_bytes = costs.scratch;
    return kernel;
}

}  // namespace tinfer::kernels
