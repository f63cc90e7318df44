// SPDX-License-Identifier: MIT
// What of a model stays in memory under a limit (ModelOptions::memory_limit), and what is read when it is needed. A
// token of a mixture reads few of its experts, and which is known only layer by layer: they are paged, all else stays.
// Of other models matrices that lie evenly among the others are read for every pass.
#pragma once

#include <optional>

#include "base/paging_plan.hpp"
#include "model/model.hpp"

namespace tinfer::model {

/// Nullopt where there is no limit, or everything fits. Throws limit_exceeded with both numbers where the limit is less
/// than the least that works. No tensor data is touched.
[[nodiscard]] std::optional<PagingPlan> plan_paging(const BoundModel& model, const ModelOptions& options);

/// Most tokens of a micro-batch whose experts fit together.
[[nodiscard]] std::int32_t tokens_of_slots(const BoundModel& model) noexcept;

}  // namespace tinfer::model
