// SPDX-License-Identifier: MIT
// The vector vocabulary of the fast kernel tables. xsimd supplies registers, loads and plain arithmetic; this header
// adds the 16-lane logical vector of every float reduction and, by the headers of the families of processors, what
// xsimd does not offer: fused multiply-add that always fuses, integer dot products, half floats. Every name here is a
// template over a tag or has internal linkage, because units compiled for different processors include it and the
// linker must not mix them.
#pragma once

#include <cstdint>
#include <cstring>
#include <xsimd/xsimd.hpp>

#include "tinfer/operations.hpp"

#define TINFER_INLINE __attribute__((always_inline)) inline
/// In front of loops over parts of a block that are worth unrolling where addresses are a pointer and a constant, and
/// a sum of two registers takes an instruction: on ARM.
#if defined(__aarch64__)
#    define TINFER_UNROLL_ON_ARM _Pragma("GCC unroll 8")
#else
#    define TINFER_UNROLL_ON_ARM
#endif

namespace tinfer::kernels {

// Instruction sets are tags: empty types that derive from the tag below them, so that a function that a level lacks is
// found one level lower. Tags, and the functions that take one as their last argument, are in the header of their
// family (x86.hpp, neon.hpp), which is included at the end and empty elsewhere. A tag says:
//
//   simd                 the type of its registers for xsimd
//   kLanes               their number of 32-bit lanes
//   kMicroTileTokens     tokens of a micro-tile: as many as registers hold
//   kPanelsTogether      panels that meet the same tokens before the next come: as many as L1 holds
//   kMemoryBoundTokens   up to so many tokens a product reads the next rows ahead; with more, reading hardly counts
//   kStreams             row streams that few tokens read side by side
//   kHasDot4             there is a dot4, which adds four byte products per lane to an int32
//   kSignedDot4          its weight bytes are signed
//   kFusedDot2           dot2 is cheaper than a multiply and an add
//   kHasAmx              there is a matrix unit

template <class T, class Arch>
using vec = xsimd::batch<T, typename Arch::simd>;
template <class Arch>
using f32v = vec<float, Arch>;
template <class Arch>
using i32v = vec<std::int32_t, Arch>;  ///< also four bytes or two int16 in each lane: the function says which

/// 32 bits of memory, whatever they are, in every lane.
template <class Arch>
TINFER_INLINE i32v<Arch> bcast4(const void* p) noexcept {
    std::int32_t word;
    std::memcpy(&word, p, 4);
    return i32v<Arch>(word);
}
template <class Arch>
TINFER_INLINE i32v<Arch> load_i32(const void* p) noexcept {
    return i32v<Arch>::load_unaligned(static_cast<const std::int32_t*>(p));
}
template <class Arch>
TINFER_INLINE f32v<Arch> load_f32(const float* p) noexcept {
    return f32v<Arch>::load_unaligned(p);
}

// ---- Sixteen floats -------------------------------------------------------------------------------------------------

/// The logical vector of numerics rule 3: element i of a row belongs to lane i mod 16, on every instruction set.
template <class Arch>
struct f32x16 {
    static constexpr int kParts = 16 / Arch::kLanes;
    f32v<Arch> part[kParts];

    f32x16() = default;
    TINFER_INLINE explicit f32x16(float value) noexcept {
        for (int i = 0; i < kParts; ++i) part[i] = f32v<Arch>(value);
    }
    /// fn(i) gives part i.
    template <class Fn>
    [[nodiscard]] TINFER_INLINE static f32x16 each(Fn fn) noexcept {
        f32x16 out;
        for (int i = 0; i < kParts; ++i) out.part[i] = fn(i);
        return out;
    }
    /// A float of memory in every lane. As an integer: for a float some processors take a shuffle besides the load.
    [[nodiscard]] TINFER_INLINE static f32x16 broadcast(const float* p) noexcept {
        return each([&](int) { return from_bits(bcast4<Arch>(p), Arch{}); });
    }
    [[nodiscard]] TINFER_INLINE static f32x16 load(const float* p) noexcept {
        return each([&](int i) { return f32v<Arch>::load_unaligned(p + i * Arch::kLanes); });
    }
    /// The first n < 16 elements, zeros after them; nothing behind them is touched.
    [[nodiscard]] TINFER_INLINE static f32x16 load(const float* p, int n) noexcept {
        alignas(64) float padded[16] = {};
        for (int i = 0; i < n; ++i) padded[i] = p[i];
        return load(padded);
    }
    TINFER_INLINE void store(float* p) const noexcept {
        for (int i = 0; i < kParts; ++i) part[i].store_unaligned(p + i * Arch::kLanes);
    }
    TINFER_INLINE void store(float* p, int n) const noexcept {
        alignas(64) float padded[16];
        store(padded);
        for (int i = 0; i < n; ++i) p[i] = padded[i];
    }
    [[nodiscard]] TINFER_INLINE static f32x16 load_f16(const std::uint16_t* p) noexcept {
        return each([&](int i) { return widen_f16(p + i * Arch::kLanes, Arch{}); });
    }
    [[nodiscard]] TINFER_INLINE static f32x16 load_bf16(const std::uint16_t* p) noexcept {
        return each([&](int i) { return widen_bf16(p + i * Arch::kLanes, Arch{}); });
    }
    TINFER_INLINE void store_f16(std::uint16_t* p) const noexcept {
        for (int i = 0; i < kParts; ++i) narrow_f16(part[i], p + i * Arch::kLanes, Arch{});
    }

    friend TINFER_INLINE f32x16 operator+(f32x16 a, f32x16 b) noexcept {
        return each([&](int i) { return a.part[i] + b.part[i]; });
    }
    friend TINFER_INLINE f32x16 operator-(f32x16 a, f32x16 b) noexcept {
        return each([&](int i) { return a.part[i] - b.part[i]; });
    }
    friend TINFER_INLINE f32x16 operator*(f32x16 a, f32x16 b) noexcept {
        return each([&](int i) { return a.part[i] * b.part[i]; });
    }
    friend TINFER_INLINE f32x16 operator/(f32x16 a, f32x16 b) noexcept {
        return each([&](int i) { return divide(a.part[i], b.part[i], Arch{}); });
    }
};

template <class Arch>
TINFER_INLINE f32x16<Arch> fma(const f32x16<Arch>& a, const f32x16<Arch>& b, const f32x16<Arch>& c) noexcept {
    return f32x16<Arch>::each([&](int i) { return fma(a.part[i], b.part[i], c.part[i], Arch{}); });
}
template <class Arch>
TINFER_INLINE f32x16<Arch> fnma(const f32x16<Arch>& a, const f32x16<Arch>& b, const f32x16<Arch>& c) noexcept {
    return f32x16<Arch>::each([&](int i) { return fnma(a.part[i], b.part[i], c.part[i], Arch{}); });
}
/// Lane by lane: a > b ? a : b, which is b where either is NaN.
template <class Arch>
TINFER_INLINE f32x16<Arch> greater(const f32x16<Arch>& a, const f32x16<Arch>& b) noexcept {
    return f32x16<Arch>::each([&](int i) { return xsimd::select(a.part[i] > b.part[i], a.part[i], b.part[i]); });
}
/// Lane by lane: a > b ? then : otherwise.
template <class Arch>
TINFER_INLINE f32x16<Arch> if_greater(const f32x16<Arch>& a, const f32x16<Arch>& b, const f32x16<Arch>& then,
                                      const f32x16<Arch>& otherwise) noexcept {
    return f32x16<Arch>::each(
        [&](int i) { return xsimd::select(a.part[i] > b.part[i], then.part[i], otherwise.part[i]); });
}

/// The sum of the sixteen lanes: l + (l + 8), then + 4, + 2, + 1.
template <class Arch>
TINFER_INLINE float reduce(const f32x16<Arch>& a) noexcept {
    return reduce_parts(a.part, Arch{});
}

}  // namespace tinfer::kernels

#include "kernels/simd/neon.hpp"
#include "kernels/simd/x86.hpp"
