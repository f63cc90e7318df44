// SPDX-License-Identifier: MIT
#include "base/replace_file.hpp"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/mapped_file.hpp"

#if defined(__unix__) || defined(__APPLE__)
#    include <unistd.h>
#endif

namespace tinfer {

ReplacingFile::ReplacingFile(const std::filesystem::path& path) : path_(path) {
    // Names differ between threads and processes; one that is there is somebody else's.
    for (int attempt = 0; attempt < 16 && file_ == nullptr; ++attempt) {
        const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
        const auto place = reinterpret_cast<std::uintptr_t>(this);
        beside_ = cat(path_.string(), ".", static_cast<std::uint64_t>(now) ^ (place >> 4), "-", attempt, ".tmp");
        errno = 0;
        file_ = std::fopen(beside_.c_str(), "wbx");
        if (file_ == nullptr && errno != EEXIST) break;
    }
    if (file_ == nullptr) refuse("cannot be made");
}

ReplacingFile::~ReplacingFile() {
    if (file_ == nullptr) return;
    std::fclose(file_);
    std::remove(beside_.c_str());
}

void ReplacingFile::write(std::span<const std::byte> bytes) {
    errno = 0;
    if (!bytes.empty() && std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size())
        refuse("cannot be written");
}

void ReplacingFile::finish(bool durable) {
    errno = 0;
    if (std::fflush(file_) != 0) refuse("cannot be written");
#if defined(__unix__) || defined(__APPLE__)
    if (durable && ::fsync(::fileno(file_)) != 0 && errno != EINVAL) refuse("cannot be written to its storage");
#else
    (void)durable;
#endif
    errno = 0;
    std::error_code error;
    if (std::fclose(std::exchange(file_, nullptr)) == 0) std::filesystem::rename(beside_, path_, error);
    else error = std::error_code(errno, std::generic_category());
    if (!error) return;
    std::remove(beside_.c_str());
    errno = error.value();
    refuse("cannot be put in its place");
}

void ReplacingFile::refuse(std::string_view what) const {
    const int number = errno;
    fail(ErrorCode::io_error,
         cat(display_name(path_), ": ", what, number != 0 ? ": " : "", number != 0 ? errno_text(number) : ""));
}

}  // namespace tinfer
