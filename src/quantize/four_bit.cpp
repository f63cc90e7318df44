// SPDX-License-Identifier: MIT
// Types whose codes stand for levels of a table: iq4_nl, iq4_xs, mxfp4, nvfp4.
#include <algorithm>
#include <array>
#include <cmath>

#include "quantize/encoders.hpp"
#include "quantize/search.hpp"

namespace tinfer::quantize {

namespace {

constexpr std::array<float, 16> kLevels{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
/// FP4 E2M1, doubled. Of equal distances the lowest index wins, so −0 never does.
constexpr std::array<float, 16> kFp4{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/// The level next to x; halfway the higher one.
int nearest_level(float x) noexcept {
    int index = 0;
    for (std::size_t i = 1; i < kLevels.size(); ++i) index += x - kLevels[i - 1] < kLevels[i] - x ? 0 : 1;
    return index;
}

struct LevelFit {
    float scale = 0;
    std::array<int, 32> codes{};
};

/// The scale of 32 values: what maps the extreme to the first level, and `tries` inverse scales on either side of that
/// (0: the quick way of activations), each refitted by least squares.
LevelFit fit_levels(const float* x, const float* w, int tries, float step) noexcept {
    const auto extreme = extreme_of<1>(x, 32);
    LevelFit out;
    out.codes.fill(8);
    if (extreme.magnitude[0] < kTiny) return out;
    const float m = extreme.value[0];
    float best = 0;
    const auto fit = [&](float f, bool is_first) {
        std::array<int, 32> codes;
        float p = 0, q = 0;
        for (int i = 0; i < 32; ++i) {
            codes[i] = nearest_level(f * x[i]);
            const float level = kLevels[codes[i]];
            p += w[i] * level * x[i];
            q += w[i] * level * level;
        }
        if (!(q > 0) || !(is_first || p * p > best * q)) return;
        out.scale = p / q;
        best = out.scale * p;
        out.codes = codes;
    };
    fit(inverse(tries > 0 ? -m / kLevels[0] : m / kLevels[0]), true);
    for (int t = -tries; t <= tries; ++t) fit((step * static_cast<float>(t) + kLevels[0]) / m, false);
    return out;
}

void put_nibbles_of_32(const std::array<int, 32>& codes, std::byte* out) noexcept {
    for (int j = 0; j < 16; ++j) put_byte(out + j, codes[j] | codes[j + 16] << 4);
}

/// Without importance large values count more, as their products do; the thorough search minimizes the error itself.
std::array<float, 32> level_weights(const float* x, const float* importance, float mean_square,
                                    QuantizeSearch search) noexcept {
    std::array<float, 32> w;
    for (int i = 0; i < 32; ++i)
        w[i] = importance != nullptr                ? importance[i] * std::sqrt(mean_square + x[i] * x[i])
               : search == QuantizeSearch::thorough ? 1.0f
                                                    : x[i] * x[i];
    return w;
}

/// Σ w · (d · level − x)² with the levels nearest to x.
double level_error(const float* x, const float* w, float d) noexcept {
    const float f = inverse(d);
    double error = 0;
    for (int i = 0; i < 32; ++i) {
        const double off = double{d * kLevels[nearest_level(x[i] * f)]} - double{x[i]};
        error += double{w[i]} * off * off;
    }
    return error;
}

/// 2^(e − 128), the scale of codes whose table is doubled; exact.
float half_of_e8m0(int e) noexcept { return std::ldexp(1.0f, e - 128); }

int nearest_fp4(float x, float scale) noexcept {
    int best = 0;
    float error = std::fabs(kFp4[0] * scale - x);
    for (int i = 1; i < 16; ++i)
        if (const float off = std::fabs(kFp4[i] * scale - x); off < error) error = off, best = i;
    return best;
}

/// UE4M3 of a scale: eight values to a power of two, the largest 448.
int ue4m3_of(float x) noexcept {
    if (!(x > 0)) return 0;
    x = std::min(x, 448.0f);
    int k = 0;
    const float fraction = std::frexp(x, &k);  // in [0.5, 1)
    --k;
    if (k + 7 <= 0) {
        const int m = std::min(7, static_cast<int>(512.0f * x + 0.5f));
        return m < 1 ? 0 : m;
    }
    if (k + 7 >= 15) return 0x7E;
    const int bits = static_cast<int>((2.0f * fraction - 1.0f) * 16.0f);  // three bits and the next
    int m = bits / 2 + bits % 2, exponent = k + 7;
    if (m == 8) m = 0, ++exponent;
    return exponent >= 15 ? 0x7E : exponent * 8 + m;
}

float half_of_ue4m3(int u) noexcept {
    if (u == 0 || u == 0x7F) return 0;
    const int exponent = u >> 3 & 15, m = u & 7;
    const float value = exponent == 0 ? std::ldexp(static_cast<float>(m), -9)
                                      : std::ldexp(1.0f + static_cast<float>(m) / 8.0f, exponent - 7);
    return 0.5f * value;
}

}  // namespace

void encode_iq4_nl(const float* x, const BlockContext& context, std::byte* out) noexcept {
    float sum = 0;
    for (int i = 0; i < 32; ++i) sum += x[i] * x[i];
    const auto w = level_weights(x, context.importance, 2 * sum / 32, context.search);
    const bool quick = context.search == QuantizeSearch::quick, thorough = context.search == QuantizeSearch::thorough;
    auto fit = fit_levels(x, w.data(), quick ? 0 : thorough ? 28 : 7, thorough ? 0.5f : 1.0f);
    put_half(out, fit.scale);
    const float f = inverse(fit.scale);
    if (!quick)
        for (int i = 0; i < 32; ++i) fit.codes[i] = nearest_level(x[i] * f);
    put_nibbles_of_32(fit.codes, out + 2);
}

void encode_iq4_xs(const float* x, const BlockContext& context, std::byte* out) noexcept {
    float sum = 0;
    for (int i = 0; i < 256; ++i) sum += x[i] * x[i];
    const bool thorough = context.search == QuantizeSearch::thorough;
    std::array<float, 8> scales;
    std::array<std::array<float, 32>, 8> weights;
    for (int g = 0; g < 8; ++g) {
        const float* importance = context.importance != nullptr ? context.importance + 32 * g : nullptr;
        const auto w = level_weights(x + 32 * g, importance, 2 * sum / 256, context.search);
        weights[g] = w;
        scales[g] = fit_levels(x + 32 * g, w.data(), thorough ? 28 : 7, thorough ? 0.5f : 1.0f).scale;
    }
    const float d = -extreme_of<1>(scales.data(), 8).value[0] / 32, f = inverse(d);
    put_half(out, d);
    std::uint16_t high = 0;
    std::array<int, 4> low{};
    for (int g = 0; g < 8; ++g) {
        float l = round_within(f * scales[g], -32.0f, 31.0f);
        if (thorough) {  // with the scale as the file has it
            const float stored = as_half(d), first = l;
            double best = level_error(x + 32 * g, weights[g].data(), stored * l);
            for (float near = std::max(-32.0f, first - 2); near <= std::min(31.0f, first + 2); ++near)
                if (const double e = level_error(x + 32 * g, weights[g].data(), stored * near); e < best)
                    best = e, l = near;
        }
        const float inv = inverse(d * l);
        std::array<int, 32> codes;
        for (int i = 0; i < 32; ++i) codes[i] = nearest_level(x[32 * g + i] * inv);
        put_nibbles_of_32(codes, out + 8 + 16 * g);
        const int code = static_cast<int>(l) + 32;
        low[g / 2] |= (code & 15) << g % 2 * 4;
        high = static_cast<std::uint16_t>(high | code >> 4 << 2 * g);
    }
    std::memcpy(out + 2, &high, sizeof high);
    for (int j = 0; j < 4; ++j) put_byte(out + 4 + j, low[j]);
}

void encode_mxfp4(const float* x, const BlockContext& context, std::byte* out) noexcept {
    const float largest = extreme_of<1>(x, 32).magnitude[0];
    int e = largest > 0 ? std::clamp(std::ilogb(largest) - 2 + 127, 0, 254) : 0;
    if (context.search == QuantizeSearch::thorough && largest > 0) {  // the power of two beside it may clip less badly
        const auto error_of = [&](int exponent) {
            double error = 0;
            const float scale = half_of_e8m0(exponent);
            for (int i = 0; i < 32; ++i) {
                const double off = double{kFp4[nearest_fp4(x[i], scale)] * scale} - double{x[i]};
                error += off * off;
            }
            return error;
        };
        if (e < 254 && error_of(e + 1) < error_of(e)) ++e;
    }
    const float scale = half_of_e8m0(e);
    std::array<int, 32> codes;
    for (int i = 0; i < 32; ++i) codes[i] = nearest_fp4(x[i], scale);
    put_byte(out, e);
    put_nibbles_of_32(codes, out + 1);
}

void encode_nvfp4(const float* x, const BlockContext& /*context*/, std::byte* out) noexcept {
    for (int s = 0; s < 4; ++s) {
        const float* v = x + 16 * s;
        const int u = ue4m3_of(extreme_of<1>(v, 16).magnitude[0] / 6.0f);
        const float scale = half_of_ue4m3(u);
        put_byte(out + s, u);
        for (int j = 0; j < 8; ++j)
            put_byte(out + 4 + 8 * s + j, nearest_fp4(v[j], scale) | nearest_fp4(v[j + 8], scale) << 4);
    }
}

}  // namespace tinfer::quantize
