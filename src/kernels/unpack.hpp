// SPDX-License-Identifier: MIT
// Unpacking blocks with vector instructions, for the formats whose speed matters most where somebody wrote it
// (unpack_vector); the others go by their own formula. The results are the same integers.
#pragma once

#include "kernels/quants/formats.hpp"
#include "kernels/simd.hpp"

namespace tinfer::kernels {

#if defined(__x86_64__)
static TINFER_INLINE __m256i load_bytes32(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
static TINFER_INLINE void store_bytes32(__m256i bytes, void* p) { _mm256_storeu_si256(static_cast<__m256i*>(p), bytes); }
/// The low four bits of each byte, and the high ones.
static TINFER_INLINE __m256i low_nibbles(__m256i bytes) { return _mm256_and_si256(bytes, _mm256_set1_epi8(15)); }
static TINFER_INLINE __m256i high_nibbles(__m256i bytes) { return low_nibbles(_mm256_srli_epi16(bytes, 4)); }

template <class Arch>
TINFER_INLINE void unpack_vector(const std::uint8_t* block, Q4_K, Codes256& out) noexcept {
    for (int g = 0; g < 4; ++g) {
        const __m256i nibbles = load_bytes32(block + 16 + 32 * g);
        store_bytes32(low_nibbles(nibbles), out.q + 64 * g);
        store_bytes32(high_nibbles(nibbles), out.q + 64 * g + 32);
    }
    unpack_scales_and_mins<Arch>(block + 4, out);
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
