// SPDX-License-Identifier: MIT
// Products of a token straight from rows of the file, for AVX-512 with VNNI: that is a matter of reading every weight once, so
// nothing is turned or stored on the way. Four rows are walked together, block by block, each of a stream of its own that is
// read in ascending order, as a plain loop would read; integer sums lie along the lanes of a row and are folded four rows at a
// time, so that float steps have rows in lanes.
#pragma once

#include <type_traits>

#include "kernels/lanes_avx512.hpp"
#include "kernels/quants/quantize_activation.hpp"
#include "kernels/row_walk.hpp"

#if defined(__AVX512VNNI__)

namespace tinfer::kernels {

using FourRows = RowGroup<4>;
using SixteenRows = RowGroup<16>;
using SixteenPairs = RowGroup<16, 2>;
/// Read once: as an operand of several instructions it would be read by each of them, and most of it spans two lines.
static TINFER_INLINE __m512i load64(const void* p) {
    __m512i z = _mm512_loadu_si512(p);
    asm("" : "+v"(z));
    return z;
}
/// 32 bytes at a and 32 at b.
static TINFER_INLINE __m512i load_halves(const void* a, const void* b) {
    const __m512i low = _mm512_castsi256_si512(_mm256_loadu_si256(static_cast<const __m256i*>(a)));
    return _mm512_inserti64x4(low, _mm256_loadu_si256(static_cast<const __m256i*>(b)), 1);
}
static TINFER_INLINE __m512i twice32(const void* p) {
    return _mm512_broadcast_i64x4(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
/// 16-bit counts for variable shifts: `low` for the first 32 bytes, `high` for the others.
static TINFER_INLINE __m512i shift_counts(int low, int high) {
    return _mm512_inserti64x4(_mm512_set1_epi16(static_cast<short>(low)), _mm256_set1_epi16(static_cast<short>(high)), 1);
}

/// 16 bytes at `at` of each row, one in each quarter.
static TINFER_INLINE __m512i load_quarters(const FourRows& rows, std::int64_t at) {
    const auto quarter = [&](int r) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows.row[r] + at)); };
    __m512i z = _mm512_castsi128_si512(quarter(0));
    z = _mm512_inserti32x4(z, quarter(1), 1);
    z = _mm512_inserti32x4(z, quarter(2), 2);
    return _mm512_inserti32x4(z, quarter(3), 3);
}
/// The first lane of each quarter.
static TINFER_INLINE __m128i first_lanes(__m512i z) {
    const __m512i index = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 4, 8, 12));
    return _mm512_castsi512_si128(_mm512_permutexvar_epi32(index, z));
}
/// Four floats, each in all lanes of a quarter.
static TINFER_INLINE __m512 by_quarters(const float* x) {
    const __m512i index = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    return _mm512_permutexvar_ps(index, _mm512_castps128_ps512(_mm_loadu_ps(x)));
}
/// Totals of four vectors.
static TINFER_INLINE __m128i fold_four(__m512i v0, __m512i v1, __m512i v2, __m512i v3) {
    const __m512i quarters = fold_quarters(v0, v1, v2, v3);
    const __m256i halves = _mm256_add_epi32(_mm512_castsi512_si256(quarters), _mm512_extracti64x4_epi64(quarters, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
}
static TINFER_INLINE __m128 four_f16(__m128i lanes) { return _mm_cvtph_ps(_mm_cvtepi32_epi16(lanes)); }

// ---- Super-blocks ---------------------------------------------------------------------------------------------------

// A format says here how the codes of a block meet the activations in four vectors, and how its scales lie:
//   struct Steps                                  what the float steps of four rows need of a block: d and dmin as floats, …
//   struct Header : Steps; header(rows, at, header)   the same and what their codes need
//   codes(block, header, row, c, s)               of one row. Each lane of a dot is four products. If those fit sixteen bits
//                                                 (not kWide), S = Σ lanes of dpwssd(packs(dot0, dot1), s0) + …, else a sum
//                                                 of eight meets its scale in 32 bits: S = Σ lanes of (dot0 + dot1) · s0 + …
//   load_activations(q, a)                        the four vectors of activations to the four of codes
//   bias_sum(block, sums of codes)                Σ of it is what the bias of the codes adds to S
//   mins_total(steps, sums of codes)              N of four rows

/// What Q4_K and Q5_K share: eight scales and eight mins of six bits.
struct KRows {
    static constexpr bool kWide = false;
    struct Steps {
        __m512i mins;   ///< as int16, a row in each quarter
        __m128 d, dmin;
    };
    struct Header : Steps {
        alignas(64) std::uint8_t bytes[4][16];   ///< by row: eight scales, eight mins
    };
    static TINFER_INLINE void header(const FourRows& rows, std::int64_t at, Header& out) {
        const __m512i shifts = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0, 0, 4));
        const __m512i low = _mm512_broadcast_i32x4(_mm_setr_epi32(0x3F3F3F3F, 0x0F0F0F0F, 0x3F3F3F3F, 0x0F0F0F0F));
        const __m512i top = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x30303030, 0, 0x30303030));
        const __m512i head = load_quarters(rows, at);   // words: d and dmin, then s0, s1, s2 of unpack_scales_and_mins
        const __m512i a = _mm512_srlv_epi32(_mm512_shuffle_epi32(head, _MM_PERM_ENUM(0xED)), shifts);   // s0 s2 s1 s2
        const __m512i c = _mm512_srli_epi32(_mm512_shuffle_epi32(head, _MM_PERM_ENUM(0xA5)), 2);        // s0 s0 s1 s1
        const __m512i bytes = _mm512_or_si512(_mm512_and_si512(a, low), _mm512_and_si512(c, top));
        _mm512_store_si512(out.bytes, bytes);
        asm("" : "+m"(out.bytes));   // to be loaded from there: the compiler would shuffle, on the port that does most already
        out.mins = _mm512_unpackhi_epi8(bytes, _mm512_setzero_si512());
        const __m128i ds = first_lanes(head);
        out.d = four_f16(ds);
        out.dmin = four_f16(_mm_srli_epi32(ds, 16));
    }
    /// Scales of sub-blocks 4h … 4h + 3 as the packed dots want them: the first two sub-blocks in quarters 0 and 1.
    static TINFER_INLINE __m512i spread_scales(const Header& h, int r, int half) {
        const auto pair = [&](int j) { return _mm_set_epi64x(spread_word(j + 1), spread_word(j)); };
        const __m128i first = pair(4 * half), second = pair(4 * half + 2);
        const __m512i index = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_broadcastsi128_si256(first)),
            _mm256_broadcastsi128_si256(second), 1);
        const __m512i bytes = _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(h.bytes[r])));
        return _mm512_shuffle_epi8(bytes, index);
    }
    static constexpr long long spread_word(int j) {   // byte j four times as int16: index, then zero
        unsigned long long word = 0;
        for (int i = 0; i < 4; ++i) word |= (0x8000ull | static_cast<unsigned>(j)) << 16 * i;
        return static_cast<long long>(word);
    }
    static TINFER_INLINE void load_activations(const std::int8_t* q, __m512i (&a)[4]) {
        for (int half = 0; half < 2; ++half) {
            a[2 * half] = load_halves(q + 128 * half, q + 128 * half + 64);
            a[2 * half + 1] = load_halves(q + 128 * half + 32, q + 128 * half + 96);
        }
    }
    /// N of four rows: mins times sums of 32 activations.
    static TINFER_INLINE __m128i mins_total(const Steps& steps, const std::int16_t* sum32) {
        const __m512i sums = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(sum32)));
        __m512i n = _mm512_madd_epi16(steps.mins, sums);
        n = _mm512_add_epi32(n, _mm512_shuffle_epi32(n, _MM_PERM_ENUM(0xB1)));
        return first_lanes(_mm512_add_epi32(n, _mm512_shuffle_epi32(n, _MM_PERM_ENUM(0x4E))));
    }
};

template <class Format>
struct SuperRows;

template <>
struct SuperRows<Q4_K> : KRows {
    static TINFER_INLINE void codes(const std::uint8_t* block, const Header& h, int r, __m512i (&c)[4], __m512i (&s)[2]) {
        for (int half = 0; half < 2; ++half) {
            const __m512i bytes = load64(block + 16 + 64 * half);
            c[2 * half] = low_nibbles(bytes);
            c[2 * half + 1] = high_nibbles(bytes);
            s[half] = spread_scales(h, r, half);
        }
    }
};

template <>
struct SuperRows<Q5_K> : KRows {
    static TINFER_INLINE void codes(const std::uint8_t* block, const Header& h, int r, __m512i (&c)[4], __m512i (&s)[2]) {
        const __m512i bits = twice32(block + 16), sixteen = each_byte<16>(16);   // bit j belongs to sub-block j
        const __m512i fifth[4] = {_mm512_sllv_epi16(bits, shift_counts(4, 2)), _mm512_sllv_epi16(bits, shift_counts(3, 1)),
            _mm512_srlv_epi16(bits, shift_counts(0, 2)), _mm512_srlv_epi16(bits, shift_counts(1, 3))};
        for (int half = 0; half < 2; ++half) {
            const __m512i bytes = load64(block + 48 + 64 * half);
            c[2 * half] = _mm512_or_si512(low_nibbles(bytes), _mm512_and_si512(fifth[2 * half], sixteen));
            c[2 * half + 1] = _mm512_or_si512(high_nibbles(bytes), _mm512_and_si512(fifth[2 * half + 1], sixteen));
            s[half] = spread_scales(h, r, half);
        }
    }
};

/// Half floats at `at` of four rows.
static TINFER_INLINE __m128 four_halves(const FourRows& rows, std::int64_t at) {
    std::int16_t d[4];
    for (int r = 0; r < 4; ++r) std::memcpy(&d[r], rows.row[r] + at, 2);
    return _mm_cvtph_ps(_mm_setr_epi16(d[0], d[1], d[2], d[3], 0, 0, 0, 0));
}

/// Of formats without minimums, whose codes need nothing that rows could share.
struct ScaleAlone {
    struct Steps {
        __m128 d;
    };
    using Header = Steps;
};

/// What the formats with sixteen scales share: signed bytes, one for every 16 values.
struct SixteenScales : ScaleAlone {
    static constexpr bool kWide = false;
    static TINFER_INLINE void load_activations(const std::int8_t* q, __m512i (&a)[4]) {
        for (int i = 0; i < 4; ++i) a[i] = load64(q + 64 * i);
    }
    /// As packed dots want them: sub-block q of the first 64 codes and of the second in quarter q. A byte in the upper half of
    /// sixteen bits is shifted down with its sign.
    static TINFER_INLINE void spread_scales(__m128i scales, __m512i (&s)[2]) {
        const auto word = [](int j) {
            unsigned long long four = 0;
            for (int i = 0; i < 4; ++i) four |= (0x0080ull | static_cast<unsigned>(j) << 8) << 16 * i;
            return static_cast<long long>(four);
        };
        for (int half = 0; half < 2; ++half) {
            const int j = 8 * half;
            const __m512i index = _mm512_setr_epi64(word(j), word(j + 4), word(j + 1), word(j + 5), word(j + 2), word(j + 6),
                word(j + 3), word(j + 7));
            s[half] = _mm512_srai_epi16(_mm512_shuffle_epi8(_mm512_broadcast_i32x4(scales), index), 8);
        }
    }
    /// Bit pairs of a block, two groups of 32 values to a vector.
    static TINFER_INLINE void pairs(const std::uint8_t* p, __m512i (&c)[4]) {
        for (int half = 0; half < 2; ++half) {
            const __m512i bits = twice32(p + 32 * half);
            c[2 * half] = _mm512_and_si512(_mm512_srlv_epi16(bits, shift_counts(0, 2)), each_byte<16>(3));
            c[2 * half + 1] = _mm512_and_si512(_mm512_srlv_epi16(bits, shift_counts(4, 6)), each_byte<16>(3));
        }
    }
    static TINFER_INLINE __m256i products(__m256i scales, const std::int16_t* sum16) {
        return _mm256_madd_epi16(scales, load_bytes32(sum16));
    }
};

template <>
struct SuperRows<Q6_K> : SixteenScales {
    static TINFER_INLINE void header(const FourRows& rows, std::int64_t at, Header& out) { out.d = four_halves(rows, at + 208); }
    static TINFER_INLINE void codes(const std::uint8_t* block, const Header&, int, __m512i (&c)[4], __m512i (&s)[2]) {
        const __m512i upper = each_byte<16>(0x30);
        for (int half = 0; half < 2; ++half) {   // 128 codes; unsigned: the bias of 32 is taken off the sum
            const __m512i bytes = load64(block + 64 * half), bits = twice32(block + 128 + 32 * half);
            c[2 * half] = _mm512_or_si512(low_nibbles(bytes), _mm512_and_si512(_mm512_sllv_epi16(bits, shift_counts(4, 2)), upper));
            c[2 * half + 1] = _mm512_or_si512(high_nibbles(bytes), _mm512_and_si512(_mm512_srlv_epi16(bits, shift_counts(0, 2)), upper));
        }
        spread_scales(load_bytes16(block + 192), s);
    }
    static TINFER_INLINE __m512i bias_sum(const std::uint8_t* block, const std::int16_t* sum16) {
        const __m256i scales = _mm256_cvtepi8_epi16(load_bytes16(block + 192));
        return _mm512_zextsi256_si512(_mm256_slli_epi32(products(scales, sum16), 5));
    }
};

template <>
struct SuperRows<Q3_K> : SixteenScales {
    static TINFER_INLINE void header(const FourRows& rows, std::int64_t at, Header& out) { out.d = four_halves(rows, at + 108); }
    static TINFER_INLINE void codes(const std::uint8_t* block, const Header&, int, __m512i (&c)[4], __m512i (&s)[2]) {
        pairs(block + 32, c);   // and the third bits: unsigned, the bias of 4 is taken off the sum
        const __m512i bits = twice32(block), four = each_byte<16>(4);
        const __m512i third[4] = {_mm512_sllv_epi16(bits, shift_counts(2, 1)), _mm512_srlv_epi16(bits, shift_counts(0, 1)),
            _mm512_srlv_epi16(bits, shift_counts(2, 3)), _mm512_srlv_epi16(bits, shift_counts(4, 5))};
        for (int i = 0; i < 4; ++i) c[i] = _mm512_or_si512(c[i], _mm512_and_si512(third[i], four));
        spread_scales(_mm_sub_epi8(scales_of_q3_k(block), _mm_set1_epi8(32)), s);
    }
    static TINFER_INLINE __m512i bias_sum(const std::uint8_t* block, const std::int16_t* sum16) {
        const __m256i scales = _mm256_sub_epi16(_mm256_cvtepu8_epi16(scales_of_q3_k(block)), _mm256_set1_epi16(32));
        return _mm512_zextsi256_si512(_mm256_slli_epi32(products(scales, sum16), 2));
    }
};

template <>
struct SuperRows<Q2_K> : SixteenScales {
    struct Steps {
        const std::uint8_t* block[4];
        __m128 d, dmin;
    };
    using Header = Steps;
    static TINFER_INLINE void header(const FourRows& rows, std::int64_t at, Header& out) {
        for (int r = 0; r < 4; ++r) out.block[r] = rows.row[r] + at;
        out.d = four_halves(rows, at + 80);
        out.dmin = four_halves(rows, at + 82);
    }
    static TINFER_INLINE void codes(const std::uint8_t* block, const Header&, int, __m512i (&c)[4], __m512i (&s)[2]) {
        pairs(block + 16, c);
        spread_scales(_mm_and_si128(load_bytes16(block), _mm_set1_epi8(15)), s);
    }
    static TINFER_INLINE __m128i mins_total(const Steps& steps, const std::int16_t* sum16) {
        const auto row = [&](int r) {
            const __m128i mins = _mm_and_si128(_mm_srli_epi16(load_bytes16(steps.block[r]), 4), _mm_set1_epi8(15));
            return _mm512_zextsi256_si512(products(_mm256_cvtepu8_epi16(mins), sum16));
        };
        return fold_four(row(0), row(1), row(2), row(3));
    }
};

template <>
struct SuperRows<IQ4_XS> : ScaleAlone {
    static constexpr bool kWide = true;
    static TINFER_INLINE void header(const FourRows& rows, std::int64_t at, Header& out) { out.d = four_halves(rows, at); }
    static TINFER_INLINE void codes(const std::uint8_t* block, const Header&, int, __m512i (&c)[4], __m512i (&s)[2]) {
        const __m512i scales = _mm512_castsi256_si512(scales_of_iq4_xs(block));
        const __m512i sub = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
        for (int half = 0; half < 2; ++half) {   // sub-block 4 · half + q in quarter q: its first 16 values, its last 16
            const __m512i bytes = load64(block + 8 + 64 * half);
            c[2 * half] = level_codes<avx512vnni, IQ4_XS, 16>(low_nibbles(bytes));
            c[2 * half + 1] = level_codes<avx512vnni, IQ4_XS, 16>(high_nibbles(bytes));
            s[half] = _mm512_permutexvar_epi32(_mm512_add_epi32(sub, _mm512_set1_epi32(4 * half)), scales);
        }
    }
    static TINFER_INLINE void load_activations(const std::int8_t* q, __m512i (&a)[4]) {
        for (int half = 0; half < 2; ++half) {
            const __m512i x = load64(q + 128 * half), y = load64(q + 128 * half + 64);
            a[2 * half] = _mm512_shuffle_i32x4(x, y, 0x88);
            a[2 * half + 1] = _mm512_shuffle_i32x4(x, y, 0xDD);
        }
    }
    static TINFER_INLINE __m512i bias_sum(const std::uint8_t* block, const std::int16_t* sum32) {
        const __m128i scales = _mm256_cvtepi32_epi16(scales_of_iq4_xs(block));
        return _mm512_zextsi128_si512(_mm_slli_epi32(_mm_madd_epi16(scales, load_bytes16(sum32)), 7));
    }
};

/// The lanes of S of one row, the bias included.
template <class Format>
TINFER_INLINE __m512i row_sum(const __m512i (&c)[4], const __m512i (&s)[2], const __m512i (&a)[4], __m512i total) {
    const __m512i zero = _mm512_setzero_si512();
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
        const __m512i first = _mm512_dpbusd_epi32(zero, c[2 * half], a[2 * half]);
        if constexpr (SuperRows<Format>::kWide) {
            const __m512i both = _mm512_dpbusd_epi32(first, c[2 * half + 1], a[2 * half + 1]);
            total = _mm512_add_epi32(total, _mm512_mullo_epi32(both, s[half]));
        } else {   // each dot at most 4 · 63 · 127 = 32004
            const __m512i second = _mm512_dpbusd_epi32(zero, c[2 * half + 1], a[2 * half + 1]);
            total = _mm512_dpwssd_epi32(total, _mm512_packs_epi32(first, second), s[half]);
        }
    }
    return total;
}

/// Results of four rows of n_blocks super-blocks against a token, which is a matter of latency: a processor looks ahead by little
/// more than a block, and what a block computes is a long chain, from its scales to its float steps. So the header is read a
/// block ahead, and the float steps follow a block behind.
template <class Arch, class Format>
[[gnu::noinline]] void multiply_super_rows(const FourRows& rows, std::int64_t n_blocks, const Activations& x, float* results) noexcept {
    using Rows = SuperRows<Format>;
    const auto sums_of = [&](std::int64_t i) { return Format::kScaleElems == 16 ? x.sum16 + 16 * i : x.sum32 + 8 * i; };
    __m128 acc = _mm_setzero_ps();
    const auto take_steps = [&](std::int64_t i, const typename Rows::Steps& steps, const __m512i (&sum)[4]) __attribute__((always_inline)) {
        const __m128 d_x = _mm_set1_ps(x.d[i]);
        acc = _mm_fmadd_ps(_mm_mul_ps(steps.d, d_x), _mm_cvtepi32_ps(fold_four(sum[0], sum[1], sum[2], sum[3])), acc);
        if constexpr (Format::kHasMin)
            acc = _mm_fnmadd_ps(_mm_mul_ps(steps.dmin, d_x), _mm_cvtepi32_ps(Rows::mins_total(steps, sums_of(i))), acc);
    };
    typename Rows::Header h;
    typename Rows::Steps steps;    // of the block before, as its sums
    __m512i before[4];
    Rows::header(rows, 0, h);
    for (std::int64_t i = 0; i < n_blocks; ++i) {
        const std::int64_t at = i * Format::kBlockBytes;
        __m512i a[4], sum[4];
        Rows::load_activations(x.q + 256 * i, a);
#pragma GCC unroll 4
        for (int r = 0; r < 4; ++r) {
            __m512i c[4], s[2];
            const std::uint8_t* block = rows.row[r] + at;
            rows.ask<Format::kBlockBytes>(r, at);
            Rows::codes(block, h, r, c, s);
            __m512i total = _mm512_setzero_si512();
            if constexpr (!Format::kHasMin) total = _mm512_sub_epi32(total, Rows::bias_sum(block, sums_of(i)));
            sum[r] = row_sum<Format>(c, s, a, total);
        }
        if (i > 0) take_steps(i - 1, steps, before);
        steps = h;
        std::memcpy(before, sum, sizeof(before));
        if (i + 1 < n_blocks) Rows::header(rows, at + Format::kBlockBytes, h);
    }
    take_steps(n_blocks - 1, steps, before);
    _mm_storeu_ps(results, acc);
}

}  // namespace tinfer::kernels

#endif
