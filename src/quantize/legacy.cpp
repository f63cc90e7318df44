// SPDX-License-Identifier: MIT
// Blocks of 32 with one scale and perhaps a minimum: q4_0, q4_1, q5_0, q5_1, q8_0.
#include <algorithm>
#include <array>
#include <cmath>

#include "quantize/encoders.hpp"
#include "quantize/search.hpp"

namespace tinfer::quantize {

namespace {

constexpr int kN = 32;
using Block = std::array<float, kN>;

/// What weighs an error where importance is known: large values count more than their column says.
Block weights_of(const float* x, const BlockContext& context) noexcept {
    Block w;
    for (int i = 0; i < kN; ++i) w[i] = context.importance[i] * std::sqrt(context.row_mean_square + x[i] * x[i]);
    return w;
}

/// Nibbles of element j and j + 16 in byte j, the fifth bits in a u32.
void put_codes(const std::array<int, kN>& codes, bool has_fifth_bits, std::byte* out) noexcept {
    if (has_fifth_bits) {
        std::uint32_t high = 0;
        for (int e = 0; e < kN; ++e) high |= static_cast<std::uint32_t>(codes[e] >> 4 & 1) << e;
        std::memcpy(out, &high, sizeof high);
        out += sizeof high;
    }
    for (int j = 0; j < 16; ++j) put_byte(out + j, (codes[j] & 15) | (codes[j + 16] & 15) << 4);
}

/// Codes 0 … 2m−1 of y = d · (code − m).
void encode_symmetric(const float* x, const BlockContext& context, int m, std::byte* out) noexcept {
    std::array<int, kN> codes;
    float d = 0;
    if (context.importance != nullptr || context.search == QuantizeSearch::thorough) {
        Block w;
        if (context.importance != nullptr) w = weights_of(x, context);
        else w.fill(1.0f);
        const bool thorough = context.search == QuantizeSearch::thorough;
        const auto found = search_symmetric<1>(x, w.data(), kN, m, thorough ? 36 : 9, thorough ? 0.05f : 0.1f);
        d = found.scale[0];
        for (int i = 0; i < kN; ++i) codes[i] = static_cast<int>(found.codes[i]);
    } else {
        const auto levels = static_cast<float>(m);
        d = extreme_of<1>(x, kN).value[0] / -levels;
        const float f = inverse(d);
        for (int i = 0; i < kN; ++i)
            codes[i] = static_cast<int>(std::min(2 * levels - 1, std::trunc(x[i] * f + (levels + 0.5f))));
    }
    put_half(out, d);
    put_codes(codes, m == 16, out + 2);
}

/// Codes 0 … N of y = d · code + m.
void encode_asymmetric(const float* x, const BlockContext& context, int n_levels, std::byte* out) noexcept {
    std::array<int, kN> codes;
    float d = 0, m = 0;
    if (context.importance != nullptr || context.search == QuantizeSearch::thorough) {
        Block w;
        if (context.importance != nullptr) w = weights_of(x, context);
        else w.fill(1.0f);
        const auto found = search_asymmetric<1>(x, w.data(), kN, n_levels, {-0.9f, 0.05f, 36, true});
        d = found.scale[0];
        m = -found.min[0];
        for (int i = 0; i < kN; ++i) codes[i] = static_cast<int>(found.codes[i]);
    } else {
        const auto [low, high] = std::minmax_element(x, x + kN);
        d = (*high - *low) / static_cast<float>(n_levels);
        m = *low;
        const float f = inverse(d);
        for (int i = 0; i < kN; ++i)
            codes[i] = static_cast<int>(std::min(static_cast<float>(n_levels), std::trunc((x[i] - m) * f + 0.5f)));
    }
    put_half(out, d);
    put_half(out + 2, m);
    put_codes(codes, n_levels == 31, out + 4);
}

}  // namespace

void encode_q4_0(const float* x, const BlockContext& context, std::byte* out) noexcept {
    encode_symmetric(x, context, 8, out);
}
void encode_q5_0(const float* x, const BlockContext& context, std::byte* out) noexcept {
    encode_symmetric(x, context, 16, out);
}
void encode_q4_1(const float* x, const BlockContext& context, std::byte* out) noexcept {
    encode_asymmetric(x, context, 15, out);
}
void encode_q5_1(const float* x, const BlockContext& context, std::byte* out) noexcept {
    encode_asymmetric(x, context, 31, out);
}

void encode_q8_0(const float* x, const BlockContext& /*context*/, std::byte* out) noexcept {
    const float d = extreme_of<1>(x, kN).magnitude[0] / 127.0f, f = inverse(d);
    put_half(out, d);
    for (int i = 0; i < kN; ++i) put_byte(out + 2 + i, static_cast<int>(std::round(x[i] * f)));
}

}  // namespace tinfer::quantize
