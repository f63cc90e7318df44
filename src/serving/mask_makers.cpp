// SPDX-License-Identifier: MIT
#include "serving/mask_makers.hpp"

#include <algorithm>
#include <utility>

namespace tinfer::serving {

namespace {
constexpr std::uint64_t kSlice = 100'000;  // steps: some tens of milliseconds
}

MaskMakers::~MaskMakers() {
    {
        const std::lock_guard lock(mutex_);
        stops_ = true;
    }
    wanted_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

bool MaskMakers::begin(RequestId id, grammar::SlicedConstraint& constraint) noexcept {
    try {
        const std::lock_guard lock(mutex_);
        if (!has_thread()) return false;
        jobs_.push_back({.id = id, .constraint = &constraint});
    } catch (...) {
        return false;
    }
    wanted_.notify_one();
    return true;
}

/// Another thread where all have work; an older one does where none can be made.
bool MaskMakers::has_thread() noexcept {
    if (threads_.size() < max_threads_ && jobs_.size() >= threads_.size()) {
        try {
            threads_.reserve(max_threads_);
            threads_.emplace_back([this] { work(); });
        } catch (...) {  // no memory, or no thread
        }
    }
    return !threads_.empty();
}

std::optional<MaskMakers::Made> MaskMakers::take_made() noexcept {
    const std::lock_guard lock(mutex_);
    const auto made = std::ranges::find(jobs_, true, &Job::is_made);
    if (made == jobs_.end()) return std::nullopt;
    Made out{made->id, std::move(made->thrown)};
    jobs_.erase(made);
    return out;
}

void MaskMakers::forget(RequestId id) noexcept {
    std::unique_lock lock(mutex_);
    const auto find = [&] { return std::ranges::find(jobs_, id, &Job::id); };
    advanced_.wait(lock, [&] {
        const auto job = find();
        return job == jobs_.end() || !job->is_running;
    });
    if (const auto job = find(); job != jobs_.end()) jobs_.erase(job);
}

void MaskMakers::wait(std::chrono::milliseconds limit) noexcept {
    std::unique_lock lock(mutex_);
    advanced_.wait_for(lock, limit, [&] { return std::ranges::find(jobs_, true, &Job::is_made) != jobs_.end(); });
}

std::deque<MaskMakers::Job>::iterator MaskMakers::next() noexcept {
    return std::ranges::find_if(jobs_, [](const Job& job) { return !job.is_running && !job.is_made; });
}

void MaskMakers::work() noexcept {
    std::unique_lock lock(mutex_);
    for (;;) {
        wanted_.wait(lock, [&] { return stops_ || next() != jobs_.end(); });
        if (stops_) return;
        const auto job = next();
        job->is_running = true;
        const RequestId id = job->id;
        grammar::SlicedConstraint* const constraint = job->constraint;
        lock.unlock();
        bool is_made = true;
        std::exception_ptr thrown;
        try {
            is_made = constraint->prepare(kSlice);
        } catch (...) {
            thrown = std::current_exception();
        }
        lock.lock();
        const auto same = std::ranges::find(jobs_, id, &Job::id);  // the list may have moved, but not lost it
        same->is_running = false;
        same->is_made = is_made;
        same->thrown = std::move(thrown);
        if (!is_made) std::rotate(same, same + 1, jobs_.end());  // behind the others
        advanced_.notify_all();
    }
}

}  // namespace tinfer::serving
