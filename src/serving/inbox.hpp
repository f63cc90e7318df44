// SPDX-License-Identifier: MIT
// Where other threads meet the engine's: requests and cancels go in, what can be seen from outside comes out. The one
// place of src/serving with a lock.
#pragma once

#include <atomic>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "serving/request.hpp"

namespace tinfer::serving {

class Inbox {
public:
    using Owned = std::unique_ptr<Request>;
    using List = std::list<Owned>;

    explicit Inbox(std::size_t max_queue) : max_queue_(max_queue) {}

    // -- for other threads

    /// Gives the request its number. Throws limit_exceeded.
    RequestId post(Owned request);
    void cancel(RequestId id);
    /// Nothing is taken any more; waits until all have ended, or until then.
    bool drain(std::chrono::milliseconds limit);
    /// The engine's thread is to end all requests, and itself.
    void stop();
    [[nodiscard]] EngineStats stats() const;
    [[nodiscard]] std::vector<SlotInfo> slots() const;

    // -- for the engine's thread

    struct News {
        List requests;
        std::vector<RequestId> cancels;
        bool stop = false;
    };
    /// What has come since the last time; waits for something where `idle`.
    [[nodiscard]] News take(bool idle) noexcept;
    /// Somebody wants a request, or the engine, to end: looked at between slices of time.
    [[nodiscard]] bool is_urgent() const noexcept { return is_urgent_.load(std::memory_order_acquire); }
    void left_queue();          ///< a request runs for the first time, or ended before it did
    void leaves(RequestId id);  ///< from now on slots() and stats() know it no more
    void request_ended();       ///< its last event was given
    template <class Fn>
    void update(Fn&& fn) {
        const std::lock_guard lock(mutex_);
        fn(stats_);
    }
    void publish(std::vector<SlotInfo>&& slots);

private:
    mutable std::mutex mutex_;
    std::condition_variable news_, all_ended_;
    News pending_;
    std::size_t max_queue_, n_queued_ = 0, n_active_ = 0;
    std::uint64_t last_id_ = 0;
    bool draining_ = false;
    std::atomic<bool> is_urgent_{false};
    EngineStats stats_;
    std::vector<SlotInfo> slots_;
};

}  // namespace tinfer::serving
