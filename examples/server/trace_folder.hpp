// SPDX-License-Identifier: MIT
// Where traces of requests go that asked for one: a folder whose size is bounded.
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

namespace server {

class TraceFolder {
public:
    /// Makes the folder where it is not there. Traces that lie in it already count. Throws tinfer::Error: io_error.
    TraceFolder(std::filesystem::path folder, std::uint64_t limit);
    TraceFolder(const TraceFolder&) = delete;
    TraceFolder& operator=(const TraceFolder&) = delete;

    /// The trace of one answer. It may go before the engine has let go of its observer. Where close() was not called,
    /// nobody has heard of the file, and it is removed.
    class File {
    public:
        File(std::filesystem::path path, std::shared_ptr<tinfer::TraceFile> file,
             std::shared_ptr<std::atomic<bool>> is_told)
            : path_(std::move(path)), file_(std::move(file)), is_told_(std::move(is_told)) {}
        [[nodiscard]] const std::shared_ptr<tinfer::TraceFile>& observer() const noexcept { return file_; }
        /// Its name in the folder, its size, and how many events are in it and are not. Call it once, behind the event
        /// that ends the request. What the disk did not take is told in `error`.
        [[nodiscard]] json close();

    private:
        std::filesystem::path path_;
        std::shared_ptr<tinfer::TraceFile> file_;
        std::shared_ptr<std::atomic<bool>> is_told_;
    };
    /// Any thread. Makes the folder again where somebody has removed it, and looks again what lies in it before it says
    /// that it is full. Throws ApiError 503 where it is, or takes no file.
    [[nodiscard]] File open();

private:
    /// Lives as long as the last file that is written.
    struct Account {
        std::mutex mutex;
        std::uint64_t closed = 0,
                      reserved = 0;  ///< bytes of files that are closed, and that those may take that are not
        std::set<std::string> open;  ///< names of these
    };
    /// Sums what lies in the folder and is not being written, under the account's lock.
    void count(std::error_code& error);
    std::filesystem::path folder_;
    const std::uint64_t limit_;
    std::shared_ptr<Account> account_ = std::make_shared<Account>();
};

}  // namespace server
