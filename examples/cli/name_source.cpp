// SPDX-License-Identifier: MIT
#include "name_source.hpp"

#include <algorithm>
#include <cstdlib>

namespace cli {

std::string name_source(const CLI::App& app, const std::vector<std::string>& args, std::string message) {
    if (!message.starts_with("--")) return message;
    const std::size_t end = std::min(message.find_first_of(": =,", 2), message.size());
    const std::string name = message.substr(0, end);
    const CLI::App* place = &app;
    while (!place->get_subcommands().empty()) place = place->get_subcommands()[0];
    const CLI::Option* option = place->get_option_no_throw(name);
    if (option == nullptr) option = app.get_option_no_throw(name);
    if (option == nullptr) return message;
    for (const auto& arg : args) {
        for (const auto& known : option->get_lnames())
            if (arg == "--" + known || arg.starts_with("--" + known + "=")) return message;
        for (const auto& known : option->get_snames())
            if (arg.starts_with("-" + known)) return message;
    }
    const std::string variable = option->get_envname();
    const char* const value = variable.empty() ? nullptr : std::getenv(variable.c_str());
    const auto& given = option->results();
    if (value != nullptr && *value != '\0' && (given.empty() || given.back() == value))
        return variable + message.substr(end);
    if (option->count() > 0 && app.get_config_ptr()->count() > 0)
        return app.get_config_ptr()->as<std::string>() + ": " + name.substr(2) + message.substr(end);
    return message;
}

}  // namespace cli
