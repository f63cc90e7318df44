// SPDX-License-Identifier: MIT
// Products of a few tokens straight from rows of the file, for AVX-512 with VNNI: one token is a matter of reading every
// weight once, so nothing is turned or stored on the way. Four rows are walked together, block by block, each of a stream
// of its own that is read in ascending order, as a plain loop would read; integer sums lie along the lanes of a row and are
// folded four rows at a time, so that float steps have rows in lanes.
#pragma once

#include <type_traits>

#include "kernels/lanes_avx512.hpp"
#include "kernels/panel.hpp"
#include "kernels/quants/quantize_activation.hpp"

#if defined(__AVX512VNNI__)

namespace tinfer::kernels {

/// Rows that are walked together: N / 4 neighbours of each of four streams, and what will follow in the place of each. That
/// is asked for block by block, early enough for memory to answer.
template <int N>
struct RowGroup {
    const std::uint8_t* row[N];
    const std::byte* next[N];
    template <int Bytes>
    TINFER_INLINE void ask(int r, std::int64_t at) const {
#pragma GCC unroll 4
        for (int line = 0; line < Bytes; line += 64) __builtin_prefetch(next[r] + at + line, 0, 2);
    }
};
using FourRows = RowGroup<4>;
using SixteenRows = RowGroup<16>;
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

// A format says here how the codes of a block meet the activations in four vectors, each lane four products that fit
// sixteen bits when summed, and how the two int16 vectors of scales lie that go with packed pairs of them:
//   struct Header; header(rows, at, header)         what four rows need per block, d and dmin as floats
//   struct Codes { __m512i c[4], s[2]; }            of one row; S = Σ lanes of dpwssd(packs(dot0, dot1), s0) + …
//   load_activations(q, a)                          the four vectors of activations to the four of codes
//   S += correction(header, row, sums of codes)     where codes are biased

/// What Q4_K and Q5_K share: eight scales and eight mins of six bits.
struct KRows {
    struct Header {
        alignas(64) std::uint8_t bytes[4][16];   ///< by row: eight scales, eight mins
        __m512i mins;                            ///< as int16, a row in each quarter
        __m128 d, dmin;
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
    static TINFER_INLINE __m128i mins_total(const Header& h, const std::int16_t* sum32) {
        const __m512i sums = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(sum32)));
        __m512i n = _mm512_madd_epi16(h.mins, sums);
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
        const __m512i bits = twice32(block + 16), sixteen = each_byte(16);   // bit j belongs to sub-block j
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

template <>
struct SuperRows<Q6_K> {
    struct Header {
        __m128 d;
    };
    static TINFER_INLINE void header(const FourRows& rows, std::int64_t at, Header& out) {
        std::int16_t d[4];
        for (int r = 0; r < 4; ++r) std::memcpy(&d[r], rows.row[r] + at + 208, 2);
        out.d = _mm_cvtph_ps(_mm_setr_epi16(d[0], d[1], d[2], d[3], 0, 0, 0, 0));
    }
    static TINFER_INLINE void codes(const std::uint8_t* block, const Header&, int, __m512i (&c)[4], __m512i (&s)[2]) {
        const __m512i upper = each_byte(0x30);
        const __m512i scales = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 192)));
        for (int half = 0; half < 2; ++half) {   // 128 codes; unsigned: the bias of 32 is taken off the sum
            const __m512i bytes = load64(block + 64 * half), bits = twice32(block + 128 + 32 * half);
            c[2 * half] = _mm512_or_si512(low_nibbles(bytes), _mm512_and_si512(_mm512_sllv_epi16(bits, shift_counts(4, 2)), upper));
            c[2 * half + 1] = _mm512_or_si512(high_nibbles(bytes), _mm512_and_si512(_mm512_srlv_epi16(bits, shift_counts(0, 2)), upper));
            // Packed dots: sub-block q of the first 64 codes and of the second in quarter q. A byte in the upper half of
            // sixteen bits, shifted down with its sign.
            const auto word = [&](int j) {
                unsigned long long four = 0;
                for (int i = 0; i < 4; ++i) four |= (0x0080ull | static_cast<unsigned>(j) << 8) << 16 * i;
                return static_cast<long long>(four);
            };
            const int j = 8 * half;
            const __m512i index = _mm512_setr_epi64(word(j), word(j + 4), word(j + 1), word(j + 5), word(j + 2), word(j + 6),
                word(j + 3), word(j + 7));
            s[half] = _mm512_srai_epi16(_mm512_shuffle_epi8(scales, index), 8);
        }
    }
    static TINFER_INLINE void load_activations(const std::int8_t* q, __m512i (&a)[4]) {
        for (int i = 0; i < 4; ++i) a[i] = load64(q + 64 * i);
    }
    /// 32 · Σ scale · (sum of 16 activations), spread over the lanes: what the bias added.
    static TINFER_INLINE __m512i bias_sum(const std::uint8_t* block, const std::int16_t* sum16) {
        const __m256i scales = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 192)));
        const __m256i sums = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sum16));
        return _mm512_zextsi256_si512(_mm256_slli_epi32(_mm256_madd_epi16(scales, sums), 5));
    }
};

/// Results of four rows of n_blocks super-blocks against T tokens.
template <class Arch, class Format, int T>
[[gnu::noinline]] void multiply_super_rows(const FourRows& rows, std::int64_t n_blocks, const Activations* x,
                                           float (*results)[4]) noexcept {
    using Rows = SuperRows<Format>;
    __m128 acc[T];
    for (int t = 0; t < T; ++t) acc[t] = _mm_setzero_ps();
    for (std::int64_t i = 0; i < n_blocks; ++i) {
        typename Rows::Header h;
        const std::int64_t at = i * Format::kBlockBytes;
        Rows::header(rows, at, h);
        __m512i a[T][4], sum[T][4];
        for (int t = 0; t < T; ++t) Rows::load_activations(x[t].q + 256 * i, a[t]);
#pragma GCC unroll 4
        for (int r = 0; r < 4; ++r) {
            __m512i c[4], s[2];
            const std::uint8_t* block = rows.row[r] + at;
            rows.ask<Format::kBlockBytes>(r, at);
            Rows::codes(block, h, r, c, s);
#pragma GCC unroll 4
            for (int t = 0; t < T; ++t) {
                const __m512i zero = _mm512_setzero_si512();
                __m512i total = zero;
                if constexpr (!Format::kHasMin) total = _mm512_sub_epi32(zero, Rows::bias_sum(block, x[t].sum16 + 16 * i));
#pragma GCC unroll 2
                for (int half = 0; half < 2; ++half) {   // each dot at most 4 · 63 · 127 = 32004
                    const __m512i first = _mm512_dpbusd_epi32(zero, c[2 * half], a[t][2 * half]);
                    const __m512i second = _mm512_dpbusd_epi32(zero, c[2 * half + 1], a[t][2 * half + 1]);
                    total = _mm512_dpwssd_epi32(total, _mm512_packs_epi32(first, second), s[half]);
                }
                sum[t][r] = total;
            }
        }
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) {
            const __m128 d_x = _mm_set1_ps(x[t].d[i]);
            const __m128i total = fold_four(sum[t][0], sum[t][1], sum[t][2], sum[t][3]);
            acc[t] = _mm_fmadd_ps(_mm_mul_ps(h.d, d_x), _mm_cvtepi32_ps(total), acc[t]);
            if constexpr (Format::kHasMin) {
                const __m128 n = _mm_cvtepi32_ps(Rows::mins_total(h, x[t].sum32 + 8 * i));
                acc[t] = _mm_fnmadd_ps(_mm_mul_ps(h.dmin, d_x), n, acc[t]);
            }
        }
    }
    for (int t = 0; t < T; ++t) _mm_storeu_ps(results[t], acc[t]);
}

// ---- Blocks of 32 ---------------------------------------------------------------------------------------------------

// Four blocks of a row at once, one in each quarter: the first 16 codes of each, and the last 16, unsigned with the bias of
// CodeRoute<avx512vnni, Format>.

/// 16 bytes at p and at three more places `stride` apart.
static TINFER_INLINE __m512i load_four(const std::uint8_t* p, std::int64_t s1, std::int64_t s2, std::int64_t s3) {
    const auto at = [&](std::int64_t s) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + s)); };
    __m512i z = _mm512_castsi128_si512(at(0));
    z = _mm512_inserti32x4(z, at(s1), 1);
    z = _mm512_inserti32x4(z, at(s2), 2);
    return _mm512_inserti32x4(z, at(s3), 3);
}

template <class Format>
inline constexpr int kCodesOffset = Format::kType == DType::mxfp4 ? 1 : Format::kType == DType::q8_0 || Format::kType == DType::q4_0 || Format::kType == DType::iq4_nl ? 2
    : Format::kType == DType::q4_1 ? 4 : Format::kType == DType::q5_0 ? 6 : 8;

/// The d of blocks whose first four bytes are given.
template <class Format>
TINFER_INLINE __m512 scales_of(__m512i heads) {
    if constexpr (Format::kType == DType::mxfp4) return e8m0_halves(heads);
    else return low_f16(heads);
}
/// Codes of blocks at p, p + s1, p + s2, p + s3.
template <class Format>
TINFER_INLINE void four_blocks(const std::uint8_t* p, std::int64_t s1, std::int64_t s2, std::int64_t s3, __m512i& low, __m512i& high) {
    const __m512i bytes = load_four(p + kCodesOffset<Format>, s1, s2, s3);
    if constexpr (Format::kType == DType::q8_0) {
        low = _mm512_xor_si512(bytes, each_byte(128));
        high = _mm512_xor_si512(load_four(p + kCodesOffset<Format> + 16, s1, s2, s3), each_byte(128));
        return;
    }
    low = low_nibbles(bytes);
    high = high_nibbles(bytes);
    if constexpr (Format::kType == DType::iq4_nl || Format::kType == DType::mxfp4) {
        low = level_codes<Format>(low);
        high = level_codes<Format>(high);
    } else if constexpr (Format::kType == DType::q5_0 || Format::kType == DType::q5_1) {
        std::uint64_t word[4];
        const std::int64_t at[4] = {0, s1, s2, s3};
        for (int i = 0; i < 4; ++i) word[i] = load_u32<avx512vnni>(p + at[i] + kCodesOffset<Format> - 4);
        const auto half = [&](int shift) {
            return (word[0] >> shift & 0xFFFF) | (word[1] >> shift & 0xFFFF) << 16 | (word[2] >> shift & 0xFFFF) << 32 |
                   (word[3] >> shift & 0xFFFF) << 48;
        };
        low = _mm512_mask_add_epi8(low, half(0), low, each_byte(16));
        high = _mm512_mask_add_epi8(high, half(16), high, each_byte(16));
    }
}

/// The same for blocks of 32 and one token. Their bias is taken off by the sums of the activations.
template <class Arch, class Format>
[[gnu::noinline]] void multiply_four_block_rows(const FourRows& rows, std::int64_t n_blocks, const Activations& x,
                                                float* results) noexcept {
    constexpr int kBytes = Format::kBlockBytes, kBias = CodeRoute<Arch, Format>::kBias;
    __m128 acc = _mm_setzero_ps();
    const auto offset = [&](int r) { return static_cast<int>(rows.row[r] - rows.row[0]); };   // a run is far below 2 GB
    const __m512i row_offsets = _mm512_broadcast_i32x4(_mm_setr_epi32(0, offset(1), offset(2), offset(3)));
    // n blocks from i on; behind the last one it is repeated.
    const auto multiply = [&](std::int64_t i, int n) __attribute__((always_inline)) {
        const int s1 = n > 1 ? kBytes : 0, s2 = n > 2 ? 2 * kBytes : s1, s3 = n > 3 ? 3 * kBytes : s2;
        const __m512i a = load64(x.q + 32 * i), b = load64(x.q + 32 * i + 64);   // readable behind the codes
        const __m512i first = _mm512_shuffle_i32x4(a, b, 0x88), last = _mm512_shuffle_i32x4(a, b, 0xDD);
        __m512i sum[4];
#pragma GCC unroll 4
        for (int r = 0; r < 4; ++r) {
            __m512i low, high;
            rows.ask<4 * kBytes>(r, i * kBytes);
            four_blocks<Format>(rows.row[r] + i * kBytes, s1, s2, s3, low, high);
            sum[r] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), low, first), high, last);
        }
        // Block j of all rows in quarter j. A block begins with d, then m.
        const __m512i block_offsets = _mm512_setr_epi32(0, 0, 0, 0, s1, s1, s1, s1, s2, s2, s2, s2, s3, s3, s3, s3);
        const __m512i head = _mm512_i32gather_epi32(_mm512_add_epi32(row_offsets, block_offsets), rows.row[0] + i * kBytes, 1);
        const __m512 d = scales_of<Format>(head), m = Format::kHasMin ? high_f16(head) : d;
        __m512i total = fold_quarters(sum[0], sum[1], sum[2], sum[3]);
        if constexpr (kBias != 0) {
            const __m512i sums = _mm512_castps_si512(by_quarters(reinterpret_cast<const float*>(x.sum + i)));
            total = _mm512_sub_epi32(total, _mm512_mullo_epi32(sums, _mm512_set1_epi32(kBias)));
        }
        const __m512 s = _mm512_cvtepi32_ps(total), f = _mm512_mul_ps(d, by_quarters(x.d + i));
        const auto add_block = [&](auto j) __attribute__((always_inline)) {   // a quarter's number must be a constant without optimizing too
            if (j() >= n) return;
            acc = _mm_fmadd_ps(_mm512_extractf32x4_ps(f, j()), _mm512_extractf32x4_ps(s, j()), acc);
            if constexpr (Format::kHasMin) acc = _mm_fmadd_ps(_mm512_extractf32x4_ps(m, j()), _mm_set1_ps(x.s[i + j()]), acc);
        };
        add_block(std::integral_constant<int, 0>{});
        add_block(std::integral_constant<int, 1>{});
        add_block(std::integral_constant<int, 2>{});
        add_block(std::integral_constant<int, 3>{});
    };
    std::int64_t i = 0;
    for (; i + 4 <= n_blocks; i += 4) multiply(i, 4);
    if (i < n_blocks) multiply(i, static_cast<int>(n_blocks - i));
    _mm_storeu_ps(results, acc);
}

/// The same for sixteen rows and T tokens. That is less arithmetic than four rows take, and memory read less evenly: for
/// several tokens, and for rows so short that neighbours lie in one page.
template <class Arch, class Format, int T>
[[gnu::noinline]] void multiply_block_rows(const SixteenRows& rows, std::int64_t n_blocks, const Activations* x,
                                           float (*results)[16]) noexcept {
    constexpr int kBytes = Format::kBlockBytes, kBias = CodeRoute<Arch, Format>::kBias;
    __m512 acc[T];
    for (int t = 0; t < T; ++t) acc[t] = _mm512_setzero_ps();
    alignas(64) std::int32_t offsets[16];   // of the rows: a run is far below 2 GB
    for (int r = 0; r < 16; ++r) offsets[r] = static_cast<std::int32_t>(rows.row[r] - rows.row[0]);
    const __m512i row_offsets = _mm512_load_si512(offsets);
    for (std::int64_t i = 0; i < n_blocks; i += 4) {
        const int n = static_cast<int>(n_blocks - i < 4 ? n_blocks - i : 4);   // blocks behind the last repeat it
        const std::int64_t s1 = n > 1 ? kBytes : 0, s2 = n > 2 ? 2 * kBytes : s1, s3 = n > 3 ? 3 * kBytes : s2;
        __m512i first[T], last[T], totals[T][4];
        for (int t = 0; t < T; ++t) {   // a row of activations is readable behind its codes
            const __m512i a = load64(x[t].q + 32 * i), b = load64(x[t].q + 32 * i + 64);
            first[t] = _mm512_shuffle_i32x4(a, b, 0x88);
            last[t] = _mm512_shuffle_i32x4(a, b, 0xDD);
        }
#pragma GCC unroll 4
        for (int g = 0; g < 4; ++g) {
            __m512i sum[T][4];
#pragma GCC unroll 4
            for (int r = 0; r < 4; ++r) {
                __m512i low, high;
                rows.template ask<4 * kBytes>(4 * g + r, i * kBytes);
                four_blocks<Format>(rows.row[4 * g + r] + i * kBytes, s1, s2, s3, low, high);
#pragma GCC unroll 4
                for (int t = 0; t < T; ++t)
                    sum[t][r] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), low, first[t]), high, last[t]);
            }
            for (int t = 0; t < T; ++t) totals[t][g] = fold_quarters(sum[t][0], sum[t][1], sum[t][2], sum[t][3]);
        }
        __m512i sums[T][4];   // of block j, sixteen rows
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) {   // totals[g]: rows 4g … 4g + 3 of block q in quarter q
            const auto& g = totals[t];
            const __m512i a = _mm512_shuffle_i32x4(g[0], g[1], 0x44), b = _mm512_shuffle_i32x4(g[2], g[3], 0x44);
            const __m512i c = _mm512_shuffle_i32x4(g[0], g[1], 0xEE), e = _mm512_shuffle_i32x4(g[2], g[3], 0xEE);
            sums[t][0] = _mm512_shuffle_i32x4(a, b, 0x88);
            sums[t][1] = _mm512_shuffle_i32x4(a, b, 0xDD);
            sums[t][2] = _mm512_shuffle_i32x4(c, e, 0x88);
            sums[t][3] = _mm512_shuffle_i32x4(c, e, 0xDD);
        }
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
            if (j >= n) break;
            const __m512i head = _mm512_i32gather_epi32(row_offsets, rows.row[0] + (i + j) * kBytes, 1);   // d, then m
            const __m512 d = scales_of<Format>(head), m = Format::kHasMin ? high_f16(head) : d;
#pragma GCC unroll 4
            for (int t = 0; t < T; ++t) {
                __m512i s = sums[t][j];
                if constexpr (kBias != 0) s = _mm512_sub_epi32(s, _mm512_set1_epi32(kBias * x[t].sum[i + j]));
                acc[t] = _mm512_fmadd_ps(_mm512_mul_ps(d, _mm512_set1_ps(x[t].d[i + j])), _mm512_cvtepi32_ps(s), acc[t]);
                if constexpr (Format::kHasMin) acc[t] = _mm512_fmadd_ps(m, _mm512_set1_ps(x[t].s[i + j]), acc[t]);
            }
        }
    }
    for (int t = 0; t < T; ++t) _mm512_storeu_ps(results[t], acc[t]);
}

/// Whether a format is multiplied straight from its rows here.
template <class Format>
inline constexpr bool kMultipliesRows = Format::kUnit == 32
    ? kDecodesSixteen<Format>
    : Format::kType == DType::q4_k || Format::kType == DType::q5_k || Format::kType == DType::q6_k;

}  // namespace tinfer::kernels

#endif
