// SPDX-License-Identifier: MIT
// Files that the program writes: looked at before the work whose result they get, and there whole or not at all.
#pragma once

#include <cstdio>
#include <span>
#include <string>
#include <string_view>

namespace cli {

/// Throws io_error, naming the option, for a file that could not be written: before the work whose result it gets. What
/// is there stays as it is. It must be none of `inputs`, files that are read meanwhile. An empty path is no file.
void check_output(const std::string& path, std::string_view option, std::span<const std::string> inputs = {});

/// A file that is there whole or not at all: it is written beside its place and renamed by finish(); what was not
/// finished is removed, and what was there before stays. Where the folder takes no other file it is written in its
/// place, and so are pipes and devices.
class OutputFile {
public:
    /// Throws io_error naming the path.
    explicit OutputFile(const std::string& path);
    ~OutputFile();
    OutputFile(const OutputFile&) = delete;
    OutputFile& operator=(const OutputFile&) = delete;

    void write(std::string_view bytes);  ///< throws io_error
    void finish();                       ///< throws io_error

private:
    [[noreturn]] void refuse() const;

    std::string path_;
    std::string place_;   // where the file shall be, symbolic links followed
    std::string beside_;  // empty: written in its place
    bool is_new_ = false;
    std::FILE* file_ = nullptr;
};

}  // namespace cli
