// SPDX-License-Identifier: MIT
// Four rows in the lanes of a register of 64-bit ARM: what kernels/pack/transpose_lanes.hpp says.
#pragma once

#include "kernels/dequantize/bytes_neon.hpp"
#include "kernels/pack/transpose_lanes.hpp"

#if defined(__aarch64__)

namespace tinfer::kernels {

template <>
struct RowLanes<4> {
    using Bytes = int32x4_t;
    using Floats = float32x4_t;
    static TINFER_INLINE int32x4_t each_byte(int value) { return bytes_of(value); }
    static TINFER_INLINE int32x4_t each_word(int value) { return vdupq_n_s32(value); }
};

static TINFER_INLINE int32x4_t shuffle_in_quarters(int32x4_t lanes, int32x4_t index) { return look_up(lanes, index); }
static TINFER_INLINE int32x4_t where_set(int32x4_t bytes, int32x4_t bits, int32x4_t value) {
    return vandq_s32(vreinterpretq_s32_u8(vtstq_s8(vreinterpretq_s8_s32(bytes), vreinterpretq_s8_s32(bits))), value);
}
/// Pair i of byte i of each lane.
static TINFER_INLINE int32x4_t pairs_of_bytes(int32x4_t bytes) {
    const int8x16_t down = vreinterpretq_s8_s32(vdupq_n_s32(static_cast<int>(0xFAFCFE00u)));  // 0, −2, −4, −6
    return vandq_s32(vreinterpretq_s32_u8(vshlq_u8(vreinterpretq_u8_s32(bytes), down)), bytes_of(3));
}
static TINFER_INLINE int32x4_t upper_bytes(int32x4_t int16s) {
    return vreinterpretq_s32_s16(vshrq_n_s16(vreinterpretq_s16_s32(int16s), 8));
}
static TINFER_INLINE void store_lanes(void* p, int32x4_t v) { vst1q_s32(static_cast<std::int32_t*>(p), v); }
static TINFER_INLINE void store_lanes(float* p, float32x4_t v) { vst1q_f32(p, v); }

static TINFER_INLINE void load_words(const RowBlocks<4>& b, std::int64_t at, int32x4_t (&words)[4]) {
    i32v<neon> m[4] = {load_bytes16(b[0] + at), load_bytes16(b[1] + at), load_bytes16(b[2] + at),
                       load_bytes16(b[3] + at)};
    transpose(m, neon{});
    for (int c = 0; c < 4; ++c) words[c] = m[c];
}
static TINFER_INLINE void load_words(const RowBlocks<4>& b, std::int64_t at, int32x4_t (&words)[8]) {
    int32x4_t half[4];
    for (int i = 0; i < 2; ++i) {
        load_words(b, at + 16 * i, half);
        for (int c = 0; c < 4; ++c) words[4 * i + c] = half[c];
    }
}
static TINFER_INLINE int32x4_t load_words32(const RowBlocks<4>& b, std::int64_t at) {
    const int32x4_t first = vzip1q_s32(load_word(b[0] + at), load_word(b[1] + at)),
                    last = vzip1q_s32(load_word(b[2] + at), load_word(b[3] + at));
    return vreinterpretq_s32_s64(vzip1q_s64(vreinterpretq_s64_s32(first), vreinterpretq_s64_s32(last)));
}
static TINFER_INLINE float32x4_t load_f16s(const RowBlocks<4>& b, std::int64_t at) {
    return low_f16(load_words32(b, at));
}
static TINFER_INLINE float32x4_t load_last_f16s(const RowBlocks<4>& b, std::int64_t at) {
    return high_f16(load_words32(b, at - 2));
}

}  // namespace tinfer::kernels

#endif
