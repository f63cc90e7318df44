// SPDX-License-Identifier: MIT
// Where traces of requests go that asked for one: a folder whose size is bounded.
#pragma once

#include <tinfer/tinfer.hpp>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

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
        File(std::string name, std::shared_ptr<tinfer::TraceFile> file, std::shared_ptr<std::atomic<bool>> is_told)
            : name_(std::move(name)), file_(std::move(file)), is_told_(std::move(is_told)) {}
        [[nodiscard]] const std::shared_ptr<tinfer::TraceFile>& observer() const noexcept { return file_; }
        /// Its name in the folder, its size, and how many events are in it and are not. Call it once, behind the event
        /// that ends the request. What the disk did not take is told in `error`.
        [[nodiscard]] json close();

    private:
        std::string name_;
        std::shared_ptr<tinfer::TraceFile> file_;
        std::shared_ptr<std::atomic<bool>> is_told_;
    };
    /// Any thread. Throws ApiError 503 where the folder is full, 500 where it takes no file.
    [[nodiscard]] File open();

private:
    /// Lives as long as the last file that is written.
    struct Account {
        std::mutex mutex;
        std::uint64_t taken = 0;  ///< of files that are closed, and what those may take that are not
    };
    std::filesystem::path folder_;
    const std::uint64_t limit_;
    std::shared_ptr<Account> account_ = std::make_shared<Account>();
};

}  // namespace server
