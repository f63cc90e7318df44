// SPDX-License-Identifier: MIT
#include "support/random_blocks.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <span>
#include <stdexcept>

#include "base/dtype.hpp"
#include "base/half.hpp"
#include "kernels/quants/activation_q8.hpp"
#include "kernels/quants/format.hpp"

namespace tinfer::test {

ScaleOffsets scale_offsets(DType type) noexcept {
    switch (type) {
        case DType::q4_1:
        case DType::q5_1:
        case DType::q8_1:
        case DType::q4_k:
        case DType::q5_k: return {0, 2};
        case DType::q2_k: return {80, 82};
        case DType::q3_k: return {108};
        case DType::q6_k: return {208};
        case DType::tq1_0: return {52};
        case DType::tq2_0: return {64};
        case DType::iq1_m:
        case DType::mxfp4:
        case DType::nvfp4: return {};
        default: return {0};
    }
}

namespace {

using Block = std::span<std::byte>;

void put_u16(Block block, int at, std::uint32_t value) {
    block[static_cast<std::size_t>(at)] = static_cast<std::byte>(value & 255);
    block[static_cast<std::size_t>(at) + 1] = static_cast<std::byte>(value >> 8 & 255);
}

/// Writes f16 bits as the scale of a block; IQ1_M keeps them in four top nibbles.
void put_scale(Block block, DType type, std::uint32_t f16_bits) {
    if (type == DType::iq1_m) {
        for (std::size_t w = 0; w < 4; ++w) {
            std::byte& top = block[48 + 2 * w + 1];
            top = (top & std::byte{15}) | static_cast<std::byte>((f16_bits >> 4 * w & 15) << 4);
        }
    } else if (const int at = scale_offsets(type).d; at >= 0) {
        put_u16(block, at, f16_bits);
    }
}

template <class T>
T one_of(Random& random, std::initializer_list<T> values) {
    return values.begin()[random.below(values.size())];
}

/// A scale of ordinary size, either sign: the values of a row stay within a few units.
void put_sane_scales(Block block, DType type, Random& random) {
    put_scale(block, type, f32_to_f16(random.uniform() * 0.01f));
    if (const int at = scale_offsets(type).min; at >= 0) put_u16(block, at, f32_to_f16(random.uniform() * 0.01f));
    if (type == DType::mxfp4) block[0] = static_cast<std::byte>(118 + random.below(6));
    if (type == DType::nvfp4)
        for (std::size_t s = 0; s < 4; ++s) block[s] = static_cast<std::byte>(random.below(0x30));
}

void put_extreme(Block block, DType type, Random& random) {
    if (random.below(2) == 0)  // codes and sub-block scales at an end of their range
        std::fill(block.begin(), block.end(), static_cast<std::byte>(one_of(random, {0x00, 0xFF, 0x80, 0x7F})));
    put_sane_scales(block, type, random);
    const auto scale = [&random] {  // zero and −0, smallest and largest subnormals, largest numbers
        return one_of<std::uint32_t>(random, {0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x7BFF, 0xFBFF});
    };
    if (random.below(2) == 0) put_scale(block, type, scale());
    if (const int at = scale_offsets(type).min; at >= 0 && random.below(2) == 0) put_u16(block, at, scale());
    if (type == DType::mxfp4) block[0] = static_cast<std::byte>(one_of(random, {0, 1, 2, 3, 120, 254, 255}));
    if (type == DType::nvfp4)
        block[random.below(4)] = static_cast<std::byte>(one_of(random, {0, 1, 7, 8, 0x7E, 0x7F, 0x80, 0xFF}));
}

void put_non_finite(Block block, DType type, Random& random) {
    const auto scale = one_of<std::uint32_t>(random, {0x7C00, 0xFC00, 0x7E00, 0xFE01});
    const int min = scale_offsets(type).min;
    if (min >= 0 && random.below(2) == 0) put_u16(block, min, scale);
    else put_scale(block, type, scale);
}

void put_float(std::byte* at, DType type, float value) {
    const std::uint16_t half = type == DType::f16 ? f32_to_f16(value) : f32_to_bf16(value);
    if (type == DType::f32) std::memcpy(at, &value, 4);
    else std::memcpy(at, &half, 2);
}

}  // namespace

std::uint64_t Random::bits() noexcept {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

float Random::uniform() noexcept { return static_cast<float>(static_cast<std::int64_t>(bits()) >> 40) * 0x1p-23f; }

float Random::normal() noexcept {
    float sum = 0;
    for (int i = 0; i < 12; ++i) sum += uniform();
    return sum * 0.5f;
}

std::vector<std::byte> random_weights(DType type, std::int64_t k, std::int64_t rows, std::uint64_t seed,
                                      Extremes extremes) {
    const DTypeInfo* info = find_dtype(type);
    if (info == nullptr || info->activation == DType::none || k % info->block_elems != 0)
        throw std::invalid_argument("random_weights: no weights of this type and row length");
    const auto row_size = static_cast<std::size_t>(row_bytes(type, k));
    std::vector<std::byte> data(row_size * static_cast<std::size_t>(rows));
    if (is_float(type)) {
        const auto values = random_floats(k * rows, seed, extremes);
        const std::size_t size = static_cast<std::size_t>(info->block_bytes);
        for (std::size_t i = 0; i < values.size(); ++i) put_float(data.data() + i * size, type, values[i]);
        return data;
    }

    Random random(seed);
    const auto block_bytes = static_cast<std::size_t>(info->block_bytes), n_blocks = row_size / block_bytes;
    for (std::byte& b : data) b = static_cast<std::byte>(random.below(256));
    for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
        const bool spoilt = extremes == Extremes::non_finite && random.below(8) == 0;
        const std::size_t spoilt_block = random.below(n_blocks);
        for (std::size_t b = 0; b < n_blocks; ++b) {
            const Block block(data.data() + r * row_size + b * block_bytes, block_bytes);
            if (extremes != Extremes::none && random.below(2) == 0) put_extreme(block, type, random);
            else put_sane_scales(block, type, random);
            if (spoilt && b == spoilt_block) put_non_finite(block, type, random);
        }
    }
    return data;
}

std::vector<float> random_floats(std::int64_t n, std::uint64_t seed, Extremes extremes) {
    Random random(seed ^ 0x5DEECE66Du);
    std::vector<float> x(static_cast<std::size_t>(n));
    for (float& value : x) value = random.normal();
    if (extremes == Extremes::none) return x;
    for (std::size_t first = 0; first < x.size(); first += 32) {
        const std::span<float> run(x.data() + first, std::min<std::size_t>(32, x.size() - first));
        switch (random.below(8)) {
            case 0: std::fill(run.begin(), run.end(), 0.0f); break;
            case 1: std::fill(run.begin(), run.end(), -0.0f); break;
            case 2:
                for (float& value : run) value *= 1e-39f;
                break;
            case 3:
                for (float& value : run) value *= 1e-20f;
                break;
            case 4:
                for (float& value : run) value *= 1e15f;
                break;
            case 5: run[random.below(run.size())] = 1000.0f; break;    // an outlier channel
            case 6: std::fill(run.begin(), run.end(), run[0]); break;  // all codes ±127
            default: break;
        }
    }
    if (extremes == Extremes::non_finite)
        for (std::size_t first = 0; first < x.size(); first += 256) {
            if (random.below(16) != 0) continue;
            constexpr float kInf = std::numeric_limits<float>::infinity();
            constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
            x[first + random.below(std::min<std::size_t>(256, x.size() - first))] = one_of(random, {kInf, -kInf, kNan});
        }
    return x;
}

std::vector<std::byte> random_activations(DType type, std::int64_t k, std::int64_t rows, std::uint64_t seed,
                                          Extremes extremes) {
    const auto values = random_floats(k * rows, seed, extremes);
    const auto size = static_cast<std::size_t>(row_bytes(type, k));
    std::vector<std::byte> data(size * static_cast<std::size_t>(rows));
    for (std::int64_t r = 0; r < rows; ++r) {
        std::byte* row = data.data() + static_cast<std::size_t>(r) * size;
        kernels::quantize_activation<kernels::reference>(type, values.data() + r * k, k, row);
    }
    return data;
}

}  // namespace tinfer::test
