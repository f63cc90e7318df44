// SPDX-License-Identifier: MIT
// What a converted file will hold, known before its first byte is written: metadata, and for each tensor where its
// values come from and what changes on the way.
#pragma once

#include <tinfer/tensor.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "convert/safetensors.hpp"

namespace tinfer::convert {

/// A value of metadata; the C++ type is the type in the file.
using Value = std::variant<std::uint32_t, std::int32_t, float, bool, std::string, std::vector<std::string>,
                           std::vector<float>, std::vector<std::int32_t>, std::vector<std::uint8_t>, std::vector<bool>>;
using Metadata = std::vector<std::pair<std::string, Value>>;

/// What is done with each value, in f32 before it is rounded; `negative_exp` in f64.
enum class Arithmetic : std::uint8_t { none, plus_one, times, negative_exp };

/// Units of one source, in the order in which they are written: unit i of `count[0] · count[1] · count[2]`, the last
/// index fastest, is unit offset + Σ index · stride of the source.
struct Gather {
    const StoredTensor* source = nullptr;
    std::uint64_t offset = 0;
    std::array<std::uint64_t, 3> count{1, 1, 1}, stride{0, 0, 0};

    [[nodiscard]] std::uint64_t units() const noexcept { return count[0] * count[1] * count[2]; }
    /// Place of unit i in the source.
    [[nodiscard]] std::uint64_t place(std::uint64_t i) const noexcept {
        const std::uint64_t last = i % count[2], rest = i / count[2];
        return offset + rest / count[1] * stride[0] + rest % count[1] * stride[1] + last * stride[2];
    }
};

struct TargetTensor {
    std::string name{};
    std::vector<std::int64_t> ne{};  ///< GGUF order, the contiguous dimension first
    DType type = DType::f32;
    std::uint64_t unit = 1;       ///< values that stay together: a row, or one
    std::vector<Gather> parts{};  ///< of a transposed tensor one, whose source is [columns, rows]
    bool transposed = false;      ///< row r is column r of the source
    Arithmetic arithmetic = Arithmetic::none;
    float factor = 1.0f;          ///< of Arithmetic::times
    std::vector<float> values{};  ///< of a tensor that is computed and has no source
    std::string how{};            ///< what changes, for people

    [[nodiscard]] std::uint64_t elements() const noexcept {
        std::uint64_t n = 1;
        for (const std::int64_t extent : ne) n *= static_cast<std::uint64_t>(extent);
        return n;
    }
};

struct Plan {
    std::string architecture{};
    Metadata metadata{};
    std::vector<TargetTensor> tensors{};
    std::vector<std::string> notes{};  ///< what is left out or assumed, one sentence each
};

}  // namespace tinfer::convert
