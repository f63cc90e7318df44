// SPDX-License-Identifier: MIT
// Where the code of element e lies in the packed bytes of a block. The formats share four arrangements, all made so
// that neighbouring bytes hold neighbouring elements and one mask or shift frees a vector of them.
#pragma once

#include <cstdint>

namespace tinfer::kernels {

/// 32 elements: byte j holds element j in the low nibble and element j + 16 in the high one.
template <class Arch>
constexpr int nibble_of_32(const std::uint8_t* p, int e) noexcept {
    return e < 16 ? p[e] & 15 : p[e - 16] >> 4;
}

/// 256 elements, 4 bits: 32 bytes for each 64 elements, the first half of them in the low nibbles.
template <class Arch>
constexpr int nibble_of_256(const std::uint8_t* p, int e) noexcept {
    return p[e / 64 * 32 + e % 32] >> (e % 64 / 32 * 4) & 15;
}

/// 256 elements, 2 bits: 32 bytes for each 128 elements, the first 32 of them in the lowest bit pairs.
template <class Arch>
constexpr int pair_of_256(const std::uint8_t* p, int e) noexcept {
    return p[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3;
}

/// 256 elements, 1 bit: bit e / 32 of byte e mod 32.
template <class Arch>
constexpr int bit_of_256(const std::uint8_t* p, int e) noexcept {
    return p[e % 32] >> (e / 32) & 1;
}

}  // namespace tinfer::kernels
