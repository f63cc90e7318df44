// SPDX-License-Identifier: MIT
// Unpacking blocks with vector instructions, for the formats whose speed matters most where somebody wrote it
// (unpack_vector); the others go by their own formula. The results are the same integers.
#pragma once

#include <cstring>

#include "kernels/quants/formats.hpp"
#include "kernels/simd.hpp"

namespace tinfer::kernels {

#if defined(__x86_64__)
static TINFER_INLINE __m256i load_bytes32(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
static TINFER_INLINE void store_bytes32(__m256i bytes, void* p) { _mm256_storeu_si256(static_cast<__m256i*>(p), bytes); }
/// The low four bits of each byte, and the high ones.
static TINFER_INLINE __m256i low_nibbles(__m256i bytes) { return _mm256_and_si256(bytes, _mm256_set1_epi8(15)); }
static TINFER_INLINE __m256i high_nibbles(__m256i bytes) { return low_nibbles(_mm256_srli_epi16(bytes, 4)); }

/// The six-bit scales and mins of eight sub-blocks (quants/q4_k.hpp) by words of four, each to both halves of its 32 values.
static TINFER_INLINE void unpack_scales_and_mins_vector(const std::uint8_t* packed, Codes256& out) {
    std::uint32_t w[3];
    std::memcpy(w, packed, 12);
    const auto twice_each = [](std::uint32_t first, std::uint32_t last) {
        const __m128i bytes = _mm_set_epi32(0, 0, static_cast<int>(last), static_cast<int>(first));
        return _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(bytes, bytes));
    };
    store_bytes32(twice_each(w[0] & 0x3F3F3F3Fu, (w[2] & 0x0F0F0F0Fu) | (w[0] >> 2 & 0x30303030u)), out.scale);
    store_bytes32(twice_each(w[1] & 0x3F3F3F3Fu, (w[2] >> 4 & 0x0F0F0F0Fu) | (w[1] >> 2 & 0x30303030u)), out.min);
}
/// The 32 nibbles of 16 bytes: the low ones, then the high ones.
static TINFER_INLINE __m256i nibbles_of_16(const void* p) {
    const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(p));
    return low_nibbles(_mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes));
}

template <class Arch>
TINFER_INLINE void unpack_vector(const std::uint8_t* block, Q4_0, Codes32& out) noexcept {
    store_bytes32(_mm256_sub_epi8(nibbles_of_16(block + 2), _mm256_set1_epi8(8)), out.q);
    out.d[0] = out.d[1] = load_f16<Arch>(block);
}
template <class Arch>
TINFER_INLINE void unpack_vector(const std::uint8_t* block, Q4_1, Codes32& out) noexcept {
    store_bytes32(nibbles_of_16(block + 4), out.q);
    out.d[0] = out.d[1] = load_f16<Arch>(block);
    out.m = load_f16<Arch>(block + 2);
}

/// Bits 2g and 2g + 1 of 32 bytes are the upper bits of the codes of group g.
template <class Arch>
TINFER_INLINE void unpack_vector(const std::uint8_t* block, Q5_K, Codes256& out) noexcept {
    const __m256i upper = load_bytes32(block + 16), sixteen = _mm256_set1_epi8(16);
    for (int g = 0; g < 4; ++g) {
        const __m256i nibbles = load_bytes32(block + 48 + 32 * g);
        const auto put = [&](int half, __m256i low) {
            const __m256i bit = _mm256_set1_epi8(static_cast<char>(1 << (2 * g + half)));
            const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(upper, bit), bit);
            store_bytes32(_mm256_or_si256(low, _mm256_and_si256(set, sixteen)), out.q + 64 * g + 32 * half);
        };
        put(0, low_nibbles(nibbles));
        put(1, high_nibbles(nibbles));
    }
    unpack_scales_and_mins_vector(block + 4, out);
    out.d = load_f16<Arch>(block);
    out.dmin = load_f16<Arch>(block + 2);
}

template <class Arch>
TINFER_INLINE void unpack_vector(const std::uint8_t* block, Q4_K, Codes256& out) noexcept {
    for (int g = 0; g < 4; ++g) {
        const __m256i nibbles = load_bytes32(block + 16 + 32 * g);
        store_bytes32(low_nibbles(nibbles), out.q + 64 * g);
        store_bytes32(high_nibbles(nibbles), out.q + 64 * g + 32);
    }
    unpack_scales_and_mins_vector(block + 4, out);
    out.d = load_f16<Arch>(block);
    out.dmin = load_f16<Arch>(block + 2);
}

/// Four groups of 32 nibbles share 32 bytes of upper bits, two bits for each.
template <class Arch>
TINFER_INLINE void unpack_vector(const std::uint8_t* block, Q6_K, Codes256& out) noexcept {
    const __m256i upper_bits = _mm256_set1_epi8(0x30), offset = _mm256_set1_epi8(32);
    for (int half = 0; half < 2; ++half) {
        const __m256i first = load_bytes32(block + 64 * half), second = load_bytes32(block + 64 * half + 32);
        const __m256i upper = load_bytes32(block + 128 + 32 * half);
        const auto put = [&](int group, __m256i nibbles, __m256i shifted) {
            const __m256i code = _mm256_or_si256(nibbles, _mm256_and_si256(shifted, upper_bits));
            store_bytes32(_mm256_sub_epi8(code, offset), out.q + 128 * half + 32 * group);
        };
        put(0, low_nibbles(first), _mm256_slli_epi16(upper, 4));
        put(1, low_nibbles(second), _mm256_slli_epi16(upper, 2));
        put(2, high_nibbles(first), upper);
        put(3, high_nibbles(second), _mm256_srli_epi16(upper, 2));
    }
    for (int j = 0; j < 16; ++j) out.scale[j] = static_cast<std::int8_t>(block[192 + j]);
    out.d = load_f16<Arch>(block + 208);
}

#endif

/// Unit `unit` of a block of any format.
template <class Arch, class Format, class Codes>
TINFER_INLINE void unpack_block(const std::uint8_t* block, int unit, Codes& out) noexcept {
    if constexpr (requires { unpack_vector<Arch>(block, Format{}, out); }) {
        unpack_vector<Arch>(block, Format{}, out);
    } else {
        Format::template unpack<Arch>(block, unit, out);
    }
}

}  // namespace tinfer::kernels
