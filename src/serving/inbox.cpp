// SPDX-License-Identifier: MIT
#include "serving/inbox.hpp"

#include <new>
#include <utility>

#include "base/error.hpp"

namespace tinfer::serving {

RequestId Inbox::post(Owned request) {
    const std::lock_guard lock(mutex_);
    if (draining_ || pending_.stop) {
        ++stats_.refused;
        fail(ErrorCode::limit_exceeded, "engine: it is being drained and takes no more requests");
    }
    if (n_queued_ >= max_queue_) {
        ++stats_.refused;
        fail(ErrorCode::limit_exceeded, cat("engine: ", n_queued_, " requests wait, limit max_queue = ", max_queue_));
    }
    const RequestId id{last_id_ + 1};
    request->id = id;
    pending_.requests.push_back(std::move(request));
    ++last_id_;
    ++n_queued_;
    ++n_active_;
    ++stats_.submitted;
    news_.notify_one();
    return id;
}

// An allocation that fails is tried once more: a paused request whose cancellation is lost would stay for ever.
void Inbox::cancel(RequestId id) {
    const std::lock_guard lock(mutex_);
    try {
        pending_.cancels.push_back(id);
    } catch (const std::bad_alloc&) {
        pending_.cancels.push_back(id);
    }
    is_urgent_.store(true, std::memory_order_release);
    news_.notify_one();
}

void Inbox::pause(RequestId id, bool is_paused) {
    const std::lock_guard lock(mutex_);
    pending_.pauses.emplace_back(id, is_paused);
    news_.notify_one();
}

bool Inbox::drain(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    draining_ = true;
    return all_ended_.wait_for(lock, limit, [&] { return n_active_ == 0; });
}

void Inbox::stop() {
    const std::lock_guard lock(mutex_);
    pending_.stop = true;
    is_urgent_.store(true, std::memory_order_release);
    news_.notify_one();
}

EngineStats Inbox::stats() const {
    const std::lock_guard lock(mutex_);
    EngineStats stats = stats_;
    stats.queued = n_queued_;
    return stats;
}

std::vector<SlotInfo> Inbox::slots() const {
    const std::lock_guard lock(mutex_);
    return slots_;
}

Inbox::News Inbox::take(bool idle) noexcept {
    std::unique_lock lock(mutex_);
    if (idle) news_.wait(lock, [&] { return has_news(); });
    const bool stop = pending_.stop;
    News news = std::exchange(pending_, {});
    pending_.stop = stop;
    is_urgent_.store(stop, std::memory_order_release);
    return news;
}

void Inbox::wait(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    news_.wait_for(lock, limit, [&] { return has_news(); });
}

bool Inbox::has_news() const noexcept {
    return pending_.stop || !pending_.requests.empty() || !pending_.cancels.empty() || !pending_.pauses.empty();
}

void Inbox::left_queue() {
    const std::lock_guard lock(mutex_);
    --n_queued_;
}

void Inbox::leaves(RequestId id) {
    const std::lock_guard lock(mutex_);
    std::erase_if(slots_, [&](const SlotInfo& slot) {
        if (slot.request != id) return false;
        if (slot.state != SlotInfo::State::queued && stats_.running > 0) --stats_.running;
        return true;
    });
}

void Inbox::request_ended() {
    const std::lock_guard lock(mutex_);
    if (--n_active_ == 0) all_ended_.notify_all();
}

void Inbox::publish(std::vector<SlotInfo>&& slots) {
    const std::lock_guard lock(mutex_);
    slots_ = std::move(slots);
}

}  // namespace tinfer::serving
