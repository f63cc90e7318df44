// SPDX-License-Identifier: MIT
// Attention over KV slots of codes: products of 8-bit queries with 8-bit or 4-bit keys as integers, which are exact,
// with one float step per 32 channels; V widened as code times scale.
#pragma once

#include <type_traits>

#include "kernels/attention/kv_quantize.hpp"
#include "kernels/attention/microkernels.hpp"

namespace tinfer::kernels {

// ---- Lanes ----------------------------------------------------------------------------------------------------------

// half_values: N of f16. signed_nibbles: the low or the high four bits of 16 bytes, less 8.
#if defined(__x86_64__)
template <int N>
static TINFER_INLINE void half_values(const std::byte* p, float* out) {
    std::uint64_t halves = 0;
    std::memcpy(&halves, p, 2 * N);
    _mm_storeu_ps(out, _mm_cvtph_ps(_mm_cvtsi64_si128(static_cast<long long>(halves))));
}
static TINFER_INLINE void signed_nibbles(const std::byte* p, bool high, std::int8_t (&out)[16]) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m128i nibbles = _mm_and_si128(high ? _mm_srli_epi16(bytes, 4) : bytes, _mm_set1_epi8(15));
    _mm_store_si128(reinterpret_cast<__m128i*>(out), _mm_sub_epi8(nibbles, _mm_set1_epi8(8)));
}
// nibble_floats: the low four bits of 16 bytes, less 8, as floats, and the high ones. A byte is put where its four bits
// are the last of a mantissa whose exponent makes them units.
template <bool High>
static TINFER_INLINE f32v<avx2> nibble_floats(__m256i spread) {
    constexpr int kMask = High ? 0xF000 : 0x0F00, kExponent = High ? 0x45000000 : 0x47000000;
    constexpr float kBias = High ? 2048.0f + 8.0f : 32768.0f + 8.0f;
    const __m256i bits =
        _mm256_or_si256(_mm256_and_si256(spread, _mm256_set1_epi32(kMask)), _mm256_set1_epi32(kExponent));
    return _mm256_sub_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(kBias));
}
template <bool High>
static TINFER_INLINE void nibble_floats(const std::byte* p, f32v<avx2> (&out)[2], avx2) {
    const __m256i bytes = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), to_second = _mm256_slli_epi32(lane, 8);
    for (int i = 0; i < 2; ++i) {
        const __m256i index = _mm256_or_si256(to_second, _mm256_set1_epi32(static_cast<int>(0x80800080) | i << 11));
        out[i] = nibble_floats<High>(_mm256_shuffle_epi8(bytes, index));
    }
}
// A register's worth of signed bytes as floats.
static TINFER_INLINE f32v<avx2> float_bytes(const void* p, avx2) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p))));
}
/// acc + the four products of each lane: w signed bytes above −128, or unsigned ones up to 15; a signed.
static TINFER_INLINE i32v<avx2> dot_key(i32v<avx2> acc, i32v<avx2> w, i32v<avx2> a, avx2) {
    return dot2(acc, dot_signed_bytes(w, a, avx2{}), i32v<avx2>(0x00010001), avx2{});
}
#    if defined(__AVXVNNI__)
static TINFER_INLINE i32v<avxvnni> dot_key(i32v<avxvnni> acc, i32v<avxvnni> w, i32v<avxvnni> a, avxvnni) {
    return dot4(acc, w, a, avxvnni{});
}
#    endif
#    if defined(__AVX512DQ__)
template <bool High>
static TINFER_INLINE f32v<avx512> nibble_floats(__m512i spread) {
    constexpr int kMask = High ? 0xF000 : 0x0F00, kExponent = High ? 0x45000000 : 0x47000000;
    constexpr float kBias = High ? 2048.0f + 8.0f : 32768.0f + 8.0f;
    const __m512i bits =
        _mm512_ternarylogic_epi32(spread, _mm512_set1_epi32(kMask), _mm512_set1_epi32(kExponent), 0xEA);
    return _mm512_sub_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(kBias));
}
template <bool High>
static TINFER_INLINE void nibble_floats(const std::byte* p, f32v<avx512> (&out)[1], avx512) {
    const __m512i bytes = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i index = _mm512_or_si512(_mm512_slli_epi32(lane, 8), _mm512_set1_epi32(static_cast<int>(0x80800080)));
    out[0] = nibble_floats<High>(_mm512_shuffle_epi8(bytes, index));
}
static TINFER_INLINE f32v<avx512> float_bytes(const void* p, avx512) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))));
}
static TINFER_INLINE i32v<avx512> dot_key(i32v<avx512> acc, i32v<avx512> w, i32v<avx512> a, avx512) {
    return dot2(acc, dot_signed_bytes(w, a, avx512{}), i32v<avx512>(0x00010001), avx512{});
}
#    endif
#    if defined(__AVX512VNNI__)
static TINFER_INLINE i32v<avx512vnni> dot_key(i32v<avx512vnni> acc, i32v<avx512vnni> w, i32v<avx512vnni> a,
                                              avx512vnni) {
    return dot4(acc, w, a, avx512vnni{});
}
#    endif
#elif defined(__aarch64__)
template <int N>
static TINFER_INLINE void half_values(const std::byte* p, float* out) {
    std::uint64_t halves = 0;
    std::memcpy(&halves, p, 2 * N);
    vst1q_f32(out, vcvt_f32_f16(vreinterpret_f16_u64(vcreate_u64(halves))));
}
static TINFER_INLINE void signed_nibbles(const std::byte* p, bool high, std::int8_t (&out)[16]) {
    const uint8x16_t bytes = vld1q_u8(reinterpret_cast<const std::uint8_t*>(p));
    const uint8x16_t nibbles = high ? vshrq_n_u8(bytes, 4) : vandq_u8(bytes, vdupq_n_u8(15));
    vst1q_s8(out, vsubq_s8(vreinterpretq_s8_u8(nibbles), vdupq_n_s8(8)));
}
static TINFER_INLINE f32v<neon> float_bytes(const void* p, neon) {
    std::int32_t four;
    std::memcpy(&four, p, 4);
    const int16x8_t words = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(words)));
}
template <bool High>
static TINFER_INLINE void nibble_floats(const std::byte* p, f32v<neon> (&out)[4], neon) {
    std::int8_t codes[16];
    signed_nibbles(p, High, codes);
    for (int i = 0; i < 4; ++i) out[i] = float_bytes(codes + 4 * i, neon{});
}
static TINFER_INLINE i32v<neon> dot_key(i32v<neon> acc, i32v<neon> w, i32v<neon> a, neon) {
    return dot4(acc, w, a, neon{});
}
#    if defined(__ARM_FEATURE_DOTPROD)
static TINFER_INLINE i32v<neon_dot> dot_key(i32v<neon_dot> acc, i32v<neon_dot> w, i32v<neon_dot> a, neon_dot) {
    return dot4(acc, w, a, neon_dot{});
}
#    endif
#endif

// ---- KV slots -------------------------------------------------------------------------------------------------------

/// Rows of V. Every head size is a whole number of blocks, so pieces of 16 never end early.
template <class Arch, DType Type>
struct CodedKvSlot {
    static constexpr bool kScaled = false;
    /// Of n channels, with their share of the scales.
    static constexpr std::int64_t row_bytes(std::int64_t n) noexcept { return code_bytes(Type, n) + n * 2 / kKvBlock; }
    /// 16·Pieces channels of a row, from one on: a whole block's first, where they are more than 16. Scales are widened
    /// together and go through memory, from where an instruction takes one for all lanes.
    template <int Pieces>
    struct Row {
        static_assert(Pieces <= 8);
        TINFER_INLINE Row(const std::byte* row, std::int64_t channel, std::int64_t d) noexcept
            : codes(row), first(channel) {
            half_values<(Pieces + 1) / 2>(row + v_scale(Type, d, channel / kKvBlock), scale);
        }
        [[nodiscard]] TINFER_INLINE f32x16<Arch> load(int piece) const noexcept {
            const std::byte* bytes =
                codes + (Type == DType::q8_0 ? first + 16 * piece : first / 32 * 16 + piece / 2 * 16);
            alignas(16) std::int8_t low[16];
            if constexpr (Type == DType::q4_0) {
                signed_nibbles(bytes, Pieces > 1 ? piece % 2 != 0 : first % 32 != 0, low);
                bytes = reinterpret_cast<const std::byte*>(low);
            }
            return f32x16<Arch>::broadcast(scale + piece / 2) *
                   f32x16<Arch>::each([&](int i) { return float_bytes(bytes + i * Arch::kLanes, Arch{}); });
        }
        const std::byte* codes;
        std::int64_t first;
        float scale[4];
    };
    static TINFER_INLINE f32x16<Arch> load_row(const std::byte* row, std::int64_t channel, std::int64_t d) noexcept {
        return Row<1>(row, channel, d).load(0);
    }
    static TINFER_INLINE f32x16<Arch> load_row(const std::byte* row, std::int64_t channel, std::int64_t d,
                                               int) noexcept {
        return load_row(row, channel, d);
    }
};

/// Rows of V whose scales have been widened: those of a row of `d` channels, one for each 32.
template <class Arch, DType Type>
struct ScaledKvSlot : CodedKvSlot<Arch, Type> {
    static constexpr bool kScaled = true;
    template <int Pieces>
    struct Row {
        TINFER_INLINE Row(const std::byte* codes, std::int64_t channel, const float* scales) noexcept
            : at(codes + (Type == DType::q8_0 ? channel : channel / 32 * 16)), scale(scales + channel / kKvBlock),
              high(channel % 32 != 0) {}
        TINFER_INLINE void load(f32x16<Arch> (&out)[Pieces]) const noexcept {
#pragma GCC unroll 4
            for (int i = 0; i < Pieces; i += 2) {
                const auto factor = f32x16<Arch>::broadcast(scale + i / 2);
                if constexpr (Type == DType::q8_0) {
                    for (int j = i; j < i + 2 && j < Pieces; ++j)
                        out[j] = factor * f32x16<Arch>::each([&](int l) {
                                     return float_bytes(at + 16 * j + l * Arch::kLanes, Arch{});
                                 });
                } else {
                    const auto half = [&](auto is_high) {
                        f32x16<Arch> codes;
                        nibble_floats<is_high()>(at + 8 * i, codes.part, Arch{});
                        return factor * codes;
                    };
                    out[i] = Pieces == 1 && high ? half(std::true_type{}) : half(std::false_type{});
                    if (i + 1 < Pieces) out[i + 1] = half(std::true_type{});
                }
            }
        }
        const std::byte* at;
        const float* scale;
        bool high;  ///< begins with the second half of a block
    };
};
/// The scales of a row of V, of d / 32 of them; up to three floats behind them are written, too.
template <class Arch, DType Type>
TINFER_INLINE void widen_scales(const std::byte* row, std::int64_t d, float* out) noexcept {
    const std::byte* scales = row + v_scale(Type, d, 0);
    const std::int64_t n = d / kKvBlock;
    if (n == 2) return half_values<2>(scales, out);
    std::int64_t b = 0;
    for (; b + 4 <= n; b += 4) half_values<4>(scales + 2 * b, out + b);
    for (; b < n; ++b) half_values<1>(scales + 2 * b, out + b);
}

template <class Arch, DType Type>
inline void widen_tile_scales(const std::byte* const (&row)[64], std::uint64_t rows, std::int64_t d,
                              float* out) noexcept {
    if (rows == ~std::uint64_t{0}) {
        for (int i = 0; i < 64; ++i) widen_scales<Arch, Type>(row[i], d, out + i * (d / kKvBlock));
        return;
    }
    for (; rows != 0; rows &= rows - 1) {
        const int i = __builtin_ctzll(rows);
        widen_scales<Arch, Type>(row[i], d, out + i * (d / kKvBlock));
    }
}
/// Those of the rows of a tile whose bit is set, for ScaledKvSlot; of other types nothing. `out` has room for 4 more.
template <class Arch>
inline void widen_row_scales(DType type, const std::byte* const (&row)[64], std::uint64_t rows, std::int64_t d,
                             float* out) noexcept {
    if (type == DType::q8_0) widen_tile_scales<Arch, DType::q8_0>(row, rows, d, out);
    if (type == DType::q4_0) widen_tile_scales<Arch, DType::q4_0>(row, rows, d, out);
}

/// What is added to the codes of K before a product: the VNNI instruction takes one of its factors unsigned.
template <class Arch, DType Type>
inline constexpr int kKeyBias = Type == DType::q4_0                    ? 8
                                : Arch::kHasDot4 && !Arch::kSignedDot4 ? 128
                                                                       : 0;

/// Quantized queries of a tile: each by itself; or word after word of all of them, then their scales and acc_init.
struct PackedCodes {
    std::int8_t* codes;
    float* d;
    std::int32_t* acc_init;
};
template <bool Packed>
using TileOfCodes = std::conditional_t<Packed, PackedCodes, const CodedQuery*>;
template <int Queries>
struct QueryCodes {
    static TINFER_INLINE const std::int8_t* word(const CodedQuery* q, int r, std::int64_t w) noexcept {
        return q[r].codes + 4 * w;
    }
    static TINFER_INLINE const std::int8_t* word(const PackedCodes& q, int r, std::int64_t w) noexcept {
        return q.codes + 4 * (w * Queries + r);
    }
    static TINFER_INLINE const float* d(const CodedQuery* q, int r, std::int64_t b) noexcept { return q[r].d + b; }
    static TINFER_INLINE const float* d(const PackedCodes& q, int r, std::int64_t b) noexcept {
        return q.d + b * Queries + r;
    }
    static TINFER_INLINE std::int32_t acc_init(const CodedQuery* q, int r, std::int64_t b) noexcept {
        return q[r].acc_init[b];
    }
    static TINFER_INLINE std::int32_t acc_init(const PackedCodes& q, int r, std::int64_t b) noexcept {
        return q.acc_init[b * Queries + r];
    }
};
/// s[r][16·g + l] = Σ over blocks of fma(d_k · d_q, float(Σ code_k · code_q), s).
template <class Arch, DType Type, int Queries, int Groups, bool Ahead>
[[gnu::noinline]] void dot_codes(TileOfCodes<Ahead> q, const std::byte* const* k, [[maybe_unused]] NextRead next,
                                 std::int64_t d, float* const* s) noexcept {
    using Codes = QueryCodes<Queries>;
    constexpr int kParts = f32x16<Arch>::kParts, kWords = Type == DType::q8_0 ? 8 : 4;
    constexpr std::int64_t kStep = kWords * 64,
                           kShare = Groups * (kStep + 2 * kGroup);  // a block's share of the scales
    f32x16<Arch> sum[Queries][Groups];
    for (int r = 0; r < Queries; ++r)
        for (int g = 0; g < Groups; ++g) sum[r][g] = f32x16<Arch>(0.0f);
    const std::int64_t scales = kGroup * code_bytes(Type, d);
    for (std::int64_t b = 0; b < d / kKvBlock; ++b) {
        i32v<Arch> acc[Queries][Groups][kParts];
#pragma GCC unroll 8
        for (int r = 0; r < Queries; ++r)
#pragma GCC unroll 4
            for (int g = 0; g < Groups; ++g)
#pragma GCC unroll 2
                for (int i = 0; i < kParts; ++i) acc[r][g][i] = i32v<Arch>(Codes::acc_init(q, r, b));
        if constexpr (Ahead) next.prefetch<kShare>(b * kShare);
        for (int w = 0; w < kWords; ++w) {
            i32v<Arch> codes[Groups][kParts];
#pragma GCC unroll 4
            for (int g = 0; g < Groups; ++g)
#pragma GCC unroll 2
                for (int i = 0; i < kParts; ++i) {
                    codes[g][i] = load_i32<Arch>(k[g] + b * kStep + w * 64 + i * Arch::kLanes * 4);
                    if constexpr (kKeyBias<Arch, Type> == 128)
                        codes[g][i] = codes[g][i] ^ i32v<Arch>(static_cast<std::int32_t>(0x80808080u));
                }
#pragma GCC unroll 2
            for (int half = 0; half < 8 / kWords; ++half)
#pragma GCC unroll 8
                for (int r = 0; r < Queries; ++r) {
                    const auto a = bcast4<Arch>(Codes::word(q, r, b * 8 + w * (8 / kWords) + half));
#pragma GCC unroll 4
                    for (int g = 0; g < Groups; ++g)
#pragma GCC unroll 2
                        for (int i = 0; i < kParts; ++i) {
                            i32v<Arch> key = codes[g][i];
                            if constexpr (Type == DType::q4_0)
                                key = (half == 0 ? key : key >> 4) & i32v<Arch>(0x0F0F0F0F);
                            acc[r][g][i] = dot_key(acc[r][g][i], key, a, Arch{});
                        }
                }
        }
#pragma GCC unroll 4
        for (int g = 0; g < Groups; ++g) {
            const auto scale =
                f32x16<Arch>::load_f16(reinterpret_cast<const std::uint16_t*>(k[g] + scales + b * kGroup * 2));
#pragma GCC unroll 8
            for (int r = 0; r < Queries; ++r) {
                const auto dot = f32x16<Arch>::each([&](int i) { return as_float(acc[r][g][i], Arch{}); });
                sum[r][g] = fma(scale * f32x16<Arch>::broadcast(Codes::d(q, r, b)), dot, sum[r][g]);
            }
        }
    }
    for (int r = 0; r < Queries; ++r)
        for (int g = 0; g < Groups; ++g) sum[r][g].store(s[r] + g * kGroup);
}

/// The same for n ≤ Queries queries and four groups.
template <class Arch, DType Type, bool Ahead, int Queries>
inline void dot_coded_groups(int n, TileOfCodes<Ahead> q, const std::byte* const (&k)[4], NextRead next, std::int64_t d,
                             float* const* s) noexcept {
    if constexpr (Queries > 1)
        if (n < Queries) return dot_coded_groups<Arch, Type, Ahead, Queries - 1>(n, q, k, next, d, s);
    const auto run = [&](auto groups) {
        constexpr int kGroups = groups();
        const std::int64_t group = kGroup * row_bytes(Type, d);
        for (int g = 0; g < 4; g += kGroups) {
            float* to[Queries];
            for (int r = 0; r < Queries; ++r) to[r] = s[r] + g * kGroup;
            dot_codes<Arch, Type, Queries, kGroups, Ahead>(q, k + g, next + g * group, d, to);
        }
    };
    // Measured. Codes take little arithmetic, so that from memory one stream is best where processors fetch along it.
    if constexpr (Ahead && Arch::kLanes == 16 && Queries <= 2)
        if (next.way == NextRead::Way::into_l1) return run(std::integral_constant<int, 4>{});
    if constexpr (Ahead && Arch::kLanes == 16)
        if (next.way == NextRead::Way::in_turn) return run(std::integral_constant<int, 2>{});
    run(std::integral_constant < int, Ahead || Arch::kLanes < 16 ? 1 : 2 > {});
}

/// Calls fn with the KV slots of V of a cache that few rows use where they lie.
template <class Arch, class Fn>
TINFER_INLINE void with_direct_values(DType type, Fn fn) noexcept {
    with_kv_slot<Arch>(type, fn);
    if (type == DType::q8_0) fn(ScaledKvSlot<Arch, DType::q8_0>{});
    if (type == DType::q4_0) fn(ScaledKvSlot<Arch, DType::q4_0>{});
}
/// Calls fn with the KV slots of V of any cache.
template <class Arch, class Fn>
TINFER_INLINE void with_value_slots(DType type, Fn fn) noexcept {
    with_kv_slot<Arch>(type, fn);
    if (type == DType::q8_0) fn(CodedKvSlot<Arch, DType::q8_0>{});
    if (type == DType::q4_0) fn(CodedKvSlot<Arch, DType::q4_0>{});
}

}  // namespace tinfer::kernels
