// SPDX-License-Identifier: MIT
#pragma once

#include "common.hpp"

namespace cli {

Action add_score(CLI::App& app);

}  // namespace cli
