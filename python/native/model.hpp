// SPDX-License-Identifier: MIT
#pragma once

#include "common.hpp"

namespace tinfer_python {

/// Bytes by class, with "context_total" and "total".
nb::dict dict_of(const tinfer::MemoryPlan& plan);
/// (first, last); None: all layers. Raises TypeError.
tinfer::ModelPart layers_of(nb::handle layers);

}  // namespace tinfer_python
