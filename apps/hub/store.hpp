// SPDX-License-Identifier: MIT
// The cache of the hub's clients, written: locks, links and references, so that other clients see whole files only.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cache.hpp"

namespace tinfer::hub {

/// A file descriptor that closes itself.
class Descriptor {
public:
    Descriptor() = default;
    explicit Descriptor(int fd) noexcept : fd_(fd) {}
    Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~Descriptor();
    [[nodiscard]] int get() const noexcept { return fd_; }

private:
    int fd_ = -1;
};

/// The lock of a blob, by flock(2) as Python's clients take it. It ends with the object, or with the process.
class BlobLock {
public:
    /// Waits for it, and says so once. Throws io_error, cancelled.
    BlobLock(const std::filesystem::path& path, const Settings& settings, std::string_view what);
    /// Takes it if it is free.
    [[nodiscard]] static std::optional<BlobLock> try_take(const std::filesystem::path& path);

private:
    explicit BlobLock(Descriptor file) noexcept : file_(std::move(file)) {}
    Descriptor file_;
};

/// Makes the link of a file in a snapshot, relative, so that the cache can be moved.
void link_file(const RepoCache& repo, const std::string& commit, const std::string& path, const std::string& hash);
/// Says which commit a branch or tag stands for; nothing is written for a commit itself.
void write_ref(const RepoCache& repo, const std::string& revision, const std::string& commit);
/// Throws io_error with the system's reason.
[[noreturn]] void fail_at(const std::filesystem::path& path, std::string_view what, int error);
void make_folders(const std::filesystem::path& path);

}  // namespace tinfer::hub
