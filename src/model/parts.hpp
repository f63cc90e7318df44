// SPDX-License-Identifier: MIT
// A part of a model (ModelOptions::layers): whether it can be cut there, and which tensors it has.
#pragma once

#include <vector>

#include "model/model.hpp"

namespace tinfer::model {

/// Sets HParams::part of a model that is bound as a whole. Throws bad_parameter where it has no such layers, and
/// unsupported_operation where layers on both sides of a cut read what only one of them has.
void choose_part(BoundModel& model, ModelPart layers);
/// By id, whether the part reads the tensor.
[[nodiscard]] std::vector<bool> tensors_of_part(const BoundModel& model);

}  // namespace tinfer::model
