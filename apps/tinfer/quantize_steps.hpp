// SPDX-License-Identifier: MIT
// What becomes of each tensor of a file, and the file that comes of it.
#pragma once

#include <tinfer/tinfer.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "quantize_run.hpp"

namespace tinfer::app {

/// What becomes of one tensor.
struct Step {
    const tinfer::TensorInfo* from;
    tinfer::DType type;
    std::uint64_t bytes;
    [[nodiscard]] bool is_copy() const { return type == from->type; }
};

/// Of a tensor in another type.
[[nodiscard]] std::uint64_t bytes_as(const tinfer::TensorInfo& tensor, tinfer::DType type);
/// Values that no quantization has changed yet.
[[nodiscard]] bool is_float_type(tinfer::DType type) noexcept;

/// A step for each tensor of a file. Unless `requantizes`, throws bad_parameter, naming `path` and tensor, where one
/// that is quantized already would change.
[[nodiscard]] std::vector<Step> steps_of(const std::string& path, const tinfer::ModelFile& file,
                                         std::span<const tinfer::DType> types, bool requantizes);

struct StepSizes {
    std::uint64_t source = 0, target = 0, elements = 0;
    [[nodiscard]] double bpw() const { return elements == 0 ? 0 : 8.0 * double(target) / double(elements); }
};
[[nodiscard]] StepSizes sizes_of(std::span<const Step> steps);

/// The head of the file: metadata with another general.file_type, and the directory.
void declare_steps(const tinfer::ModelFile& file, std::span<const Step> steps, std::uint32_t file_type_number,
                   tinfer::ModelWriter& writer);
/// Encodes every tensor that was declared, with a progress bar. Throws what TensorEncoder::encode does.
void write_steps(const tinfer::ModelFile& file, std::span<const Step> steps, const TensorEncoder& encoder,
                 tinfer::ModelWriter& writer);

}  // namespace tinfer::app
