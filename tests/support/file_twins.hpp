// SPDX-License-Identifier: MIT
// Model files that differ in bytes which the sample of a fingerprint does not see.
#pragma once

#include <filesystem>
#include <fstream>

namespace tinfer::test {

/// A copy of a model file with `more` bytes behind its tensors, a hole with which nobody computes. One of them, between
/// two pieces of the sample, has this value. Returns the copy's path.
inline std::filesystem::path twin_of(const std::filesystem::path& model, const std::filesystem::path& copy, char value,
                                     std::uintmax_t more = 1 << 20) {
    std::filesystem::copy_file(model, copy);
    const std::uintmax_t size = std::filesystem::file_size(copy) + more;
    std::filesystem::resize_file(copy, size);
    std::fstream file(copy, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(size - 4500));
    file.put(value);
    return copy;
}

}  // namespace tinfer::test
