// SPDX-License-Identifier: MIT
// Makes the plan of a conversion from a folder: everything but the bytes of tensors is known, and checked, after it.
#pragma once

#include <filesystem>
#include <string>

#include "convert/plan.hpp"

namespace tinfer::convert {

struct PlanOptions {
    std::string name;          ///< general.name; empty: that of the folder
    std::string pretokenizer;  ///< the name to use where the expressions are not known
};

/// Metadata has no general.file_type yet, and all tensors are f32: types are chosen later. Throws tinfer::Error, naming
/// file and key or tensor.
[[nodiscard]] Plan make_plan(const std::filesystem::path& folder, const WeightFiles& files, const PlanOptions& options);

}  // namespace tinfer::convert
