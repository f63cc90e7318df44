// SPDX-License-Identifier: MIT
#pragma once

#include "common.hpp"

namespace tinfer_python {

/// Bytes by class, with "context_total" and "total".
nb::dict dict_of(const tinfer::MemoryPlan& plan);

}  // namespace tinfer_python
