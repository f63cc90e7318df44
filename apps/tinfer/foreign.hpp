// SPDX-License-Identifier: MIT
// Options that people's scripts have from other programs, and what to write here in their place.
#pragma once

#include <string>
#include <string_view>

namespace tinfer::app {

/// "-ngl: tinfer computes on CPUs, leave it out"; "" for a word that is none of them.
[[nodiscard]] std::string foreign_option(std::string_view word);

}  // namespace tinfer::app
