// SPDX-License-Identifier: MIT
// What the environment says about the cache, the hub and the way to it: the variables that the hub's own clients read.
#include <algorithm>
#include <array>
#include <cstdlib>

#include "cache.hpp"

namespace tinfer::hub {

namespace fs = std::filesystem;

namespace {

/// The first of these variables that is set to something.
std::string variable(std::initializer_list<const char*> names) {
    for (const char* name : names)
        if (const char* value = std::getenv(name); value != nullptr && *value != '\0') return value;
    return {};
}

fs::path home() { return variable({"HOME"}); }

fs::path path_of(const std::string& text) {
    if (text == "~") return home();
    return text.starts_with("~/") ? home() / text.substr(2) : fs::path(text);
}

/// The folder of the hub's clients, in which the cache and the token are.
fs::path hub_home() {
    if (const auto given = variable({"HF_HOME"}); !given.empty()) return path_of(given);
    if (const auto given = variable({"XDG_CACHE_HOME"}); !given.empty()) return path_of(given) / "huggingface";
    return home() / ".cache" / "huggingface";
}

fs::path cache_folder() {
    const auto given = variable({"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"});
    return given.empty() ? hub_home() / "hub" : path_of(given);
}

std::string trimmed(std::string text) {
    constexpr const char* kSpace = " \t\r\n";
    text.erase(text.find_last_not_of(kSpace) + 1);
    return text.erase(0, std::min(text.find_first_not_of(kSpace), text.size()));
}

std::string token() {
    if (auto given = trimmed(variable({"HF_TOKEN"})); !given.empty()) return given;
    const auto file = variable({"HF_TOKEN_PATH"});
    return trimmed(read_small(file.empty() ? hub_home() / "token" : path_of(file), 4096).value_or(""));
}

bool is_on(const std::string& value) {
    constexpr std::array<std::string_view, 4> kWords{"1", "true", "yes", "on"};
    return std::ranges::find(kWords, lower(value)) != kWords.end();
}

}  // namespace

Settings settings_from_environment(const fs::path& cache) {
    Settings settings;
    settings.cache = cache.empty() ? cache_folder() : cache;
    const auto store = variable({"OLLAMA_MODELS"});
    settings.ollama_models = store.empty() ? home() / ".ollama" / "models" : path_of(store);
    if (auto endpoint = variable({"HF_ENDPOINT"}); !endpoint.empty()) settings.endpoint = std::move(endpoint);
    while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
    settings.token = token();
    settings.offline = is_on(variable({"HF_HUB_OFFLINE"}));
    settings.proxies = {variable({"https_proxy", "HTTPS_PROXY"}), variable({"http_proxy", "HTTP_PROXY"}),
                        variable({"all_proxy", "ALL_PROXY"}), variable({"no_proxy", "NO_PROXY"})};
    return settings;
}

}  // namespace tinfer::hub
