// SPDX-License-Identifier: MIT
#include "trace_folder.hpp"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <system_error>

#include "service.hpp"

namespace tinfer::server {

namespace {

constexpr std::string_view kSuffix = ".tntrace";
/// Smaller traces are useless.
constexpr std::uint64_t kLeastTrace = 64 << 10;

}  // namespace

TraceFolder::TraceFolder(std::filesystem::path folder, std::uint64_t limit)
    : folder_(std::filesystem::absolute(folder).lexically_normal()), limit_(limit) {
    if (!folder_.has_filename()) folder_ = folder_.parent_path();
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    if (!error) count(error);
    if (error)
        throw tinfer::Error(tinfer::ErrorCode::io_error,
                            folder_.string() + ": a folder for traces cannot be had here: " + error.message());
}

void TraceFolder::count(std::error_code& error) {
    std::uint64_t sum = 0;
    std::filesystem::directory_iterator entry(folder_, error);
    for (const std::filesystem::directory_iterator end; !error && entry != end; entry.increment(error)) {
        std::error_code gone;
        if (entry->path().extension() != kSuffix || account_->open.contains(entry->path().filename().string()))
            continue;
        const auto size = entry->is_regular_file(gone) ? entry->file_size(gone) : 0;
        if (!gone) sum += size;
    }
    if (!error) account_->closed = sum;
}

TraceFolder::File TraceFolder::open() {
    tinfer::TraceFileOptions options;
    const std::string name = new_id("request-") + std::string(kSuffix);
    const auto give_back = [account = account_, name](std::uint64_t reserved, std::uint64_t used) {
        const std::lock_guard lock(account->mutex);
        account->reserved -= reserved;
        account->closed += used;
        account->open.erase(name);
    };
    std::error_code error;
    std::filesystem::create_directories(folder_, error);  // an error shows when the file is created
    {
        const std::lock_guard lock(account_->mutex);
        // Each file may take half of the remaining room, so that concurrent files never exceed it.
        const auto half = [&] { return (limit_ - std::min(limit_, account_->closed + account_->reserved)) / 2; };
        if (half() < kLeastTrace) count(error);  // files may have been removed
        options.max_bytes = half();
        if (options.max_bytes < kLeastTrace)
            throw ApiError(503,
                           "trace: the folder for traces holds " +
                               std::to_string(account_->closed + account_->reserved) + " bytes, and the limit is " +
                               std::to_string(limit_),
                           "trace_folder_full", "trace");
        account_->reserved += options.max_bytes;
        account_->open.insert(name);
    }
    std::unique_ptr<tinfer::TraceFile> file;
    try {
        file = std::make_unique<tinfer::TraceFile>(folder_ / name, options);
    } catch (const tinfer::Error& failure) {
        give_back(options.max_bytes, 0);
        std::string reason = failure.what();
        const std::string path = (folder_ / name).string();
        // Do not tell clients the location of the folder.
        if (const auto at = reason.find(path); at != std::string::npos) reason.replace(at, path.size(), name);
        throw ApiError(503,
                       "trace: the folder for traces, '" + folder_.filename().string() + "', takes no file: " + reason,
                       "trace_folder_failed", "trace");
    }
    const auto is_told = std::make_shared<std::atomic<bool>>(false);
    const auto end = [give_back, is_told, path = folder_ / name,
                      reserved = options.max_bytes](tinfer::TraceFile* ended) {
        const auto used = ended->bytes();
        delete ended;
        std::error_code ignored;
        if (!*is_told) std::filesystem::remove(path, ignored);
        give_back(reserved, *is_told ? used : 0);
    };
    return {folder_ / name, std::shared_ptr<tinfer::TraceFile>(file.release(), end), is_told};
}

void TraceFolder::read(std::string_view name, Response& response) const {
    const ApiError unknown(404, "there is no such trace", "not_found");
    // Only what open() names: no separator, no dot but that of the suffix.
    constexpr std::string_view kPrefix = "request-";
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix) || name.size() > 128) throw unknown;
    const auto middle = name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
    if (!std::ranges::all_of(middle, [](unsigned char c) { return std::isalnum(c) != 0 || c == '-'; })) throw unknown;
    {
        const std::lock_guard lock(account_->mutex);
        if (account_->open.contains(std::string(name))) throw unknown;  // it is still being written
    }
    const auto path = folder_ / name;
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    const auto file = std::make_shared<std::ifstream>(path, std::ios::binary);
    if (error || !*file) throw unknown;
    response.status = 200;
    response.set_header("Cache-Control", "no-store");
    response.set_source(size, "application/octet-stream", [file, size](const WriteBytes& write) {
        std::string piece(std::size_t{64} << 10, '\0');
        for (std::uintmax_t rest = size; rest > 0;) {
            const auto n = static_cast<std::size_t>(std::min<std::uintmax_t>(rest, piece.size()));
            if (!file->read(piece.data(), static_cast<std::streamsize>(n))) return false;
            if (!write(std::string_view(piece).substr(0, n))) return false;
            rest -= n;
        }
        return true;
    });
}

Json TraceFolder::File::close() {
    Json result{{"file", path_.filename().string()}};
    *is_told_ = true;
    try {
        file_->close();
    } catch (const tinfer::Error&) {
        result["error"] = "the disk has not taken all of it";
    }
    std::error_code error;
    if (!std::filesystem::exists(path_, error)) result["error"] = "somebody has removed the file";
    result["bytes"] = file_->bytes();
    result["events"] = file_->events() - std::min(file_->events(), file_->dropped());
    result["dropped_events"] = file_->dropped();
    return result;
}

}  // namespace tinfer::server
