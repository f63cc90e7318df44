// SPDX-License-Identifier: MIT
// A file that is there whole or not at all: written beside its place under another name, flushed to storage, then
// renamed.
#pragma once

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>

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
    /// Puts it in its place. Without `durable` the name may outlive a crash of the machine that the bytes do not.
    void finish(bool durable = true);

private:
    [[noreturn]] void refuse(std::string_view what) const;

    std::filesystem::path path_;
    std::string beside_;
    std::FILE* file_ = nullptr;
};

}  // namespace tinfer
