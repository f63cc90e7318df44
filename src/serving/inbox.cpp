// SPDX-License-Identifier: MIT
#include "serving/inbox.hpp"

#include <algorithm>
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
    active_.push_back(request.get());
    try {
        pending_.requests.push_back(std::move(request));
    } catch (...) {
        active_.pop_back();
        throw;
    }
    ++last_id_;
    ++n_queued_;
    ++stats_.submitted;
    news_.notify_one();
    return id;
}

void Inbox::cancel(RequestId id) noexcept {
    const std::lock_guard lock(mutex_);
    Request* const request = find(id);
    if (request == nullptr) return;
    request->is_cancelled = true;
    pending_.has_marks = true;
    is_urgent_.store(true, std::memory_order_release);
    news_.notify_one();
}

void Inbox::pause(RequestId id, bool is_paused) noexcept {
    const std::lock_guard lock(mutex_);
    Request* const request = find(id);
    if (request == nullptr || request->pools()) return;
    request->is_paused = is_paused;
    pending_.has_marks = true;
    news_.notify_one();
}

Request* Inbox::find(RequestId id) const noexcept {
    const auto at = std::ranges::lower_bound(active_, id, {}, &Request::id);
    return at == active_.end() || (*at)->id != id ? nullptr : *at;
}

bool Inbox::drain(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    draining_ = true;
    return all_ended_.wait_for(lock, limit, [&] { return active_.empty(); });
}

void Inbox::stop() noexcept {
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

bool Inbox::has_news() const noexcept { return pending_.stop || pending_.has_marks || !pending_.requests.empty(); }

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

void Inbox::request_ended(const Request& request) noexcept {
    const std::lock_guard lock(mutex_);
    std::erase(active_, &request);
    if (active_.empty()) all_ended_.notify_all();
}

void Inbox::publish(std::vector<SlotInfo>&& slots) {
    const std::lock_guard lock(mutex_);
    slots_ = std::move(slots);
}

}  // namespace tinfer::serving
