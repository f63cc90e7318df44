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
#include "kernels/kernel_list.hpp"
#include "kernels/matmul/mul_mat.hpp"
#include "kernels/recurrent/compress.hpp"
#include "kernels/recurrent/linear_attention.hpp"
#include "kernels/recurrent/scan.hpp"
#include "kernels/reference/ops.hpp"
#include "kernels/tables.hpp"

namespace tinfer::kernels {

constexpr KernelDescriptor with_scratch(KernelDescriptor kernel, ScratchFn& scratch) noexcept {
    kernel.scratch_bytes = &scratch;
    return kernel;
}

// What vector kernels need otherwise than the loops of the reference.
template <class Arch>
constexpr KernelDescriptor vector_kernel(KernelDescriptor kernel) noexcept {
    switch (kernel.op) {
        case Op::select_keys: return with_scratch(kernel, select_keys_scratch<Arch>);
        case Op::compressed_attention: return with_scratch(kernel, compressed_attention_scratch<Arch>);
        case Op::sparse_attention: return with_scratch(kernel, sparse_attention_scratch<Arch>);
        case Op::attention:
            kernel.resolve = resolve_visible_by_groups;
            return with_scratch(kernel, attention_scratch<Arch>);
        default: return kernel;
    }
}

#define TINFER_KERNEL(name, label, type, tables) TINFER_KERNEL_##tables(name, label, type)
#define TINFER_KERNEL_vector(name, label, type) vector_kernel<Arch>(describe(label, Op::name, DType::type, name<Arch>)),
#define TINFER_KERNEL_plain(name, label, type) describe(label, Op::name, DType::type, ref::name),
#define TINFER_PRODUCT(name, type, ...)                                                                                \
    with_scratch(describe(#name "." #type, Op::name, DType::type, name<Arch, __VA_ARGS__>),                            \
                 name##_scratch<Arch, __VA_ARGS__>),
#define TINFER_FLOAT_KERNEL(name, type) TINFER_PRODUCT(name, type, FloatWeights<Arch, DType::type>)
#define TINFER_BLOCK_KERNEL(type, Format, name) TINFER_PRODUCT(name, type, BlockWeights<Arch, Format>)

template <class Arch>
inline constexpr KernelDescriptor kKernels[] = {
#define TINFER_OP(name, rule, types, touches, macs, scratch, work, tables, operands)                                   \
    TINFER_KERNELS_##types(name, tables)
#include "tinfer/ops.def"
};

// Where both are built, the amx table has the products of block formats alone and takes everything else from
// avx512vnni, whose vector routes it shares. In the single header, which compiles all that a table needs once more for
// each, it is whole.
#if defined(TINFER_TABLE_AVX512VNNI) && !defined(TINFER_TABLE_REGION)
#    define TINFER_SHARES_AVX512VNNI 1

template <class Arch>
inline constexpr KernelDescriptor kMatrixUnitKernels[] = {
#    undef TINFER_KERNEL
#    undef TINFER_FLOAT_KERNEL
#    define TINFER_KERNEL(name, label, type, tables)
#    define TINFER_FLOAT_KERNEL(name, type)
#    define TINFER_OP(name, rule, types, touches, macs, scratch, work, tables, operands)                               \
        TINFER_KERNELS_##types(name, tables)
#    include "tinfer/ops.def"
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

#undef TINFER_KERNEL
#undef TINFER_KERNEL_vector
#undef TINFER_KERNEL_plain
#undef TINFER_PRODUCT
#undef TINFER_FLOAT_KERNEL
#undef TINFER_BLOCK_KERNEL

}  // namespace tinfer::kernels
