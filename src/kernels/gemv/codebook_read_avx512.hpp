// SPDX-License-Identifier: MIT
// How blocks whose codes are rows of a codebook are read for products of few tokens (kernels/gemv/codebook_avx512.hpp),
// with AVX-512. A row of the codebook is a word of sixteen bits (quants/codebook.hpp): of small codebooks these lie in
// registers, and all numbers of a block are looked up at once by permutations; of larger ones they are loaded one by
// one. The integers are those of the formats' own formulas.
#pragma once

#include <array>

#include "kernels/dequantize/unpack_codebook.hpp"
#include "kernels/gemv/common_avx512.hpp"

#if defined(__AVX512BW__)

namespace tinfer::kernels {

// A format says here how its blocks are read:
//   header(block, h)     decodes in advance what codes() and scales() need
//   codes(block, h, c)   four registers of codes: bytes 2i and 2i + 1 of register j are values 8i + 2j and 8i + 2j + 1,
//                        so that lane l holds values 16l … 16l + 15 alone
//   scales(block, h)     2s + 1 for each scale s
//   four_d(rows, at)     d of four rows, where it is not the first two bytes of a block
template <class Format>
struct CodebookRows;

/// d at the beginning of blocks.
struct DFirst {
    static TINFER_INLINE __m128 four_d(const FourRows& rows, std::int64_t at) { return four_halves(rows, at); }
};

/// A register of constants, each from a function of its place. Those of a format stand before its struct: Clang 14
/// crashes on a lambda in a static variable of a member of an explicit specialization.
template <class T>
struct alignas(64) Constants {
    T at[64 / sizeof(T)];
    template <class Fn>
    consteval explicit Constants(Fn fn) : at{} {
        for (int i = 0; i < static_cast<int>(64 / sizeof(T)); ++i) at[i] = static_cast<T>(fn(i));
    }
    TINFER_INLINE operator __m512i() const { return _mm512_load_si512(at); }
};
/// a & b | c.
static TINFER_INLINE __m512i and_or(__m512i a, __m512i b, __m512i c) {
    return _mm512_ternarylogic_epi64(a, b, c, 0xEA);
}
static TINFER_INLINE __m512i xor_three(__m512i a, __m512i b, __m512i c) {
    return _mm512_ternarylogic_epi64(a, b, c, 0x96);
}
static TINFER_INLINE __m512i eight_bytes(const void* p) { return _mm512_broadcastq_epi64(load_bytes8(p)); }
/// 2s + 1 of scales s that lie in bits 1 … 4 of each lane.
static TINFER_INLINE __m512i odd_scales(__m512i twice) {
    return and_or(twice, _mm512_set1_epi32(0x1E), _mm512_set1_epi32(1));
}

// ---- Codebooks in registers -----------------------------------------------------------------------------------------

/// Words by the low seven bits of numbers: where bit 6 is clear, and where it is set, of which the masks are given.
static TINFER_INLINE __m512i look_up(const __m512i* book, __m512i numbers, __mmask32 clear, __mmask32 set) {
    const __m512i some = _mm512_mask2_permutex2var_epi16(book[0], numbers, clear, book[1]);
    return _mm512_mask2_permutex2var_epi16(book[2], some, set, book[3]);
}
struct NumberBits {
    __mmask32 clear6, set6, set7;
    explicit TINFER_INLINE NumberBits(__m512i numbers)
        : clear6(_mm512_testn_epi16_mask(numbers, _mm512_set1_epi16(64))),
          set6(_mm512_test_epi16_mask(numbers, _mm512_set1_epi16(64))),
          set7(_mm512_test_epi16_mask(numbers, _mm512_set1_epi16(128))) {}
};
/// By the low eight bits, and by nine, of which the last is given.
static TINFER_INLINE __m512i look_up(const __m512i (&book)[8], __m512i numbers) {
    const NumberBits bits(numbers);
    return _mm512_mask_blend_epi16(bits.set7, look_up(book, numbers, bits.clear6, bits.set6),
                                   look_up(book + 4, numbers, bits.clear6, bits.set6));
}
static TINFER_INLINE __m512i look_up(const __m512i (&book)[16], __m512i numbers, __mmask32 set8) {
    const NumberBits bits(numbers);
    const auto half = [&](const __m512i* part) {
        return _mm512_mask_blend_epi16(bits.set7, look_up(part, numbers, bits.clear6, bits.set6),
                                       look_up(part + 4, numbers, bits.clear6, bits.set6));
    };
    return _mm512_mask_blend_epi16(set8, half(book), half(book + 8));
}

template <int N>
struct WordsInRegisters : DFirst {
    __m512i book[N / 32];
    explicit TINFER_INLINE WordsInRegisters(const std::uint16_t* words) {
#    pragma GCC unroll 16
        for (int i = 0; i < N / 32; ++i) book[i] = _mm512_loadu_si512(words + 32 * i);
    }
};

/// Codes of 32 rows of eight values: words of the codebook, and a bit more for each value where its level begins in the
/// word.
static TINFER_INLINE void codes_of_eights(__m512i words, __m512i bits, __m512i levels, __m512i (&c)[4]) {
    const __m512i of_level = _mm512_set1_epi8(0x33);  // of every second value; its other bit goes above its level
    const __m512i even = choose(of_level, words, _mm512_slli_epi16(bits, 2)),
                  odd = choose(of_level, _mm512_srli_epi16(words, 2), bits);
    c[0] = _mm512_shuffle_epi8(levels, even);  // bit 3 of every nibble is clear
    c[1] = _mm512_shuffle_epi8(levels, odd);
    c[2] = _mm512_shuffle_epi8(levels, _mm512_srli_epi16(even, 4));
    c[3] = _mm512_shuffle_epi8(levels, _mm512_srli_epi16(odd, 4));
}
/// Bits 0 … 7 of words where values begin.
static TINFER_INLINE __m512i bits_of_eights(__m512i signs) {
    return _mm512_ternarylogic_epi64(signs, _mm512_slli_epi16(signs, 7), _mm512_set1_epi8(0x55), 0xA8);  // (a | b) & c
}
/// Levels 8, 25 and 43 with their sign above, 64 higher.
static TINFER_INLINE __m512i signed_levels() {
    return _mm512_broadcast_i32x4(
        _mm_setr_epi8(64 + 8, 64 + 25, 64 + 43, 0, 64 - 8, 64 - 25, 64 - 43, 0, 0, 0, 0, 0, 0, 0, 0, 0));
}
static TINFER_INLINE std::int32_t load_word(const std::uint8_t* p) {
    std::int32_t word;
    std::memcpy(&word, p, 4);
    return word;
}
/// 2s + 1 of sixteen scales s in nibbles.
static TINFER_INLINE __m512i scales_of_nibbles(const std::uint8_t* p) {
    static constexpr Constants<std::int32_t> kRotate([](int l) { return (4 * (l % 8) + 31) % 32; });
    const __m512i low = _mm512_set1_epi32(load_word(p)), both = _mm512_mask_set1_epi32(low, 0xFF00, load_word(p + 4));
    return odd_scales(_mm512_rorv_epi32(both, kRotate));
}

/// Levels 8, 25 and 43 of eight values: a nibble has the number of a level, and a sign above. Of 128 sign numbers there
/// is a word of their bits where values begin.
template <int N>
struct EightsInRegisters : WordsInRegisters<N> {
    __m512i signs[4];
    explicit TINFER_INLINE EightsInRegisters(const std::uint16_t* words) : WordsInRegisters<N>(words) {
#    pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) signs[i] = _mm512_loadu_si512(kSignWords.words + 32 * i);
    }
    struct SignWords {
        alignas(64) std::uint16_t words[128];
    };
    static constexpr SignWords kSignWords = [] {
        SignWords table{};
        for (std::uint32_t seven = 0; seven < 128; ++seven)
            for (int j = 0; j < 8; ++j)
                if (even_signs<avx512>(seven) >> j & 1)
                    table.words[seven] =
                        static_cast<std::uint16_t>(table.words[seven] | 1 << (8 * (j % 2) + 2 * (j / 2)));
        return table;
    }();
    /// Of 32 words of the codebook with their sign numbers in the low seven bits.
    TINFER_INLINE void codes_of(__m512i words, __m512i fields, __m512i (&c)[4]) const {
        const __m512i sixth = _mm512_set1_epi16(64);
        const __m512i bits =
            look_up(signs, fields, _mm512_testn_epi16_mask(fields, sixth), _mm512_test_epi16_mask(fields, sixth));
        codes_of_eights(words, bits, signed_levels(), c);
    }
};
/// Fields of seven bits, four in the upper half of each eight bytes: to the low bits of four words, what follows above
/// them.
static TINFER_INLINE __m512i fields_of_seven(__m512i bytes) {
    static constexpr std::array kBytes{4, 5, 4, 5, 5, 6, 6, 7};
    static constexpr Constants<std::int8_t> kPlace(
        [](int i) { return i / 8 % 2 * 8 + kBytes[static_cast<std::size_t>(i % 8)]; });
    return _mm512_srlv_epi16(_mm512_shuffle_epi8(bytes, kPlace), _mm512_set1_epi64(0x0005'0006'0007'0000));
}

static constexpr Constants<std::int8_t> kIq2XxsNumberBytes([](int i) {
    return i % 2 != 0 ? -1 : i / 8 % 2 * 8 + i % 8 / 2;
});
template <>
struct CodebookRows<IQ2_XXS> : EightsInRegisters<256> {
    TINFER_INLINE CodebookRows() : EightsInRegisters<256>(kIq2XxsWords) {}
    using Header = __m512i;  ///< four row numbers, then signs and a scale on top, for each 32 values
    static TINFER_INLINE void header(const std::uint8_t* block, Header& bytes) { bytes = load64(block + 2); }
    TINFER_INLINE void codes(const std::uint8_t*, Header bytes, __m512i (&c)[4]) const {
        const __m512i numbers = _mm512_shuffle_epi8(bytes, kIq2XxsNumberBytes);
        codes_of(look_up(book, numbers), fields_of_seven(bytes), c);
    }
    static TINFER_INLINE __m512i scales(const std::uint8_t*, Header bytes) {
        return _mm512_or_si512(_mm512_srli_epi32(_mm512_shuffle_epi32(bytes, _MM_PERM_ENUM(0xF5)), 27),
                               _mm512_set1_epi32(1));
    }
};

template <>
struct CodebookRows<IQ2_XS> : EightsInRegisters<512> {
    TINFER_INLINE CodebookRows() : EightsInRegisters<512>(kIq2XsWords) {}
    using Header = __m512i;
    static TINFER_INLINE void header(const std::uint8_t* block, Header& bytes) { bytes = load64(block + 2); }
    TINFER_INLINE void codes(const std::uint8_t*, Header numbers, __m512i (&c)[4]) const {
        codes_of(look_up(book, numbers, _mm512_test_epi16_mask(numbers, _mm512_set1_epi16(256))),
                 _mm512_srli_epi16(numbers, 9), c);
    }
    static TINFER_INLINE __m512i scales(const std::uint8_t* block, Header) { return scales_of_nibbles(block + 66); }
};

/// Eight levels of four values: a nibble has the number of a level, and on top a sign. Words of the rows with even
/// numbers, and of those with odd ones.
template <int N>
struct FoursInRegisters : WordsInRegisters<N> {
    explicit TINFER_INLINE FoursInRegisters(const std::uint16_t* words) : WordsInRegisters<N>(words) {}
    /// Words of which every nibble is Plus, or Minus where its bit of the number of the word is set; bit 4 of that is
    /// ignored.
    template <int Plus, int Minus>
    static constexpr Constants<std::int16_t> kSigns{[](int signs) {
        int word = 0;
        for (int j = 0; j < 4; ++j) word |= (signs >> j & 1 ? Minus : Plus) << (8 * (j % 2) + 4 * (j / 2));
        return word;
    }};
};

static constexpr Constants<std::int16_t> kIq3XxsOddSigns([](int i) {
    return __builtin_popcount(static_cast<unsigned>(i & 15)) % 2 << 15;
});
template <>
struct CodebookRows<IQ3_XXS> : FoursInRegisters<256> {
    TINFER_INLINE CodebookRows() : FoursInRegisters<256>(kIq3XxsWords) {}
    using Header = __m512i;  ///< signs and a scale on top, twice for each 32 values
    static TINFER_INLINE void header(const std::uint8_t* block, Header& twice) {
        const __m512i words = _mm512_castsi256_si512(load_bytes32(block + 66));
        twice = _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7), words);
    }
    TINFER_INLINE void codes(const std::uint8_t* block, Header words, __m512i (&c)[4]) const {
        const __m512i levels = _mm512_broadcast_i32x4(_mm_setr_epi8(64 + 4, 64 + 12, 64 + 20, 64 + 28, 64 + 36, 64 + 44,
                                                                    64 + 52, 64 + 62, 64 - 4, 64 - 12, 64 - 20, 64 - 28,
                                                                    64 - 36, 64 - 44, 64 - 52, 64 - 62));
        const __m512i signs = kSigns<0, 8>, nibble = _mm512_set1_epi8(15), numbers = load64(block + 2);
        // The bit above seven signs is flipped where their number, and its own, are odd: then it is the eighth.
        const __m512i first = fields_of_seven(words), last = _mm512_srli_epi16(first, 4);
        const __m512i even_rows = _mm512_xor_si512(look_up(book, numbers), _mm512_permutexvar_epi16(first, signs));
        const __m512i odd_rows =
            xor_three(look_up(book, _mm512_srli_epi16(numbers, 8)), _mm512_permutexvar_epi16(last, signs),
                      _mm512_permutexvar_epi16(_mm512_xor_si512(first, last), kIq3XxsOddSigns));
        c[0] = _mm512_shuffle_epi8(levels, _mm512_and_si512(even_rows, nibble));
        c[1] = _mm512_shuffle_epi8(levels, _mm512_and_si512(_mm512_srli_epi16(even_rows, 4), nibble));
        c[2] = _mm512_shuffle_epi8(levels, _mm512_and_si512(odd_rows, nibble));
        c[3] = _mm512_shuffle_epi8(levels, _mm512_and_si512(_mm512_srli_epi16(odd_rows, 4), nibble));
    }
    static TINFER_INLINE __m512i scales(const std::uint8_t*, Header words) {
        return _mm512_or_si512(_mm512_srli_epi32(words, 27), _mm512_set1_epi32(1));
    }
};

static constexpr Constants<std::int8_t> kIq3SNinthBitBytes([](int i) { return i / 8; });
static constexpr Constants<std::int32_t> kIq3SScaleTurns([](int l) { return (4 * (l / 2) + 31) % 32; });
/// Levels l are 2l + 1: with 8 + l, or 7 − l for minus, in a nibble the value is twice that, less 15.
template <>
struct CodebookRows<IQ3_S> : FoursInRegisters<512> {
    TINFER_INLINE CodebookRows() : FoursInRegisters<512>(kIq3SWords) {}
    struct Header {};
    static TINFER_INLINE void header(const std::uint8_t*, Header&) {}
    TINFER_INLINE void codes(const std::uint8_t* block, Header, __m512i (&c)[4]) const {
        const __m512i signs = kSigns<8, 7>, twice = _mm512_set1_epi8(0x1E);
        const __m512i ninth = _mm512_shuffle_epi8(eight_bytes(block + 66), kIq3SNinthBitBytes);
        const __mmask32 even = _mm512_test_epi16_mask(ninth, _mm512_set1_epi64(0x0040'0010'0004'0001));
        const __mmask32 odd = _mm512_test_epi16_mask(ninth, _mm512_set1_epi64(0x0080'0020'0008'0002));
        const __m512i numbers = load64(block + 2), fields = _mm512_cvtepu8_epi16(load_bytes32(block + 74));
        const __m512i even_rows =
            _mm512_xor_si512(look_up(book, numbers, even), _mm512_permutexvar_epi16(fields, signs));
        const __m512i odd_rows = _mm512_xor_si512(look_up(book, _mm512_srli_epi16(numbers, 8), odd),
                                                  _mm512_permutexvar_epi16(_mm512_srli_epi16(fields, 4), signs));
        c[0] = _mm512_and_si512(_mm512_add_epi8(even_rows, even_rows), twice);
        c[1] = _mm512_and_si512(_mm512_srli_epi16(even_rows, 3), twice);
        c[2] = _mm512_and_si512(_mm512_add_epi8(odd_rows, odd_rows), twice);
        c[3] = _mm512_and_si512(_mm512_srli_epi16(odd_rows, 3), twice);
    }
    static TINFER_INLINE __m512i scales(const std::uint8_t* block, Header) {
        const __m512i all = _mm512_set1_epi32(load_word(block + 106));
        return odd_scales(_mm512_rorv_epi32(all, kIq3SScaleTurns));
    }
};

// ---- Codebooks in memory --------------------------------------------------------------------------------------------

/// Numbers of a block are stored, and read a block later: nothing waits for them.
struct WordsInMemory : DFirst {
    struct Header {
        alignas(64) std::uint16_t numbers[32];
        __mmask32 down;  ///< of IQ1
    };
    /// Of numbers the low bytes are given and the bits of `where` of `upper`.
    static TINFER_INLINE void store_numbers(__m256i low, __m512i upper, int where, Header& out) {
        _mm512_store_si512(out.numbers,
                           and_or(upper, _mm512_set1_epi16(static_cast<short>(where)), _mm512_cvtepu8_epi16(low)));
        keep_in_memory(out.numbers);
    }
    static TINFER_INLINE __m512i gather(const std::uint16_t* words, const Header& h) {
        return _mm512_inserti64x4(_mm512_castsi256_si512(sixteen_words(words, h.numbers)),
                                  sixteen_words(words, h.numbers + 16), 1);
    }
};

static constexpr Constants<std::int8_t> kIq2SUpperBitBytes([](int i) { return i % 2 != 0 ? -1 : i / 8; });
template <>
struct CodebookRows<IQ2_S> : WordsInMemory {
    static TINFER_INLINE void header(const std::uint8_t* block, Header& h) {
        const __m512i upper = _mm512_sllv_epi16(_mm512_shuffle_epi8(eight_bytes(block + 66), kIq2SUpperBitBytes),
                                                _mm512_set1_epi64(0x0002'0004'0006'0008));
        store_numbers(load_bytes32(block + 2), upper, 0x300, h);
    }
    static TINFER_INLINE void codes(const std::uint8_t* block, const Header& h, __m512i (&c)[4]) {
        const __m512i bits = bits_of_eights(_mm512_cvtepu8_epi16(load_bytes32(block + 34)));
        codes_of_eights(gather(kIq2SWords, h), bits, signed_levels(), c);
    }
    static TINFER_INLINE __m512i scales(const std::uint8_t* block, const Header&) {
        return scales_of_nibbles(block + 74);
    }
};

/// −1, 0, 1 in eighths, shifted by one of them: up, or down where the bit of a row is set.
struct ShiftedWords : WordsInMemory {
    static TINFER_INLINE void codes(const std::uint8_t*, const Header& h, __m512i (&c)[4]) {
        const __m512i levels = _mm512_broadcast_i32x4(_mm_setr_epi8(2, 10, 18, 0, 0, 8, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0));
        codes_of_eights(gather(kIq1Words, h), _mm512_maskz_mov_epi16(h.down, _mm512_set1_epi16(0x5555)), levels, c);
    }
};

static constexpr Constants<std::int8_t> kIq1SUpperBitBytes([](int i) {
    return i / 16 * 4 + i / 8 % 2 * 2 + (i % 8 < 6 ? i : i + 1) % 2;
});
static constexpr Constants<std::int8_t> kIq1SScaleBytes([](int i) {
    return i % 4 != 0 ? -1 : i / 16 * 4 + i / 8 % 2 * 2 + 1;
});
template <>
struct CodebookRows<IQ1_S> : ShiftedWords {
    static TINFER_INLINE void header(const std::uint8_t* block, Header& h) {
        // The word of four rows, the bytes of the last one's the other way round: all shifts go to the left.
        const __m512i words = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(load_bytes16(block + 34)), kIq1SUpperBitBytes);
        h.down = _mm512_test_epi16_mask(words, _mm512_set1_epi64(0x0080'8000'8000'8000));
        store_numbers(load_bytes32(block + 2), _mm512_sllv_epi16(words, _mm512_set1_epi64(0x0007'0002'0005'0008)),
                      0x700, h);
    }
    static TINFER_INLINE __m512i scales(const std::uint8_t* block, const Header&) {
        const __m512i tops = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(load_bytes16(block + 34)), kIq1SScaleBytes);
        return and_or(_mm512_srli_epi32(tops, 3), _mm512_set1_epi32(0xE), _mm512_set1_epi32(1));
    }
};

static constexpr Constants<std::int8_t> kIq1MUpperBitBytes([](int i) { return i % 2 != 0 ? -1 : i / 4; });
static constexpr Constants<std::int8_t> kIq1MScaleBytes([](int i) { return i / 16 * 2 + i % 2; });
static constexpr Constants<std::int32_t> kIq1MScaleTurns([](int l) { return (3 * (l % 4) + 31) % 32; });
template <>
struct CodebookRows<IQ1_M> : ShiftedWords {
    static TINFER_INLINE void header(const std::uint8_t* block, Header& h) {
        const __m512i nibbles =
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(load_bytes16(block + 32)), kIq1MUpperBitBytes);
        h.down = _mm512_test_epi16_mask(nibbles, _mm512_set1_epi32(0x0080'0008));
        store_numbers(load_bytes32(block), _mm512_sllv_epi16(nibbles, _mm512_set1_epi32(0x0004'0008)), 0x700, h);
    }
    static TINFER_INLINE __m512i scales(const std::uint8_t* block, const Header&) {
        const __m512i scales =
            _mm512_rorv_epi32(_mm512_shuffle_epi8(eight_bytes(block + 48), kIq1MScaleBytes), kIq1MScaleTurns);
        return and_or(scales, _mm512_set1_epi32(0xE), _mm512_set1_epi32(1));
    }
    static TINFER_INLINE __m128 four_d(const FourRows& rows, std::int64_t at) {
        std::uint16_t d[4];
        for (int r = 0; r < 4; ++r) d[r] = half_d_of_iq1_m(rows.row[r] + at);
        return _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(d)));
    }
};

}  // namespace tinfer::kernels

#endif
