// SPDX-License-Identifier: MIT
// Products of one token or two straight from rows of the file, for AVX-512 with VNNI: formats of blocks of 32. Read
// like the super-blocks of kernels/gemv/common_avx512.hpp.
#pragma once

#include <type_traits>

#include "kernels/gemv/common_avx512.hpp"

#if defined(__AVX512VNNI__)

namespace tinfer::kernels {

// Four blocks of a row at once, one in each quarter: the first 16 codes of each, and the last 16, unsigned with the
// bias of Int8Encoding<avx512vnni, Format>.

/// 16 bytes at p and at three more places `stride` apart.
static TINFER_INLINE __m512i load_four(const std::uint8_t* p, std::int64_t s1, std::int64_t s2, std::int64_t s3) {
    const auto at = [&](std::int64_t s) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + s)); };
    __m512i z = _mm512_castsi128_si512(at(0));
    z = _mm512_inserti32x4(z, at(s1), 1);
    z = _mm512_inserti32x4(z, at(s2), 2);
    return _mm512_inserti32x4(z, at(s3), 3);
}

template <class Format>
inline constexpr int kCodesOffset = Format::kType == DType::mxfp4                                    ? 1
                                    : Format::kType == DType::q4_0 || Format::kType == DType::iq4_nl ? 2
                                    : Format::kType == DType::q4_1                                   ? 4
                                    : Format::kType == DType::q5_0                                   ? 6
                                                                                                     : 8;

/// The d of blocks whose first four bytes are given.
template <class Format>
TINFER_INLINE __m512 scales_of(__m512i heads) {
    if constexpr (Format::kType == DType::mxfp4) return e8m0_halves(heads);
    else return low_f16(heads);
}
/// Codes of blocks at p, p + s1, p + s2, p + s3.
template <class Format>
TINFER_INLINE void four_blocks(const std::uint8_t* p, std::int64_t s1, std::int64_t s2, std::int64_t s3, __m512i& low,
                               __m512i& high) {
    const __m512i bytes = load_four(p + kCodesOffset<Format>, s1, s2, s3);
    low = low_nibbles(bytes);
    high = high_nibbles(bytes);
    if constexpr (Format::kType == DType::iq4_nl || Format::kType == DType::mxfp4) {
        low = level_codes<avx512vnni, Format, 16>(low);
        high = level_codes<avx512vnni, Format, 16>(high);
    } else if constexpr (Format::kType == DType::q5_0 || Format::kType == DType::q5_1) {
        std::uint64_t word[4];
        const std::int64_t at[4] = {0, s1, s2, s3};
        for (int i = 0; i < 4; ++i) word[i] = load_u32<avx512vnni>(p + at[i] + kCodesOffset<Format> - 4);
        const auto half = [&](int shift) {
            return (word[0] >> shift & 0xFFFF) | (word[1] >> shift & 0xFFFF) << 16 | (word[2] >> shift & 0xFFFF) << 32 |
                   (word[3] >> shift & 0xFFFF) << 48;
        };
        low = _mm512_mask_add_epi8(low, half(0), low, each_byte<16>(16));
        high = _mm512_mask_add_epi8(high, half(16), high, each_byte<16>(16));
    }
}

/// Four neighbouring blocks of a row by two loads and one permutation for each register of codes: what lies in quarter
/// q of a register belongs to block q. Words of 16 or 32 bits are moved; where blocks have an odd number of bytes,
/// every other one's codes are whole words from the first byte of the row's second load on, the others' from that of
/// the first.
template <class Format>
struct WholeBlocks {
    static constexpr int kBytes = Format::kBlockBytes, kCodes = kCodesOffset<Format>;
    static constexpr bool kFifth =
        Format::kType == DType::q5_0 || Format::kType == DType::q5_1;  ///< bits of codes lie apart
    static constexpr bool kOdd = kBytes % 2 != 0;
    static constexpr int kWord = kBytes % 4 == 0 ? 4 : 2;  ///< bytes that are moved together
    static constexpr int kFirst = kOdd ? 1 : 0;            ///< where the first load begins
    static constexpr int kSecond = 4 * kBytes - 64;        ///< where the second load begins
    /// Fifth bits: where a quarter of the permutation that brings them holds its four bytes. Between those of Q5_0 lies
    /// d.
    static constexpr int kBits = kWord == 2 ? 2 : 0, kMoreBits = kWord == 2 ? 6 : 2;

    __m512i codes, heads, fifth, low_bits, high_bits;

    TINFER_INLINE WholeBlocks() {
        codes = index([](int q, int e) { return at(q * kBytes + kCodes + kWord * e, kSecond); });
        if constexpr (kOdd) heads = index([](int q, int) { return q == 0 ? 0 : (q * kBytes - kSecond) / kWord; });
        else
            heads = index([](int q, int) {
                return kFifth ? at(q * kBytes, kSecond) : q * kBytes < 64 ? q * kBytes / kWord : 0;
            });
        if constexpr (kFifth) {
            fifth = index([](int q, int e) {
                return at(q * kBytes + (kWord == 4 ? 4 : e % 2 == 0 ? 0 : e == 1 ? 2 : 4), kSecond);
            });
            const auto eight_each = [](int byte) {
                const std::int64_t lane = 0x0101010101010101;
                return _mm512_broadcast_i32x4(_mm_set_epi64x(lane * (byte + 1), lane * byte));
            };
            low_bits = eight_each(kBits);
            high_bits = eight_each(kMoreBits);
        }
    }
    /// Codes of the blocks at p, and into the lanes of row r of four what their first four bytes hold, as heads_of
    /// wants it.
    TINFER_INLINE void read(const std::uint8_t* p, int r, __m512i& low, __m512i& high, __m512i& head) const {
        const __m512i first = load64(p + kFirst), second = load64(p + kSecond);
        const __m512i bytes = permute(first, codes, second);
        low = low_nibbles(bytes);
        high = high_nibbles(bytes);
        if constexpr (Format::kType == DType::iq4_nl || Format::kType == DType::mxfp4) {
            low = level_codes<avx512vnni, Format, 16>(low);
            high = level_codes<avx512vnni, Format, 16>(high);
        }
        const auto lanes_of_row = static_cast<__mmask16>(0x1111u << r);
        if constexpr (kFifth) {
            const __m512i bits = permute(first, fifth, second);
            low = with_fifth(low, _mm512_shuffle_epi8(bits, low_bits));
            high = with_fifth(high, _mm512_shuffle_epi8(bits, high_bits));
            head = _mm512_mask_mov_epi32(head, lanes_of_row, kWord == 2 ? bits : permute(first, heads, second));
        } else if constexpr (kOdd) {
            head = _mm512_mask_permutexvar_epi16(head, 0x01010100u << 2 * r, heads, second);
            head = _mm512_mask_set1_epi32(head, static_cast<__mmask16>(1u << r),
                                          static_cast<int>(load_u32<avx512vnni>(p)));
        } else if constexpr (kWord == 4) head = _mm512_mask_permutexvar_epi32(head, lanes_of_row, heads, first);
        else head = _mm512_mask_permutexvar_epi16(head, 0x01010101u << 2 * r, heads, first);
    }

    /// What `read` has put together for four rows, so that d is where a block has it. Every other block of an odd
    /// number of bytes begins in the upper half of a word.
    static TINFER_INLINE __m512i heads_of(__m512i head) {
        if constexpr (!kOdd) return head;
        return _mm512_srlv_epi32(head, _mm512_setr_epi32(0, 0, 0, 0, 8, 8, 8, 8, 0, 0, 0, 0, 8, 8, 8, 8));
    }

private:
    static constexpr int at(int byte, int second) {
        const bool in_first = byte < 64 + kFirst && (byte - kFirst) % kWord == 0;
        return in_first ? (byte - kFirst) / kWord : (byte - second) / kWord + 64 / kWord;
    }
    /// Codes with a fifth bit each: bit i of every eight bytes that are the same.
    static TINFER_INLINE __m512i with_fifth(__m512i codes, __m512i bits) {
        const __m512i bit = _mm512_set1_epi64(static_cast<std::int64_t>(0x8040201008040201u));
        return _mm512_mask_add_epi8(codes, _mm512_test_epi8_mask(bits, bit), codes, each_byte<16>(16));
    }
    /// Of the words of a register: word e of quarter q.
    template <class Fn>
    static TINFER_INLINE __m512i index(Fn fn) {
        alignas(64) std::conditional_t<kWord == 4, std::int32_t, std::int16_t> words[64 / kWord];
        for (int i = 0; i < 64 / kWord; ++i)
            words[i] = static_cast<std::int16_t>(fn(i / (16 / kWord), i % (16 / kWord)));
        return _mm512_load_si512(words);
    }
    static TINFER_INLINE __m512i permute(__m512i a, __m512i index, __m512i b) {
        if constexpr (kWord == 4) return _mm512_permutex2var_epi32(a, index, b);
        else return _mm512_permutex2var_epi16(a, index, b);
    }
};

/// Sixteen rows and T tokens, or sixteen pairs of neighbours that lie one behind the other: where rows end in half a
/// group of four blocks, pairs have whole groups only. The bias of codes is taken off by the sums of the activations.
template <class Arch, class Format, int T, class Rows>
[[gnu::noinline]] void multiply_block_rows(const Rows& rows, std::int64_t n_blocks, const Activations* x,
                                           float (*results)[Rows::kRows]) noexcept {
    constexpr bool kPairs = Rows::kPerLane == 2;
    constexpr int kBytes = Format::kBlockBytes, kBias = Int8Encoding<Arch, Format>::kBias;
    __m512 acc[T];
    for (int t = 0; t < T; ++t) acc[t] = _mm512_setzero_ps();
    alignas(64) std::int32_t offsets[16];  // of the rows: a run is far below 2 GB
    for (int r = 0; r < 16; ++r) offsets[r] = static_cast<std::int32_t>(rows.row[r] - rows.row[0]);
    const __m512i row_offsets = _mm512_load_si512(offsets);
    const WholeBlocks<Format> whole;
    // Results of a row of each pair: every other one.
    const auto store = [&](int row) __attribute__((always_inline)) {
        const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7),
                      eight = _mm512_set1_epi32(8);
        const __mmask16 mask = row == 0 ? 0x5555 : 0xAAAA;
        for (int t = 0; t < T; ++t) {
            if constexpr (!kPairs) {
                _mm512_storeu_ps(results[t], acc[t]);
            } else {
                _mm512_mask_storeu_ps(results[t], mask, _mm512_permutexvar_ps(twice, acc[t]));
                _mm512_mask_storeu_ps(results[t] + 16, mask,
                                      _mm512_permutexvar_ps(_mm512_add_epi32(twice, eight), acc[t]));
            }
        }
    };
    // n blocks from byte `at` on, of which the first `done` have been added already. They meet blocks i, i + 1 of the
    // activations, then `next`, `next` + 1, which are those of the pair's second row where `to_second_row`.
    const auto multiply = [&](std::int64_t at, std::int64_t i, std::int64_t next, int done, int n, bool to_second_row)
        __attribute__((always_inline)) {
        const std::int64_t s1 = n > 1 ? kBytes : 0, s2 = n > 2 ? 2 * kBytes : s1, s3 = n > 3 ? 3 * kBytes : s2;
        __m512i first[T], last[T], totals[T][4], heads[4];
        for (int t = 0; t < T; ++t) {  // a row of activations is readable behind its codes
            const __m512i a = load64(x[t].q + 32 * i), b = load64(x[t].q + 32 * next);
            first[t] = _mm512_shuffle_i32x4(a, b, 0x88);
            last[t] = _mm512_shuffle_i32x4(a, b, 0xDD);
        }
#    pragma GCC unroll 4
        for (int g = 0; g < 4; ++g) {
            __m512i sum[T][4];
            heads[g] = _mm512_setzero_si512();
#    pragma GCC unroll 4
            for (int r = 0; r < 4; ++r) {
                __m512i low, high;
                rows.template prefetch<4 * kBytes>(4 * g + r, at);
                if (n == 4) whole.read(rows.row[4 * g + r] + at, r, low, high, heads[g]);
                else four_blocks<Format>(rows.row[4 * g + r] + at, s1, s2, s3, low, high);
#    pragma GCC unroll 4
                for (int t = 0; t < T; ++t)
                    sum[t][r] =
                        _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), low, first[t]), high, last[t]);
            }
            heads[g] = whole.heads_of(heads[g]);
            for (int t = 0; t < T; ++t) totals[t][g] = reduce_quarters(sum[t][0], sum[t][1], sum[t][2], sum[t][3]);
        }
        __m512i sums[T][4];  // of block j, sixteen rows
        // From rows 4g … 4g + 3 of block q in quarter q to sixteen rows of each block.
        const auto transpose_lanes = [](const __m512i(&g)[4], __m512i(&out)[4]) __attribute__((always_inline)) {
            const __m512i a = _mm512_shuffle_i32x4(g[0], g[1], 0x44), b = _mm512_shuffle_i32x4(g[2], g[3], 0x44);
            const __m512i c = _mm512_shuffle_i32x4(g[0], g[1], 0xEE), e = _mm512_shuffle_i32x4(g[2], g[3], 0xEE);
            out[0] = _mm512_shuffle_i32x4(a, b, 0x88);
            out[1] = _mm512_shuffle_i32x4(a, b, 0xDD);
            out[2] = _mm512_shuffle_i32x4(c, e, 0x88);
            out[3] = _mm512_shuffle_i32x4(c, e, 0xDD);
        };
#    pragma GCC unroll 4
        for (int t = 0; t < T; ++t) transpose_lanes(totals[t], sums[t]);
        __m512i transposed_heads[4];
        if (n == 4) transpose_lanes(heads, transposed_heads);
#    pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
            if (j < done || j >= n) continue;
            if (j == 2 && to_second_row) {
                store(0);
                for (int t = 0; t < T; ++t) acc[t] = _mm512_setzero_ps();
            }
            const std::int64_t block = j < 2 ? i + j : next + j - 2;
            const __m512i head =
                n == 4 ? transposed_heads[j]
                       : _mm512_i32gather_epi32(row_offsets, rows.row[0] + at + j * kBytes, 1);  // d, then m
            const __m512 d = scales_of<Format>(head), m = Format::kHasMin ? high_f16(head) : d;
#    pragma GCC unroll 4
            for (int t = 0; t < T; ++t) {
                __m512i s = sums[t][j];
                if constexpr (kBias != 0) s = _mm512_sub_epi32(s, _mm512_set1_epi32(kBias * x[t].sum[block]));
                acc[t] =
                    _mm512_fmadd_ps(_mm512_mul_ps(d, _mm512_set1_ps(x[t].d[block])), _mm512_cvtepi32_ps(s), acc[t]);
                if constexpr (Format::kHasMin) acc[t] = _mm512_fmadd_ps(m, _mm512_set1_ps(x[t].s[block]), acc[t]);
            }
        }
    };
    std::int64_t at = 0, i = 0;
    const auto multiply_whole_groups = [&]() __attribute__((always_inline)) {
        for (; i + 4 <= n_blocks; i += 4, at += 4 * kBytes) multiply(at, i, i + 2, 0, 4, false);
    };
    if constexpr (!kPairs) {
        multiply_whole_groups();
        const int rest = static_cast<int>(n_blocks - i);
        if (rest > 0 && i > 0) multiply(at - (4 - rest) * kBytes, n_blocks - 4, n_blocks - 2, 4 - rest, 4, false);
        else if (rest > 0) multiply(at, i, i + 2, 0, rest, false);
    } else {
        for (;;) {
            multiply_whole_groups();
            if (i == n_blocks) break;
            multiply(at, i, 0, 0, 4, true);
            at += 4 * kBytes;
            i = 2;  // of the second row
        }
    }
    store(1);
}

}  // namespace tinfer::kernels

#endif
