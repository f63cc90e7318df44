// SPDX-License-Identifier: MIT
#include "hub.hpp"

#include <algorithm>
#include <tinfer/base.hpp>

#include "cache.hpp"

namespace tinfer::hub {

namespace fs = std::filesystem;

namespace {

std::vector<fs::path> paths_of(const RepoCache& repo, const Found& found) {
    std::vector<fs::path> out;
    for (const auto& file : found.model.files) out.push_back(repo.snapshot(found.commit) / file.path);
    return out;
}

ModelFiles in_ollama(std::string_view name, const Settings& settings) {
    const auto parsed = parse_ollama_name(name);
    if (auto found = find_ollama(parsed, settings)) return *std::move(found);
    throw Error(ErrorCode::not_available,
                "ollama:" + parsed.text() + ": not in Ollama's store " + settings.ollama_models.string());
}

}  // namespace

std::string_view to_string(FileState state) noexcept {
    switch (state) {
        case FileState::downloading: return "downloading";
        case FileState::verifying: return "verifying";
        case FileState::done: return "done";
        case FileState::cached: return "cached";
    }
    return "";
}

std::string_view to_string(PullAction action) noexcept { return action == PullAction::fetch ? "fetch" : "plan"; }

std::optional<ModelFiles> find_cached(std::string_view name, const Settings& settings) {
    if (name.starts_with("ollama:")) return find_ollama(parse_ollama_name(name), settings);
    const HubName parsed = parse_hub_name(name);
    const auto known = look_up(parsed, settings);
    if (const auto* unclear = std::get_if<Unclear>(&known))
        throw Error(ErrorCode::bad_parameter,
                    parsed.text() + ": which one is not clear; in the cache are " + list_text(unclear->models));
    const auto* found = std::get_if<Found>(&known);
    if (found == nullptr) return std::nullopt;
    return ModelFiles{paths_of(RepoCache(settings.cache, parsed), *found), found->id, found->commit};
}

ModelFiles resolve(std::string_view name, const Settings& settings) {
    if (name.starts_with("ollama:")) return in_ollama(name, settings);
    const auto known = look_up(parse_hub_name(name), settings);
    if (std::holds_alternative<Found>(known) || (settings.offline && std::holds_alternative<Unclear>(known)))
        return *find_cached(name, settings);
    return pull(name, settings).model;
}

std::vector<CachedModel> list(const Settings& settings) {
    std::vector<CachedModel> out;
    for (const HubName& name : repositories(settings.cache)) {
        const RepoCache repo(settings.cache, name);
        for (const auto& commit : repo.commits()) {
            const auto all = candidates(repo.files(commit));
            const ShortNames names(all);
            for (const Candidate& one : all) {
                HubName id = names.name(name, one);
                const auto meant = look_up(id, settings);
                if (const auto* found = std::get_if<Found>(&meant); found != nullptr && found->commit != commit)
                    id.revision = commit;
                CachedModel row{id.text(), {}, one.bytes(), commit, one.is_complete()};
                for (const auto& file : one.files) row.paths.push_back(repo.snapshot(commit) / file.path);
                out.push_back(std::move(row));
            }
        }
        for (const auto& path : repo.partials()) {
            std::error_code none;
            const auto bytes = fs::file_size(path, none);
            out.push_back({name.repository(), {path}, none ? 0 : bytes, "", false});
        }
    }
    std::ranges::stable_sort(out, {}, &CachedModel::name);
    return out;
}

}  // namespace tinfer::hub
