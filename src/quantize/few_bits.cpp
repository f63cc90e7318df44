// SPDX-License-Identifier: MIT
// One scale and one or two bits: q1_0, q2_0, tq1_0, tq2_0.
#include <algorithm>
#include <cmath>

#include "quantize/encoders.hpp"
#include "quantize/search.hpp"

namespace tinfer::quantize {

void encode_q1_0(const float* x, const BlockContext& /*context*/, std::byte* out) noexcept {
    float sum = 0;
    for (int i = 0; i < 128; ++i) sum += std::fabs(x[i]);
    put_half(out, sum / 128);
    for (int b = 0; b < 16; ++b) {
        int byte = 0;
        for (int k = 0; k < 8; ++k) byte |= (x[8 * b + k] >= 0 ? 1 : 0) << k;
        put_byte(out + 2 + b, byte);
    }
}

void encode_q2_0(const float* x, const BlockContext& /*context*/, std::byte* out) noexcept {
    const float d = extreme_of<1>(x, 64).magnitude[0], f = inverse(d);
    put_half(out, d);
    for (int b = 0; b < 16; ++b) {
        int byte = 0;
        for (int k = 0; k < 4; ++k)
            byte |= std::clamp(static_cast<int>(std::round(x[4 * b + k] * f)) + 1, 0, 3) << 2 * k;
        put_byte(out + 2 + b, byte);
    }
}

void encode_tq1_0(const float* x, const BlockContext& /*context*/, std::byte* out) noexcept {
    const float d = extreme_of<1>(x, 256).magnitude[0], f = inverse(d);
    // `digits` values, `stride` apart, as one number of base 3, which a reader multiplies up again.
    const auto pack = [&](const float* first, int stride, int digits) {
        int number = 0;
        for (int n = 0; n < 5; ++n)
            number = 3 * number + (n < digits ? static_cast<int>(std::round(first[n * stride] * f)) + 1 : 0);
        return (256 * number + 242) / 243;
    };
    for (int j = 0; j < 32; ++j) put_byte(out + j, pack(x + j, 32, 5));
    for (int j = 0; j < 16; ++j) put_byte(out + 32 + j, pack(x + 160 + j, 16, 5));
    for (int j = 0; j < 4; ++j) put_byte(out + 48 + j, pack(x + 240 + j, 4, 4));
    put_half(out + 52, d);
}

void encode_tq2_0(const float* x, const BlockContext& /*context*/, std::byte* out) noexcept {
    const float d = extreme_of<1>(x, 256).magnitude[0], f = inverse(d);
    for (int half = 0; half < 2; ++half)
        for (int l = 0; l < 32; ++l) {
            int byte = 0;
            for (int k = 0; k < 4; ++k)
                byte |= (static_cast<int>(std::round(x[128 * half + 32 * k + l] * f)) + 1) << 2 * k;
            put_byte(out + 32 * half + l, byte);
        }
    put_half(out + 64, d);
}

}  // namespace tinfer::quantize
