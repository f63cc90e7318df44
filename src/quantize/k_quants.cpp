// SPDX-License-Identifier: MIT
// Super-blocks of 256: sub-blocks are searched each for itself, all at once, then their scales share one half float (or
// two), and the codes are chosen anew for what the reader will see.
#include <algorithm>
#include <array>
#include <cmath>

#include "quantize/encoders.hpp"
#include "quantize/k_blocks.hpp"
#include "quantize/search.hpp"

namespace tinfer::quantize {

namespace {

constexpr int kSuper = 256;
using Values = std::array<float, kSuper>;

/// Value e of sub-block g at [e · L + g].
template <int L>
Values transposed(const float* x) noexcept {
    Values out;
    for (int g = 0; g < L; ++g)
        for (int e = 0; e < kSuper / L; ++e) out[e * L + g] = x[g * (kSuper / L) + e];
    return out;
}

/// w = importance · √(factor · Σ x²/256 + x²).
Values importance_weights(const float* x, const float* importance, float factor) noexcept {
    float sum = 0;
    for (int i = 0; i < kSuper; ++i) sum += x[i] * x[i];
    const float energy = factor * sum / kSuper;
    Values w;
    for (int i = 0; i < kSuper; ++i) w[i] = importance[i] * std::sqrt(energy + x[i] * x[i]);
    return w;
}

template <int L>
Lanes<L> group_sums(const Values& transposed_weights) noexcept {
    Lanes<L> sums{};
    for (int e = 0; e < kSuper / L; ++e)
        for (int g = 0; g < L; ++g) sums[g] += transposed_weights[e * L + g];
    return sums;
}

/// Scales and minimums of L sub-blocks as codes 0 … N of two half floats.
template <int L>
struct ScalesAndMins {
    float d = 0, dmin = 0;  ///< as halves
    std::array<int, L> scale{}, min{};
};

/// By the largest of them.
template <int L>
void share(const Lanes<L>& values, int n_levels, float& d, std::array<int, L>& codes) noexcept {
    const auto top = static_cast<float>(n_levels);
    const float largest = std::max(0.0f, *std::max_element(values.begin(), values.end()));
    const float f = largest > 0 ? top / largest : 0.0f;
    for (int g = 0; g < L; ++g) codes[g] = static_cast<int>(std::min(top, round_within(f * values[g], 0.0f, top)));
    d = as_half(largest / top);
}

template <int L>
void share_weighted(const Lanes<L>& values, const Lanes<L>& w, int n_levels, float& d,
                    std::array<int, L>& codes) noexcept {
    const Positive found = search_positive(values.data(), w.data(), L, n_levels);
    for (int g = 0; g < L; ++g) codes[g] = static_cast<int>(found.codes[g]);
    d = as_half(found.scale);
}

/// q2_k, q4_k, q5_k: y = d · scale · code − dmin · min.
template <int L>
struct AsymmetricBlock {
    ScalesAndMins<L> head;
    std::array<int, kSuper> codes{};  ///< in element order
};

template <int L>
void choose_codes(const float* x, int n_levels, AsymmetricBlock<L>& block) noexcept {
    constexpr int n = kSuper / L;
    const auto top = static_cast<float>(n_levels);
    for (int g = 0; g < L; ++g) {
        const float d = block.head.d * static_cast<float>(block.head.scale[g]);
        if (d == 0) continue;
        const float min = block.head.dmin * static_cast<float>(block.head.min[g]);
        for (int e = g * n; e < (g + 1) * n; ++e)
            block.codes[e] = static_cast<int>(round_within((x[e] + min) / d, 0.0f, top));
    }
}

template <int L>
AsymmetricBlock<L> encode_asymmetric_block(const float* x, const BlockContext& context, int n_levels, int scale_levels,
                                           const AsymmetricGrid& grid, const Values& plain_weights,
                                           float energy_factor) noexcept {
    const bool weighted = context.importance != nullptr;
    const Values w = weighted ? importance_weights(x, context.importance, energy_factor) : plain_weights;
    const Values xt = transposed<L>(x), wt = transposed<L>(w.data());
    const auto found = search_asymmetric<L>(xt.data(), wt.data(), kSuper / L, n_levels,
                                            weighted ? AsymmetricGrid{-0.9f, 0.05f, 36, true} : grid);
    AsymmetricBlock<L> block;
    if (weighted) {
        const auto sums = group_sums<L>(wt);
        share_weighted<L>(found.scale, sums, scale_levels, block.head.d, block.head.scale);
        share_weighted<L>(found.min, sums, scale_levels, block.head.dmin, block.head.min);
    } else {
        share<L>(found.scale, scale_levels, block.head.d, block.head.scale);
        share<L>(found.min, scale_levels, block.head.dmin, block.head.min);
    }
    for (int g = 0; g < L; ++g)
        for (int e = 0; e < kSuper / L; ++e)
            block.codes[g * (kSuper / L) + e] = static_cast<int>(found.codes[e * L + g]);
    choose_codes<L>(x, n_levels, block);
    if (context.search == QuantizeSearch::thorough) {
        // Without importance the reader's error itself is what counts, whatever the search weighed it by.
        Values ones;
        ones.fill(1.0f);
        refine_asymmetric<L>(x, weighted ? w.data() : ones.data(), n_levels, scale_levels, block.head.d,
                             block.head.dmin, block.head.scale, block.head.min, block.codes);
    }
    return block;
}

/// Bits of 256 codes by the addressing of K-quants: `low` bits packed in planes, see kernels/quants/bit_layout.hpp.
void put_two_bits(const std::array<int, kSuper>& codes, std::byte* out) noexcept {
    for (int half = 0; half < 2; ++half)
        for (int l = 0; l < 32; ++l) {
            int byte = 0;
            for (int k = 0; k < 4; ++k) byte |= (codes[128 * half + 32 * k + l] & 3) << 2 * k;
            put_byte(out + 32 * half + l, byte);
        }
}

void put_nibbles(const std::array<int, kSuper>& codes, std::byte* out) noexcept {
    for (int quarter = 0; quarter < 4; ++quarter)
        for (int l = 0; l < 32; ++l)
            put_byte(out + 32 * quarter + l, (codes[64 * quarter + l] & 15) | (codes[64 * quarter + 32 + l] & 15) << 4);
}

/// Bit (e div 32) of byte e mod 32.
void put_plane(const std::array<int, kSuper>& codes, int bit, std::byte* out) noexcept {
    for (int l = 0; l < 32; ++l) {
        int byte = 0;
        for (int k = 0; k < 8; ++k) byte |= (codes[32 * k + l] >> bit & 1) << k;
        put_byte(out + l, byte);
    }
}

/// Six-bit scales and minimums of eight sub-blocks in twelve bytes.
void put_scales_and_mins(const std::array<int, 8>& scale, const std::array<int, 8>& min, std::byte* out) noexcept {
    for (int j = 0; j < 4; ++j) {
        put_byte(out + j, scale[j] | (scale[j + 4] >> 4) << 6);
        put_byte(out + j + 4, min[j] | (min[j + 4] >> 4) << 6);
        put_byte(out + j + 8, (scale[j + 4] & 15) | (min[j + 4] & 15) << 4);
    }
}

/// w = √(Σ x²/32) + |x|, sub-block by sub-block.
Values amplitude_weights(const float* x) noexcept {
    Values w;
    for (int g = 0; g < 8; ++g) {
        float sum = 0;
        for (int e = 0; e < 32; ++e) sum += x[32 * g + e] * x[32 * g + e];
        const float rms = std::sqrt(sum / 32);
        for (int e = 0; e < 32; ++e) w[32 * g + e] = rms + std::fabs(x[32 * g + e]);
    }
    return w;
}

/// q3_k, q6_k: y = d · scale · (code − m), scales signed.
struct SymmetricBlock {
    float d = 0;
    std::array<int, 16> scale{};
    std::array<int, kSuper> codes{};  ///< 0 … 2m−1
};

void choose_codes(const float* x, int m, SymmetricBlock& block) noexcept {
    const auto levels = static_cast<float>(m);
    for (int g = 0; g < 16; ++g) {
        const float d = block.d * static_cast<float>(block.scale[g]);
        if (d == 0) continue;
        for (int e = 16 * g; e < 16 * g + 16; ++e)
            block.codes[e] = static_cast<int>(round_within(x[e] / d, -levels, levels - 1.0f)) + m;
    }
}

/// The scale of largest magnitude becomes −`levels`.
void share_signed(const Lanes<16>& scales, int levels, SymmetricBlock& block) noexcept {
    const auto extreme = extreme_of<1>(scales.data(), 16);
    if (extreme.magnitude[0] == 0) return;
    const auto top = static_cast<float>(levels);
    const float f = -top / extreme.value[0];
    block.d = as_half(1.0f / f);
    for (int g = 0; g < 16; ++g) block.scale[g] = static_cast<int>(round_within(f * scales[g], -top, top - 1.0f));
}

Values squares(const float* x) noexcept {
    Values w;
    for (int i = 0; i < kSuper; ++i) w[i] = x[i] * x[i];
    return w;
}

void take_codes(const Symmetric<16>& found, SymmetricBlock& block) noexcept {
    for (int g = 0; g < 16; ++g)
        for (int e = 0; e < 16; ++e) block.codes[16 * g + e] = static_cast<int>(found.codes[e * 16 + g]);
}

}  // namespace

void encode_q2_k(const float* x, const BlockContext& context, std::byte* out) noexcept {
    Values magnitudes;
    for (int i = 0; i < kSuper; ++i) magnitudes[i] = std::fabs(x[i]);
    const auto block = encode_asymmetric_block<16>(x, context, 3, 15, {-0.5f, 0.1f, 15, false}, magnitudes, 1.0f);
    for (int g = 0; g < 16; ++g) put_byte(out + g, block.head.scale[g] | block.head.min[g] << 4);
    put_two_bits(block.codes, out + 16);
    put_half(out + 80, block.head.d);
    put_half(out + 82, block.head.dmin);
}

void encode_q4_k(const float* x, const BlockContext& context, std::byte* out) noexcept {
    const auto block =
        encode_asymmetric_block<8>(x, context, 15, 63, {-1.0f, 0.1f, 20, true}, amplitude_weights(x), 2.0f);
    put_half(out, block.head.d);
    put_half(out + 2, block.head.dmin);
    put_scales_and_mins(block.head.scale, block.head.min, out + 4);
    put_nibbles(block.codes, out + 16);
}

void encode_q5_k(const float* x, const BlockContext& context, std::byte* out) noexcept {
    const auto block =
        encode_asymmetric_block<8>(x, context, 31, 63, {-0.5f, 0.1f, 15, true}, amplitude_weights(x), 2.0f);
    put_half(out, block.head.d);
    put_half(out + 2, block.head.dmin);
    put_scales_and_mins(block.head.scale, block.head.min, out + 4);
    put_plane(block.codes, 4, out + 16);
    put_nibbles(block.codes, out + 48);
}

void encode_q3_k(const float* x, const BlockContext& context, std::byte* out) noexcept {
    const Values xt = transposed<16>(x);
    SymmetricBlock block;
    const bool weighted = context.importance != nullptr;
    const Values w = weighted ? importance_weights(x, context.importance, 2.0f) : squares(x);
    const Values wt = transposed<16>(w.data());
    if (weighted) {
        const auto found = search_symmetric<16>(xt.data(), wt.data(), 16, 4);
        take_codes(found, block);
        const auto shared = search_symmetric<1>(found.scale.data(), group_sums<16>(wt).data(), 16, 32);
        block.d = as_half(shared.scale[0]);
        for (int g = 0; g < 16; ++g) block.scale[g] = static_cast<int>(shared.codes[g]) - 32;
    } else {
        const auto found = descend_symmetric<16>(xt.data(), wt.data(), 16, 4);
        take_codes(found, block);
        block.scale.fill(-32);  // what twelve bytes of zeros say
        share_signed(found.scale, 32, block);
    }
    choose_codes(x, 4, block);
    if (context.search == QuantizeSearch::thorough) {
        Values ones;
        ones.fill(1.0f);
        refine_symmetric(x, weighted ? w.data() : ones.data(), 4, 32, block.d, block.scale, block.codes);
    }
    put_plane(block.codes, 2, out);
    put_two_bits(block.codes, out + 32);
    std::memset(out + 96, 0, 12);
    std::array<int, 12> packed{};
    for (int j = 0; j < 16; ++j) {
        const int code = block.scale[j] + 32;
        packed[j % 8] |= (code & 15) << (j < 8 ? 0 : 4);
        packed[8 + j % 4] |= (code >> 4) << 2 * (j / 4);
    }
    for (int j = 0; j < 12; ++j) put_byte(out + 96 + j, packed[j]);
    put_half(out + 108, block.d);
}

void encode_q6_k(const float* x, const BlockContext& context, std::byte* out) noexcept {
    std::memset(out, 0, 210);
    const Values xt = transposed<16>(x);
    const Values w = context.importance != nullptr ? transposed<16>(context.importance) : squares(xt.data());
    const auto found = search_symmetric<16>(xt.data(), w.data(), 16, 32);
    if (extreme_of<1>(found.scale.data(), 16).magnitude[0] < kTiny) return;
    SymmetricBlock block;
    take_codes(found, block);
    share_signed(found.scale, 128, block);
    choose_codes(x, 32, block);
    if (context.search == QuantizeSearch::thorough) {
        Values ones;
        ones.fill(1.0f);
        refine_symmetric(x, context.importance != nullptr ? context.importance : ones.data(), 32, 128, block.d,
                         block.scale, block.codes);
    }
    for (int h = 0; h < 2; ++h)
        for (int l = 0; l < 32; ++l) {
            const int* c = block.codes.data() + 128 * h + l;
            put_byte(out + 64 * h + l, (c[0] & 15) | (c[64] & 15) << 4);
            put_byte(out + 64 * h + 32 + l, (c[32] & 15) | (c[96] & 15) << 4);
            put_byte(out + 128 + 32 * h + l, c[0] >> 4 | (c[32] >> 4) << 2 | (c[64] >> 4) << 4 | (c[96] >> 4) << 6);
        }
    for (int g = 0; g < 16; ++g) put_byte(out + 192 + g, block.scale[g]);
    put_half(out + 208, block.d);
}

}  // namespace tinfer::quantize
