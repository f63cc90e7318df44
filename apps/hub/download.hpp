// SPDX-License-Identifier: MIT
// One file of the hub into its blob: hashed as it arrives, continued where it broke, renamed once its sum is right.
#pragma once

#include <cstdint>
#include <string>

#include "choice.hpp"
#include "client.hpp"
#include "store.hpp"

namespace tinfer::hub {

struct Downloaded {
    std::uint64_t received = 0;  ///< bytes that came over the network; 0 if the file was there
    std::string sha256;
};

/// Fetches the file into the cache and links it in the snapshot. Another process that fetches the same is waited for.
/// A download that ends early leaves what came, and the next one continues it. Throws Error with one line; cancelled.
[[nodiscard]] Downloaded download(const Client& client, const HubName& name, const std::string& commit,
                                  const RepoFile& file);

/// Whether the blob of the file is there as a whole.
[[nodiscard]] bool is_cached(const RepoCache& repo, const RepoFile& file);
/// The SHA-256 of a blob: its name, or else computed. Throws io_error.
[[nodiscard]] std::string sha256_of(const RepoCache& repo, const RepoFile& file);

}  // namespace tinfer::hub
