// SPDX-License-Identifier: MIT
// The table of plain loops: the oracle of every test and the fallback of every machine.
#include <iterator>

#include "kernels/access.hpp"
#include "kernels/kernel_list.hpp"
#include "kernels/quants/formats.hpp"
#include "kernels/reference/ops.hpp"
#include "kernels/tables.hpp"

namespace tinfer::kernels {

namespace {

#define TINFER_KERNEL(name, label, type, tables) describe(label, Op::name, DType::type, ref::name),
#define TINFER_FLOAT_KERNEL(name, type) TINFER_TYPED_KERNEL(name, type, plain)
#define TINFER_BLOCK_KERNEL(type, Format, name) TINFER_TYPED_KERNEL(name, type, plain)

constexpr KernelDescriptor kReferenceKernels[] = {
#define TINFER_OP(name, rule, types, touches, macs, scratch, work, tables, operands)                                   \
    TINFER_KERNELS_##types(name, tables)
#include "tinfer/ops.def"
};

#undef TINFER_KERNEL
#undef TINFER_FLOAT_KERNEL
#undef TINFER_BLOCK_KERNEL

}  // namespace

constinit const KernelTable reference_table{"reference", kReferenceKernels, std::size(kReferenceKernels),
                                            &reference_row_ops};

}  // namespace tinfer::kernels
