// SPDX-License-Identifier: MIT
// A file that is there whole or not at all: written beside its place under another name, flushed to storage, then
// renamed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace tinfer {

class ReplacingFile {
public:
    /// Makes the file beside `path`. Throws io_error naming the path.
    explicit ReplacingFile(const std::filesystem::path& path);
    ReplacingFile(const ReplacingFile&) = delete;
    ReplacingFile& operator=(const ReplacingFile&) = delete;
    /// Removes what was not finished.
    ~ReplacingFile();

    void write(std::span<const std::byte> bytes);
    /// Takes room for a file of so many bytes, all zeros, to be filled by write_at(). Throws io_error with both numbers
    /// where the storage has less.
    void reserve(std::uint64_t bytes);
    /// Writes at a place of the file; not to be mixed with write().
    void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
    /// Puts it in its place. Without `durable` the name may outlive a crash of the machine that the bytes do not.
    void finish(bool durable = true);

private:
    [[noreturn]] void refuse(std::string_view what) const;

    std::filesystem::path path_;
    std::string beside_;
    std::FILE* file_ = nullptr;
};

}  // namespace tinfer
