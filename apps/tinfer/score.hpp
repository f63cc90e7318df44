// SPDX-License-Identifier: MIT
#pragma once

#include "common.hpp"

namespace tinfer::app {

Action add_score(CLI::App& app);

}  // namespace tinfer::app
