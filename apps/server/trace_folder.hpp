// SPDX-License-Identifier: MIT
// A folder of bounded size for the traces of requests.
#pragma once

#include <tinfer/tinfer.hpp>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <system_error>

#include "api_error.hpp"
#include "http.hpp"

namespace tinfer::server {

class TraceFolder {
public:
    /// Creates the folder if needed. Traces that are already in it count. Throws tinfer::Error: io_error.
    TraceFolder(std::filesystem::path folder, std::uint64_t limit);
    TraceFolder(const TraceFolder&) = delete;
    TraceFolder& operator=(const TraceFolder&) = delete;

    /// The trace of one answer. May be destroyed while the engine still holds its observer. Without close() the client
    /// does not know of the file, so it is removed.
    class File {
    public:
        File(std::filesystem::path path, std::shared_ptr<tinfer::TraceFile> file,
             std::shared_ptr<std::atomic<bool>> is_told)
            : path_(std::move(path)), file_(std::move(file)), is_told_(std::move(is_told)) {}
        [[nodiscard]] const std::shared_ptr<tinfer::TraceFile>& observer() const noexcept { return file_; }
        /// Returns its name, its size, and the numbers of recorded and lost events. Call it once, after the last event
        /// of the request. Failures to write are reported in `error`.
        [[nodiscard]] Json close();

    private:
        std::filesystem::path path_;
        std::shared_ptr<tinfer::TraceFile> file_;
        std::shared_ptr<std::atomic<bool>> is_told_;
    };
    /// Any thread. Recreates the folder if it was removed, and counts its files again before reporting it as full.
    /// Throws ApiError 503 if it is full or the file cannot be created.
    [[nodiscard]] File open();
    /// Sends a file that close() has named. Any thread. Throws ApiError 404.
    void read(std::string_view name, Response& response) const;

private:
    /// Lives until the last file is closed.
    struct Account {
        std::mutex mutex;
        std::uint64_t closed = 0,
                      reserved = 0;  ///< bytes of closed files; maximum bytes of open ones
        std::set<std::string> open;  ///< names of open files
    };
    /// Sums the sizes of closed files in the folder; the account must be locked.
    void count(std::error_code& error);
    std::filesystem::path folder_;
    const std::uint64_t limit_;
    std::shared_ptr<Account> account_ = std::make_shared<Account>();
};

}  // namespace tinfer::server
