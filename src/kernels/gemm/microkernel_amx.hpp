// SPDX-License-Identifier: MIT
// Products of many tokens on the matrix unit (AMX-INT8): one instruction multiplies 16 tokens × 64 codes by 64 codes ×
// 16 rows, seven times the rate of vector dot products. What a packed k-block holds is shaped for that:
//
//   super-blocks with scales: the integer scale goes into the codes, v = scale · q, so that one sum runs over all 256
//   values. v does not fit a byte: two planes of bytes hold it, v = low + high · 2^kShift, and S = L + H · 2^kShift.
//   blocks of 32: the codes as they are; a sum is taken out after every block, for its float step.
//
// Sums are exact, and the float steps are those of kernels/quants/format.hpp: the same bits as every other table.
#pragma once

#include "kernels/pack/packed_panel.hpp"
#include "kernels/quants/activation_q8.hpp"

#if defined(__AMX_INT8__) || defined(__AMXINT8__)  // as GCC calls it, and as Clang did

namespace tinfer::kernels {

/// How codes become bytes of the matrix unit. Formats with a minimum have unsigned codes and six-bit scales
/// s = 8 · s_high + s_low: the planes are s_low · q and s_high · q, at most 7 · 31. Other codes are signed, |q · s| ≤
/// 4096: high = v / 64 rounded to nearest, low = v − 64 · high within ±32.
template <class Format>
struct AmxEncoding {
    static constexpr bool kSuper = Format::kUnit == 256;
    static constexpr bool kUnsigned = Format::kHasMin;
    static constexpr int kShift = kUnsigned ? 3 : 6;
    static constexpr int kStepBytes = kSuper ? 64 : 32;      ///< values of K per instruction
    static constexpr int kSubs = 256 / Format::kScaleElems;  ///< scales of 256 values
    /// S = L + 2^kShift · H of 256 values, planes at their largest.
    static constexpr std::int64_t kLargestLow = kUnsigned ? 7 * Format::kMaxCode : 32,
                                  kLargestHigh = kUnsigned ? 7 * Format::kMaxCode : 64;
    static_assert(!kSuper || 256 * 127 * (kLargestLow + (kLargestHigh << kShift)) <= 2147483647);
    static_assert(!kSuper || !kUnsigned || 7 * Format::kMaxCode <= 255);  // of a byte
};

inline constexpr int kAmxRows = 32;    ///< rows of a panel: two tiles
inline constexpr int kAmxTokens = 16;  ///< tokens of a group: one tile

template <class Format, int Unit = Format::kUnit>
struct AmxKBlock {
    alignas(64) std::uint8_t codes[2][kKBlock / 4][kAmxRows][4];                   ///< [plane][k/4][row][k%4]
    alignas(64) std::int32_t min[(AmxEncoding<Format>::kSubs + 1) / 2][kAmxRows];  ///< two neighbours, as two int16
    alignas(64) float d[kAmxRows], dmin[kAmxRows];
};
template <class Format>
struct AmxKBlock<Format, 32> {
    alignas(64) std::uint8_t codes[1][kKBlock / 4][kAmxRows][4];
    alignas(64) float d[kKBlock / 32][kAmxRows], m[kKBlock / 32][kAmxRows];
};

/// Takes what a decoder of sixteen rows finds (kernels/pack/transposed_decode_k.hpp) into one half of a k-block.
template <class Format>
struct AmxKBlockHalf {
    using Route = AmxEncoding<Format>;
    AmxKBlock<Format>& k_block;
    int first_row;
    ReadAhead& reader;
    __m512i planes[32];  ///< scales of super-blocks: unsigned, the low part and the high part of 8; signed, the scale;
                         ///< in both halves

    static constexpr bool kTakesPreShift = false;

    /// Of sub-block j, in both halves of each lane.
    TINFER_INLINE void keep_scale(int j, __m512i both) noexcept {
        if constexpr (Route::kUnsigned) {
            planes[2 * j] = _mm512_and_si512(both, _mm512_set1_epi16(7));
            planes[2 * j + 1] = _mm512_srli_epi16(both, 3);
        } else {
            planes[j] = both;
        }
    }
    TINFER_INLINE void scales(int pair, __m512i s) noexcept {
        const __m512i low_half = _mm512_set1_epi32(0xFFFF);
        keep_scale(2 * pair, choose(low_half, s, _mm512_slli_epi32(s, 16)));
        if (Route::kSubs > 1) keep_scale(2 * pair + 1, choose(low_half, _mm512_srli_epi32(s, 16), s));
    }
    TINFER_INLINE void put(int plane, int word, __m512i bytes) noexcept {
        _mm512_store_si512(k_block.codes[plane][word][first_row], bytes);
    }
    TINFER_INLINE void begin(int) noexcept {}
    TINFER_INLINE void end(int) noexcept {}
    TINFER_INLINE void codes(int j, int word, __m512i c) noexcept {
        if (word % kWordsPerShare == 0) reader.read_share();
        if constexpr (!Route::kSuper) {
            // The bias goes: xor where it is the top bit, else a subtraction.
            constexpr int kBias = Int8Encoding<avx512vnni, Format>::kBias;
            put(0, word,
                kBias == 0     ? c
                : kBias == 128 ? _mm512_xor_si512(c, each_byte<16>(128))
                               : _mm512_sub_epi8(c, each_byte<16>(kBias)));
        } else if constexpr (Route::kUnsigned) {
            put(0, word,
                _mm512_mullo_epi16(c, planes[2 * j]));  // both bytes of a pair at once: products stay below 256
            put(1, word, _mm512_mullo_epi16(c, planes[2 * j + 1]));
        } else {
            constexpr int kBias = Int8Encoding<avx512vnni, Format>::kBias;
            const __m512i q = _mm512_sub_epi8(c, each_byte<16>(kBias)), s = planes[j];
            // Each byte alone as q · 256 in sixteen bits: even bytes, then odd ones.
            const __m512i even = _mm512_slli_epi16(q, 8), odd = _mm512_and_si512(q, _mm512_set1_epi16(-256));
            const __m512i twice = _mm512_add_epi16(s, s), odd_mask = _mm512_set1_epi16(-256);
            const __m512i high_even = _mm512_mulhrs_epi16(even, twice);  // (q · 256 · 2s) / 2^15 = v / 64, rounded
            const __m512i high_odd = _mm512_slli_epi16(_mm512_mulhrs_epi16(odd, twice), 8);
            const __m512i high = choose(odd_mask, high_odd, high_even);
            const __m512i v_even = _mm512_srli_epi16(_mm512_mullo_epi16(even, s), 8);  // v modulo 256
            const __m512i v = choose(odd_mask, _mm512_mullo_epi16(odd, s), v_even);
            const __m512i high64 = _mm512_and_si512(_mm512_slli_epi16(high, 6), each_byte<16>(0xC0));
            put(0, word, _mm512_sub_epi8(v, high64));
            put(1, word, high);
        }
    }
    TINFER_INLINE void mins(int pair, __m512i mins) noexcept {
        _mm512_store_si512(k_block.min[pair] + first_row, mins);
    }
    TINFER_INLINE void d(__m512 d) noexcept { _mm512_store_ps(k_block.d + first_row, d); }
    TINFER_INLINE void dmin(__m512 d) noexcept { _mm512_store_ps(k_block.dmin + first_row, d); }
    TINFER_INLINE void d(int unit, __m512 d) noexcept { _mm512_store_ps(k_block.d[unit] + first_row, d); }
    TINFER_INLINE void m(int unit, __m512 m) noexcept { _mm512_store_ps(k_block.m[unit] + first_row, m); }
};

// ---- The matrix unit ------------------------------------------------------------------------------------------------

/// Shapes of the eight tile registers: 0 … 3 sums (16 tokens × 16 rows of int32), 4 and 5 tokens (16 × StepBytes), 6
/// and 7 weights (StepBytes / 4 × 16 rows of four codes). Held while the object lives; the thread's state is clean
/// after it.
template <class Arch, int StepBytes>
class AmxSession {
public:
    AmxSession() noexcept {
        alignas(64) struct {
            std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
            std::uint16_t row_bytes[16] = {};
            std::uint8_t rows[16] = {};
        } shapes;
        for (int tile = 0; tile < 8; ++tile) {
            shapes.row_bytes[tile] = tile == 4 || tile == 5 ? StepBytes : 64;
            shapes.rows[tile] = tile >= 6 ? StepBytes / 4 : 16;
        }
        _tile_loadconfig(&shapes);
    }
    ~AmxSession() { _tile_release(); }
    AmxSession(const AmxSession&) = delete;
    AmxSession& operator=(const AmxSession&) = delete;
};

/// Up to 16 tokens at one k-block: the parts of activation rows, which lie `stride` bytes apart. Behind the last
/// token's codes there is readable memory up to 16 rows, whose products are not used.
struct AmxTokens {
    const std::byte *codes, *d;
    const std::byte* sums;  ///< super-blocks: of codes per sub-block, for mins; blocks of 32: s
    std::int64_t codes_stride, stride;
    int n;
    const std::byte* next;  ///< codes of the tokens that follow, `codes_stride` apart; or null
    template <class Format>
    static constexpr std::int64_t kSumBytes =
        Format::kUnit != 256 || Format::kScaleElems == 16 ? 32 : 16;  ///< of a k-block
};
/// Prefetches a k-block of token t of those that follow. Loads of whole tiles from L2 stop at the line buffers;
/// spread over the float steps, the same lines cost next to nothing.
TINFER_INLINE void amx_prefetch_next(const AmxTokens& tokens, int t) noexcept {
    if (tokens.next == nullptr) return;
    const std::byte* row = tokens.next + t * tokens.codes_stride;
#    pragma GCC unroll 4
    for (int line = 0; line < 256; line += 64) _mm_prefetch(reinterpret_cast<const char*>(row + line), _MM_HINT_T0);
}

/// The sums of a group of tokens. Super-blocks: [low rows 0…15, high 0…15, low 16…31, high 16…31]; blocks of 32: [2 ·
/// block + half of the rows].
template <class Format>
struct AmxSums {
    alignas(64) std::int32_t s[AmxEncoding<Format>::kSuper ? 4 : 16][kAmxTokens][16];
};

#    define TINFER_AMX_DOT(sums, weights)                                                                              \
        if constexpr (AmxEncoding<Format>::kUnsigned) _tile_dpbsud(sums, 4, weights);                                  \
        else _tile_dpbssd(sums, 4, weights)

/// Step `step` of four of a super-block: 64 values of K, all rows, both planes.
template <class Format>
TINFER_INLINE void amx_step(const AmxKBlock<Format, 256>& k_block, const AmxTokens& tokens, int step, int /*n_units*/,
                            AmxSums<Format>& sums) noexcept {
    if (step == 0) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    _tile_loadd(4, tokens.codes + 64 * step, tokens.codes_stride);
    _tile_loadd(6, k_block.codes[0][16 * step][0], 4 * kAmxRows);
    TINFER_AMX_DOT(0, 6);
    _tile_loadd(7, k_block.codes[1][16 * step][0], 4 * kAmxRows);
    TINFER_AMX_DOT(1, 7);
    _tile_loadd(6, k_block.codes[0][16 * step][16], 4 * kAmxRows);
    TINFER_AMX_DOT(2, 6);
    _tile_loadd(7, k_block.codes[1][16 * step][16], 4 * kAmxRows);
    TINFER_AMX_DOT(3, 7);
    if (step == 3) {
        _tile_stored(0, sums.s[0], 64);
        _tile_stored(1, sums.s[1], 64);
        _tile_stored(2, sums.s[2], 64);
        _tile_stored(3, sums.s[3], 64);
    }
}

/// Block u of 32 values of K, all rows. Sums leave their registers one step later, when they are complete without
/// waiting: even blocks use two of them, odd blocks the others. `u` = n_units takes out the last.
template <class Format>
TINFER_INLINE void amx_step(const AmxKBlock<Format, 32>& k_block, const AmxTokens& tokens, int u, int n_units,
                            AmxSums<Format>& sums) noexcept {
    if (u < n_units) {
        _tile_loadd(4, tokens.codes + 32 * u, tokens.codes_stride);
        _tile_loadd(6, k_block.codes[0][8 * u][0], 4 * kAmxRows);
        _tile_loadd(7, k_block.codes[0][8 * u][16], 4 * kAmxRows);
    }
    if (u % 2 == 0) {
        if (u < n_units) {
            _tile_zero(0);
            TINFER_AMX_DOT(0, 6);
            _tile_zero(1);
            TINFER_AMX_DOT(1, 7);
        }
        if (u > 0) {
            _tile_stored(2, sums.s[2 * u - 2], 64);
            _tile_stored(3, sums.s[2 * u - 1], 64);
        }
    } else {
        if (u < n_units) {
            _tile_zero(2);
            TINFER_AMX_DOT(2, 6);
            _tile_zero(3);
            TINFER_AMX_DOT(3, 7);
        }
        _tile_stored(0, sums.s[2 * u - 2], 64);
        _tile_stored(1, sums.s[2 * u - 1], 64);
    }
}
#    undef TINFER_AMX_DOT

TINFER_INLINE __m512 bcast_f32(const std::byte* p) noexcept { return _mm512_castsi512_ps(bcast4<avx512vnni>(p)); }

/// Float steps of a group of tokens: super-blocks. acc[token][kAmxRows].
template <class Format>
TINFER_INLINE void amx_finish(const AmxKBlock<Format, 256>& k_block, const AmxSums<Format>& sums,
                              const AmxTokens& tokens, int /*n_units*/, float* acc, bool begins) noexcept {
    for (int t = 0; t < tokens.n; ++t) {
        amx_prefetch_next(tokens, t);
        const __m512 d_x = bcast_f32(tokens.d + t * tokens.stride);
#    pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
            float* out = acc + t * kAmxRows + 16 * half;
            const __m512i high =
                _mm512_slli_epi32(_mm512_load_si512(sums.s[2 * half + 1][t]), AmxEncoding<Format>::kShift);
            const __m512 total = _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_load_si512(sums.s[2 * half][t]), high));
            const __m512 d = _mm512_load_ps(k_block.d + 16 * half);
            __m512 sum =
                _mm512_fmadd_ps(_mm512_mul_ps(d, d_x), total, begins ? _mm512_setzero_ps() : _mm512_load_ps(out));
            if constexpr (Format::kHasMin) {
                const std::byte* pairs = tokens.sums + t * tokens.stride;
                __m512i n = _mm512_setzero_si512();
#    pragma GCC unroll 8
                for (int j = 0; j < AmxEncoding<Format>::kSubs / 2; ++j)
                    n = _mm512_dpwssd_epi32(n, bcast4<avx512vnni>(pairs + 4 * j),
                                            _mm512_load_si512(k_block.min[j] + 16 * half));
                const __m512 dmin = _mm512_load_ps(k_block.dmin + 16 * half);
                sum = _mm512_fnmadd_ps(_mm512_mul_ps(dmin, d_x), _mm512_cvtepi32_ps(n), sum);
            }
            _mm512_store_ps(out, sum);
        }
    }
}

/// The same for blocks of 32, in ascending order; T tokens from `first` on share what is read of the rows. kUnits is
/// the number of blocks, or 0: n_units.
template <class Format, int T, int kUnits>
TINFER_INLINE void amx_finish_tokens(const AmxKBlock<Format, 32>& k_block, const AmxSums<Format>& sums,
                                     const AmxTokens& tokens, int n_units, float* acc, int first,
                                     bool begins) noexcept {
    const std::byte *d_row = tokens.d + first * tokens.stride, *s_row = tokens.sums + first * tokens.stride;
    float* out = acc + first * kAmxRows;
    for (int t = 0; t < T; ++t) amx_prefetch_next(tokens, first + t);
    __m512 sum[T][2];
    for (int t = 0; t < T; ++t)
        for (int half = 0; half < 2; ++half)
            sum[t][half] = begins ? _mm512_setzero_ps() : _mm512_load_ps(out + t * kAmxRows + 16 * half);
#    pragma GCC unroll 8
    for (int u = 0; u < (kUnits != 0 ? kUnits : n_units); ++u) {
#    pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
            const __m512 d = _mm512_load_ps(k_block.d[u] + 16 * half),
                         m = Format::kHasMin ? _mm512_load_ps(k_block.m[u] + 16 * half) : d;
#    pragma GCC unroll 4
            for (int t = 0; t < T; ++t) {
                const __m512 dots = _mm512_cvtepi32_ps(_mm512_load_si512(sums.s[2 * u + half][first + t]));
                const __m512 p = _mm512_mul_ps(d, bcast_f32(d_row + t * tokens.stride + 4 * u));
                sum[t][half] = _mm512_fmadd_ps(p, dots, sum[t][half]);
                if constexpr (Format::kHasMin)
                    sum[t][half] = _mm512_fmadd_ps(m, bcast_f32(s_row + t * tokens.stride + 4 * u), sum[t][half]);
            }
        }
    }
    for (int t = 0; t < T; ++t)
        for (int half = 0; half < 2; ++half) _mm512_store_ps(out + t * kAmxRows + 16 * half, sum[t][half]);
}
template <class Format>
TINFER_INLINE void amx_finish(const AmxKBlock<Format, 32>& k_block, const AmxSums<Format>& sums,
                              const AmxTokens& tokens, int n_units, float* acc, bool begins) noexcept {
    int t = 0;
    if (n_units == kKBlock / 32)
        for (; t + 4 <= tokens.n; t += 4)
            amx_finish_tokens<Format, 4, kKBlock / 32>(k_block, sums, tokens, n_units, acc, t, begins);
    for (; t + 4 <= tokens.n; t += 4) amx_finish_tokens<Format, 4, 0>(k_block, sums, tokens, n_units, acc, t, begins);
    for (; t < tokens.n; ++t) amx_finish_tokens<Format, 1, 0>(k_block, sums, tokens, n_units, acc, t, begins);
}

/// A k-block against a group of tokens; acc[token][kAmxRows]. First all of the matrix unit's work, then the float
/// steps: mixed, the two were slower (they share ports and power).
template <class Format>
TINFER_INLINE void amx_multiply(const AmxKBlock<Format>& k_block, const AmxTokens& tokens, int n_units, float* acc,
                                bool begins) noexcept {
    AmxSums<Format> sums;
    for (int step = 0; step < (AmxEncoding<Format>::kSuper ? 4 : n_units + 1); ++step)
        amx_step<Format>(k_block, tokens, step, n_units, sums);
    amx_finish<Format>(k_block, sums, tokens, n_units, acc, begins);
}

}  // namespace tinfer::kernels

#endif
