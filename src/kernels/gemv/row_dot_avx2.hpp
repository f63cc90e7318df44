// SPDX-License-Identifier: MIT
// One or two tokens times eight rows as they lie in the file, for the tables of kernels/gemv/skinny.hpp: where
// transposing rows costs more than it saves. Sums lie along the lanes of a row and are horizontally reduced eight rows
// at a time, so that minimums and float steps have rows in lanes.
#pragma once

#include "kernels/gemv/skinny.hpp"

#if defined(__AVX2__)

namespace tinfer::kernels {

using EightRows = RowGroup<8>;

/// Lane r: the sum of the lanes of v[r].
static TINFER_INLINE __m256i reduce_eight(const __m256i (&v)[8]) {
    const auto four = [&](int r) {  // halves of rows r … r + 3
        const __m256i first =
            _mm256_add_epi32(_mm256_unpacklo_epi32(v[r], v[r + 1]), _mm256_unpackhi_epi32(v[r], v[r + 1]));
        const __m256i last =
            _mm256_add_epi32(_mm256_unpacklo_epi32(v[r + 2], v[r + 3]), _mm256_unpackhi_epi32(v[r + 2], v[r + 3]));
        return _mm256_add_epi32(_mm256_unpacklo_epi64(first, last), _mm256_unpackhi_epi64(first, last));
    };
    const __m256i low = four(0), high = four(4);
    return _mm256_add_epi32(_mm256_blend_epi32(low, high, 0xF0), _mm256_permute2x128_si256(low, high, 0x21));
}

// A format says here how a row's block meets T tokens, with codes as Int8Encoding wants them:
//   codes(block, put)                 put(j, c): values 32j … 32j + 31
//   struct Header<T>                  what is known of eight blocks: d and dmin as floats, n: mins times sums of codes
//   Header(blocks, x, i)              of super-block i of the tokens x
//   load_row(block)                   the next row,
//   acc_init(t)                       where its sum starts,
//   scale(r, j)                       what the pairs of products 32j … of row r are multiplied with

/// What Q4_K and Q5_K share.
struct KRowDot {
    template <int T>
    struct Header {
        static constexpr bool kTakesPreShift = false;
        alignas(32) std::int32_t scale_of[8][8];  ///< of a sub-block and a row, as two int16
        const std::int16_t* sums[T];
        __m256i n[T];
        __m256 d_w, dmin_w;

        TINFER_INLINE Header(const RowBlocks<8>& blocks, const Activations* x, std::int64_t i) noexcept {
            for (int t = 0; t < T; ++t) {
                sums[t] = x[t].sum32 + 8 * i;
                n[t] = _mm256_setzero_si256();
            }
            __m256i scales[2];
            decode_k_header(blocks, *this, scales);
#    pragma GCC unroll 8
            for (int j = 0; j < 8; ++j) {
                const int lane = static_cast<int>(0x80008000u + 0x00010001u * static_cast<unsigned>(j % 4));
                const __m128i index = _mm_setr_epi32(lane, lane + 0x00040004, lane + 0x00080008, lane + 0x000C000C);
                store_lanes(scale_of[j], shuffle_in_quarters(scales[j / 4], index));
            }
            asm("" : "+m"(scale_of));  // to be loaded from there: the compiler would shuffle
        }
        TINFER_INLINE void d(__m256 d) noexcept { d_w = d; }
        TINFER_INLINE void dmin(__m256 d) noexcept { dmin_w = d; }
        TINFER_INLINE void mins(int pair, __m256i mins) noexcept {
#    pragma GCC unroll 2
            for (int t = 0; t < T; ++t)
                n[t] = dot2(i32v<avx2>(n[t]), i32v<avx2>(mins), bcast4<avx2>(sums[t] + 2 * pair), avx2{});
        }
        TINFER_INLINE void load_row(const std::uint8_t*) noexcept {}
        TINFER_INLINE __m256i acc_init(int) const noexcept { return _mm256_setzero_si256(); }
        TINFER_INLINE __m256i scale(int r, int j) const noexcept { return _mm256_set1_epi32(scale_of[j][r]); }
    };
};

template <class Format>
struct RowDot;
template <>
struct RowDot<Q4_K> : KRowDot {
    template <class Put>
    static TINFER_INLINE void codes(const std::uint8_t* block, const Put& put) {
#    pragma GCC unroll 4
        for (int g = 0; g < 4; ++g) {
            const __m256i bytes = load_bytes32(block + 16 + 32 * g);
            put(2 * g, low_nibbles(bytes));
            put(2 * g + 1, high_nibbles(bytes));
        }
    }
};
template <>
struct RowDot<Q5_K> : KRowDot {
    template <class Put>
    static TINFER_INLINE void codes(const std::uint8_t* block, const Put& put) {
        const __m256i fifth = load_bytes32(block + 16);  // bit j of a byte belongs to sub-block j
        const auto fifth_of = [&](int j) {
            return bits_and(j < 4    ? shift_left_16(fifth, 4 - j)
                            : j == 4 ? fifth
                                     : shift_right_16(fifth, j - 4),
                            bytes_of(16));
        };
#    pragma GCC unroll 4
        for (int g = 0; g < 4; ++g) {
            const __m256i bytes = load_bytes32(block + 48 + 32 * g);
            put(2 * g, bits_or(low_nibbles(bytes), fifth_of(2 * g)));
            put(2 * g + 1, bits_or(high_nibbles(bytes), fifth_of(2 * g + 1)));
        }
    }
};
template <>
struct RowDot<Q6_K> {
    template <int T>
    struct Header {
        __m256i sums[T];  ///< of codes per 16, times −16: the even ones, then the odd ones
        __m256i scales;
        __m256 d_w;
        TINFER_INLINE Header(const RowBlocks<8>& blocks, const Activations* x, std::int64_t i) noexcept
            : d_w(load_last_f16s(blocks, 208)) {
            const __m128i apart = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
            for (int t = 0; t < T; ++t) {
                const __m256i sixteenth = _mm256_sub_epi16(
                    _mm256_setzero_si256(), shuffle_in_quarters(load_bytes32(x[t].sum16 + 16 * i), apart));
                sums[t] = _mm256_permute4x64_epi64(_mm256_slli_epi16(sixteenth, 4), 0xD8);
            }
        }
        TINFER_INLINE void load_row(const std::uint8_t* block) noexcept {
            const __m128i apart = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
            scales = _mm256_cvtepi8_epi16(_mm_shuffle_epi8(load_bytes16(block + 192), apart));
        }
        TINFER_INLINE __m256i acc_init(int t) const noexcept {
            return _mm256_slli_epi32(_mm256_madd_epi16(scales, sums[t]), 1);
        }
        TINFER_INLINE __m256i scale(int, int j) const noexcept {
            return shuffle_in_quarters(scales, _mm_set1_epi16(static_cast<short>(0x0100 + 0x0202 * j)));
        }
    };
    template <class Put>
    static TINFER_INLINE void codes(const std::uint8_t* block, const Put& put) {
        const __m256i top = bytes_of(0x30);
#    pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
            const __m256i first = load_bytes32(block + 64 * half), second = load_bytes32(block + 64 * half + 32);
            const __m256i upper = load_bytes32(block + 128 + 32 * half);
            put(4 * half, bits_or(low_nibbles(first), bits_and(shift_left_16(upper, 4), top)));
            put(4 * half + 1, bits_or(low_nibbles(second), bits_and(shift_left_16(upper, 2), top)));
            put(4 * half + 2, bits_or(high_nibbles(first), bits_and(upper, top)));
            put(4 * half + 3, bits_or(high_nibbles(second), bits_and(shift_right_16(upper, 2), top)));
        }
    }
};

/// results[t][r] = ⟨row r, x[t]⟩ of T tokens, super-blocks.
template <class Arch, class Format, int T>
[[gnu::noinline]] void multiply_row_dots(const EightRows& rows, std::int64_t k, const Activations* x,
                                         float (*results)[8]) noexcept
    requires(Format::kUnit == 256 && !kIsTernary<Format>) {
    RowBlocks<8> blocks = blocks_of(rows);
    f32v<Arch> acc[T];
    for (int t = 0; t < T; ++t) acc[t] = f32v<Arch>(0.0f);
    for (std::int64_t i = 0; i < k / 256; ++i, blocks.at += Format::kBlockBytes) {
        typename RowDot<Format>::template Header<T> header(blocks, x, i);
        __m256i sums[T][8];
        const auto codes_of_token = [&](int t, int j) { return i32v<Arch>(load_bytes32(x[t].q + 256 * i + 32 * j)); };
        i32v<Arch> a[8];  // of a single token, in registers
#    pragma GCC unroll 8
        for (int j = 0; T == 1 && j < 8; ++j) a[j] = once(codes_of_token(0, j), Arch{});
#    pragma GCC unroll 8
        for (int r = 0; r < 8; ++r) {
            rows.template prefetch<Format::kBlockBytes>(r, blocks.at);
            header.load_row(blocks[r]);
            i32v<Arch> sum[T];
#    pragma GCC unroll 2
            for (int t = 0; t < T; ++t) sum[t] = header.acc_init(t);
            RowDot<Format>::codes(blocks[r], [&](int j, __m256i codes) {
#    pragma GCC unroll 2
                for (int t = 0; t < T; ++t)  // a product and an addition: a fused one would wait for the one before it
                    sum[t] = dot2(sum[t], dot_bytes(codes, T == 1 ? a[j] : codes_of_token(t, j), Arch{}),
                                  header.scale(r, j), avx2{});
            });
#    pragma GCC unroll 2
            for (int t = 0; t < T; ++t) sums[t][r] = sum[t];
        }
#    pragma GCC unroll 2
        for (int t = 0; t < T; ++t) {
            const f32v<Arch> d_x(x[t].d[i]);
            acc[t] = fma(f32v<Arch>(header.d_w) * d_x, as_float(reduce_eight(sums[t]), Arch{}), acc[t], Arch{});
            if constexpr (Format::kHasMin)
                acc[t] = fnma(f32v<Arch>(header.dmin_w) * d_x, as_float(header.n[t], Arch{}), acc[t], Arch{});
        }
    }
    for (int t = 0; t < T; ++t) acc[t].store_unaligned(results[t]);
}

/// The same of ternary formats: all products of a row's block fit sixteen bits, |pair| ≤ 8 · 2 · 3 · 127, and no scale
/// is among them.
template <class Arch, class Format, int T>
[[gnu::noinline]] void multiply_row_dots(const EightRows& rows, std::int64_t k, const Activations* x,
                                         float (*results)[8]) noexcept requires(kIsTernary<Format>) {
    RowBlocks<8> blocks = blocks_of(rows);
    f32v<Arch> acc[T];
    for (int t = 0; t < T; ++t) acc[t] = f32v<Arch>(0.0f);
    for (std::int64_t i = 0; i < k / 256; ++i, blocks.at += Format::kBlockBytes) {
        __m256i sums[T][8], acc_init[T];  // the latter: what the bias of codes takes off
        for (int t = 0; t < T; ++t)
            acc_init[t] = _mm256_madd_epi16(load_bytes32(x[t].sum16 + 16 * i), _mm256_set1_epi16(-1));
#    pragma GCC unroll 8
        for (int r = 0; r < 8; ++r) {
            rows.template prefetch<Format::kBlockBytes>(r, blocks.at);
            __m256i pairs[T];
            ternary_codes(
                Format{}, blocks[r], [&](int j, __m256i codes) __attribute__((always_inline)) {
#    pragma GCC unroll 2
                    for (int t = 0; t < T; ++t) {
                        const __m256i pair = _mm256_maddubs_epi16(codes, load_bytes32(x[t].q + 256 * i + 32 * j));
                        pairs[t] = j == 0 ? pair : _mm256_add_epi16(pairs[t], pair);
                    }
                });
#    pragma GCC unroll 2
            for (int t = 0; t < T; ++t)
                sums[t][r] = _mm256_add_epi32(acc_init[t], _mm256_madd_epi16(pairs[t], _mm256_set1_epi16(1)));
        }
        const f32v<Arch> d_w = load_last_f16s(blocks, Format::kBlockBytes - 2);
#    pragma GCC unroll 2
        for (int t = 0; t < T; ++t)
            acc[t] = fma(d_w * f32v<Arch>(x[t].d[i]), as_float(reduce_eight(sums[t]), Arch{}), acc[t], Arch{});
    }
    for (int t = 0; t < T; ++t) acc[t].store_unaligned(results[t]);
}

/// The same of Q8_0, whose codes keep their sign, or with a dot4 are biased.
template <class Arch, class Format, int T>
[[gnu::noinline]] void multiply_row_dots(const EightRows& rows, std::int64_t k, const Activations* x,
                                         float (*results)[8]) noexcept requires(Format::kUnit == 32) {
    RowBlocks<8> blocks = blocks_of(rows);
    f32v<Arch> acc[T];
    for (int t = 0; t < T; ++t) acc[t] = f32v<Arch>(0.0f);
    [[maybe_unused]] const i32v<Arch> ones(0x00010001), biased(bytes_of(128));
    for (std::int64_t u = 0; u < k / 32; ++u, blocks.at += Format::kBlockBytes) {
        const int next_rows = static_cast<int>(u % 8);  // eight blocks of a row, one in each step
        rows.template prefetch<8 * Format::kBlockBytes>(next_rows, blocks.at - next_rows * Format::kBlockBytes);
        __m256i sums[T][8];
        i32v<Arch> acc_init[T];  // what the bias of codes takes off, in one lane
        for (int t = 0; t < T; ++t)
            acc_init[t] = i32v<Arch>(_mm256_zextsi128_si256(_mm_cvtsi32_si128(-128 * x[t].sum[u])));
#    pragma GCC unroll 8
        for (int r = 0; r < 8; ++r) {
            const i32v<Arch> codes(load_bytes32(blocks[r] + 2));
#    pragma GCC unroll 2
            for (int t = 0; t < T; ++t) {
                const i32v<Arch> a(load_bytes32(x[t].q + 32 * u));
                if constexpr (Arch::kHasDot4) sums[t][r] = dot4(acc_init[t], codes ^ biased, a, Arch{});
                else sums[t][r] = _mm256_madd_epi16(dot_signed_bytes(codes, a, Arch{}), ones);
            }
        }
        const f32v<Arch> d_w = load_f16s(blocks, 0);
#    pragma GCC unroll 2
        for (int t = 0; t < T; ++t)
            acc[t] = fma(d_w * f32v<Arch>(x[t].d[u]), as_float(reduce_eight(sums[t]), Arch{}), acc[t], Arch{});
    }
    for (int t = 0; t < T; ++t) acc[t].store_unaligned(results[t]);
}

}  // namespace tinfer::kernels

#endif
