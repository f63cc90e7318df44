// SPDX-License-Identifier: MIT
// Output files: checked before the work starts, and written completely or not at all.
#pragma once

#include <cstdio>
#include <span>
#include <string>
#include <string_view>

namespace tinfer::app {

/// Throws io_error, naming the option, if the file cannot be written; call it before the work starts. An existing file
/// is not changed, and without `overwrite` it is an error. The file must not be one of `inputs`. An empty path means no
/// file.
void check_output(const std::string& path, std::string_view option, std::span<const std::string> inputs = {},
                  bool overwrite = true);

/// A file that is written completely or not at all: as a temporary file in the same folder, which finish() renames.
/// Without finish() it is removed, and an existing file stays. Written directly if the folder is not writable, or if it
/// is a pipe or a device.
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
    std::string place_;   // final path, symbolic links resolved
    std::string beside_;  // temporary path; empty: written directly
    bool is_new_ = false;
    std::FILE* file_ = nullptr;
};

}  // namespace tinfer::app
