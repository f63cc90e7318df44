// SPDX-License-Identifier: MIT
#include "output_file.hpp"

#include <tinfer/error.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

namespace cli {

void check_output(const std::string& path, std::string_view option, std::span<const std::string> inputs) {
    namespace fs = std::filesystem;
    if (path.empty()) return;
    const auto refuse = [&](const std::string& what) {
        throw tinfer::Error(tinfer::ErrorCode::io_error, std::string(option) + " " + path + ": " + what);
    };
    std::error_code ignored;
    const auto status = fs::status(path, ignored);
    if (fs::is_directory(status)) refuse("is a directory, a file is to be written");
    for (const auto& input : inputs)
        if (fs::equivalent(path, input, ignored)) refuse("is read too, another file is needed");
    if (fs::exists(status) && !fs::is_regular_file(status)) return;  // opening a pipe waits for its reader
    const bool is_new = !fs::exists(status);
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "ab"), std::fclose);
    if (file == nullptr) refuse(std::string("cannot be written: ") + std::strerror(errno));
    if (is_new) fs::remove(path, ignored);
}

}  // namespace cli
