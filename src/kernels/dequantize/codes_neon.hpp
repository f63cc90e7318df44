// SPDX-License-Identifier: MIT
// Decoders of one block for 64-bit ARM: registers of sixteen codes, for the formats that are not decoded four rows at a
// time (kernels/pack/transposed_decode_k.hpp). Rows of codebooks are loaded one by one. The integers are those of the
// formats' own formulas.
#pragma once

#include "kernels/dequantize/bytes_neon.hpp"
#include "kernels/quants/formats.hpp"

#if defined(__aarch64__)

namespace tinfer::kernels {

// A format says here how its blocks are read:
//   codes(block, unit, put)   put(i, c): values 16i … 16i + 15; the first of those that share a scale comes first
//   scales(block, s)          of super-blocks with scales: four in each register
//   half_d(block), kFactor    of super-blocks: d of the file as it is stored, and what it is times
template <class Format>
struct NeonCodes;

/// Forces elements that vectors stored to be loaded from memory one by one, not extracted from registers.
template <class T>
static TINFER_INLINE void keep_in_memory(T& stored) {
    asm("" : "+m"(stored));
}
static TINFER_INLINE uint8x16_t bits_in_turn() { return vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u)); }
/// Of 32 bytes number 2i eight times, then the next one.
static TINFER_INLINE uint8x16_t two_of(const uint8x16_t (&bytes)[2], int i) {
    const uint8x16_t first = vcombine_u8(vdup_n_u8(0), vdup_n_u8(1));
    return vqtbl1q_u8(bytes[i / 8], vaddq_u8(first, vdupq_n_u8(static_cast<std::uint8_t>(2 * (i % 8)))));
}
/// Codes 16i … 16i + 15, negative where their bits are set.
static TINFER_INLINE uint8x16_t negate_where(const uint8x16_t (&bits)[2], int i, uint8x16_t codes) {
    const uint8x16_t mask = vtstq_u8(two_of(bits, i), bits_in_turn());
    return vsubq_u8(veorq_u8(codes, mask), mask);
}
/// Bytes of seven sign bits with the eighth: the number of minus signs is even.
static TINFER_INLINE uint8x16_t with_eighth_sign(uint8x16_t seven) {
    constexpr std::uint8_t kOdd = 0x80;
    const uint8x16_t parity = {0, kOdd, kOdd, 0, kOdd, 0, 0, kOdd, kOdd, 0, 0, kOdd, 0, kOdd, kOdd, 0};
    const uint8x16_t nibble = vandq_u8(veorq_u8(seven, vshrq_n_u8(seven, 4)), vdupq_n_u8(15));
    return vorrq_u8(seven, vqtbl1q_u8(parity, nibble));
}
/// Two rows of eight values.
static TINFER_INLINE uint8x16_t two_rows(const std::uint64_t* grid, int a, int b) {
    return vreinterpretq_u8_u64(vcombine_u64(vld1_u64(grid + a), vld1_u64(grid + b)));
}
/// Four rows of four values.
static TINFER_INLINE uint8x16_t four_rows(const std::uint32_t* grid, int a, int b, int c, int d) {
    const int32x4_t first = vzip1q_s32(load_word(grid + a), load_word(grid + b)),
                    last = vzip1q_s32(load_word(grid + c), load_word(grid + d));
    return vreinterpretq_u8_s64(vzip1q_s64(vreinterpretq_s64_s32(first), vreinterpretq_s64_s32(last)));
}
/// 2s + 1 of four numbers.
static TINFER_INLINE int32x4_t odd_scales(uint32x4_t s) {
    return vreinterpretq_s32_u32(vaddq_u32(vaddq_u32(s, s), vdupq_n_u32(1)));
}
/// 2s + 1 of the nibbles of Bytes bytes, low ones first.
template <int Bytes>
static TINFER_INLINE void odd_scales_of_nibbles(const std::uint8_t* p, int32x4_t (&scales)[Bytes / 2]) {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, p, Bytes);
    const uint8x8_t v = vcreate_u8(bytes);
    const uint8x16_t in_turn = vcombine_u8(vzip1_u8(vand_u8(v, vdup_n_u8(15)), vshr_n_u8(v, 4)),
                                           vzip2_u8(vand_u8(v, vdup_n_u8(15)), vshr_n_u8(v, 4)));
    const uint16x8_t low = vmovl_u8(vget_low_u8(in_turn)), high = vmovl_high_u8(in_turn);
    scales[0] = odd_scales(vmovl_u16(vget_low_u16(low)));
    scales[1] = odd_scales(vmovl_high_u16(low));
    if constexpr (Bytes == 8) {
        scales[2] = odd_scales(vmovl_u16(vget_low_u16(high)));
        scales[3] = odd_scales(vmovl_high_u16(high));
    }
}
/// Words of four 7-bit sign numbers with a 4-bit scale s on top: the signs, and 2s + 1.
static TINFER_INLINE uint8x16_t signs_of_words(uint32x4_t words) {
    const auto field = [&](int i) {
        return vandq_u32(words << vdupq_n_u32(static_cast<std::uint32_t>(i)), vdupq_n_u32(0x7Fu << 8 * i));
    };
    return with_eighth_sign(
        vreinterpretq_u8_u32(vorrq_u32(vorrq_u32(field(0), field(1)), vorrq_u32(field(2), field(3)))));
}
static TINFER_INLINE int32x4_t scales_of_words(uint32x4_t words) { return odd_scales(vshrq_n_u32(words, 28)); }
/// Numbers of sixteen rows of which the low and the high bytes are given.
static TINFER_INLINE void join_numbers(uint8x16_t low, uint8x16_t high, std::uint16_t* numbers) {
    vst1q_u8(reinterpret_cast<std::uint8_t*>(numbers), vzip1q_u8(low, high));
    vst1q_u8(reinterpret_cast<std::uint8_t*>(numbers) + 16, vzip2q_u8(low, high));
}
/// The sixteen bit pairs of the four bytes from number 4i on, the lowest of each byte first.
static TINFER_INLINE uint8x16_t pairs_in_turn(uint8x8_t bytes, int i) {
    const uint8x16_t four_times = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
    const int8x16_t down = vreinterpretq_s8_s32(vdupq_n_s32(static_cast<int>(0xFAFCFE00u)));  // 0, −2, −4, −6
    const uint8x16_t place = vaddq_u8(four_times, vdupq_n_u8(static_cast<std::uint8_t>(4 * i)));
    return vandq_u8(vshlq_u8(vqtbl1q_u8(vcombine_u8(bytes, bytes), place), down), vdupq_n_u8(3));
}
static TINFER_INLINE uint8x16_t minus_one(uint8x16_t codes) { return vsubq_u8(codes, vdupq_n_u8(1)); }

/// d in two bytes in front.
struct HalfInFront {
    static TINFER_INLINE std::uint16_t half_d(const std::uint8_t* block) { return load_u16<reference>(block); }
};

template <>
struct NeonCodes<IQ2_XXS> : HalfInFront {
    static constexpr float kFactor = 0.125f;
    static TINFER_INLINE uint32x4_t words(const std::uint8_t* block, int half) {
        const auto two = [&](int at) { return vreinterpretq_u32_s32(load_bytes16(block + 2 + 32 * half + at)); };
        return vuzp2q_u32(two(0), two(16));
    }
    static TINFER_INLINE void scales(const std::uint8_t* block, int32x4_t (&s)[2]) {
        for (int half = 0; half < 2; ++half) s[half] = scales_of_words(words(block, half));
    }
    template <class Put>
    static TINFER_INLINE void codes(const std::uint8_t* block, int, const Put& put) {
        const uint8x16_t signs[2] = {signs_of_words(words(block, 0)), signs_of_words(words(block, 1))};
#    pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
            const std::uint8_t* rows = block + 2 + i / 2 * 8 + i % 2 * 2;
            put(i, negate_where(signs, i, two_rows(kIq2XxsGrid, rows[0], rows[1])));
        }
    }
};

template <>
struct NeonCodes<IQ2_XS> : HalfInFront {
    static constexpr float kFactor = 0.125f;
    static TINFER_INLINE void scales(const std::uint8_t* block, int32x4_t (&s)[4]) {
        odd_scales_of_nibbles<8>(block + 66, s);
    }
    template <class Put>
    static TINFER_INLINE void codes(const std::uint8_t* block, int, const Put& put) {
        uint8x16_t signs[2];
        for (int half = 0; half < 2; ++half) {
            const auto seven = [&](int at) {
                return vshrq_n_u16(vreinterpretq_u16_s32(load_bytes16(block + 2 + 32 * half + at)), 9);
            };
            signs[half] = with_eighth_sign(vcombine_u8(vmovn_u16(seven(0)), vmovn_u16(seven(16))));
        }
#    pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
            const auto row = [&](int r) { return load_u16<reference>(block + 2 + 4 * i + 2 * r) & 511; };
            put(i, negate_where(signs, i, two_rows(kIq2XsGrid, row(0), row(1))));
        }
    }
};

template <>
struct NeonCodes<IQ2_S> : HalfInFront {
    static constexpr float kFactor = 0.125f;
    static TINFER_INLINE void scales(const std::uint8_t* block, int32x4_t (&s)[4]) {
        odd_scales_of_nibbles<8>(block + 74, s);
    }
    template <class Put>
    static TINFER_INLINE void codes(const std::uint8_t* block, int, const Put& put) {
        const uint8x16_t signs[2] = {vld1q_u8(block + 34), vld1q_u8(block + 50)};
        const uint8x8_t upper = vld1_u8(block + 66);
        std::uint16_t n[32];
        for (int half = 0; half < 2; ++half)
            join_numbers(vld1q_u8(block + 2 + 16 * half), pairs_in_turn(upper, half), n + 16 * half);
        keep_in_memory(n);
#    pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) put(i, negate_where(signs, i, two_rows(kIq2SGrid, n[2 * i], n[2 * i + 1])));
    }
};

template <>
struct NeonCodes<IQ3_XXS> : HalfInFront {
    static constexpr float kFactor = 0.25f;
    static TINFER_INLINE uint32x4_t words(const std::uint8_t* block, int half) {
        return vreinterpretq_u32_s32(load_bytes16(block + 66 + 16 * half));
    }
    static TINFER_INLINE void scales(const std::uint8_t* block, int32x4_t (&s)[2]) {
        for (int half = 0; half < 2; ++half) s[half] = scales_of_words(words(block, half));
    }
    template <class Put>
    static TINFER_INLINE void codes(const std::uint8_t* block, int, const Put& put) {
        const uint8x16_t signs[2] = {signs_of_words(words(block, 0)), signs_of_words(words(block, 1))};
#    pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
            const std::uint8_t* rows = block + 2 + 4 * i;
            put(i, negate_where(signs, i, four_rows(kIq3XxsGrid, rows[0], rows[1], rows[2], rows[3])));
        }
    }
};

template <>
struct NeonCodes<IQ3_S> : HalfInFront {
    static constexpr float kFactor = 1.0f;
    static TINFER_INLINE void scales(const std::uint8_t* block, int32x4_t (&s)[2]) {
        odd_scales_of_nibbles<4>(block + 106, s);
    }
    template <class Put>
    static TINFER_INLINE void codes(const std::uint8_t* block, int, const Put& put) {
        const uint8x16_t signs[2] = {vld1q_u8(block + 74), vld1q_u8(block + 90)};
        const uint8x8_t ninth = vld1_u8(block + 66);
        const uint8x16_t bytes[2] = {vcombine_u8(ninth, ninth), vcombine_u8(ninth, ninth)};
        std::uint16_t n[64];
#    pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const uint8x16_t set = vtstq_u8(two_of(bytes, i), bits_in_turn());
            join_numbers(vld1q_u8(block + 2 + 16 * i), vandq_u8(set, vdupq_n_u8(1)), n + 16 * i);
        }
        keep_in_memory(n);
#    pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
            const std::uint16_t* rows = n + 4 * i;
            put(i, negate_where(signs, i, four_rows(kIq3SGrid, rows[0], rows[1], rows[2], rows[3])));
        }
    }
};

/// Values −1, 0, 1 in eighths, one eighth up or down.
static TINFER_INLINE uint8x16_t shifted_rows(int a, int b, uint8x16_t by) {
    return vaddq_u8(vshlq_n_u8(two_rows(kIq1Grid, a, b), 3), by);
}

template <>
struct NeonCodes<IQ1_S> : HalfInFront {
    static constexpr float kFactor = 0.125f;
    static TINFER_INLINE uint16x8_t words(const std::uint8_t* block) {
        return vreinterpretq_u16_s32(load_bytes16(block + 34));
    }
    static TINFER_INLINE void scales(const std::uint8_t* block, int32x4_t (&s)[2]) {
        const uint16x8_t three = vandq_u16(vshrq_n_u16(words(block), 12), vdupq_n_u16(7));
        s[0] = odd_scales(vmovl_u16(vget_low_u16(three)));
        s[1] = odd_scales(vmovl_high_u16(three));
    }
    template <class Put>
    static TINFER_INLINE void codes(const std::uint8_t* block, int, const Put& put) {
        const uint8x16_t four_times = {0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3};
        const int16x8_t down = vreinterpretq_s16_u64(vdupq_n_u64(0xFFF7'FFFA'FFFD'0000));  // 0, −3, −6, −9
        std::uint16_t n[32];
#    pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {  // three bits of eight rows are in two words
            const uint8x16_t place = vaddq_u8(four_times, vdupq_n_u8(static_cast<std::uint8_t>(4 * i)));
            const uint16x8_t of = vreinterpretq_u16_u8(vqtbl1q_u8(vreinterpretq_u8_u16(words(block)), place));
            const uint16x8_t upper = vshlq_n_u16(vandq_u16(vshlq_u16(of, down), vdupq_n_u16(7)), 8);
            vst1q_u16(n + 8 * i, vorrq_u16(upper, vmovl_u8(vld1_u8(block + 2 + 8 * i))));
        }
        keep_in_memory(n);
        const int16x8_t sign = vshrq_n_s16(vreinterpretq_s16_u16(words(block)), 15);
        const uint8x8_t by = vreinterpret_u8_s8(vmovn_s16(vorrq_s16(sign, vdupq_n_s16(1))));
#    pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
            const uint8x16_t place = vdupq_n_u8(static_cast<std::uint8_t>(i / 2));
            put(i, shifted_rows(n[2 * i], n[2 * i + 1], vqtbl1q_u8(vcombine_u8(by, by), place)));
        }
    }
};

template <>
struct NeonCodes<IQ1_M> {
    static constexpr float kFactor = 0.125f;
    /// The topmost nibbles of four words, lowest first.
    static TINFER_INLINE std::uint16_t half_d(const std::uint8_t* block) {
        std::uint64_t words;
        std::memcpy(&words, block + 48, 8);
        return static_cast<std::uint16_t>((words >> 12 & 0x000F'000F'000F'000F) * 0x0001'0010'0100'1000 >> 48);
    }
    static TINFER_INLINE void scales(const std::uint8_t* block, int32x4_t (&s)[4]) {
        const int32x4_t down = {0, -3, -6, -9};
        const uint32x4_t words = vmovl_u16(vld1_u16(reinterpret_cast<const std::uint16_t*>(block + 48)));
        const auto of = [&](uint32x4_t word) { return odd_scales(vandq_u32(vshlq_u32(word, down), vdupq_n_u32(7))); };
        s[0] = of(vdupq_laneq_u32(words, 0));
        s[1] = of(vdupq_laneq_u32(words, 1));
        s[2] = of(vdupq_laneq_u32(words, 2));
        s[3] = of(vdupq_laneq_u32(words, 3));
    }
    template <class Put>
    static TINFER_INLINE void codes(const std::uint8_t* block, int, const Put& put) {
        const uint8x16_t bytes = vld1q_u8(block + 32), low = vandq_u8(bytes, vdupq_n_u8(15)),
                         high = vshrq_n_u8(bytes, 4);
        const uint8x16_t nibbles[2] = {vzip1q_u8(low, high), vzip2q_u8(low, high)};
        uint8x16_t by[2];
        std::uint16_t n[32];
        for (int half = 0; half < 2; ++half) {
            join_numbers(vld1q_u8(block + 16 * half), vandq_u8(nibbles[half], vdupq_n_u8(7)), n + 16 * half);
            by[half] = vorrq_u8(vtstq_u8(nibbles[half], vdupq_n_u8(8)), vdupq_n_u8(1));
        }
        keep_in_memory(n);
#    pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) put(i, shifted_rows(n[2 * i], n[2 * i + 1], two_of(by, i)));
    }
};

/// A digit to base three is the whole part of three times a fraction of 256, the next one that of the rest: 86 and 171
/// are the first bytes of which it is 1 and 2.
static TINFER_INLINE uint8x16_t base3_digits(uint8x16_t fractions) {
    const uint8x16_t digit = vsubq_u8(vdupq_n_u8(0xFF), vcgeq_u8(fractions, vdupq_n_u8(86)));
    return vsubq_u8(digit, vcgeq_u8(fractions, vdupq_n_u8(171)));
}
template <>
struct NeonCodes<TQ1_0> {
    static constexpr float kFactor = 1.0f;
    static TINFER_INLINE std::uint16_t half_d(const std::uint8_t* block) { return load_u16<reference>(block + 52); }
    template <class Put>
    static TINFER_INLINE void codes(const std::uint8_t* block, int, const Put& put) {
        const uint8x16_t three = vdupq_n_u8(3);
        uint8x16_t f[3] = {vld1q_u8(block), vld1q_u8(block + 16), vld1q_u8(block + 32)};
#    pragma GCC unroll 5
        for (int n = 0; n < 5; ++n)
#    pragma GCC unroll 3
            for (int part = 0; part < 3; ++part) {
                put(part < 2 ? 2 * n + part : 10 + n, base3_digits(f[part]));
                f[part] = vmulq_u8(f[part], three);
            }
        const uint8x16_t powers = {1, 1, 1, 1, 3, 3, 3, 3, 9, 9, 9, 9, 27, 27, 27, 27};
        const uint32x4_t four = vdupq_n_u32(load_u32<reference>(block + 48));
        put(15, base3_digits(vmulq_u8(vreinterpretq_u8_u32(four), powers)));
    }
};
template <>
struct NeonCodes<TQ2_0> {
    static constexpr float kFactor = 1.0f;
    static TINFER_INLINE std::uint16_t half_d(const std::uint8_t* block) { return load_u16<reference>(block + 64); }
    template <class Put>
    static TINFER_INLINE void codes(const std::uint8_t* block, int, const Put& put) {
#    pragma GCC unroll 4
        for (int part = 0; part < 4; ++part) {
            const uint8x16_t bytes = vld1q_u8(block + 16 * part);
#    pragma GCC unroll 4
            for (int pair = 0; pair < 4; ++pair) {
                const uint8x16_t down = bytes >> vdupq_n_u8(static_cast<std::uint8_t>(2 * pair));
                put(8 * (part / 2) + 2 * pair + part % 2, minus_one(vandq_u8(down, vdupq_n_u8(3))));
            }
        }
    }
};

// ---- Blocks of 32 ---------------------------------------------------------------------------------------------------

template <>
struct NeonCodes<Q8_0> {
    template <class Put>
    static TINFER_INLINE void codes(const std::uint8_t* block, int, const Put& put) {
        for (int i = 0; i < 2; ++i) put(i, vld1q_u8(block + 2 + 16 * i));
    }
};

// ---- To memory ------------------------------------------------------------------------------------------------------

template <class Arch, class Format>
TINFER_INLINE void unpack_vector(Format, const std::uint8_t* block, int unit,
                                 Codes256& out) noexcept requires requires {
    NeonCodes<Format>::kFactor;
}
{
    constexpr int kSubs = 256 / Format::kScaleElems;
    NeonCodes<Format>::codes(block, unit,
                             [&](int i, uint8x16_t c) { vst1q_s8(out.q + 16 * i, vreinterpretq_s8_u8(c)); });
    if constexpr (kSubs == 1) {
        for (std::int16_t& scale : out.scale) scale = 1;
    } else {
        int32x4_t s[kSubs / 4];
        NeonCodes<Format>::scales(block, s);
        for (int i = 0; i < kSubs / 4; ++i) {
            const int16x4_t four = vmovn_s32(s[i]);
            if constexpr (kSubs == 16) vst1_s16(out.scale + 4 * i, four);
            else vst1q_s16(out.scale + 8 * i, vcombine_s16(vzip1_s16(four, four), vzip2_s16(four, four)));
        }
    }
    out.d = f16_to_f32<Arch>(NeonCodes<Format>::half_d(block)) * NeonCodes<Format>::kFactor;
}
}  // namespace tinfer::kernels

#endif
