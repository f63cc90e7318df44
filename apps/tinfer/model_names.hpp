// SPDX-License-Identifier: MIT
// Models by name on the command line: wherever a model's file is expected, `hf:OWNER/REPO:QUANT` and `ollama:NAME` are
// taken, too. What stands for them is found, or downloaded, in one place before the command runs.
#pragma once

#include <string>
#include <vector>

#include "common.hpp"

#if defined(TINFER_HUB)
#    include "hub/hub.hpp"
#endif

namespace tinfer::app {

/// Says that the option's value is a model. resolve_models() replaces a name in `value` by the path of its file, or of
/// its first part, which lies beside the others. Both live as long as the program runs.
CLI::Option* takes_model(CLI::Option* option, std::string& value);
/// The same for several: a name is replaced by the paths of all its parts.
CLI::Option* takes_model(CLI::Option* option, std::vector<std::string>& values);
/// Replaces the names in all options that were given. Throws Error, or cancelled after Ctrl-C.
void resolve_models();
/// The path of a name, or of its first part: empty if it is not in the cache. What is no name, as it is.
[[nodiscard]] std::string cached_path(const std::string& text);
/// The same, downloaded if it is not there. Throws as resolve_models() does.
[[nodiscard]] std::string resolved_path(const std::string& text);

struct CachedName {
    std::string name, path;  ///< "OWNER/REPO:QUANT", and its file or the first part
};
/// The whole models of the hub's cache, in their newest snapshots, by name. Throws not_available in a build without
/// models by name.
[[nodiscard]] std::vector<CachedName> cached_names();

/// --hub-cache and --offline, of every command.
void add_hub_options(CLI::App& app);
/// The commands of the cache: pull, list, rm. None in a build that cannot download.
[[nodiscard]] std::vector<Action (*)(CLI::App&)> hub_commands();

#if defined(TINFER_HUB)
/// With Ctrl-C, and lines on stderr; without progress.
[[nodiscard]] hub::Settings hub_settings();
#endif

}  // namespace tinfer::app
