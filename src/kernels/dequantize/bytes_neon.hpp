// SPDX-License-Identifier: MIT
// Registers of sixteen bytes on 64-bit ARM, as decoders of blocks use them: the type of one that lanes of 32 bits have.
#pragma once

#include <cstring>

#include "kernels/simd/vec.hpp"

#if defined(__aarch64__)

namespace tinfer::kernels {

static TINFER_INLINE uint8x16_t as_u8(int32x4_t v) { return vreinterpretq_u8_s32(v); }
static TINFER_INLINE int32x4_t as_words(uint8x16_t v) { return vreinterpretq_s32_u8(v); }
static TINFER_INLINE int32x4_t load_bytes16(const void* p) {
    return as_words(vld1q_u8(static_cast<const std::uint8_t*>(p)));
}
static TINFER_INLINE int32x4_t bytes_of(int value) { return as_words(vdupq_n_u8(static_cast<std::uint8_t>(value))); }
static TINFER_INLINE int32x4_t four_words(int a, int b, int c, int d) { return int32x4_t{a, b, c, d}; }
static TINFER_INLINE int32x4_t bits_and(int32x4_t a, int32x4_t b) { return vandq_s32(a, b); }
static TINFER_INLINE int32x4_t bits_or(int32x4_t a, int32x4_t b) { return vorrq_s32(a, b); }
static TINFER_INLINE int32x4_t bits_xor(int32x4_t a, int32x4_t b) { return veorq_s32(a, b); }
// Shifts by operators, not by intrinsics: for those the number would have to be a constant where they stand.
static TINFER_INLINE int32x4_t shift_right_16(int32x4_t v, int n) {
    return vreinterpretq_s32_u16(vreinterpretq_u16_s32(v) >> vdupq_n_u16(static_cast<std::uint16_t>(n)));
}
static TINFER_INLINE int32x4_t shift_left_16(int32x4_t v, int n) {
    return vreinterpretq_s32_u16(vreinterpretq_u16_s32(v) << vdupq_n_u16(static_cast<std::uint16_t>(n)));
}
static TINFER_INLINE int32x4_t shift_right_32(int32x4_t v, int n) {
    return vreinterpretq_s32_u32(vreinterpretq_u32_s32(v) >> vdupq_n_u32(static_cast<std::uint32_t>(n)));
}
static TINFER_INLINE int32x4_t shift_left_32(int32x4_t v, int n) {
    return vreinterpretq_s32_u32(vreinterpretq_u32_s32(v) << vdupq_n_u32(static_cast<std::uint32_t>(n)));
}
static TINFER_INLINE int32x4_t subtract_bytes(int32x4_t a, int32x4_t b) {
    return as_words(vsubq_u8(as_u8(a), as_u8(b)));
}
static TINFER_INLINE int32x4_t subtract_words(int32x4_t a, int32x4_t b) { return vsubq_s32(a, b); }
static TINFER_INLINE int32x4_t multiply_words(int32x4_t a, int32x4_t b) { return vmulq_s32(a, b); }
static TINFER_INLINE int32x4_t choose(int32x4_t mask, int32x4_t a, int32x4_t b) {
    return vbslq_s32(vreinterpretq_u32_s32(mask), a, b);
}
static TINFER_INLINE int32x4_t low_nibbles(int32x4_t bytes) { return bits_and(bytes, bytes_of(15)); }
static TINFER_INLINE int32x4_t high_nibbles(int32x4_t bytes) { return as_words(vshrq_n_u8(as_u8(bytes), 4)); }
/// Six bits less 32: the upper bit of a pair decides about the sign. It is inverted, and what is shifted down brings it
/// along.
static TINFER_INLINE int32x4_t signed_six_bits(int32x4_t nibbles, int high, int32x4_t upper, int pair) {
    const uint8x16_t inverted = veorq_u8(as_u8(upper), vdupq_n_u8(0xAA));
    const int8x16_t top = vreinterpretq_s8_u8(inverted << vdupq_n_u8(static_cast<std::uint8_t>(6 - 2 * pair)));
    const uint8x16_t low = high == 0 ? as_u8(nibbles) : vshrq_n_u8(as_u8(nibbles), 4);
    return as_words(vbslq_u8(vdupq_n_u8(15), low, vreinterpretq_u8_s8(vshrq_n_s8(top, 2))));
}
/// The bytes of a table with these numbers; zero for those above fifteen.
static TINFER_INLINE int32x4_t look_up(int32x4_t table, int32x4_t numbers) {
    return as_words(vqtbl1q_u8(as_u8(table), as_u8(numbers)));
}
/// Sixteen levels, each with the bias of codes.
static TINFER_INLINE int32x4_t levels_of(const std::int8_t* table, int bias) {
    return as_words(vaddq_u8(as_u8(load_bytes16(table)), as_u8(bytes_of(bias))));
}
/// Four bytes in the lowest lane.
static TINFER_INLINE int32x4_t load_word(const void* p) {
    std::int32_t word;
    std::memcpy(&word, p, 4);
    return int32x4_t{word, 0, 0, 0};
}
static TINFER_INLINE float32x4_t low_f16(int32x4_t lanes) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(vreinterpretq_u32_s32(lanes))));
}
static TINFER_INLINE float32x4_t high_f16(int32x4_t lanes) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vshrn_n_u32(vreinterpretq_u32_s32(lanes), 16)));
}
/// e8m0_half (quants/half.hpp) of the lowest byte of each lane.
static TINFER_INLINE float32x4_t e8m0_halves(int32x4_t lanes) {
    const int32x4_t e = bits_and(lanes, vdupq_n_s32(255)), small = vshlq_s32(vdupq_n_s32(0x00200000), e);
    const int32x4_t bits = vshlq_n_s32(vsubq_s32(e, vdupq_n_s32(1)), 23);
    return vreinterpretq_f32_s32(vbslq_s32(vcltq_s32(e, vdupq_n_s32(2)), small, bits));
}

}  // namespace tinfer::kernels

#endif
