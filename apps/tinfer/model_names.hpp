// SPDX-License-Identifier: MIT
// Models by name on the command line: wherever a model's file is expected, `hf:OWNER/REPO:QUANT` and `ollama:NAME` are
// taken, too. What stands for them is found, or downloaded, in one place before the command runs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
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

/// What a name of a model of the hub is without what may stand in front ("hf:", "hf.co/"); empty if it is none.
[[nodiscard]] std::string plain_hub_name(std::string_view text);
/// The same where it has to be one. Throws bad_parameter, and not_available for one of Ollama's registry.
[[nodiscard]] std::string wanted_hub_name(std::string_view text);
/// Throws not_available in a build that cannot download; `what` wants to.
void require_downloads(const std::string& what);

/// How far a file of a model is that is being fetched.
struct FetchStep {
    std::string_view hash;  ///< 64 digits (SHA-256) or 40 (git's SHA-1)
    std::uint64_t size = 0, completed = 0;
    bool is_checked = false;  ///< all bytes are here, and their hash is computed
};
/// Fetches what is missing of a model, as `tinfer pull` does. `stops`: true ends it, as Ctrl-C does. Throws Error with
/// a line without folders of this machine.
[[nodiscard]] CachedName fetched_model(const std::string& name, const std::function<void(const FetchStep&)>& report,
                                       const std::function<bool()>& stops);

/// --hub-cache and --offline, of every command.
void add_hub_options(CLI::App& app);
/// The commands of the cache: pull, list, rm. None in a build that cannot download.
[[nodiscard]] std::vector<Action (*)(CLI::App&)> hub_commands();

#if defined(TINFER_HUB)
/// With Ctrl-C, and lines on stderr; without progress.
[[nodiscard]] hub::Settings hub_settings();
#endif

}  // namespace tinfer::app
