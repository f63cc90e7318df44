// SPDX-License-Identifier: MIT
// From a name to whole files in the cache.
#include <sys/statvfs.h>

#include <algorithm>
#include <tinfer/base.hpp>
#include <tinfer/hash.hpp>

#include "api.hpp"
#include "download.hpp"
#include "hub.hpp"
#include "plain_text.hpp"

namespace tinfer::hub {

namespace fs = std::filesystem;

namespace {

Pulled from_cache(const HubName& name, const Settings& settings) {
    const auto known = look_up(name, settings);
    if (const auto* unclear = std::get_if<Unclear>(&known))
        throw Error(ErrorCode::bad_parameter,
                    name.text() + ": which one is not clear; in the cache are " + list_text(unclear->models));
    const auto* found = std::get_if<Found>(&known);
    if (found == nullptr)
        throw Error(ErrorCode::not_available,
                    name.text() + ": not in the cache " + settings.cache.string() + ", and offline");
    const RepoCache repo(settings.cache, name);
    Pulled out{{{}, found->id, found->commit}, {}, 0};
    for (const RepoFile& file : found->model.files) {
        const fs::path path = repo.snapshot(found->commit) / file.path;
        out.model.paths.push_back(path);
        out.files.push_back(
            {file.path, file.size, is_hex(file.hash, 64) ? file.hash : to_hex(sha256_file(path)), true});
        if (settings.progress) settings.progress({file.path, file.size, file.size, FileState::cached, file.hash});
    }
    return out;
}

/// The one model that the name means. Throws a line with all of them otherwise.
const Candidate& choose_one(const Client& client, const HubName& name, const std::vector<Candidate>& all) {
    const std::string repo = name.repository();
    if (all.empty()) client.fail(ErrorCode::not_available, repo + " has no GGUF file of a model");
    const auto chosen = choose(name, all);
    if (chosen.empty())
        client.fail(ErrorCode::not_available, "there is no " + (name.path.empty() ? name.quant : name.path) + " in " +
                                                  repo + ", which has " + list_text(all));
    if (chosen.size() > 1) {
        std::vector<Candidate> those;
        for (const auto* one : chosen) those.push_back(*one);
        client.fail(ErrorCode::bad_parameter, "which one is not clear; " + repo + " has " + list_text(those));
    }
    if (!chosen[0]->is_complete())
        client.fail(ErrorCode::not_available, "of its " + std::to_string(chosen[0]->parts) + " parts " + repo +
                                                  " lacks " + missing_parts(*chosen[0]));
    return *chosen[0];
}

std::uint64_t bytes_at(const fs::path& path) {
    std::error_code error;
    const auto size = fs::file_size(path, error);
    return error ? 0 : size;
}

void require_space(const Client& client, const RepoCache& repo, const Candidate& model) {
    std::uint64_t missing = 0;
    for (const RepoFile& file : model.files)
        if (!is_cached(repo, file))
            missing = std::max(missing, missing + file.size - std::min(file.size, bytes_at(repo.partial(file.hash))));
    make_folders(repo.folder());
    struct statvfs space {};
    if (::statvfs(repo.folder().c_str(), &space) != 0) return;  // then writing says what is wrong
    const std::uint64_t free = std::uint64_t{space.f_bavail} * space.f_frsize;
    if (missing > free)
        client.fail(ErrorCode::io_error, size_text(missing) + " are missing, and " + repo.folder().string() + " has " +
                                             size_text(free) + " free");
}

}  // namespace

bool can_download() noexcept { return true; }

Pulled pull(std::string_view text, const Settings& settings, PullAction action) {
    const HubName name = parse_hub_name(text);
    if (settings.offline) return from_cache(name, settings);
    const Client client(settings, name);
    const Revision revision = ask_revision(client, name);
    const auto all = candidates(ask_tree(client, name, revision.commit));
    const Candidate& model = choose_one(client, name, all);
    if (settings.say && !revision.license.empty())
        settings.say(name.repository() + ": license " + spell_controls(revision.license.substr(0, 100)) +
                     (revision.is_gated ? ", with terms to be accepted" : ""));
    const RepoCache repo(settings.cache, name);
    Pulled out{{{}, ShortNames(all).name(name, model).text(), revision.commit}, {}, 0};
    if (action == PullAction::fetch) require_space(client, repo, model);
    for (const RepoFile& file : model.files) {
        PulledFile pulled{file.path, file.size, is_hex(file.hash, 64) ? file.hash : "", is_cached(repo, file)};
        if (action == PullAction::fetch) {
            const Downloaded done = download(client, name, revision.commit, file);
            out.downloaded += done.received;
            pulled.sha256 = done.sha256;
        }
        out.files.push_back(std::move(pulled));
        out.model.paths.push_back(repo.snapshot(revision.commit) / file.path);
    }
    if (action == PullAction::fetch) write_ref(repo, name.revision_or_main(), revision.commit);
    return out;
}

}  // namespace tinfer::hub
