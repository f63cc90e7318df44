// SPDX-License-Identifier: MIT
#include "quantize_steps.hpp"

#include "common.hpp"

namespace tinfer::app {

std::uint64_t bytes_as(const tinfer::TensorInfo& tensor, tinfer::DType type) {
    return tinfer::quantized_bytes(type, tensor.ne[0]) *
           static_cast<std::uint64_t>(tensor.ne[1] * tensor.ne[2] * tensor.ne[3]);
}

bool is_float_type(tinfer::DType type) noexcept {
    return type == tinfer::DType::f32 || type == tinfer::DType::f16 || type == tinfer::DType::bf16;
}

std::vector<Step> steps_of(const std::string& path, const tinfer::ModelFile& file, std::span<const tinfer::DType> types,
                           bool requantizes) {
    std::vector<Step> steps;
    for (const auto& tensor : file.tensors()) {
        const Step step{&tensor, types[tensor.id], 0};
        if (!step.is_copy() && !is_float_type(tensor.type) && !requantizes)
            throw tinfer::Error(tinfer::ErrorCode::bad_parameter,
                                path + ": tensor '" + std::string(tensor.name) + "' is " +
                                    std::string(tinfer::to_string(tensor.type)) +
                                    " already: quantizing again adds to its loss (see --allow-requantize)");
        steps.push_back(step);
        steps.back().bytes = step.is_copy() ? tensor.bytes : bytes_as(tensor, step.type);
    }
    return steps;
}

StepSizes sizes_of(std::span<const Step> steps) {
    StepSizes sizes;
    for (const Step& step : steps) {
        sizes.source += step.from->bytes;
        sizes.target += step.bytes;
        const auto& ne = step.from->ne;
        sizes.elements += static_cast<std::uint64_t>(ne[0] * ne[1] * ne[2] * ne[3]);
    }
    return sizes;
}

void declare_steps(const tinfer::ModelFile& file, std::span<const Step> steps, std::uint32_t file_type_number,
                   tinfer::ModelWriter& writer) {
    writer.copy_metadata(file);
    writer.set("general.quantization_version", std::uint32_t{2});
    writer.set("general.file_type", file_type_number);
    for (const Step& step : steps) writer.add_tensor(*step.from, step.type);
}

void write_steps(const tinfer::ModelFile& file, std::span<const Step> steps, const TensorEncoder& encoder,
                 tinfer::ModelWriter& writer) {
    const StepSizes sizes = sizes_of(steps);
    Progress progress("MiB");
    std::uint64_t done = 0;
    const auto advance = [&](std::uint64_t bytes) {
        done += bytes;
        progress.update(static_cast<std::size_t>(done >> 20), static_cast<std::size_t>(sizes.source >> 20));
    };
    for (std::size_t i = 0; i < steps.size(); ++i) {
        if (interrupted()) throw tinfer::Error(tinfer::ErrorCode::cancelled, "quantizing was interrupted");
        encoder.encode(
            file, *steps[i].from, steps[i].type, [&](std::span<const std::byte> bytes) { writer.write(i, bytes); },
            advance);
    }
}

}  // namespace tinfer::app
