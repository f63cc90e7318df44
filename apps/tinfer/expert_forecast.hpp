// SPDX-License-Identifier: MIT
// What a profile of experts says of a run to come: how many of the choices its cache will find.
#pragma once

#include <tinfer/placement.hpp>

#include <cstddef>
#include <span>

namespace tinfer::app {

/// Share of the choices that are found by a cache of `share_kept` of the experts that keeps as the pager does, while
/// tokens of `n_used` experts in each layer choose as often, and as much like the token before, as the profile says.
/// What few picks say beyond chance counts, no more: of experts that are all alike some have been picked more often.
/// The same profile gives the same share. share_kept where nothing was picked.
[[nodiscard]] double expected_hit_rate(std::span<const tinfer::ExpertPicks> layers, std::size_t n_used,
                                       double share_kept);

}  // namespace tinfer::app
