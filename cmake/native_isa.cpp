// SPDX-License-Identifier: MIT
// Prints the kernel tables that TINFER_ISAS=native builds: the best that this machine runs, by the rules that the
// library goes by, and the one that it takes the rest from. Empty tables stand for the real ones.
#include <cstdio>

#include "kernels/detect.cpp"

namespace tinfer::kernels {

constinit const KernelTable reference_table{"reference", nullptr, 0, nullptr};
constinit const KernelTable avx2_table = reference_table, avxvnni_table = reference_table,
                            avx512_table = reference_table, avx512vnni_table = reference_table,
                            amx_table = reference_table, neon_table = reference_table,
                            neon_dot_table = reference_table, neon_i8mm_table = reference_table;

}  // namespace tinfer::kernels

int main() {
    const tinfer::Isa best = tinfer::available_isas().front();
    std::printf("%s%s", std::string(tinfer::to_string(best)).c_str(),
                best == tinfer::Isa::amx ? ";avx512vnni" : "");
}
