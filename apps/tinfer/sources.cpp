// SPDX-License-Identifier: MIT
#include "sources.hpp"

#include <algorithm>
#include <cstdlib>
#include <set>

namespace tinfer::app {

namespace {

/// Options that exclude each other, in whatever command has more than one of them.
struct Exclusion {
    std::vector<std::string_view> names;
    std::string_view harmless = "";  ///< with this value one excludes nothing
    bool one_way = false;            ///< the first excludes the others, which do not exclude it
};

const std::vector<Exclusion>& exclusions() {
    static const std::vector<Exclusion> kRows{
        {{"prompt", "file", "tokens"}},
        {{"grammar", "grammar-file", "json-schema", "tool-choice"}},
        {{"FILE", "json-schema"}},
        {{"json", "csv"}},
        {{"placement", "csv"}},
        {{"at", "compare"}},
        {{"context-shift", "self-extend"}},
        {{"explain", "speculate"}, "off"},
        {{"speculate", "draft"}, "draft", true},
        {{"prompt-cache-ro", "prompt-cache-all"}},
        {{"pooled", "embeddings"}},
        {{"pooled", "last"}},
        {{"kl", "ctx"}, "", true},
        {{"receipt", "lora"}},
        {{"receipt", "control-vector"}},
        {{"receipt", "context-shift"}},
        {{"receipt", "self-extend"}},
        {{"receipt", "prompt-cache"}},
    };
    return kRows;
}

/// Options that mean nothing without another one, and are overruled with it.
constexpr std::pair<std::string_view, std::string_view> kNeeds[]{{"html", "compare"},
                                                                 {"base", "compare"},
                                                                 {"token", "at"},
                                                                 {"keep", "context-shift"},
                                                                 {"control-vector-layers", "control-vector"},
                                                                 {"prompt-cache-ro", "prompt-cache"},
                                                                 {"prompt-cache-all", "prompt-cache"}};

bool has_name(const CLI::Option& option, std::string_view name) {
    return option.check_lname(std::string(name)) || option.get_name(true) == name;
}

std::string last_value(const CLI::Option& option) {
    return option.results().empty() ? std::string() : option.results().back();
}

void for_each_option(const CLI::App& app, const std::function<void(const CLI::Option&)>& see) {
    for (const CLI::Option* option : app.get_options()) see(*option);
    for (const CLI::App* command : app.get_subcommands()) for_each_option(*command, see);
}

}  // namespace

// The parser itself says what is given: it alone knows what is an option, a value, or an argument by its place.
void Sources::read_command_line(CLI::App& app, const std::vector<std::string>& args) {
    std::string file;  // which is not opened: it may be a pipe, which can be read once
    CLI::Option* const configuration = app.add_option("--config", file);
    try {
        app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
    } catch (const CLI::Error&) {  // comes again, with all that counts
    }
    names_configuration_ = configuration->count() > 0;
    app.remove_option(configuration);
    for_each_option(app, [&](const CLI::Option& option) {
        if (option.count() > 0) given_.emplace(&option, last_value(option));
    });
}

// CLI11 looks for the file before it looks into the environment.
std::vector<std::string> Sources::with_configuration(std::vector<std::string> args) const {
    const char* const file = names_configuration_ ? nullptr : std::getenv("TINFER_CONFIG");
    if (file != nullptr && *file != '\0') args.insert(args.begin(), "--config=" + std::string(file));
    return args;
}

const CLI::Option* Sources::find(const CLI::App& command, std::string_view name) const {
    const auto options = command.get_options();
    const auto found = std::ranges::find_if(options, [&](const CLI::Option* one) { return has_name(*one, name); });
    return found == options.end() ? nullptr : *found;
}

bool Sources::is_overruled(const CLI::App& command, const CLI::Option& option) const {
    if (is_given(&option)) return false;
    const auto excludes = [&](const Exclusion& row, std::string_view name, const auto& source) {
        const auto set = source.find(find(command, name));
        return set != source.end() && set->second != "false" && (row.harmless.empty() || set->second != row.harmless);
    };
    for (const Exclusion& row : exclusions()) {
        const auto own = std::ranges::find_if(row.names, [&](std::string_view name) { return has_name(option, name); });
        if (own == row.names.end() || (row.one_way && own == row.names.begin())) continue;
        for (auto other = row.names.begin(); other != row.names.end(); ++other) {
            if (other == own || (row.one_way && other != row.names.begin())) continue;
            if (excludes(row, *other, given_)) return true;
            if (!configured_.contains(&option) && excludes(row, *other, configured_)) return true;
        }
    }
    return std::ranges::any_of(kNeeds, [&](const auto& pair) {
        const CLI::Option* const needed = has_name(option, pair.first) ? find(command, pair.second) : nullptr;
        return needed != nullptr && is_overruled(command, *needed);
    });
}

void Sources::add_configured(const CLI::Option& option, std::string value) {
    configured_.insert_or_assign(&option, std::move(value));
}

void Sources::bind_environment(CLI::App& app, const std::vector<std::string>& args) {
    const auto bind = [](CLI::App& command) {
        for (CLI::Option* option : command.get_options()) {
            if (option->get_lnames().empty()) continue;
            std::string name = "TINFER_" + option->get_lnames()[0];
            static const std::set<std::string> kNotThese{"TINFER_help", "TINFER_help-all", "TINFER_version",
                                                         "TINFER_config"};
            if (kNotThese.contains(name)) continue;
            std::transform(name.begin(), name.end(), name.begin(),
                           [](unsigned char c) { return c == '-' ? '_' : char(std::toupper(c)); });
            option->envname(name);
        }
    };
    bind(app);
    CLI::App* place = &app;  // the command named so far
    for (const auto& arg : args)
        for (CLI::App* command : place->get_subcommands([](CLI::App*) { return true; }))
            if (command->get_name() == arg) {
                place = command;
                break;
            }
    if (place == &app) return;
    bind(*place);
    unbind_overruled(*place);
}

void Sources::unbind_overruled(CLI::App& command) const {
    for (CLI::Option* option : command.get_options())
        if (!option->get_envname().empty() && is_overruled(command, *option)) option->envname("");
}

std::string Sources::name_in(const CLI::App& app, std::string message) const {
    if (!message.starts_with("--")) return message;
    const std::size_t end = std::min(message.find_first_of(": =,", 2), message.size());
    const std::string name = message.substr(0, end);
    const CLI::App* place = &app;
    while (!place->get_subcommands().empty()) place = place->get_subcommands()[0];
    const CLI::Option* option = place->get_option_no_throw(name);
    if (option == nullptr) option = app.get_option_no_throw(name);
    if (option == nullptr || is_given(option)) return message;
    const std::string variable = option->get_envname();
    const char* const value = variable.empty() ? nullptr : std::getenv(variable.c_str());
    const auto& results = option->results();
    if (value != nullptr && *value != '\0' && (results.empty() || results.back() == value))
        return variable + message.substr(end);
    if (option->count() > 0 && app.get_config_ptr()->count() > 0)
        return app.get_config_ptr()->as<std::string>() + ": " + name.substr(2) + message.substr(end);
    return message;
}

}  // namespace tinfer::app
