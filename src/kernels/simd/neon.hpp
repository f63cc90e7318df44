// SPDX-License-Identifier: MIT
// The instruction sets of 64-bit ARM: their tags and what each function of kernels/simd/vec.hpp that takes a tag is
// there. Empty elsewhere.
#pragma once

#include "kernels/simd/vec.hpp"

#if defined(__aarch64__)
#    include <arm_neon.h>

namespace tinfer::kernels {

/// What every aarch64 processor has. Byte products go through int16: 2 · 128 · 127 = 32512 fits.
struct neon {
    static constexpr Isa kIsa = Isa::neon;
    using Vector = neon;
    using Half = neon;
    using simd = xsimd::neon64;
    static constexpr int kLanes = 4;
    static constexpr int kMicroTileTokens = 4, kLongMicroTileTokens = 4, kPanelsTogether = 1, kMemoryBoundTokens = 27,
                         kStreams = 4;  ///< 16 accumulators of the 32 registers: a dot4 needs four more
    static constexpr bool kHasDot4 = true, kSignedDot4 = true, kFusedDot2 = false, kHasAmx = false;
};
/// With the dot-product extension (optional in ARMv8.2, there in nearly every core since 2018): dot4 is one
/// instruction.
struct neon_dot : neon {
    static constexpr Isa kIsa = Isa::neon_dot;
    using Vector = neon_dot;
    using Half = neon_dot;
    static constexpr int kMicroTileTokens = 6;  ///< 24 accumulators
};
/// With the matrix products of bytes (optional in ARMv8.2, there from ARMv8.6 on): one instruction multiplies two rows
/// with two tokens, eight values of each.
struct neon_i8mm : neon_dot {
    static constexpr Isa kIsa = Isa::neon_i8mm;
    using Vector = neon_i8mm;
    using Half = neon_i8mm;
};
/// Whether multiply_pairs is there.
template <class Arch>
inline constexpr bool kHasMatrixProducts = false;
template <>
inline constexpr bool kHasMatrixProducts<neon_i8mm> = true;

static TINFER_INLINE f32v<neon> fma(f32v<neon> a, f32v<neon> b, f32v<neon> c, neon) { return vfmaq_f32(c, a, b); }
static TINFER_INLINE f32v<neon> fnma(f32v<neon> a, f32v<neon> b, f32v<neon> c, neon) { return vfmsq_f32(c, a, b); }
static TINFER_INLINE f32v<neon> divide(f32v<neon> a, f32v<neon> b, neon) { return vdivq_f32(a, b); }
static TINFER_INLINE f32v<neon> larger(f32v<neon> a, f32v<neon> b, neon) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
static TINFER_INLINE f32v<neon> smaller(f32v<neon> a, f32v<neon> b, neon) { return vbslq_f32(vcltq_f32(a, b), a, b); }
static TINFER_INLINE f32v<neon> as_float(i32v<neon> a, neon) { return vcvtq_f32_s32(a); }
static TINFER_INLINE i32v<neon> as_int(f32v<neon> a, neon) { return vcvtnq_s32_f32(a); }
static TINFER_INLINE i32v<neon> bits(f32v<neon> a, neon) { return vreinterpretq_s32_f32(a); }
static TINFER_INLINE f32v<neon> from_bits(i32v<neon> a, neon) { return vreinterpretq_f32_s32(a); }
static TINFER_INLINE i32v<neon> shift_right_1(i32v<neon> a, neon) { return vshrq_n_s32(a, 1); }
static TINFER_INLINE i32v<neon> shift_left_23(i32v<neon> a, neon) { return vshlq_n_s32(a, 23); }
static TINFER_INLINE f32v<neon> widen_f16(const std::uint16_t* p, neon) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
static TINFER_INLINE f32v<neon> widen_bf16(const std::uint16_t* p, neon) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
static TINFER_INLINE void narrow_f16(f32v<neon> a, std::uint16_t* p, neon) {
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(a)));  // rounds as FPCR says: to nearest even (base/fp_env.hpp)
}
/// ARM has no store of a register past the caches: a plain one.
static TINFER_INLINE void store_nontemporal(f32v<neon> a, float* p, neon) { vst1q_f32(p, a); }
static TINFER_INLINE void nontemporal_fence(neon) {}
static TINFER_INLINE void deinterleave(f32v<neon> low, f32v<neon> high, f32v<neon>& even, f32v<neon>& odd, neon) {
    even = vuzp1q_f32(low, high);
    odd = vuzp2q_f32(low, high);
}
static TINFER_INLINE void interleave(f32v<neon> even, f32v<neon> odd, f32v<neon>& low, f32v<neon>& high, neon) {
    low = vzip1q_f32(even, odd);
    high = vzip2q_f32(even, odd);
}

static TINFER_INLINE i32v<neon> add_bytes(i32v<neon> a, i32v<neon> b, neon) {
    return vreinterpretq_s32_s8(vaddq_s8(vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b)));
}
static TINFER_INLINE i32v<neon> dot2(i32v<neon> acc, i32v<neon> a, i32v<neon> b, neon) {
    const int16x8_t x = vreinterpretq_s16_s32(a), y = vreinterpretq_s16_s32(b);
    const int32x4_t low = vmull_s16(vget_low_s16(x), vget_low_s16(y)), high = vmull_high_s16(x, y);
    return vaddq_s32(acc, vpaddq_s32(low, high));
}
/// acc + the four products of each lane, all bytes signed, |a| ≤ 127: pairs add up in int16, then two pairs in int32.
static TINFER_INLINE i32v<neon> dot4(i32v<neon> acc, i32v<neon> w, i32v<neon> a, neon) {
    const int8x16_t x = vreinterpretq_s8_s32(w), y = vreinterpretq_s8_s32(a);
    const int16x8_t low = vmull_s8(vget_low_s8(x), vget_low_s8(y)), high = vmull_high_s8(x, y);
    return vpadalq_s16(acc, vpaddq_s16(low, high));
}
#    if defined(__ARM_FEATURE_DOTPROD)
static TINFER_INLINE i32v<neon_dot> dot4(i32v<neon_dot> acc, i32v<neon_dot> w, i32v<neon_dot> a, neon_dot) {
    return vdotq_s32(acc, vreinterpretq_s8_s32(w), vreinterpretq_s8_s32(a));
}
#    endif
#    if defined(__ARM_FEATURE_MATMUL_INT8)
/// Two rows of eight bytes each times two others: lanes are first with first, first with second, second with first, …
static TINFER_INLINE i32v<neon_i8mm> multiply_pairs(i32v<neon_i8mm> acc, i32v<neon_i8mm> rows, i32v<neon_i8mm> tokens,
                                                    neon_i8mm) {
    return vmmlaq_s32(acc, vreinterpretq_s8_s32(rows), vreinterpretq_s8_s32(tokens));
}
#    endif
/// acc + the four products of each lane of w with word number `word` of x: of four words one register is loaded.
static TINFER_INLINE i32v<neon> dot4_word(i32v<neon> acc, i32v<neon> w, const std::int8_t* x, int word, neon) {
    const int32x4_t four = vreinterpretq_s32_s8(vld1q_s8(x + word / 4 * 16));
    switch (word % 4) {
        case 0: return dot4(acc, w, vdupq_laneq_s32(four, 0), neon{});
        case 1: return dot4(acc, w, vdupq_laneq_s32(four, 1), neon{});
        case 2: return dot4(acc, w, vdupq_laneq_s32(four, 2), neon{});
        default: return dot4(acc, w, vdupq_laneq_s32(four, 3), neon{});
    }
}
#    if defined(__ARM_FEATURE_DOTPROD)
static TINFER_INLINE i32v<neon_dot> dot4_word(i32v<neon_dot> acc, i32v<neon_dot> w, const std::int8_t* x, int word,
                                              neon_dot) {
    const int8x16_t four = vld1q_s8(x + word / 4 * 16), codes = vreinterpretq_s8_s32(w);
    switch (word % 4) {
        case 0: return vdotq_laneq_s32(acc, codes, four, 0);
        case 1: return vdotq_laneq_s32(acc, codes, four, 1);
        case 2: return vdotq_laneq_s32(acc, codes, four, 2);
        default: return vdotq_laneq_s32(acc, codes, four, 3);
    }
}
#    endif
/// out[i][j] = in[j][i] of 32-bit words.
static TINFER_INLINE void transpose(i32v<neon> (&m)[4], neon) {
    const auto pairs = [](int32x4_t a) { return vreinterpretq_s64_s32(a); };
    const int32x4_t even01 = vtrn1q_s32(m[0], m[1]), odd01 = vtrn2q_s32(m[0], m[1]);
    const int32x4_t even23 = vtrn1q_s32(m[2], m[3]), odd23 = vtrn2q_s32(m[2], m[3]);
    m[0] = vreinterpretq_s32_s64(vtrn1q_s64(pairs(even01), pairs(even23)));
    m[1] = vreinterpretq_s32_s64(vtrn1q_s64(pairs(odd01), pairs(odd23)));
    m[2] = vreinterpretq_s32_s64(vtrn2q_s64(pairs(even01), pairs(even23)));
    m[3] = vreinterpretq_s32_s64(vtrn2q_s64(pairs(odd01), pairs(odd23)));
}

/// Lane r: the sum of the lanes of m[r].
static TINFER_INLINE i32v<neon> sum_rows(const i32v<neon> (&m)[4], neon) {
    return vpaddq_s32(vpaddq_s32(m[0], m[1]), vpaddq_s32(m[2], m[3]));
}

static TINFER_INLINE float root(float x, neon) { return vget_lane_f32(vsqrt_f32(vdup_n_f32(x)), 0); }
static TINFER_INLINE float reduce_parts(const f32v<neon> (&part)[4], neon) {
    const float32x4_t four = vaddq_f32(vaddq_f32(part[0], part[2]), vaddq_f32(part[1], part[3]));
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(vadd_f32(two, vrev64_f32(two)), 0);
}

}  // namespace tinfer::kernels
#endif
