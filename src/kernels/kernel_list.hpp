// SPDX-License-Identifier: MIT
// The kernels of an op, one for each of its types: what the column `types` of tinfer/ops.def stands for. A file that
// makes a table of kernels includes kernels/quants/formats.hpp, directly or not, and defines TINFER_KERNEL(name,
// label, type, tables), and for factors of products TINFER_FLOAT_KERNEL(name, type) and TINFER_BLOCK_KERNEL(type,
// Format, name).
#pragma once

#define TINFER_KERNELS_none(name, tables)
#define TINFER_KERNELS_any(name, tables) TINFER_KERNEL(name, #name, none, tables)
#define TINFER_KERNELS_weight(name, tables)                                                                            \
    TINFER_FLOAT_KERNEL(name, f32)                                                                                     \
    TINFER_FLOAT_KERNEL(name, f16)                                                                                     \
    TINFER_FLOAT_KERNEL(name, bf16)                                                                                    \
    TINFER_FORMATS_OF(TINFER_BLOCK_KERNEL, name)
#define TINFER_KERNELS_lookup(name, tables)                                                                            \
    TINFER_TYPED_KERNEL(name, i32, tables)                                                                             \
    TINFER_TYPED_KERNEL(name, f32, tables)                                                                             \
    TINFER_TYPED_KERNEL(name, f16, tables)                                                                             \
    TINFER_TYPED_KERNEL(name, bf16, tables)                                                                            \
    TINFER_FORMATS_OF(TINFER_LOOKUP_KERNEL, name)
#define TINFER_KERNELS_codes(name, tables)                                                                             \
    TINFER_TYPED_KERNEL(name, x8_32, tables)                                                                           \
    TINFER_TYPED_KERNEL(name, x8_256, tables)
#define TINFER_KERNELS_cache(name, tables)                                                                             \
    TINFER_TYPED_KERNEL(name, f32, tables)                                                                             \
    TINFER_TYPED_KERNEL(name, f16, tables)                                                                             \
    TINFER_TYPED_KERNEL(name, bf16, tables)                                                                            \
    TINFER_TYPED_KERNEL(name, q8_0, tables)                                                                            \
    TINFER_TYPED_KERNEL(name, q4_0, tables)
#define TINFER_TYPED_KERNEL(name, type, tables) TINFER_KERNEL(name, #name "." #type, type, tables)
#define TINFER_LOOKUP_KERNEL(type, Format, name) TINFER_TYPED_KERNEL(name, type, plain)
