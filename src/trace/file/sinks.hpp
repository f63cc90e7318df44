// SPDX-License-Identifier: MIT
// Where a trace goes: a file, and a thread in front of any other sink.
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "tinfer/trace.hpp"

namespace tinfer::trace {

/// A new file. Throws io_error naming it.
[[nodiscard]] std::unique_ptr<TraceSink> open_file_sink(const std::filesystem::path& path, bool overwrite);

/// Hands bytes to another sink on a thread of its own, through a fixed number of buffers. What the sink throws there is
/// thrown by the next call here.
class AsyncSink final : public TraceSink {
public:
    static constexpr std::size_t kBuffers = 8, kBufferBytes = 256 * 1024;

    explicit AsyncSink(std::unique_ptr<TraceSink> sink);
    ~AsyncSink() override;
    void write(std::span<const std::byte> bytes) override;  ///< waits for room
    void rewrite_start(std::span<const std::byte> bytes) override;
    void sync() override;
    void close() override;
    /// Bytes that can be written without waiting.
    [[nodiscard]] std::size_t room();

private:
    struct Buffer {
        std::vector<std::byte> bytes;
        std::size_t used = 0;
    };
    void work();
    void drain(std::unique_lock<std::mutex>& lock);
    void rethrow();

    std::unique_ptr<TraceSink> sink_;
    std::mutex mutex_;
    std::condition_variable filled_, emptied_;
    std::vector<Buffer> buffers_;  // a ring: `n_filled_` of them from `first_` on wait for the thread
    std::size_t first_ = 0, n_filled_ = 0;
    bool stop_ = false;
    std::exception_ptr error_;
    std::optional<std::jthread> thread_;  // last: it uses all of the others
};

}  // namespace tinfer::trace
