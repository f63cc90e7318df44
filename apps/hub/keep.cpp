// SPDX-License-Identifier: MIT
// What is kept in the cache: whether it is what its names say, and its removal.
#include <algorithm>
#include <map>
#include <set>
#include <system_error>
#include <tinfer/base.hpp>

#include "blob_hash.hpp"
#include "hub.hpp"
#include "store.hpp"

namespace tinfer::hub {

namespace fs = std::filesystem;

namespace {

/// Calls `see` for everything below a folder.
template <class See>
void for_each_below(const fs::path& folder, const See& see) {
    std::error_code error;
    for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
        see(it->path());
}

std::uint64_t size_of(const fs::path& path) {
    std::error_code error;
    const auto size = fs::file_size(path, error);
    return error ? 0 : size;
}

/// Models that the name means, by commit: in all snapshots, or in that of its revision.
std::map<std::string, Candidate> meant(HubName name, const Settings& settings, std::string& id) {
    const RepoCache repo(settings.cache, name);
    std::vector<std::string> commits;
    if (const auto commit = repo.commit_of(name.revision_or_main())) commits.push_back(*commit);
    if (name.revision.empty())
        for (const auto& commit : repo.commits())
            if (std::ranges::find(commits, commit) == commits.end()) commits.push_back(commit);
    std::map<std::string, Candidate> out;
    for (const auto& commit : commits) {
        const auto all = candidates(repo.files(commit));
        const auto chosen = choose(name, all);
        if (chosen.size() > 1)
            throw Error(ErrorCode::bad_parameter,
                        name.text() + ": which one is not clear; in the cache are " + list_text(all));
        if (chosen.empty()) continue;
        if (out.empty()) {  // in other snapshots the same, not what a name without a quantization would mean there
            name = ShortNames(all).name(name, *chosen[0]);
            id = name.text();
        }
        out.emplace(commit, *chosen[0]);
    }
    return out;
}

/// Blobs, and partial ones, that no link but `links` leads to.
std::vector<fs::path> unneeded(const RepoCache& repo, const std::set<fs::path>& links) {
    std::set<std::string> needed;
    for_each_below(repo.folder() / "snapshots", [&](const fs::path& path) {
        std::error_code error;
        if (fs::is_symlink(path, error) && !links.contains(path))
            needed.insert(fs::read_symlink(path, error).filename().string());
    });
    std::vector<fs::path> out;
    for_each_below(repo.folder() / "blobs", [&](const fs::path& path) {
        if (!needed.contains(path.filename().string())) out.push_back(path);
    });
    std::ranges::sort(out);
    return out;
}

/// Folders below, and the folder itself, as far as they are empty.
void remove_empty(const fs::path& folder) {
    std::vector<fs::path> folders{folder};
    for_each_below(folder, [&](const fs::path& path) {
        std::error_code error;
        if (fs::is_directory(fs::symlink_status(path, error))) folders.push_back(path);
    });
    std::error_code error;
    for (auto it = folders.rbegin(); it != folders.rend(); ++it)
        if (fs::is_empty(*it, error) && !error) fs::remove(*it, error);
}

/// Other clients take a reference to a snapshot that is not there for damage.
void remove_refs_of_nothing(const RepoCache& repo) {
    for_each_below(repo.folder() / "refs", [&](const fs::path& path) {
        std::error_code error;
        if (!fs::is_regular_file(path, error)) return;
        const auto commit = read_small(path, 200);
        if (commit && is_commit(*commit) && !fs::exists(repo.snapshot(*commit), error)) fs::remove(path, error);
    });
}

/// The folder of a repository of which nothing is left.
void remove_rest(const RepoCache& repo) {
    std::error_code error;
    for (const auto& commit : repo.commits()) remove_empty(repo.snapshot(commit));
    remove_refs_of_nothing(repo);
    remove_empty(repo.folder() / "refs");
    if (!fs::is_empty(repo.folder() / "snapshots", error) || error) return;
    remove_empty(repo.folder() / "blobs");
    std::size_t n_left = 0;
    for (fs::directory_iterator it(repo.folder(), error), end; !error && it != end; it.increment(error)) ++n_left;
    if (n_left != 1) return;  // others keep something beside it, and expect the folder of snapshots
    fs::remove(repo.folder() / "snapshots", error);
    fs::remove(repo.folder(), error);
}

}  // namespace

std::vector<std::string> verify(const CachedModel& model, const Settings& settings) {
    std::vector<std::string> out;
    if (!model.complete) return out;
    for (const auto& path : model.paths) {
        std::error_code error;
        if (!fs::is_symlink(path, error)) continue;  // a plain file has no name that says its hash
        const std::string name = fs::read_symlink(path, error).filename().string();
        const std::uint64_t size = size_of(path);
        const auto seen = [&](std::uint64_t read) {
            if (settings.progress) settings.progress({model.name, size, read, FileState::verifying});
            return !(settings.cancelled && settings.cancelled());
        };
        if (!is_hex(name, 64) && !is_hex(name, 40)) continue;
        if (const auto hash = hash_file(path, name, seen); hash != name)
            out.push_back(path.string() + ": its hash is " + hash + ", its name says " + name);
    }
    return out;
}

std::vector<fs::path> broken_links(const Settings& settings) {
    std::vector<fs::path> out;
    for (const HubName& name : repositories(settings.cache))
        for_each_below(RepoCache(settings.cache, name).folder() / "snapshots", [&](const fs::path& path) {
            std::error_code error;
            if (path.extension() == ".gguf" && fs::is_symlink(path, error) && !fs::exists(path, error))
                out.push_back(path);
        });
    std::ranges::sort(out);
    return out;
}

Removal plan_removal(std::string_view text, const Settings& settings) {
    const HubName name = parse_hub_name(text);
    const RepoCache repo(settings.cache, name);
    Removal out;
    const auto models = meant(name, settings, out.name);
    const auto partials = repo.partials();
    if (models.empty() && (partials.empty() || !repo.commits().empty()))
        throw Error(ErrorCode::not_available, name.text() + ": not in the cache " + settings.cache.string());
    if (models.empty()) out.name = name.text();  // a download that never ended
    std::set<fs::path> links;
    for (const auto& [commit, model] : models)
        for (const RepoFile& file : model.files) {
            links.insert(repo.snapshot(commit) / file.path);
            if (file.hash.empty()) out.bytes += file.size;
        }
    out.links.assign(links.begin(), links.end());
    out.blobs = unneeded(repo, links);
    for (const auto& blob : out.blobs) out.bytes += size_of(blob);
    return out;
}

void remove(const Removal& removal, std::string_view text, const Settings& settings) {
    const RepoCache repo(settings.cache, parse_hub_name(text));
    std::map<std::string, BlobLock> locks;
    for (const auto& path : removal.blobs) {
        std::string hash = path.filename().string();
        hash.erase(std::min(hash.find('.'), hash.size()));
        if (locks.contains(hash)) continue;
        auto lock = BlobLock::try_take(repo.lock(hash));
        if (!lock) throw Error(ErrorCode::busy, removal.name + ": another process downloads a file of it");
        locks.emplace(hash, *std::move(lock));
    }
    for (const auto* paths : {&removal.links, &removal.blobs})
        for (const auto& path : *paths) {
            std::error_code error;
            fs::remove(path, error);
            if (error) fail_at(path, "cannot be removed", error.value());
        }
    remove_rest(repo);
}

}  // namespace tinfer::hub
