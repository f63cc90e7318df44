// SPDX-License-Identifier: MIT
// The commands of the cache of models: pull, list, rm. Only in builds that can download.
#pragma once

#include "common.hpp"

namespace tinfer::app {

Action add_pull(CLI::App& app);
Action add_list(CLI::App& app);
Action add_rm(CLI::App& app);

}  // namespace tinfer::app
