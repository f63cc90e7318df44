// SPDX-License-Identifier: MIT
#include "model_names.hpp"

#include <new>
#include <variant>

#include "download_report.hpp"
#include "hub_commands.hpp"

#if defined(TINFER_HUB)
#    include "hub/name.hpp"
#endif

namespace tinfer::app {

namespace {

struct ModelOption {
    const CLI::Option* option;
    std::variant<std::string*, std::vector<std::string>*> value;
};

std::vector<ModelOption>& model_options() {
    static std::vector<ModelOption> options;
    return options;
}

bool is_name(const std::string& text) { return text.starts_with("hf:") || text.starts_with("ollama:"); }

#if defined(TINFER_HUB)
/// What the program's own options say.
struct HubOptions {
    std::string cache;  ///< empty: as the environment says
    bool offline = false;
};

HubOptions& hub_options() {
    static HubOptions options;
    return options;
}

/// The paths of a name; nothing of what is no name.
std::vector<std::string> paths_of_name(const std::string& text) {
    if (!is_name(text)) return {};
    DownloadReport report;
    auto settings = hub_settings();
    settings.progress = [&](const hub::FileProgress& progress) { report.update(progress); };
    std::vector<std::string> out;
    for (const auto& path : hub::resolve(text, settings).paths) out.push_back(path.string());
    return out;
}

std::string cached_path_of_name(const std::string& text) {
    try {
        const auto found = hub::find_cached(text, hub_settings());
        return found ? found->paths.front().string() : std::string();
    } catch (const Error&) {  // is reported when the command looks for it
        return {};
    }
}
#else
std::string cached_path_of_name(const std::string&) { return {}; }

std::vector<std::string> paths_of_name(const std::string& text) {
    if (!is_name(text)) return {};
    throw Error(ErrorCode::not_available, text + ": this tinfer was built without models by name");
}
#endif

}  // namespace

CLI::Option* takes_model(CLI::Option* option, std::string& value) {
    model_options().push_back({option, &value});
    return option;
}

CLI::Option* takes_model(CLI::Option* option, std::vector<std::string>& values) {
    model_options().push_back({option, &values});
    return option;
}

std::string cached_path(const std::string& text) { return is_name(text) ? cached_path_of_name(text) : text; }

std::string resolved_path(const std::string& text) {
    const auto paths = paths_of_name(text);
    return paths.empty() ? text : paths.front();
}

void resolve_models() {
    for (const auto& [option, value] : model_options()) {
        if (option->count() == 0) continue;
        if (auto* const one = std::get_if<std::string*>(&value)) {
            if (const auto paths = paths_of_name(**one); !paths.empty()) **one = paths.front();
            continue;
        }
        std::vector<std::string>& given = *std::get<std::vector<std::string>*>(value);
        std::vector<std::string> resolved;
        for (const auto& text : given) {
            const auto paths = paths_of_name(text);
            if (paths.empty()) resolved.push_back(text);
            resolved.insert(resolved.end(), paths.begin(), paths.end());
        }
        given = std::move(resolved);
    }
}

#if defined(TINFER_HUB)
void add_hub_options(CLI::App& app) {
    HubOptions& hub = hub_options();
    app.add_option("--hub-cache", hub.cache, "models by name are here; else HF_HUB_CACHE, or ~/.cache/huggingface/hub")
        ->type_name("DIR")
        ->group(rare("Options"));
    app.add_flag("--offline", hub.offline, "models by name come from the cache alone")->group(rare("Options"));
}

hub::Settings hub_settings() {
    auto settings = hub::settings_from_environment(hub_options().cache);
    settings.offline = settings.offline || hub_options().offline;
    settings.say = [](std::string_view line) { note("tinfer: " + std::string(line)); };
    settings.cancelled = [] { return interrupted(); };
    return settings;
}

std::vector<CachedName> cached_names() {
    std::vector<CachedName> out;
    for (const auto& model : hub::list(hub_settings()))
        if (model.complete && !model.commit.empty() && model.name.find('@') == std::string::npos)
            out.push_back({model.name, model.paths.front().string()});
    return out;
}

std::string plain_hub_name(std::string_view text) {
    try {
        return hub::parse_hub_name(text).text();
    } catch (const Error&) {
        return {};
    }
}

std::string wanted_hub_name(std::string_view text) {
    if (text.starts_with("ollama:"))
        throw Error(ErrorCode::not_available,
                    std::string(text.substr(0, 300)) + ": Ollama's registry is not asked; `ollama pull` does that");
    return hub::parse_hub_name(text).text();
}

void require_downloads(const std::string& what) {
    if (!hub::can_download())
        throw Error(ErrorCode::not_available, what + ": this tinfer was built without cpp-httplib and OpenSSL");
}

CachedName fetched_model(const std::string& name, const std::function<void(const FetchStep&)>& report,
                         const std::function<bool()>& stops) {
    auto settings = hub_settings();
    settings.cancelled = [&] { return interrupted() || stops(); };
    settings.progress = [&](const hub::FileProgress& progress) {
        const bool is_checked = progress.state == hub::FileState::verifying || progress.state == hub::FileState::done;
        try {
            report(
                {progress.hash, progress.size, progress.completed, is_checked && progress.completed == progress.size});
        } catch (const std::bad_alloc&) {  // the step is not told; whoever calls this must not be left by an exception
        }
    };
    try {
        const auto pulled = hub::pull(name, settings);
        return {pulled.model.id, pulled.model.paths.front().string()};
    } catch (const Error& error) {
        std::string line = error.what();
        for (const std::string& folder : {settings.cache.string() + "/", " " + settings.cache.string()})
            for (auto at = line.find(folder); at != line.npos; at = line.find(folder, at))
                line.erase(at, folder.size());
        throw Error(error.code(), line);
    }
}
#else
void add_hub_options(CLI::App&) {}
std::string plain_hub_name(std::string_view) { return {}; }
std::string wanted_hub_name(std::string_view text) {
    require_downloads(std::string(text.substr(0, 300)));
    return {};
}
void require_downloads(const std::string& what) {
    throw Error(ErrorCode::not_available, what + ": this tinfer was built without models by name");
}
CachedName fetched_model(const std::string& name, const std::function<void(const FetchStep&)>&,
                         const std::function<bool()>&) {
    require_downloads(name);
    return {};
}
std::vector<CachedName> cached_names() {
    throw Error(ErrorCode::not_available, "--cached: this tinfer was built without models by name");
}
#endif

#if defined(TINFER_PULL)
std::vector<Action (*)(CLI::App&)> hub_commands() { return {add_pull, add_list, add_rm}; }
#else
std::vector<Action (*)(CLI::App&)> hub_commands() { return {}; }
#endif

}  // namespace tinfer::app
