// SPDX-License-Identifier: MIT
// How the program is spoken to: help that fits a screen, "did you mean", configuration files, the environment, and the
// sentences for what was typed wrongly.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

namespace cli {

/// Options in a group of this name and a title are shown by --help-all only: "rare:Model" stands under "Model".
inline constexpr std::string_view kRare = "rare:";
[[nodiscard]] inline std::string rare(std::string_view title) { return std::string(kRare) + std::string(title); }

/// The one of `known` that was probably meant by `word`, or an empty text.
[[nodiscard]] std::string closest(std::string_view word, const std::vector<std::string>& known);

/// Gives the program its help, its configuration file and its defaults in the help; call it when all sub-commands are
/// there.
void set_up_usage(CLI::App& app);
/// Lets every option of the command that the arguments name be read from the environment as TINFER_<OPTION>: the same
/// name is a text in one command and a number in another.
void bind_environment(CLI::App& app, const std::vector<std::string>& args);
/// "tinfer trace show": what the arguments name.
[[nodiscard]] std::string chosen_command(const CLI::App& app);
/// Whether help is asked for of a command that is not there.
[[nodiscard]] bool asks_for_unknown_command(const CLI::App& app);
/// One line that says what was wrong, and what may have been meant.
[[nodiscard]] std::string explain(const CLI::App& app, const CLI::ParseError& error);

}  // namespace cli
