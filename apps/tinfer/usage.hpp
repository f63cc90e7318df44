// SPDX-License-Identifier: MIT
// The command-line interface around CLI11: help that fits a screen, "did you mean", configuration files, environment
// variables, and usage errors.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "sources.hpp"

namespace tinfer::app {

/// Prefix of option groups that only --help-all shows: "rare:Model" is shown under "Model".
inline constexpr std::string_view kRare = "rare:";
[[nodiscard]] inline std::string rare(std::string_view title) { return std::string(kRare) + std::string(title); }

/// The word of `known` that `word` is probably a misspelling of; else empty.
[[nodiscard]] std::string closest(std::string_view word, const std::vector<std::string>& known);

/// Sets up help, defaults in the help, and the configuration file; call it after all sub-commands were added. `sources`
/// outlives the parsing.
void set_up_usage(CLI::App& app, Sources& sources);
/// The full name of the chosen command, such as "tinfer trace show".
[[nodiscard]] std::string chosen_command(const CLI::App& app);
/// Whether help was requested for an unknown command.
[[nodiscard]] bool asks_for_unknown_command(const CLI::App& app);
/// A one-line message for a usage error, with a suggestion if there is one.
[[nodiscard]] std::string explain(const CLI::App& app, const CLI::ParseError& error);
/// What to write in place of an option of another program, where one is among the words that were given and the chosen
/// command has none of that name; else "".
[[nodiscard]] std::string foreign_text(const CLI::App& app, std::span<const std::string> given);

}  // namespace tinfer::app
