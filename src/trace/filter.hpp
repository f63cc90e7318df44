// SPDX-License-Identifier: MIT
// Which runs and steps an EventFilter lets through.
#pragma once

#include <string_view>
#include <vector>

#include "tinfer/trace.hpp"

namespace tinfer::trace {

/// `*` stands for any text, `?` for any byte.
[[nodiscard]] bool glob_matches(std::string_view pattern, std::string_view text) noexcept;
[[nodiscard]] bool step_passes_filter(const EventFilter& filter, const StepView& step);
[[nodiscard]] bool run_passes_filter(const EventFilter& filter, const RunInfo& run);
/// A bit for each step of the run's plan.
void compile_filter(const EventFilter& filter, const RunInfo& run, std::vector<bool>& passes);

}  // namespace tinfer::trace
