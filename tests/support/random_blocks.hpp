// SPDX-License-Identifier: MIT
// Random weights and activations of any type for kernel tests: ordinary ones, and edge cases. The same seed gives the
// same bytes on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tinfer/tinfer.hpp"

namespace tinfer::test {

enum class Extremes : std::uint8_t {
    none,    ///< scales of ordinary size, random codes
    finite,  ///< also: all codes largest, smallest or −128, d zero, −0, subnormal, largest, negative; dmin likewise
    non_finite,  ///< also: in about one row of eight a block whose scale is an infinity or a NaN
};

/// A deterministic stream of random numbers (splitmix64).
class Random {
public:
    explicit Random(std::uint64_t seed) noexcept : state_(seed) {}
    std::uint64_t bits() noexcept;
    std::uint64_t below(std::uint64_t n) noexcept { return bits() % n; }
    float uniform() noexcept;  ///< −1 … 1
    float normal() noexcept;   ///< about standard normal: a sum of twelve uniform numbers

private:
    std::uint64_t state_;
};

/// Offsets of the f16 scales d and dmin (or m) of a block; -1 where there is none. IQ1_M, MXFP4, NVFP4 are special.
struct ScaleOffsets {
    int d = -1, min = -1;
};
[[nodiscard]] ScaleOffsets scale_offsets(DType type) noexcept;

/// `rows` rows of k values in a block format, f32, f16 or bf16, as they lie in a file.
[[nodiscard]] std::vector<std::byte> random_weights(DType type, std::int64_t k, std::int64_t rows, std::uint64_t seed,
                                                    Extremes extremes);

/// n floats for activations; extremes: outliers, runs of zeros, subnormals and huge values, and NaN or infinity in
/// about one block of 256 in sixteen where non_finite.
[[nodiscard]] std::vector<float> random_floats(std::int64_t n, std::uint64_t seed, Extremes extremes);

/// `rows` quantized rows (x8_32 or x8_256) of such floats, one after the other at row_bytes distance.
[[nodiscard]] std::vector<std::byte> random_activations(DType type, std::int64_t k, std::int64_t rows,
                                                        std::uint64_t seed, Extremes extremes);

}  // namespace tinfer::test
