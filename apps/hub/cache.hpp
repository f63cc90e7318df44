// SPDX-License-Identifier: MIT
// The cache that the hub's own clients use, read: one folder for each repository, with the bytes in blobs/ under their
// hashes, links to them in snapshots/COMMIT/ under their paths, and the commit of a branch in refs/.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "choice.hpp"
#include "hub.hpp"

namespace tinfer::hub {

/// The folder of one repository. Nothing of it needs to exist.
class RepoCache {
public:
    RepoCache(const std::filesystem::path& cache, const HubName& name);

    [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }
    [[nodiscard]] std::filesystem::path blob(std::string_view hash) const { return folder_ / "blobs" / hash; }
    /// What has arrived of a blob. Python's clients count names that end so as incomplete, too.
    [[nodiscard]] std::filesystem::path partial(std::string_view hash) const;
    [[nodiscard]] std::filesystem::path lock(std::string_view hash) const;
    [[nodiscard]] std::filesystem::path snapshot(std::string_view commit) const {
        return folder_ / "snapshots" / commit;
    }
    [[nodiscard]] std::filesystem::path ref(std::string_view revision) const { return folder_ / "refs" / revision; }

    /// The commit that a branch, a tag or the commit itself stands for; nullopt if that is not known.
    [[nodiscard]] std::optional<std::string> commit_of(const std::string& revision) const;
    /// All snapshots, the newest first.
    [[nodiscard]] std::vector<std::string> commits() const;
    /// GGUF files of a snapshot, by path. Links that lead nowhere are left out.
    [[nodiscard]] std::vector<RepoFile> files(std::string_view commit) const;
    /// Files of downloads that did not end, of any client.
    [[nodiscard]] std::vector<std::filesystem::path> partials() const;

private:
    std::filesystem::path folder_, locks_;
};

/// All repositories of models in a cache, by name.
[[nodiscard]] std::vector<HubName> repositories(const std::filesystem::path& cache);

/// What the cache has under a name.
struct Found {
    std::string commit;
    Candidate model;
    std::string id;
};
/// Several models fit the name.
struct Unclear {
    std::vector<Candidate> models;
};
/// Without a revision the snapshot of main counts, then older ones; a set with a part missing does not.
[[nodiscard]] std::variant<std::monostate, Found, Unclear> look_up(const HubName& name, const Settings& settings);

/// nullopt if the store has no such model. Throws not_available for what a GGUF file alone does not hold (adapters,
/// projectors), damaged for a manifest that is none.
[[nodiscard]] std::optional<ModelFiles> find_ollama(const OllamaName& name, const Settings& settings);

/// Small files of a cache; nullopt if there is none. Throws io_error for one longer than `most`.
[[nodiscard]] std::optional<std::string> read_small(const std::filesystem::path& path, std::size_t most);

}  // namespace tinfer::hub
