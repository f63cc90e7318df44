// SPDX-License-Identifier: MIT
#include "kernels/isa/make_table.hpp"
// Compiled with the flags of cmake/isa.cmake: nothing but templates over the tag may be instantiated here.
constinit const tinfer::kernels::KernelTable tinfer::kernels::neon_i8mm_table =
    make_table<tinfer::kernels::neon_i8mm>("neon_i8mm");
