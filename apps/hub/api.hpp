// SPDX-License-Identifier: MIT
// The hub's interface for programs: the commit of a revision, and the files of a commit.
#pragma once

#include <string>
#include <vector>

#include "choice.hpp"
#include "client.hpp"

namespace tinfer::hub {

struct Revision {
    std::string commit;
    std::string license;  ///< as the model's card names it; empty: it does not
    bool is_gated = false;
};

/// Throws damaged for an answer that does not say it.
[[nodiscard]] Revision ask_revision(const Client& client, const HubName& name);
/// All files of a commit. Throws damaged for an answer that is none, such as a path that leads out of the repository.
[[nodiscard]] std::vector<RepoFile> ask_tree(const Client& client, const HubName& name, const std::string& commit);
/// Where a file is asked for.
[[nodiscard]] Url file_address(const Client& client, const HubName& name, const std::string& commit,
                               const std::string& path);

}  // namespace tinfer::hub
