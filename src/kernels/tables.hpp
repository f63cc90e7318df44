// SPDX-License-Identifier: MIT
// The kernel tables of this build. Use kernels::find_table, which knows what the machine can run.
#pragma once

#include "kernels/kernel.hpp"

namespace tinfer::kernels {

extern const KernelTable reference_table;
extern const KernelTable avx2_table, avxvnni_table, avx512_table, avx512vnni_table, amx_table;  // those of TINFER_ISAS
extern const RowOps avx512vnni_row_ops;                                                         // of the amx table, too
extern const KernelTable neon_table, neon_dot_table, neon_i8mm_table;

}  // namespace tinfer::kernels
