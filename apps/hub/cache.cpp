// SPDX-License-Identifier: MIT
#include "cache.hpp"

#include <algorithm>
#include <fstream>
#include <system_error>
#include <tinfer/base.hpp>
#include <utility>

namespace tinfer::hub {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kFolderStart = "models--";

/// The names in a folder; none if it cannot be read.
std::vector<fs::path> entries(const fs::path& folder) {
    std::vector<fs::path> out;
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
        out.push_back(it->path());
    std::ranges::sort(out);
    return out;
}

}  // namespace

std::optional<std::string> read_small(const fs::path& path, std::size_t most) {
    std::error_code none;
    if (!fs::is_regular_file(path, none)) return std::nullopt;
    std::ifstream in(path, std::ios::binary);
    std::string text(most + 1, '\0');
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(in.gcount()));
    if (text.size() > most)
        throw Error(ErrorCode::io_error, path.string() + ": longer than " + std::to_string(most) + " bytes");
    return text;
}

RepoCache::RepoCache(const fs::path& cache, const HubName& name) {
    const std::string own = std::string(kFolderStart) + name.owner + "--" + name.repo;
    folder_ = cache / own;
    locks_ = cache / ".locks" / own;
}

fs::path RepoCache::partial(std::string_view hash) const {
    return folder_ / "blobs" / (std::string(hash) + ".tinfer.incomplete");
}

fs::path RepoCache::lock(std::string_view hash) const { return locks_ / (std::string(hash) + ".lock"); }

std::optional<std::string> RepoCache::commit_of(const std::string& revision) const {
    if (is_commit(revision)) return revision;
    auto text = read_small(ref(revision), 200);
    if (!text) return std::nullopt;
    while (text->ends_with('\n')) text->pop_back();
    if (!is_commit(*text)) return std::nullopt;
    return text;
}

std::vector<std::string> RepoCache::commits() const {
    std::vector<std::pair<fs::file_time_type, std::string>> found;
    for (const auto& path : entries(folder_ / "snapshots")) {
        std::error_code error;
        if (fs::is_directory(path, error) && is_commit(path.filename().string()))
            found.emplace_back(fs::last_write_time(path, error), path.filename().string());
    }
    std::ranges::sort(found, std::greater{});
    std::vector<std::string> out;
    for (auto& [time, commit] : found) out.push_back(std::move(commit));
    return out;
}

std::vector<RepoFile> RepoCache::files(std::string_view commit) const {
    const fs::path root = snapshot(commit);
    std::vector<RepoFile> out;
    std::error_code error;
    for (fs::recursive_directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
        std::error_code none;
        const fs::path& path = it->path();
        if (path.extension() != ".gguf" || !fs::is_regular_file(path, none)) continue;
        RepoFile file{path.lexically_relative(root).generic_string(), fs::file_size(path, none), {}};
        if (none) continue;
        if (fs::is_symlink(path, none)) file.hash = fs::read_symlink(path, none).filename().string();
        out.push_back(std::move(file));
    }
    std::ranges::sort(out, {}, &RepoFile::path);
    return out;
}

std::vector<fs::path> RepoCache::partials() const {
    std::vector<fs::path> out = entries(folder_ / "blobs");
    std::erase_if(out, [](const fs::path& path) { return path.extension() != ".incomplete"; });
    return out;
}

std::vector<HubName> repositories(const fs::path& cache) {
    std::vector<HubName> out;
    for (const auto& path : entries(cache)) {
        const std::string name = path.filename().string();
        const std::size_t cut = name.find("--", kFolderStart.size());
        std::error_code none;
        if (!name.starts_with(kFolderStart) || cut == name.npos || !fs::is_directory(path, none)) continue;
        try {
            out.push_back(parse_hub_name(name.substr(kFolderStart.size(), cut - kFolderStart.size()) + "/" +
                                         name.substr(cut + 2)));
        } catch (const Error&) {  // a folder of somebody else
        }
    }
    return out;
}

std::variant<std::monostate, Found, Unclear> look_up(const HubName& name, const Settings& settings) {
    const RepoCache repo(settings.cache, name);
    std::vector<std::string> order;
    if (const auto commit = repo.commit_of(name.revision_or_main())) order.push_back(*commit);
    if (name.revision.empty())
        for (const auto& commit : repo.commits())
            if (std::ranges::find(order, commit) == order.end()) order.push_back(commit);
    std::optional<Unclear> unclear;
    for (const auto& commit : order) {
        const auto all = candidates(repo.files(commit));
        const auto chosen = choose(name, all);
        if (chosen.size() == 1 && chosen[0]->is_complete())
            return Found{commit, *chosen[0], ShortNames(all).name(name, *chosen[0]).text()};
        if (chosen.size() > 1 && !unclear) {
            unclear.emplace();
            for (const auto* one : chosen) unclear->models.push_back(*one);
        }
    }
    if (unclear) return *std::move(unclear);
    return std::monostate();
}

}  // namespace tinfer::hub
