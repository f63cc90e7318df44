// SPDX-License-Identifier: MIT
#include "output_file.hpp"

#include <tinfer/base.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

namespace tinfer::app {

void check_output(const std::string& path, std::string_view option, std::span<const std::string> inputs,
                  bool overwrite) {
    namespace fs = std::filesystem;
    if (path.empty()) return;
    const auto refuse = [&](const std::string& what) {
        throw tinfer::Error(tinfer::ErrorCode::io_error, std::string(option) + " " + path + ": " + what);
    };
    std::error_code ignored;
    const auto status = fs::status(path, ignored);
    if (fs::is_directory(status)) refuse("is a directory, a file is to be written");
    if (!overwrite && fs::exists(status)) refuse("is there already (see --overwrite)");
    for (const auto& input : inputs)
        if (fs::equivalent(path, input, ignored)) refuse("is read too, another file is needed");
    if (fs::exists(status) && !fs::is_regular_file(status)) return;  // opening a pipe would block until it has a reader
    const bool is_new = !fs::exists(status);
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "ab"), std::fclose);
    if (file == nullptr) refuse(std::string("cannot be written: ") + std::strerror(errno));
    if (is_new) fs::remove(path, ignored);
}

OutputFile::OutputFile(const std::string& path) : path_(path), place_(path) {
    namespace fs = std::filesystem;
    std::error_code error;
    const auto status = fs::status(path, error);
    is_new_ = !fs::exists(status);
    if (fs::is_directory(status)) {
        errno = EISDIR;
        refuse();
    }
    if (is_new_ || fs::is_regular_file(status)) {
        if (const auto followed = fs::canonical(path, error); !error) place_ = followed.string();
        // An existing name belongs to another process, or is left over from a crash.
        for (int attempt = 0; attempt < 16 && file_ == nullptr; ++attempt) {
            const std::string end = "." + std::to_string(attempt) + ".part";
            const auto open_beside = [&](std::string name) {
                beside_ = std::move(name);
                errno = 0;
                file_ = std::fopen(beside_.c_str(), "wbx");
            };
            open_beside(place_ + end);
            if (file_ == nullptr && errno == ENAMETOOLONG)
                open_beside((fs::path(place_).parent_path() / (".tinfer" + end)).string());
            if (file_ == nullptr && errno != EEXIST) break;
        }
        if (file_ == nullptr) {  // a file that is there is not written in its place: a write may fail half way
            beside_.clear();
            if (!is_new_) refuse();
        } else if (!is_new_) {
            fs::permissions(beside_, status.permissions(), error);
        }
    }
    if (file_ == nullptr) file_ = std::fopen(place_.c_str(), "wb");
    if (file_ == nullptr) refuse();
}

OutputFile::~OutputFile() {
    if (file_ == nullptr) return;
    std::fclose(file_);
    if (!beside_.empty()) std::remove(beside_.c_str());
    else if (is_new_) std::remove(place_.c_str());
}

void OutputFile::write(std::string_view bytes) {
    errno = 0;
    if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) refuse();
}

void OutputFile::finish() {
    errno = 0;
    if (std::fflush(file_) != 0) refuse();
    // Network file systems report errors at close.
    const bool is_closed = std::fclose(std::exchange(file_, nullptr)) == 0;
    if (is_closed && (beside_.empty() || std::rename(beside_.c_str(), place_.c_str()) == 0)) return;
    const int number = errno;
    if (!beside_.empty()) std::remove(beside_.c_str());
    else if (is_new_) std::remove(place_.c_str());
    errno = number;
    refuse();
}

void OutputFile::refuse() const {
    const std::string why = errno != 0 ? std::string(": ") + std::strerror(errno) : std::string();
    throw tinfer::Error(tinfer::ErrorCode::io_error, path_ + ": cannot be written" + why);
}

}  // namespace tinfer::app
