// SPDX-License-Identifier: MIT
// Products of a token straight from rows of the file, for AVX-512 with VNNI: super-blocks of which eight products fit
// sixteen bits. Four rows are read as in kernels/gemv/common_avx512.hpp, but two of them share registers, eight bytes
// of one beside eight of the other: two dots follow each other in the same lanes, and scales, sums and horizontal
// reductions are paid for once. What the activations look like from there is packed once for all rows.
#pragma once

#include "kernels/gemv/common_avx512.hpp"

#if defined(__AVX512VNNI__)

namespace tinfer::kernels {

/// Rows 0 and 1, 2 and 3. They are computed so fast that what follows is best prefetched into L1, from close by.
struct TwoPairs : FourRows {
    static constexpr std::int64_t kPrefetchDistance = 384;
};

/// A super-block of a token in the order in which the codes of a row meet it.
template <class Format>
struct PairedToken {
    alignas(64) std::int8_t q[2][2][64];  ///< [half][low, high]
    /// Of formats with minimums what sums_of gives: sums of sub-blocks. Of others where the sums of a row start, less
    /// the bias of their codes: of each half in quarter q two of its low codes, then two of its high ones.
    std::int32_t sums[Format::kHasMin ? 16 : 32];
};
/// Of a whole row; loads reach eight bytes further.
template <class Format>
inline std::uint64_t paired_token_bytes(std::int64_t k) noexcept {
    return static_cast<std::uint64_t>(k / 256) * sizeof(PairedToken<Format>) + 64;
}
/// The first eight bytes of every sixteen, twice.
static TINFER_INLINE __m512i eights_twice(const void* p) {
    return _mm512_castpd_si512(_mm512_movedup_pd(_mm512_loadu_pd(p)));
}

// A format says here how its rows come in pairs:
//   kHighBy                      high codes are 2^kHighBy times their value
//   struct Steps                 what the float steps of four rows need of a block: d, then dmin, as floats; mins
//   struct Header : Steps        and the scales, where they are read with these; header(rows, at, header) reads it
//   half_of(q, half, high)       the 64 activations that the low or high codes of half a row meet
//   codes(a, b, half, low, high) the low and high codes of the blocks at a and b, in the two parts of PairedToken::q
//   scales(header, a, b)         those of a pair's sub-blocks, as int16; scale_index(pair, half) gives their order
//   kBias, or sums_of(x, i)      what PairedToken::sums is made from
//   add_steps(steps, d_x, s, sums, acc)   the float steps of four rows

/// 32 bytes at a and 32 at b.
static TINFER_INLINE __m512i load_halves(const void* a, const void* b) {
    const __m512i low = _mm512_castsi256_si512(_mm256_loadu_si256(static_cast<const __m256i*>(a)));
    return _mm512_inserti64x4(low, _mm256_loadu_si256(static_cast<const __m256i*>(b)), 1);
}
/// 16 bytes at `at` of each row, one in each quarter.
static TINFER_INLINE __m512i load_quarters(const FourRows& rows, std::int64_t at) {
    const auto two = [&](int r) {
        return _mm256_inserti128_si256(_mm256_castsi128_si256(load_bytes16(rows.row[r] + at)),
                                       load_bytes16(rows.row[r + 1] + at), 1);
    };
    return _mm512_inserti64x4(_mm512_castsi256_si512(two(0)), two(2), 1);
}
/// The first lane of each quarter.
static TINFER_INLINE __m128i first_lanes(__m512i z) {
    const __m512i index = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 4, 8, 12));
    return _mm512_castsi512_si128(_mm512_permutexvar_epi32(index, z));
}
/// The first eight bytes of every sixteen, of a and then of b; the last eight.
static TINFER_INLINE void in_pairs(__m512i a, __m512i b, __m512i (&out)[2]) {
    out[0] = _mm512_unpacklo_epi64(a, b);
    out[1] = _mm512_unpackhi_epi64(a, b);
}
/// 32 bytes of bits of each row, and behind them the same `By` bits further.
template <int By>
TINFER_INLINE void bits_in_pairs(const std::uint8_t* a, const std::uint8_t* b, __m512i (&out)[2]) {
    const __m256i bits_a = load_bytes32(a), bits_b = load_bytes32(b);
    const auto with_next = [](__m256i bits) {
        return _mm512_inserti64x4(_mm512_castsi256_si512(bits), _mm256_srli_epi16(bits, By), 1);
    };
    out[0] = with_next(_mm256_unpacklo_epi64(bits_a, bits_b));
    out[1] = with_next(_mm256_unpackhi_epi64(bits_a, bits_b));
}
/// Where the scales lie that a pair of rows needs: fn(row of the pair, quarter, high) of each quarter's low sums, then
/// its high ones.
template <class Fn>
TINFER_INLINE __m512i scale_words(Fn fn) {
    alignas(64) std::int16_t words[32];
    for (int q = 0; q < 4; ++q)
        for (int w = 0; w < 8; ++w) words[8 * q + w] = static_cast<std::int16_t>(fn(w / 2 % 2, q, w / 4));
    return _mm512_load_si512(words);
}

/// What Q4_K and Q5_K share: eight scales and eight mins of six bits. Low codes of a half are sub-blocks 0 and 2, high
/// ones 1 and 3.
struct PairedKRows {
    struct Steps {
        __m512i mins;  ///< as int16, a row in each quarter
        __m256 d;      ///< and dmin
    };
    struct Header : Steps {
        __m512i scales;
    };
    static TINFER_INLINE void header(const FourRows& rows, std::int64_t at, Header& out) {
        const __m512i shifts = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0, 0, 4));
        const __m512i low = _mm512_broadcast_i32x4(_mm_setr_epi32(0x3F3F3F3F, 0x0F0F0F0F, 0x3F3F3F3F, 0x0F0F0F0F));
        const __m512i top = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x30303030, 0, 0x30303030));
        const __m512i head = load_quarters(rows, at);  // words: d and dmin, then s0, s1, s2 of unpack_scales_and_mins
        const __m512i a = _mm512_srlv_epi32(_mm512_shuffle_epi32(head, _MM_PERM_ENUM(0xED)), shifts);  // s0 s2 s1 s2
        const __m512i c = _mm512_srli_epi32(_mm512_shuffle_epi32(head, _MM_PERM_ENUM(0xA5)), 2);       // s0 s0 s1 s1
        const __m512i bytes = _mm512_or_si512(_mm512_and_si512(a, low), _mm512_and_si512(c, top));
        out.scales = _mm512_unpacklo_epi8(bytes, _mm512_setzero_si512());
        out.mins = _mm512_unpackhi_epi8(bytes, _mm512_setzero_si512());
        const __m128i apart = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
        out.d = _mm256_cvtph_ps(_mm_shuffle_epi8(first_lanes(head), apart));
    }
    static TINFER_INLINE __m512i half_of(const std::int8_t* q, int half, int high) {
        const std::int8_t* p = q + 128 * half + 32 * high;
        return load_halves(p, p + 64);
    }
    static TINFER_INLINE __m512i scales(const Header& h, const std::uint8_t*, const std::uint8_t*) { return h.scales; }
    static TINFER_INLINE __m512i scale_index(int pair, int half) {
        return scale_words(
            [&](int row, int q, int high) { return 8 * (2 * pair + row) + 4 * half + q / 2 * 2 + high; });
    }
    static TINFER_INLINE __m512i sums_of(const Activations& x, std::int64_t i) {
        return _mm512_castps_si512(by_quarters(reinterpret_cast<const float*>(x.sum32 + 8 * i)));
    }
    static TINFER_INLINE __m128 add_steps(const Steps& steps, float d_x, __m128i s, const std::int32_t* sums,
                                          __m128 acc) {
        const __m512i transposed = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        const __m256 d = _mm256_mul_ps(steps.d, _mm256_set1_ps(d_x));
        const __m128i n =
            add_quarters(_mm512_madd_epi16(_mm512_permutexvar_epi32(transposed, steps.mins), _mm512_load_si512(sums)));
        acc = _mm_fmadd_ps(_mm256_castps256_ps128(d), _mm_cvtepi32_ps(s), acc);
        return _mm_fnmadd_ps(_mm256_extractf128_ps(d, 1), _mm_cvtepi32_ps(n), acc);
    }
};

template <class Format>
struct PairedRows;

template <>
struct PairedRows<Q4_K> : PairedKRows {
    static constexpr int kHighBy = 4;  // masked where they lie
    static TINFER_INLINE void codes(const std::uint8_t* a, const std::uint8_t* b, int half, __m512i (&low)[2],
                                    __m512i (&high)[2]) {
        __m512i bytes[2];
        in_pairs(load64(a + 16 + 64 * half), load64(b + 16 + 64 * half), bytes);
        for (int part = 0; part < 2; ++part) {
            low[part] = low_nibbles(bytes[part]);
            high[part] = _mm512_and_si512(bytes[part], each_byte<16>(0xF0));
        }
    }
};

template <>
struct PairedRows<Q5_K> : PairedKRows {
    static constexpr int kHighBy = 0;
    static TINFER_INLINE void codes(const std::uint8_t* a, const std::uint8_t* b, int half, __m512i (&low)[2],
                                    __m512i (&high)[2]) {
        __m512i bytes[2], bits[2];  // bit j belongs to sub-block j
        in_pairs(load64(a + 48 + 64 * half), load64(b + 48 + 64 * half), bytes);
        bits_in_pairs<2>(a + 16, b + 16, bits);
        const __m512i sixteen = each_byte<16>(16);
        for (int part = 0; part < 2; ++part) {
            const __m512i fifth_low = half == 0 ? _mm512_slli_epi16(bits[part], 4) : bits[part];
            const __m512i fifth_high = half == 0 ? _mm512_slli_epi16(bits[part], 3) : _mm512_srli_epi16(bits[part], 1);
            low[part] = _mm512_or_si512(low_nibbles(bytes[part]), _mm512_and_si512(fifth_low, sixteen));
            high[part] = _mm512_or_si512(high_nibbles(bytes[part]), _mm512_and_si512(fifth_high, sixteen));
        }
    }
};

/// Sixteen signed scales and no minimums. Low codes of a half are its first four sub-blocks, high ones the last. Their
/// bias is taken off where sums start, so that |Σ of eight (code − bias) · q| ≤ 8 · 32 · 127.
template <>
struct PairedRows<Q6_K> {
    static constexpr int kHighBy = 0;
    struct Steps {
        __m128 d;
    };
    using Header = Steps;
    static TINFER_INLINE __m512i half_of(const std::int8_t* q, int half, int high) {
        return load64(q + 128 * half + 64 * high);
    }
    static TINFER_INLINE __m512i widened(__m128i a, __m128i b) {
        return _mm512_cvtepi8_epi16(_mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1));
    }
    static TINFER_INLINE __m512i scale_index(int, int half) {
        return scale_words([&](int row, int q, int high) { return 16 * row + 8 * half + 4 * high + q; });
    }
    static TINFER_INLINE __m128 add_steps(const Steps& steps, float d_x, __m128i s, const std::int32_t*, __m128 acc) {
        return _mm_fmadd_ps(_mm_mul_ps(steps.d, _mm_set1_ps(d_x)), _mm_cvtepi32_ps(s), acc);
    }
    static constexpr int kBias = 32;
    static TINFER_INLINE void header(const FourRows& rows, std::int64_t at, Header& out) {
        out.d = four_halves(rows, at + 208);
    }
    static TINFER_INLINE void codes(const std::uint8_t* a, const std::uint8_t* b, int half, __m512i (&low)[2],
                                    __m512i (&high)[2]) {
        __m512i bytes[2], bits[2];
        in_pairs(load64(a + 64 * half), load64(b + 64 * half), bytes);
        bits_in_pairs<2>(a + 128 + 32 * half, b + 128 + 32 * half, bits);
        const __m512i upper = each_byte<16>(0x30);
        for (int part = 0; part < 2; ++part) {
            low[part] =
                _mm512_or_si512(low_nibbles(bytes[part]), _mm512_and_si512(_mm512_slli_epi16(bits[part], 4), upper));
            high[part] = _mm512_or_si512(high_nibbles(bytes[part]), _mm512_and_si512(bits[part], upper));
        }
    }
    static TINFER_INLINE __m512i scales(const Header&, const std::uint8_t* a, const std::uint8_t* b) {
        return widened(load_bytes16(a + 192), load_bytes16(b + 192));
    }
};

/// A token's super-blocks, n of them, for multiply_paired_rows.
template <class Arch, class Format>
inline void pack_token(const Activations& x, std::int64_t n, PairedToken<Format>* out) noexcept {
    using Rows = PairedRows<Format>;
    for (std::int64_t i = 0; i < n; ++i, ++out) {
        for (int half = 0; half < 2; ++half)
            for (int high = 0; high < 2; ++high) {
                const __m512i q = Rows::half_of(x.q + 256 * i, half, high);
                _mm512_store_si512(out->q[half][high], q);
                if constexpr (!Format::kHasMin) {  // lane i of a pair meets bytes 4 i … 4 i + 3 and 4 i + 8 … 4 i + 11
                                                   // of a quarter
                    const __m512i sum = _mm512_dpbusd_epi32(_mm512_setzero_si512(), each_byte<16>(Rows::kBias), q);
                    const __m512i both = _mm512_add_epi32(sum, _mm512_shuffle_epi32(sum, _MM_PERM_ENUM(0x4E)));
                    const __m512i acc_init = _mm512_sub_epi32(_mm512_setzero_si512(), both);
                    _mm512_mask_storeu_epi32(out->sums + 16 * half, high == 0 ? 0x3333 : 0xCCCC, acc_init);
                }
            }
        if constexpr (Format::kHasMin) _mm512_store_si512(out->sums, Rows::sums_of(x, i));
    }
}

/// Results of four rows of n_blocks super-blocks against a token, which is a matter of latency: a processor looks ahead
/// by little more than a block, and what a block computes is a long chain. So the header is read a block
/// ahead, and the float steps follow a block behind.
template <class Arch, class Format>
TINFER_INLINE void multiply_paired_rows(const TwoPairs& rows, std::int64_t n_blocks, const PairedToken<Format>* x,
                                        const float* d_x, float* results) noexcept {
    using Rows = PairedRows<Format>;
    static_assert(8 * 127 * Format::kMaxCode <= 32767);  // eight products, without their bias: packs never saturates
    __m128 acc = _mm_setzero_ps();
    const __m512i scale_index[2][2] = {{Rows::scale_index(0, 0), Rows::scale_index(0, 1)},
                                       {Rows::scale_index(1, 0), Rows::scale_index(1, 1)}};
    const auto add_steps = [&](std::int64_t i, const typename Rows::Steps& steps, const __m512i(&sum)[2])
        __attribute__((always_inline)) {
        const __m512i by_rows =
            _mm512_add_epi32(_mm512_unpacklo_epi64(sum[0], sum[1]), _mm512_unpackhi_epi64(sum[0], sum[1]));
        acc = Rows::add_steps(steps, d_x[i], add_quarters(by_rows), x[i].sums, acc);
    };
    typename Rows::Header h;
    typename Rows::Steps steps;  // of the block before, as its sums
    __m512i before[2];
    Rows::header(rows, 0, h);
    for (std::int64_t i = 0; i < n_blocks; ++i) {
        const std::int64_t at = i * Format::kBlockBytes;
        __m512i sum[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()}, scales[2];
#    pragma GCC unroll 2
        for (int pair = 0; pair < 2; ++pair)
            scales[pair] = Rows::scales(h, rows.row[2 * pair] + at, rows.row[2 * pair + 1] + at);
#    pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
#    pragma GCC unroll 2
            for (int pair = 0; pair < 2; ++pair) {
                rows.prefetch<Format::kBlockBytes>(2 * half + pair, at);
                __m512i low[2], high[2], low_sum = _mm512_setzero_si512(), high_sum = low_sum;
                Rows::codes(rows.row[2 * pair] + at, rows.row[2 * pair + 1] + at, half, low, high);
                if constexpr (!Format::kHasMin) {
                    low_sum = eights_twice(x[i].sums + 16 * half);
                    high_sum = eights_twice(x[i].sums + 16 * half + 2);
                }
#    pragma GCC unroll 2
                for (int part = 0; part < 2; ++part) {
                    low_sum = _mm512_dpbusd_epi32(low_sum, low[part], eights_twice(x[i].q[half][0] + 8 * part));
                    high_sum = _mm512_dpbusd_epi32(high_sum, high[part], eights_twice(x[i].q[half][1] + 8 * part));
                }
                if constexpr (Rows::kHighBy != 0) high_sum = _mm512_srai_epi32(high_sum, Rows::kHighBy);
                const __m512i by_sub = _mm512_permutexvar_epi16(scale_index[pair][half], scales[pair]);
                sum[pair] = _mm512_dpwssd_epi32(sum[pair], _mm512_packs_epi32(low_sum, high_sum), by_sub);
            }
        }
        if (i > 0) add_steps(i - 1, steps, before);
        steps = h;
        std::memcpy(before, sum, sizeof(before));
        if (i + 1 < n_blocks) Rows::header(rows, at + Format::kBlockBytes, h);
    }
    add_steps(n_blocks - 1, steps, before);
    _mm_storeu_ps(results, acc);
}

}  // namespace tinfer::kernels

#endif
