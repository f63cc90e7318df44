// SPDX-License-Identifier: MIT
// The instruction sets of x86-64: their tags and what each function of kernels/simd/vec.hpp that takes a tag is there.
// Empty elsewhere.
#pragma once

#include "kernels/simd/vec.hpp"

#if defined(__x86_64__)
#    include <immintrin.h>

namespace tinfer::kernels {

/// Tags derive from the tag below them: an overload that a level lacks is found one level lower.
struct avx2 {
    static constexpr Isa kIsa = Isa::avx2;
    using Vector = avx2;  ///< the tag whose vector code a table shares: its own but for the matrix unit
    using simd = xsimd::fma3<xsimd::avx2>;
    static constexpr int kLanes = 8;                ///< 32-bit lanes of a register
    static constexpr int kMicroTileTokens = 3;      ///< tokens of a product tile: what 16 registers hold
    static constexpr int kLongMicroTileTokens = 4;  ///< without dot4, where pairs of 32 values add up
    static constexpr int kPanelsTogether = 4;       ///< panels of a product that share one pass over the activations
    static constexpr int kMemoryBoundTokens = 27;   ///< with more, multiplying costs far more than reading
    static constexpr int kStreams = 8;              ///< in which few tokens read the rows of a run
    using Half = avx2;                              ///< registers of eight lanes, in which rows meet few tokens
    static constexpr bool kHasDot4 = false;     ///< there is a dot4: byte products that reach int32 without int16 sums
    static constexpr bool kSignedDot4 = false;  ///< whose weight bytes are signed
    static constexpr bool kFusedDot2 = false;   ///< dot2 is one instruction, cheaper than a 32-bit multiply and an add
    static constexpr bool kHasAmx = false;      ///< a matrix unit for bytes (kernels/gemm/microkernel_amx.hpp)
};
struct avxvnni : avx2 {
    static constexpr Isa kIsa = Isa::avxvnni;
    using Vector = avxvnni;
    using Half = avxvnni;
    static constexpr int kMicroTileTokens = 5;  ///< sums that have met their scales rest in memory
    static constexpr bool kHasDot4 = true;
    static constexpr bool kFusedDot2 = true;
};
/// Eight lanes in files that are compiled for sixteen: functions with this tag are not those of avx2, which run
/// anywhere.
template <class Arch>
struct half_width : avx2 {};
struct avx512 : avx2 {
    static constexpr Isa kIsa = Isa::avx512;
    using Vector = avx512;
    using simd = xsimd::avx512bw;
    using Half = half_width<avx512>;
    static constexpr int kLanes = 16;
    static constexpr int kMicroTileTokens = 6, kLongMicroTileTokens = 6, kPanelsTogether = 2;
};
struct avx512vnni : avx512 {
    static constexpr Isa kIsa = Isa::avx512vnni;
    using Vector = avx512vnni;
    using Half = half_width<avx512vnni>;
    static constexpr int kMemoryBoundTokens = 72, kStreams = 4;
    static constexpr bool kHasDot4 = true;
    static constexpr bool kFusedDot2 = true;
};
struct amx : avx512vnni {
    static constexpr Isa kIsa = Isa::amx;  // Vector is avx512vnni
    static constexpr int kMemoryBoundTokens = 27;
    static constexpr bool kHasAmx = true;
};

// ---- One register ---------------------------------------------------------------------------------------------------

// fma: a·b + c rounded once. fnma: −a·b + c. divide: as IEEE says, which xsimd does not promise. larger: a > b ? a : b,
// and smaller: a < b ? a : b, both b where either is NaN. scale_by_power: a · 2^n rounded once, n an integer. as_float:
// round to nearest even. as_int: the same, out of range undefined.
static TINFER_INLINE f32v<avx2> fma(f32v<avx2> a, f32v<avx2> b, f32v<avx2> c, avx2) { return _mm256_fmadd_ps(a, b, c); }
static TINFER_INLINE f32v<avx2> fnma(f32v<avx2> a, f32v<avx2> b, f32v<avx2> c, avx2) {
    return _mm256_fnmadd_ps(a, b, c);
}
static TINFER_INLINE f32v<avx2> divide(f32v<avx2> a, f32v<avx2> b, avx2) { return _mm256_div_ps(a, b); }
static TINFER_INLINE f32v<avx2> larger(f32v<avx2> a, f32v<avx2> b, avx2) { return _mm256_max_ps(a, b); }
static TINFER_INLINE f32v<avx2> smaller(f32v<avx2> a, f32v<avx2> b, avx2) { return _mm256_min_ps(a, b); }
static TINFER_INLINE f32v<avx2> as_float(i32v<avx2> a, avx2) { return _mm256_cvtepi32_ps(a); }
static TINFER_INLINE i32v<avx2> as_int(f32v<avx2> a, avx2) { return _mm256_cvtps_epi32(a); }
static TINFER_INLINE i32v<avx2> bits(f32v<avx2> a, avx2) { return _mm256_castps_si256(a); }
static TINFER_INLINE f32v<avx2> from_bits(i32v<avx2> a, avx2) { return _mm256_castsi256_ps(a); }
static TINFER_INLINE i32v<avx2> shift_right_1(i32v<avx2> a, avx2) { return _mm256_srai_epi32(a, 1); }
static TINFER_INLINE i32v<avx2> shift_left_23(i32v<avx2> a, avx2) { return _mm256_slli_epi32(a, 23); }
static TINFER_INLINE f32v<avx2> widen_f16(const void* p, avx2) {
    return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
static TINFER_INLINE f32v<avx2> widen_bf16(const void* p, avx2) {
    const __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
}
static TINFER_INLINE i32v<avx2> widen_i16(const std::int16_t* p, avx2) {
    return _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
static TINFER_INLINE void narrow_f16(f32v<avx2> a, void* p, avx2) {
    _mm_storeu_si128(static_cast<__m128i*>(p), _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
// Stores past the caches, to addresses that are multiples of the register's bytes, and the fence that other threads
// need.
static TINFER_INLINE void store_nontemporal(f32v<avx2> a, float* p, avx2) { _mm256_stream_ps(p, a); }
static TINFER_INLINE void nontemporal_fence(avx2) { _mm_sfence(); }
/// {e0 o0 e1 o1 …} in two registers to {e0 e1 …} and {o0 o1 …}, and back.
static TINFER_INLINE void deinterleave(f32v<avx2> low, f32v<avx2> high, f32v<avx2>& even, f32v<avx2>& odd, avx2) {
    even = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_shuffle_ps(low, high, 0x88)), 0xD8));
    odd = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_shuffle_ps(low, high, 0xDD)), 0xD8));
}
static TINFER_INLINE void interleave(f32v<avx2> even, f32v<avx2> odd, f32v<avx2>& low, f32v<avx2>& high, avx2) {
    const __m256 first = _mm256_unpacklo_ps(even, odd), second = _mm256_unpackhi_ps(even, odd);
    low = _mm256_permute2f128_ps(first, second, 0x20);
    high = _mm256_permute2f128_ps(first, second, 0x31);
}

// Bytes. add_bytes wraps. once: GCC would load it again for every use. add_pairs and dot2 add where they stand: GCC
// would keep all that is to be added, in memory, until the sum is read. even_bytes, odd_bytes: the first and third
// signed byte of each lane, the second and fourth, as two int16. multiply_pairs: the low halves of products of those.
// join_halves: the low int16 of a's lanes and the high one of b's. dot2: acc + the two int16 products of each lane,
// exact while the sum fits int32.
static TINFER_INLINE i32v<avx2> add_bytes(i32v<avx2> a, i32v<avx2> b, avx2) { return _mm256_add_epi8(a, b); }
static TINFER_INLINE i32v<avx2> add_pairs(i32v<avx2> a, i32v<avx2> b, avx2) {
    __m256i sum = _mm256_add_epi16(a, b);
    asm("" : "+x"(sum));
    return sum;
}
static TINFER_INLINE i32v<avx2> once(i32v<avx2> a, avx2) {
    __m256i value = a;
    asm("" : "+x"(value));
    return value;
}
static TINFER_INLINE i32v<avx2> even_bytes(i32v<avx2> v, avx2) { return _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8); }
static TINFER_INLINE i32v<avx2> odd_bytes(i32v<avx2> v, avx2) { return _mm256_srai_epi16(v, 8); }
static TINFER_INLINE i32v<avx2> multiply_pairs(i32v<avx2> a, i32v<avx2> b, avx2) { return _mm256_mullo_epi16(a, b); }
static TINFER_INLINE i32v<avx2> join_halves(i32v<avx2> a, i32v<avx2> b, avx2) { return _mm256_blend_epi16(a, b, 0xAA); }
static TINFER_INLINE i32v<avx2> dot2(i32v<avx2> acc, i32v<avx2> a, i32v<avx2> b, avx2) {
    __m256i sum = _mm256_add_epi32(acc, _mm256_madd_epi16(a, b));
    asm("" : "+x"(sum));
    return sum;
}
/// w unsigned, a signed bytes; two int16 sums of two products per lane, exact while |w| ≤ 129 and |a| ≤ 127.
static TINFER_INLINE i32v<avx2> dot_bytes(i32v<avx2> w, i32v<avx2> a, avx2) { return _mm256_maddubs_epi16(w, a); }
/// The same with w signed, |w| ≤ 128: the sign goes over to a, and 2 · 128 · 127 = 32512 fits int16.
static TINFER_INLINE i32v<avx2> dot_signed_bytes(i32v<avx2> w, i32v<avx2> a, avx2) {
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w));
}
/// out[i][j] = in[j][i] of 32-bit words, lanes × lanes.
static TINFER_INLINE void transpose(i32v<avx2> (&m)[8], avx2) {
    __m256i a[8], b[8];
    for (int i = 0; i < 4; ++i) {
        a[2 * i] = _mm256_unpacklo_epi32(m[2 * i], m[2 * i + 1]);
        a[2 * i + 1] = _mm256_unpackhi_epi32(m[2 * i], m[2 * i + 1]);
    }
    for (int half = 0; half < 8; half += 4)
        for (int i = 0; i < 2; ++i) {
            b[half + 2 * i] = _mm256_unpacklo_epi64(a[half + i], a[half + i + 2]);
            b[half + 2 * i + 1] = _mm256_unpackhi_epi64(a[half + i], a[half + i + 2]);
        }
    for (int i = 0; i < 4; ++i) {
        m[i] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x20);
        m[i + 4] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x31);
    }
}

#    if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
static TINFER_INLINE f32v<avx512> fma(f32v<avx512> a, f32v<avx512> b, f32v<avx512> c, avx512) {
    return _mm512_fmadd_ps(a, b, c);
}
static TINFER_INLINE f32v<avx512> fnma(f32v<avx512> a, f32v<avx512> b, f32v<avx512> c, avx512) {
    return _mm512_fnmadd_ps(a, b, c);
}
static TINFER_INLINE f32v<avx512> divide(f32v<avx512> a, f32v<avx512> b, avx512) { return _mm512_div_ps(a, b); }
static TINFER_INLINE f32v<avx512> larger(f32v<avx512> a, f32v<avx512> b, avx512) { return _mm512_max_ps(a, b); }
static TINFER_INLINE f32v<avx512> smaller(f32v<avx512> a, f32v<avx512> b, avx512) { return _mm512_min_ps(a, b); }
static TINFER_INLINE f32v<avx512> scale_by_power(f32v<avx512> a, f32v<avx512> n, avx512) {
    return _mm512_scalef_ps(a, n);
}
static TINFER_INLINE f32v<avx512> as_float(i32v<avx512> a, avx512) { return _mm512_cvtepi32_ps(a); }
static TINFER_INLINE i32v<avx512> as_int(f32v<avx512> a, avx512) { return _mm512_cvtps_epi32(a); }
static TINFER_INLINE i32v<avx512> bits(f32v<avx512> a, avx512) { return _mm512_castps_si512(a); }
static TINFER_INLINE f32v<avx512> from_bits(i32v<avx512> a, avx512) { return _mm512_castsi512_ps(a); }
static TINFER_INLINE i32v<avx512> shift_right_1(i32v<avx512> a, avx512) { return _mm512_srai_epi32(a, 1); }
static TINFER_INLINE i32v<avx512> shift_left_23(i32v<avx512> a, avx512) { return _mm512_slli_epi32(a, 23); }
static TINFER_INLINE f32v<avx512> widen_f16(const void* p, avx512) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
static TINFER_INLINE f32v<avx512> widen_bf16(const void* p, avx512) {
    const __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}
static TINFER_INLINE i32v<avx512> widen_i16(const std::int16_t* p, avx512) {
    return _mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
static TINFER_INLINE void narrow_f16(f32v<avx512> a, void* p, avx512) {
    _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
static TINFER_INLINE void store_nontemporal(f32v<avx512> a, float* p, avx512) { _mm512_stream_ps(p, a); }
static TINFER_INLINE void deinterleave(f32v<avx512> low, f32v<avx512> high, f32v<avx512>& even, f32v<avx512>& odd,
                                       avx512) {
    const __m512i evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    even = _mm512_permutex2var_ps(low, evens, high);
    odd = _mm512_permutex2var_ps(low, _mm512_add_epi32(evens, _mm512_set1_epi32(1)), high);
}
static TINFER_INLINE void interleave(f32v<avx512> even, f32v<avx512> odd, f32v<avx512>& low, f32v<avx512>& high,
                                     avx512) {
    const __m512i front = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    low = _mm512_permutex2var_ps(even, front, odd);
    high = _mm512_permutex2var_ps(even, _mm512_add_epi32(front, _mm512_set1_epi32(8)), odd);
}
static TINFER_INLINE i32v<avx512> add_bytes(i32v<avx512> a, i32v<avx512> b, avx512) { return _mm512_add_epi8(a, b); }
static TINFER_INLINE i32v<avx512> add_pairs(i32v<avx512> a, i32v<avx512> b, avx512) {
    __m512i sum = _mm512_add_epi16(a, b);
    asm("" : "+v"(sum));
    return sum;
}
static TINFER_INLINE i32v<avx512> once(i32v<avx512> a, avx512) {
    __m512i value = a;
    asm("" : "+v"(value));
    return value;
}
static TINFER_INLINE i32v<avx512> even_bytes(i32v<avx512> v, avx512) {
    return _mm512_srai_epi16(_mm512_slli_epi16(v, 8), 8);
}
static TINFER_INLINE i32v<avx512> odd_bytes(i32v<avx512> v, avx512) { return _mm512_srai_epi16(v, 8); }
static TINFER_INLINE i32v<avx512> multiply_pairs(i32v<avx512> a, i32v<avx512> b, avx512) {
    return _mm512_mullo_epi16(a, b);
}
static TINFER_INLINE i32v<avx512> join_halves(i32v<avx512> a, i32v<avx512> b, avx512) {
    const __m512i low = a, high = b;  // the intrinsic is a macro without optimizing: it casts what it is given
    return _mm512_mask_blend_epi16(0xAAAAAAAAu, low, high);
}
static TINFER_INLINE i32v<avx512> dot2(i32v<avx512> acc, i32v<avx512> a, i32v<avx512> b, avx512) {
    __m512i sum = _mm512_add_epi32(acc, _mm512_madd_epi16(a, b));
    asm("" : "+v"(sum));
    return sum;
}
static TINFER_INLINE i32v<avx512> dot_bytes(i32v<avx512> w, i32v<avx512> a, avx512) {
    return _mm512_maddubs_epi16(w, a);
}
static TINFER_INLINE i32v<avx512> dot_signed_bytes(i32v<avx512> w, i32v<avx512> a, avx512) {
    const __m512i signed_a = _mm512_mask_sub_epi8(a, _mm512_movepi8_mask(w), _mm512_setzero_si512(), a);
    return _mm512_maddubs_epi16(_mm512_abs_epi8(w), signed_a);
}
static TINFER_INLINE void transpose(i32v<avx512> (&m)[16], avx512) {
    __m512i a[16], b[16];
    for (int i = 0; i < 8; ++i) {
        a[2 * i] = _mm512_unpacklo_epi32(m[2 * i], m[2 * i + 1]);
        a[2 * i + 1] = _mm512_unpackhi_epi32(m[2 * i], m[2 * i + 1]);
    }
    for (int quad = 0; quad < 16; quad += 4)  // b[quad + c]: column 4·lane + c of rows quad … quad + 3
        for (int i = 0; i < 2; ++i) {
            b[quad + 2 * i] = _mm512_unpacklo_epi64(a[quad + i], a[quad + i + 2]);
            b[quad + 2 * i + 1] = _mm512_unpackhi_epi64(a[quad + i], a[quad + i + 2]);
        }
    for (int c = 0; c < 4; ++c) {
        const __m512i low01 = _mm512_shuffle_i32x4(b[c], b[4 + c], 0x88);
        const __m512i low23 = _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0x88);
        const __m512i high01 = _mm512_shuffle_i32x4(b[c], b[4 + c], 0xDD);
        const __m512i high23 = _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0xDD);
        m[c] = _mm512_shuffle_i32x4(low01, low23, 0x88);  // columns c, 4 + c, 8 + c, 12 + c
        m[8 + c] = _mm512_shuffle_i32x4(low01, low23, 0xDD);
        m[4 + c] = _mm512_shuffle_i32x4(high01, high23, 0x88);
        m[12 + c] = _mm512_shuffle_i32x4(high01, high23, 0xDD);
    }
}
#    endif

#    if defined(__AVXVNNI__)
/// acc + the four products of each lane, w unsigned, a signed bytes. Exact for all bytes.
static TINFER_INLINE i32v<avxvnni> dot4(i32v<avxvnni> acc, i32v<avxvnni> w, i32v<avxvnni> a, avxvnni) {
    return _mm256_dpbusd_avx_epi32(acc, w, a);
}
/// acc + the products of w with word number `word` of x in every lane.
static TINFER_INLINE i32v<avxvnni> dot4_word(i32v<avxvnni> acc, i32v<avxvnni> w, const std::int8_t* x, int word,
                                             avxvnni) {
    return dot4(acc, w, bcast4<avxvnni>(x + 4 * word), avxvnni{});
}
static TINFER_INLINE i32v<avxvnni> dot2(i32v<avxvnni> acc, i32v<avxvnni> a, i32v<avxvnni> b, avxvnni) {
    return _mm256_dpwssd_avx_epi32(acc, a, b);
}
#    endif
#    if defined(__AVX512VNNI__)
static TINFER_INLINE i32v<avx512vnni> dot4(i32v<avx512vnni> acc, i32v<avx512vnni> w, i32v<avx512vnni> a, avx512vnni) {
    return _mm512_dpbusd_epi32(acc, w, a);
}
/// One instruction, where GCC would take a register more.
static TINFER_INLINE i32v<avx512vnni> dot4_word(i32v<avx512vnni> acc, i32v<avx512vnni> w, const std::int8_t* x,
                                                int word, avx512vnni) {
    __m512i sum = acc;
    asm("vpdpbusd %2%{1to16%}, %1, %0"
        : "+v"(sum)
        : "v"(static_cast<__m512i>(w)), "m"(*reinterpret_cast<const std::int8_t(*)[4]>(x + 4 * word)));
    return sum;
}
static TINFER_INLINE i32v<avx512vnni> dot2(i32v<avx512vnni> acc, i32v<avx512vnni> a, i32v<avx512vnni> b, avx512vnni) {
    return _mm512_dpwssd_epi32(acc, a, b);
}
#    endif

/// The sums of sixteen bytes each: in lane l of bytes 16l … 16l + 15.
static TINFER_INLINE i32v<avx2> sums_of_sixteens(const std::int8_t* x, avx2) {
    const __m256i bytes = _mm256_set1_epi8(1), words = _mm256_set1_epi16(1);
    __m256i four[4];
    for (int i = 0; i < 4; ++i)
        four[i] = _mm256_madd_epi16(_mm256_maddubs_epi16(bytes, load_i32<avx2>(x + 32 * i)), words);
    const __m256i sums = _mm256_hadd_epi32(_mm256_hadd_epi32(four[0], four[1]), _mm256_hadd_epi32(four[2], four[3]));
    return _mm256_permutevar8x32_epi32(sums, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
#    if defined(__AVX512BW__)
static TINFER_INLINE i32v<avx512> sums_of_sixteens(const std::int8_t* x, avx512) {
    const __m512i bytes = _mm512_set1_epi8(1), words = _mm512_set1_epi16(1);
    __m512i four[4];
    for (int i = 0; i < 4; ++i)
        four[i] = _mm512_madd_epi16(_mm512_maddubs_epi16(bytes, load_i32<avx512>(x + 64 * i)), words);
    const __m512i eight[2] = {_mm512_madd_epi16(_mm512_packs_epi32(four[0], four[1]), words),
                              _mm512_madd_epi16(_mm512_packs_epi32(four[2], four[3]), words)};
    const __m512i sums = _mm512_madd_epi16(_mm512_packs_epi32(eight[0], eight[1]), words);
    return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), sums);
}
#    endif

/// The square root of one float, as IEEE rounds it.
static TINFER_INLINE float root(float x, avx2) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }

static TINFER_INLINE float reduce8(__m256 eight) {  // lanes l + (l + 4), then + 2, then + 1
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
static TINFER_INLINE float reduce_parts(const f32v<avx2> (&part)[2], avx2) { return reduce8(part[0] + part[1]); }
#    if defined(__AVX512DQ__)
static TINFER_INLINE float reduce_parts(const f32v<avx512> (&part)[1], avx512) {
    return reduce8(_mm256_add_ps(_mm512_castps512_ps256(part[0]), _mm512_extractf32x8_ps(part[0], 1)));
}
#    endif

}  // namespace tinfer::kernels
#endif
