// SPDX-License-Identifier: MIT
// Unpacking a block of any format: with vector instructions where there is an unpack_vector for it, else by the
// format's own formula. The results are the same integers.
#pragma once

#include "kernels/dequantize/codes_neon.hpp"
#include "kernels/dequantize/unpack_bits.hpp"
#include "kernels/dequantize/unpack_codebook.hpp"

namespace tinfer::kernels {

/// Unit `unit` of a block of any format.
template <class Arch, class Format, class Codes>
TINFER_INLINE void unpack_block(const std::uint8_t* block, int unit, Codes& out) noexcept {
    if constexpr (requires { unpack_vector<Arch>(Format{}, block, unit, out); }) {
        unpack_vector<Arch>(Format{}, block, unit, out);
    } else {
        Format::template unpack<Arch>(block, unit, out);
    }
}

}  // namespace tinfer::kernels
