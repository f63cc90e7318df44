// SPDX-License-Identifier: MIT
#include "runtime/state/page_folder.hpp"

#include "base/error.hpp"
#include "base/mapped_file.hpp"
#include "base/replace_file.hpp"

namespace tinfer::runtime::state {

PageFolder::PageFolder(std::filesystem::path folder, const Model& model, PrefixStoreStats& stats)
    : folder_(std::move(folder)), model_(model), stats_(stats) {
    if (!is_on()) return;
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    if (!std::filesystem::is_directory(folder_, error))
        fail(ErrorCode::io_error, cat(display_name(folder_), ": the folder of a prefix store cannot be made"));
}

std::filesystem::path PageFolder::file_of(const PageLink& link, BlockKind kind) const {
    return folder_ / (to_hex(link.digest) + (kind == BlockKind::rows ? ".rows" : ".checkpoint"));
}

Bytes PageFolder::read(const PageLink& link, BlockKind kind, std::size_t n_bytes) {
    if (!is_on()) return nullptr;
    const auto path = file_of(link, kind);
    std::error_code error;
    if (!std::filesystem::exists(path, error)) return nullptr;
    try {
        const auto bytes = read_whole_file(path, n_bytes + 4096);
        const auto data = read_block(bytes, kind, link.key, fingerprint(), kStore);
        if (data.size() != n_bytes) fail(ErrorCode::damaged, "block of another size");
        ++stats_.read_pages;
        return std::make_shared<const std::vector<std::byte>>(data.begin(), data.end());
    } catch (const Error& refusal) {
        if (refusal.code() == ErrorCode::out_of_memory) throw;
        refused_.insert(path);
        ++stats_.refused_files;
        return nullptr;
    }
}

bool PageFolder::lacks(const PageLink& link, BlockKind kind) const {
    if (!is_on()) return false;
    std::error_code error;
    const auto path = file_of(link, kind);
    return refused_.contains(path) || !std::filesystem::exists(path, error);
}

void PageFolder::write(const PageLink& link, BlockKind kind, std::span<const std::byte> data) {
    const auto path = file_of(link, kind);
    std::error_code is_there;  // the folder may have been removed
    std::filesystem::create_directories(folder_, is_there);
    try {
        ReplacingFile file(path);
        file.write(write_block(kind, link.key, fingerprint(), data));
        file.finish(false);  // what a crash leaves of it is refused by its checksum
        refused_.erase(path);
        ++stats_.written_pages;
    } catch (const Error& refusal) {
        if (refusal.code() != ErrorCode::io_error) throw;  // a full disk costs time, nothing else
    }
}

}  // namespace tinfer::runtime::state
