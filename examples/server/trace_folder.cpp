// SPDX-License-Identifier: MIT
#include "trace_folder.hpp"

#include <algorithm>
#include <system_error>

#include "service.hpp"

namespace server {

namespace {

constexpr std::string_view kSuffix = ".tntrace";
/// Less than this holds no trace of any use.
constexpr std::uint64_t kLeastTrace = 64 << 10;

}  // namespace

TraceFolder::TraceFolder(std::filesystem::path folder, std::uint64_t limit)
    : folder_(std::move(folder)), limit_(limit) {
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    using Files = std::filesystem::directory_iterator;
    const Files files = error ? Files() : Files(folder_, error);
    if (error)
        throw tinfer::Error(tinfer::ErrorCode::io_error,
                            folder_.string() + ": a folder for traces cannot be had here: " + error.message());
    for (const auto& entry : files)
        if (entry.path().extension() == kSuffix && entry.is_regular_file(error)) {
            const auto size = entry.file_size(error);
            if (!error) account_->taken += size;
        }
}

TraceFolder::File TraceFolder::open() {
    tinfer::TraceFileOptions options;
    const auto give_back = [account = account_](std::uint64_t reserved, std::uint64_t used) {
        const std::lock_guard lock(account->mutex);
        account->taken = account->taken - reserved + used;
    };
    {
        const std::lock_guard lock(account_->mutex);
        // Half of what is left: however many are written at once, together they never take more.
        options.max_bytes = (limit_ - std::min(limit_, account_->taken)) / 2;
        if (options.max_bytes < kLeastTrace)
            throw ApiError(503,
                           "trace: the folder for traces holds " + std::to_string(account_->taken) +
                               " bytes, and the limit is " + std::to_string(limit_),
                           "trace_folder_full", "trace");
        account_->taken += options.max_bytes;
    }
    const std::string name = new_id("request-") + std::string(kSuffix);
    std::unique_ptr<tinfer::TraceFile> file;
    try {
        file = std::make_unique<tinfer::TraceFile>(folder_ / name, options);
    } catch (const tinfer::Error&) {
        give_back(options.max_bytes, 0);
        // The folder's place is no client's business.
        throw ApiError(500, "trace: the folder for traces takes no file", "io_error", "trace");
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
    return {name, std::shared_ptr<tinfer::TraceFile>(file.release(), end), is_told};
}

json TraceFolder::File::close() {
    json result{{"file", name_}};
    *is_told_ = true;
    try {
        file_->close();
    } catch (const tinfer::Error&) {
        result["error"] = "the disk has not taken all of it";
    }
    result["bytes"] = file_->bytes();
    result["events"] = file_->events() - std::min(file_->events(), file_->dropped());
    result["dropped_events"] = file_->dropped();
    return result;
}

}  // namespace server
