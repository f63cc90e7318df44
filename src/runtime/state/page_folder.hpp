// SPDX-License-Identifier: MIT
// The pages of a prefix store as files. Any number of stores and processes may share a folder: a file that is not
// complete and exactly what is looked for counts as missing.
#pragma once

#include <filesystem>
#include <optional>
#include <set>

#include "runtime/state/page_memory.hpp"
#include "tinfer/model.hpp"

namespace tinfer::runtime::state {

class PageFolder {
public:
    /// Makes the folder; an empty path: there is none. Throws io_error. Counts reads, writes and refusals in `stats`,
    /// which has to outlive this.
    PageFolder(std::filesystem::path folder, const Model& model, PrefixStoreStats& stats);

    [[nodiscard]] bool is_on() const noexcept { return !folder_.empty(); }
    /// The data of a page's file of so many bytes, if it is what is looked for.
    [[nodiscard]] Bytes read(const PageLink& link, BlockKind kind, std::size_t n_bytes);
    /// True where write() would add something: no file is there, or one that was refused.
    [[nodiscard]] bool lacks(const PageLink& link, BlockKind kind) const;
    /// What the folder does not take is not kept there.
    void write(const PageLink& link, BlockKind kind, std::span<const std::byte> data);

private:
    [[nodiscard]] std::filesystem::path file_of(const PageLink& link, BlockKind kind) const;
    [[nodiscard]] std::optional<FullFingerprint> fingerprint() const { return model_.file().full_fingerprint(); }

    std::filesystem::path folder_;
    Model model_;
    PrefixStoreStats& stats_;
    std::set<std::filesystem::path> refused_;  // files that were looked at and are not what their names say
};

}  // namespace tinfer::runtime::state
