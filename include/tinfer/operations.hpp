// SPDX-License-Identifier: MIT
// What kernels compute, and which tables of them there are. Chapters: operations, kernel tables.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tinfer/base.hpp"

// ==================================================== operations =====================================================
// What a kernel can compute and how it touches its operands: the words that graph, kernels and observers share.
//
//     std::cout << to_string(tinfer::Op::mul_mat) << '\n';   // "mul_mat"
//     const tinfer::AccessRange row{.offset = 4096, .length = 512};
//     std::cout << "bytes " << row.offset << " to " << row.offset + row.length << '\n';
namespace tinfer {

/// Operations of graph nodes and, from rms_norm_quantize on, of fused steps. tinfer/ops.def says what each computes.
/// none, input and alias make no step: graph inputs, weights, views.
enum class Op : std::uint16_t {
#define TINFER_OP(name, rule, types, touches, macs, scratch, work, tables, operands) name,
#include "tinfer/ops.def"
    count_
};

/// "mul_mat" for Op::mul_mat.
[[nodiscard]] TINFER_API std::string_view to_string(Op op) noexcept;

/// What a kernel does with an operand.
enum class AccessMode : std::uint8_t { read = 1, write = 2, read_write = 3 };
[[nodiscard]] TINFER_API std::string_view to_string(AccessMode mode) noexcept;

/// `count` pieces of `length` bytes, `stride` apart, from `offset` inside the tensor. Sorted, disjoint, merged.
struct AccessRange {
    std::uint64_t offset = 0, length = 0, stride = 0;
    std::uint32_t count = 1;
    std::uint32_t tag = 0;     ///< token id, expert id, sequence, … (what the operand is indexed by)
    std::uint32_t weight = 0;  ///< how often
    bool padding = false;      ///< loaded along with its neighbours, not used: slots of a K group that no query sees
    bool operator==(const AccessRange&) const = default;
};

}  // namespace tinfer

// =================================================== kernel tables ===================================================
// The kernel tables: one per instruction set, all of the same bits.
//
//     for (const tinfer::Isa isa : tinfer::available_isas()) std::cout << to_string(isa) << '\n';   // the best first
namespace tinfer {

/// Kernel table. `automatic`: the best this CPU and OS offer.
enum class Isa : std::uint8_t {
    automatic,
    reference,
    avx2,
    avxvnni,
    avx512,
    avx512vnni,
    amx,
    neon,
    neon_dot,
    neon_i8mm
};
/// "avx2" for Isa::avx2.
[[nodiscard]] TINFER_API std::string_view to_string(Isa isa) noexcept;
/// Tables this machine can run, best first; `reference` is always the last.
[[nodiscard]] TINFER_API std::vector<Isa> available_isas();

}  // namespace tinfer
