// SPDX-License-Identifier: MIT
// Values of a tensor of the plan, in pieces: read from where they lie in the checkpoint, put in order, made f32 and
// changed as the plan says.
#pragma once

#include <cstdint>
#include <span>

#include "convert/plan.hpp"

namespace tinfer::convert {

/// Units `first` … of a tensor, as many as `out` holds: whole units of `tensor.unit` values. Any number of threads.
void read_values(const WeightFiles& files, const TargetTensor& tensor, std::uint64_t first, std::span<float> out);

}  // namespace tinfer::convert
