// SPDX-License-Identifier: MIT
// A run as other commands use it: the options and output of `tinfer run`, with something done around the decodes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common.hpp"

namespace cli {

struct RunHooks {
    std::string name, description, footer;
    std::vector<std::string> rare_groups;  ///< options that only --help-all shows here
    std::function<void(CLI::App&)> add_options;
    std::function<void(const ModelArgs&)> check;                        ///< before anything is loaded
    std::function<void(const tinfer::Model&, tinfer::Context&)> start;  ///< before the first decode
    std::function<void()> finish;                                       ///< behind the last decode
    std::int64_t repeat = 1;                                            ///< how often the same is generated
};

/// A sub-command with all options of `tinfer run`.
Action add_run_command(CLI::App& app, std::shared_ptr<RunHooks> hooks);

}  // namespace cli
