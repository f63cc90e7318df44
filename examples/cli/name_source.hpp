// SPDX-License-Identifier: MIT
// Errors of options name the source of the wrong value: command line, environment variable or configuration file.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace cli {

/// Replaces the option name at the begin of a message by the source of its value, if that is an environment variable or
/// a key of the configuration file.
[[nodiscard]] std::string name_source(const CLI::App& app, const std::vector<std::string>& args, std::string message);

}  // namespace cli
