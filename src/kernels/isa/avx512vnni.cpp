// SPDX-License-Identifier: MIT
#include "kernels/isa/make_table.hpp"
// Compiled with the flags of cmake/isa.cmake: nothing but templates over the tag may be instantiated here.
constinit const tinfer::kernels::KernelTable tinfer::kernels::avx512vnni_table =
    make_table<tinfer::kernels::avx512vnni>("avx512vnni");
// What the amx table takes from here.
constinit const tinfer::RowOps tinfer::kernels::avx512vnni_row_ops = kRowOps<tinfer::kernels::avx512vnni>;
TINFER_BLOCK_FORMATS(TINFER_DEFINE_SHARED_PRODUCT)
