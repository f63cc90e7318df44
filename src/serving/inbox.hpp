// SPDX-License-Identifier: MIT
// The interface between the engine's thread and others: requests and cancellations go in, published state comes out.
// The only lock in src/serving. Taking a request in needs memory; ending, pausing and resuming it needs none, because
// that has to work when memory runs out.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "serving/request.hpp"

namespace tinfer::serving {

class Inbox {
public:
    using Owned = std::unique_ptr<Request>;
    using List = std::list<Owned>;

    explicit Inbox(std::size_t max_queue) : max_queue_(max_queue) {}

    // -- for other threads

    /// Assigns the request's id. Throws limit_exceeded if the queue is full.
    RequestId post(Owned request);
    void cancel(RequestId id) noexcept;
    void pause(RequestId id, bool is_paused) noexcept;
    /// Accepts no more requests, and waits up to `limit` until all have ended. False on timeout.
    bool drain(std::chrono::milliseconds limit);
    /// Tells the engine's thread to end all requests and exit.
    void stop() noexcept;
    [[nodiscard]] EngineStats stats() const;
    [[nodiscard]] std::vector<SlotInfo> slots() const;

    // -- for the engine's thread

    struct News {
        List requests;
        bool has_marks = false;  ///< requests were cancelled, paused or resumed: Request::is_cancelled, is_paused
        bool stop = false;
    };
    /// Everything posted since the last call; if `idle`, blocks until there is something.
    [[nodiscard]] News take(bool idle) noexcept;
    /// Blocks until there is something, or for so long.
    void wait(std::chrono::milliseconds limit);
    /// Whether a cancellation or stop is pending; polled between time slices.
    [[nodiscard]] bool is_urgent() const noexcept { return is_urgent_.load(std::memory_order_acquire); }
    void left_queue();          ///< a request starts for the first time, or ends before it did
    void leaves(RequestId id);  ///< removes it from slots() and stats()
    /// Its last event was delivered. It is destroyed after this.
    void request_ended(const Request& request) noexcept;
    template <class Fn>
    void update(Fn&& fn) {
        const std::lock_guard lock(mutex_);
        fn(stats_);
    }
    void publish(std::vector<SlotInfo>&& slots);

private:
    [[nodiscard]] bool has_news() const noexcept;
    /// nullptr: it has ended, or never was.
    [[nodiscard]] Request* find(RequestId id) const noexcept;

    mutable std::mutex mutex_;
    std::condition_variable news_, all_ended_;
    News pending_;
    std::vector<Request*> active_;  ///< that have not ended, by id
    std::size_t max_queue_, n_queued_ = 0;
    std::uint64_t last_id_ = 0;
    bool draining_ = false;
    std::atomic<bool> is_urgent_{false};
    EngineStats stats_;
    std::vector<SlotInfo> slots_;
};

}  // namespace tinfer::serving
