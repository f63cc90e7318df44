// SPDX-License-Identifier: MIT
#include "base/replace_file.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/mapped_file.hpp"

#if defined(__unix__) || defined(__APPLE__)
#    include <fcntl.h>
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

namespace {

/// Gives an errno. Without blocks for all of it (a file system that cannot say so beforehand) the file gets its length.
int take_room([[maybe_unused]] std::FILE* file, [[maybe_unused]] std::uint64_t bytes,
              [[maybe_unused]] const std::string& name) {
    if (bytes == 0) return 0;
#if defined(__linux__)
    int result = 0;
    do result = ::fallocate(::fileno(file), 0, 0, static_cast<::off_t>(bytes));
    while (result != 0 && errno == EINTR);
    if (result == 0) return 0;
    if (errno == ENOSPC || errno == EFBIG || errno == EDQUOT) return errno;
#endif
    std::error_code error;
    std::filesystem::resize_file(name, bytes, error);
    return error.value();
}

}  // namespace

void ReplacingFile::reserve(std::uint64_t bytes) {
    const int number = take_room(file_, bytes, beside_);
    if (number == 0) return;
    std::error_code error;
    const auto space = std::filesystem::space(std::filesystem::path(beside_).parent_path(), error);
    errno = number;
    refuse(cat("needs ", bytes, " bytes", error ? std::string() : cat(", ", space.available, " are free")));
}

void ReplacingFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
#if defined(__unix__) || defined(__APPLE__)
    constexpr std::size_t chunk = std::size_t{64} << 20;  // one call is limited to about 2 GiB on Linux
    while (!bytes.empty()) {
        errno = 0;
        const ::ssize_t count =
            ::pwrite(::fileno(file_), bytes.data(), std::min(chunk, bytes.size()), static_cast<::off_t>(offset));
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) refuse(cat("cannot be written at byte ", offset));
        offset += static_cast<std::uint64_t>(count);
        bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
#else
    errno = 0;
    if (std::fseek(file_, static_cast<long>(offset), SEEK_SET) != 0) refuse(cat("has no byte ", offset));
    write(bytes);
#endif
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
