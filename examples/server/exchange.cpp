// SPDX-License-Identifier: MIT
#include "exchange.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>

namespace server {

struct Exchange::Mailbox {
    std::mutex mutex;
    std::condition_variable arrived;
    std::deque<std::pair<std::size_t, tinfer::EngineEvent>> events;
};

Exchange::Exchange(tinfer::Engine& engine, std::vector<tinfer::EngineRequest> requests)
    : engine_(engine), mailbox_(std::make_shared<Mailbox>()) {
    ids_.reserve(requests.size());
    try {
        for (std::size_t i = 0; i < requests.size(); ++i)
            ids_.push_back(
                engine_.submit(std::move(requests[i]), [box = mailbox_, i](const tinfer::EngineEvent& event) {
                    const std::lock_guard lock(box->mutex);
                    box->events.emplace_back(i, event);
                    box->arrived.notify_one();
                }));
    } catch (...) {
        cancel();
        throw;
    }
}

Exchange::~Exchange() {
    if (!done()) cancel();
}

void Exchange::cancel() {
    for (const auto id : ids_) engine_.cancel(id);
}

std::optional<std::pair<std::size_t, tinfer::EngineEvent>> Exchange::next(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mailbox_->mutex);
    if (!mailbox_->arrived.wait_for(lock, timeout, [this] { return !mailbox_->events.empty(); })) return std::nullopt;
    auto event = std::move(mailbox_->events.front());
    mailbox_->events.pop_front();
    if (event.second.ended()) ++n_ended_;
    return event;
}

}  // namespace server
