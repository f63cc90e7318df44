// SPDX-License-Identifier: MIT
// The chooser: which code multiplies a weight matrix of one type with so many tokens, by instruction set. All routes
// give the same bits, so this is a matter of speed alone; README.md of src/kernels shows the whole tree, and a test
// compares.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/quants/formats.hpp"
#include "tinfer/operations.hpp"

namespace tinfer::kernels {

/// A way to multiply. Few tokens meet the rows of the file (GEMV), many meet packed panels (GEMM).
enum class Route : std::uint8_t {
    none,             ///< the type holds no weights
    reference,        ///< reference/mul_mat.cpp
    kquant_avx512,    ///< gemv/kquant_avx512.hpp: a token by pairs of rows of super-blocks
    b32_avx512,       ///< gemv/b32_avx512.hpp: a token or two, blocks of 32
    row_dot_avx2,     ///< gemv/row_dot_avx2.hpp: a token or two, eight rows as they lie
    skinny,           ///< gemv/skinny.hpp: a row in each lane, transposed in registers
    along,            ///< gemv/along.hpp: rows as they lie, decoded one by one
    codebook,         ///< gemv/codebook_avx512.hpp, codebook_vbmi.hpp or codebook_avx2.hpp: IQ types with a codebook
    microkernel_q8,   ///< gemm/microkernel_q8.hpp: packed panels and vector dot products
    microkernel_amx,  ///< gemm/microkernel_amx.hpp: packed panels and the matrix unit
    float_rows,       ///< gemm/float_microkernels.hpp: float weights as they lie
    float_outer,      ///< gemm/float_microkernels.hpp: float weights repacked by lanes, outer products
};
inline constexpr Route kRoutes[] = {
    Route::none,           Route::reference,       Route::kquant_avx512, Route::b32_avx512,
    Route::row_dot_avx2,   Route::skinny,          Route::along,         Route::codebook,
    Route::microkernel_q8, Route::microkernel_amx, Route::float_rows,    Route::float_outer};
[[nodiscard]] constexpr std::string_view to_string(Route route) noexcept {
    constexpr std::string_view kNames[] = {"none",           "reference",       "kquant_avx512", "b32_avx512",
                                           "row_dot_avx2",   "skinny",          "along",         "codebook",
                                           "microkernel_q8", "microkernel_amx", "float_rows",    "float_outer"};
    return kNames[static_cast<std::size_t>(route)];
}
/// Whether a route reads the rows of the file, in runs of any length, and not panels of them.
[[nodiscard, gnu::always_inline]] constexpr bool is_gemv(Route route) noexcept {
    return route >= Route::kquant_avx512 && route <= Route::codebook;
}

/// What the choice depends on of an instruction set.
struct RouteArch {
    int lanes;  ///< 32-bit lanes of a register
    bool x86, dot4, amx;
};
[[nodiscard]] constexpr RouteArch route_arch(Isa isa) noexcept {
    switch (isa) {
        case Isa::avx2: return {8, true, false, false};
        case Isa::avxvnni: return {8, true, true, false};
        case Isa::avx512: return {16, true, false, false};
        case Isa::avx512vnni: return {16, true, true, false};
        case Isa::amx: return {16, true, true, true};
        case Isa::neon: return {4, false, false, false};
        case Isa::neon_dot:
        case Isa::neon_i8mm: return {4, false, true, false};
        case Isa::automatic:
        case Isa::reference: break;
    }
    return {1, false, false, false};
}

/// Which code a format has for few tokens: `lanes` a decoder of several rows alone, kquant and b32 besides that a way
/// of their own with AVX-512 VNNI; `panels` formats have none.
enum class FormatFamily : std::uint8_t { none, floats, lanes, kquant, b32, codebook, ternary, panels };
// clang-format off
[[nodiscard]] constexpr FormatFamily family_of(DType type) noexcept {
    switch (type) {
    case DType::f32: case DType::f16: case DType::bf16:
        return FormatFamily::floats;
    case DType::q2_k: case DType::q3_k: case DType::iq4_xs: case DType::q8_0: case DType::nvfp4: case DType::q1_0:
    case DType::q2_0:
        return FormatFamily::lanes;
    case DType::q4_k: case DType::q5_k: case DType::q6_k:
        return FormatFamily::kquant;
    case DType::q4_0: case DType::q4_1: case DType::q5_0: case DType::q5_1: case DType::iq4_nl: case DType::mxfp4:
        return FormatFamily::b32;
    case DType::iq2_xxs: case DType::iq2_xs: case DType::iq2_s: case DType::iq3_xxs: case DType::iq3_s:
    case DType::iq1_s: case DType::iq1_m:
        return FormatFamily::codebook;
    case DType::tq1_0: case DType::tq2_0:
        return FormatFamily::ternary;
    default:
        return with_format<reference>(type, [](auto) {}) ? FormatFamily::panels : FormatFamily::none;
    }
}
// clang-format on

/// What the choice depends on of a block format (quants/format.hpp).
struct RouteFormat {
    bool super_blocks = false, has_min = false;
    int scale_elems = 0, max_code = 0;
};
[[nodiscard]] constexpr RouteFormat route_format(DType type) noexcept {
    RouteFormat out;
    with_format<reference>(type, [&](auto format) {
        using Format = decltype(format);
        out = {Format::kUnit == 256, Format::kHasMin, Format::kScaleElems, Format::kMaxCode};
    });
    return out;
}

/// Tokens that one pass of skinny takes: with more, too many sums leave the registers, the sooner the shorter
/// sub-blocks are.
[[nodiscard]] constexpr int skinny_pass(DType type) noexcept {
    const RouteFormat format = route_format(type);
    return format.super_blocks && format.scale_elems == 16 ? 8 : 12;
}
/// Up to how many tokens GEMV with 512-bit VNNI is faster than panels, which are decoded once. Even a second pass over
/// rows of these four types is; codes of Q3_K take so much unpacking that one pass is enough.
[[nodiscard]] constexpr std::int64_t max_gemv_avx512(DType type) noexcept {
    if (type == DType::nvfp4) return 2;
    if (type == DType::q4_k || type == DType::q6_k || type == DType::iq4_xs || type == DType::q8_0) return 16;
    return type == DType::q3_k ? skinny_pass(type) : 12;
}
/// Up to how many tokens row_dot_avx2 is faster than skinny.
[[nodiscard]] constexpr std::int64_t max_row_dot_avx2(DType type) noexcept {
    if (type == DType::q4_k || type == DType::q8_0) return 1;
    return type == DType::q5_k || type == DType::q6_k ? 2 : 0;
}
/// Up to how many tokens eight rows in registers are faster than panels: more where neither biases nor sixteen scales
/// of super-blocks need registers, and where a dot4 needs few; fewer where panels have sixteen lanes.
[[nodiscard]] constexpr std::int64_t max_gemv_avx2(RouteArch arch, DType type) noexcept {
    const RouteFormat format = route_format(type);
    if (type == DType::nvfp4) return 2;
    const bool has_room = !format.super_blocks || (format.has_min && format.scale_elems == 32);
    if (arch.lanes == 16) return 8;
    if (arch.dot4) return has_room ? 8 : 3;
    const bool is_signed = !format.has_min && format.max_code > 64;
    return is_signed ? 6 : has_room ? 5 : 4;
}
/// The same with four lanes, of formats that are decoded four rows at a time. None of these is measured: no ARM machine
/// was at hand, so they follow from counts of instructions.
[[nodiscard]] constexpr std::int64_t max_skinny_neon(DType type) noexcept {
    const FormatFamily family = family_of(type);
    if (family == FormatFamily::codebook || family == FormatFamily::ternary) return 0;
    return type == DType::nvfp4 ? 4 : 8;
}
/// And of rows decoded one by one: of a token of Q8_0, too, whose rows need no decoding.
[[nodiscard]] constexpr std::int64_t max_along_neon(DType type) noexcept {
    return max_skinny_neon(type) == 0 ? 4 : type == DType::q8_0 ? 1 : 0;
}
/// The same for formats with a codebook: a dot4 makes panels cheaper. With eight lanes the crossing is not measured.
[[nodiscard]] constexpr std::int64_t max_gemv_codebook(RouteArch arch) noexcept {
    if (arch.lanes == 16) return arch.dot4 ? 16 : 8;
    return arch.dot4 ? 4 : 8;
}
/// From how many tokens on the matrix unit is faster than vectors: with fewer, most of a tile would be empty. Signed
/// codes of super-blocks take long to become bytes. Formats with two float steps a block are not written for it.
[[nodiscard]] constexpr bool uses_amx(DType type, std::int64_t n_tokens) noexcept {
    const RouteFormat format = route_format(type);
    if (!format.super_blocks && format.scale_elems != 32) return false;
    return n_tokens >= (format.super_blocks && !format.has_min ? 28 : 16);
}
/// From how many tokens on repacking float weights by lanes costs less than it saves. Processors that issue one
/// 512-bit multiplication per cycle, not two, have time for the loads of float_rows, and rows of 16-bit floats leave
/// room in L1: there it pays later.
[[nodiscard]] constexpr std::int64_t min_float_outer(RouteArch arch, DType type, bool single_512_fma) noexcept {
    if (arch.lanes != 16) return 12;
    return single_512_fma && type != DType::f32 ? 112 : 30;
}

/// Which way a product of n_tokens ≥ 1 activation rows takes. Weights of one expert count the tokens that picked it.
[[nodiscard]] constexpr Route route(Isa isa, DType type, std::int64_t n_tokens, bool single_512_fma = false) noexcept {
    const FormatFamily family = family_of(type);
    const RouteArch arch = route_arch(isa);
    if (family == FormatFamily::none) return Route::none;
    if (isa == Isa::reference || isa == Isa::automatic) return Route::reference;
    if (family == FormatFamily::floats)
        return n_tokens < min_float_outer(arch, type, single_512_fma) ? Route::float_rows : Route::float_outer;
    if (arch.amx && uses_amx(type, n_tokens)) return Route::microkernel_amx;
    if (family == FormatFamily::panels) return Route::microkernel_q8;
    if (!arch.x86) {
        if (n_tokens <= max_along_neon(type)) return Route::along;
        return n_tokens <= max_skinny_neon(type) ? Route::skinny : Route::microkernel_q8;
    }
    if (family == FormatFamily::codebook)
        return n_tokens <= max_gemv_codebook(arch) ? Route::codebook : Route::microkernel_q8;
    if (family == FormatFamily::ternary) return n_tokens <= 2 ? Route::row_dot_avx2 : Route::microkernel_q8;
    if (arch.lanes == 16 && arch.dot4) {
        if (n_tokens > max_gemv_avx512(type)) return Route::microkernel_q8;
        if (family == FormatFamily::b32 && n_tokens <= 2) return Route::b32_avx512;
        return family == FormatFamily::kquant && n_tokens == 1 ? Route::kquant_avx512 : Route::skinny;
    }
    if (n_tokens > max_gemv_avx2(arch, type)) return Route::microkernel_q8;
    return n_tokens <= max_row_dot_avx2(type) ? Route::row_dot_avx2 : Route::skinny;
}

/// No route changes above so many tokens.
inline constexpr std::int64_t kRouteTokens = 128;
struct RoutesByTokens {
    Route of[kRouteTokens + 1] = {};  ///< [0]: none
};
/// The routes of a type, computed at compile time. A template over the tag, as everything in files that are compiled
/// for one instruction set.
template <class Arch, DType Type, bool Single512Fma = false>
inline constexpr RoutesByTokens kRouteOf = [] {
    RoutesByTokens table;
    for (std::int64_t n = 1; n <= kRouteTokens; ++n) table.of[n] = route(Arch::kIsa, Type, n, Single512Fma);
    return table;
}();
/// The most tokens that take a route: 0 where none does, kRouteTokens where all above do.
template <class Arch, DType Type, Route R>
inline constexpr std::int64_t kMaxRouteTokens = [] {
    std::int64_t n = kRouteTokens;
    while (n > 0 && kRouteOf<Arch, Type>.of[n] != R) --n;
    return n;
}();
/// The fewest, at least 1.
template <class Arch, DType Type, Route R>
inline constexpr std::int64_t kLeastTokens = [] {
    std::int64_t n = 1;
    while (n < kRouteTokens && kRouteOf<Arch, Type>.of[n] != R) ++n;
    return n;
}();

}  // namespace tinfer::kernels
