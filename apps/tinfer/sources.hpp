// SPDX-License-Identifier: MIT
// Where options come from: what stands on the command line counts before a configuration file, and that before the
// environment; also where two options exclude each other.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace tinfer::app {

class Sources {
public:
    /// Reads what the command line alone says, whether it is right or not. Call it before parsing, with no variables of
    /// the environment bound and no configuration file set.
    void read_command_line(CLI::App& app, const std::vector<std::string>& args);
    /// The arguments to parse: with the configuration file that TINFER_CONFIG names, if they name none.
    [[nodiscard]] std::vector<std::string> with_configuration(std::vector<std::string> args) const;

    /// An option that something of a source before its own excludes. Its value of a later source does not count.
    [[nodiscard]] bool is_overruled(const CLI::App& command, const CLI::Option& option) const;
    /// From here on a value of the configuration file counts before the environment.
    void add_configured(const CLI::Option& option, std::string value);

    /// Binds the options of the chosen command to environment variables TINFER_<OPTION>. Only of that command, because
    /// an option's type may differ between commands; and none that is overruled.
    void bind_environment(CLI::App& app, const std::vector<std::string>& args);
    void unbind_overruled(CLI::App& command) const;

    /// Where the option that begins an error message was set by an environment variable or a configuration file, names
    /// that instead.
    [[nodiscard]] std::string name_in(const CLI::App& app, std::string message) const;

private:
    [[nodiscard]] bool is_given(const CLI::Option* option) const { return given_.contains(option); }
    [[nodiscard]] const CLI::Option* find(const CLI::App& command, std::string_view name) const;

    std::map<const CLI::Option*, std::string> given_, configured_;  // with their last value
    bool names_configuration_ = false;
};

}  // namespace tinfer::app
