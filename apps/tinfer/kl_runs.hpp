// SPDX-License-Identifier: MIT
// The divergence of models from one base over the windows of one text, window by window: rows of one window alone are
// kept, however long the text and however many the models.
#pragma once

#include <tinfer/tinfer.hpp>

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "kl_report.hpp"
#include "windows.hpp"

namespace tinfer::app {

using LoadModel = std::function<tinfer::Model()>;
using MakeContextOptions = std::function<tinfer::ContextOptions(const tinfer::Model&)>;

/// One report for each of the `others`, which are loaded for each window and let go (files stay mapped by the system).
/// nullopt if interrupted. Throws bad_parameter where the vocabularies differ in size, and non_finite.
[[nodiscard]] std::optional<std::vector<KlReport>> compare_with_base(const TextWindows& windows,
                                                                     const tinfer::Model& base,
                                                                     std::span<const LoadModel> others,
                                                                     const MakeContextOptions& options);

}  // namespace tinfer::app
