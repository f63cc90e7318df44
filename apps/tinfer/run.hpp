// SPDX-License-Identifier: MIT
// `tinfer run` for other commands: its options and output, with hooks around the decodes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common.hpp"

namespace tinfer::app {

struct RunHooks {
    std::string name, description, footer;
    std::vector<std::string> rare_groups;  ///< option groups shown only by --help-all
    std::function<void(CLI::App&)> add_options;
    std::function<void(const ModelArgs&)> check;                        ///< before anything is loaded
    std::function<void(const tinfer::Model&, tinfer::Context&)> start;  ///< before the first decode
    std::function<void()> finish;                                       ///< after the last decode
    std::int64_t repeat = 1;                                            ///< how often the generation is run
};

/// A sub-command with all options of `tinfer run`.
Action add_run_command(CLI::App& app, std::shared_ptr<RunHooks> hooks);

}  // namespace tinfer::app
