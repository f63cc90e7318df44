// SPDX-License-Identifier: MIT
// How the codes of a weight format meet the multiplier of an instruction set: with which sign and bias, and how many
// products one int16 holds.
#pragma once

#include "kernels/quants/format.hpp"
#include "kernels/simd/vec.hpp"

namespace tinfer::kernels {

/// Where the multiplier wants unsigned weight bytes, kBias is added to each code, and −kBias · (sum of activations) to
/// the result; with dot4 any bias will do, without it sums of byte pairs must fit int16: 2 · u · 127 ≤ 32767 for the
/// largest unsigned code u. Larger codes stay signed there, as all do where dot4 takes signed bytes; panels widen them
/// to int16, since a product of bytes fills an int16 alone, and its sign would have to change sides before it.
template <class Arch, class Format>
struct Int8Encoding {
    static constexpr bool kUnsigned = Format::kHasMin;  ///< formats with a minimum have codes from 0 up
    static constexpr bool kSigned = !kUnsigned && (Arch::kHasDot4 ? Arch::kSignedDot4 : Format::kMaxCode > 64);
    static constexpr int kBias = kUnsigned || kSigned ? 0 : Format::kMaxCode > 64 ? 128 : Format::kMaxCode;
    static constexpr int kLargest = Format::kMaxCode + kBias;  ///< of the panel's bytes
    static constexpr int kFit = 32767 / (254 * kLargest);
    /// Byte-pair sums that one int16 holds: 8 for 4-bit codes, 1 for 7-bit ones; 0: signed codes.
    static constexpr int kPairSums = Arch::kHasDot4 ? 1
                                     : kSigned      ? 0
                                     : kFit >= 8    ? 8
                                     : kFit >= 4    ? 4
                                     : kFit >= 2    ? 2
                                                    : 1;
    /// Those of a sub-block of sixteen fit together, although they might pass int16 on their way there and back, where
    /// they begin with what the bias takes off: what they end with is of the codes themselves, 4 · 2 · 32 · 127 at
    /// most.
    static constexpr bool kCentred = !Arch::kHasDot4 && Arch::kLanes == 8 && Format::kUnit == 256 &&
                                     Format::kScaleElems == 16 && kBias != 0 && kPairSums > 0 && kPairSums < 4 &&
                                     4 * 254 * Format::kMaxCode <= 32767;
    static_assert(Arch::kHasDot4 || kSigned || 254 * kLargest <= 32767);
    /// The sum of a super-block, bias and integer scales of up to eight bits included.
    static_assert(Format::kUnit != 256 || std::int64_t{256} * kLargest * 127 * 128 <= 2147483647);
};

}  // namespace tinfer::kernels
