// SPDX-License-Identifier: MIT
// Errors of options name where the wrong value was read: command line, environment variable or configuration file.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace cli {

/// A message that begins with the name of an option, with the place of its value instead where that is not the command
/// line: the environment variable, or the configuration file and its key.
[[nodiscard]] std::string name_source(const CLI::App& app, const std::vector<std::string>& args, std::string message);

}  // namespace cli
