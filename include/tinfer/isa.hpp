// SPDX-License-Identifier: MIT
// The kernel tables: one per instruction set, all of the same bits.
//
//     for (const tinfer::Isa isa : tinfer::available_isas()) std::cout << to_string(isa) << '\n';   // the best first
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tinfer/export.hpp"

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
