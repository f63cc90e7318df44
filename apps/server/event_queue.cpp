// SPDX-License-Identifier: MIT
#include "event_queue.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>

namespace tinfer::server {

namespace {

constexpr std::size_t kBlock = 16;  ///< overhead of an allocation

std::size_t bytes_of(const tinfer::EngineEvent& event) noexcept {
    return sizeof event + event.text.capacity() + 2 * kBlock + server::bytes_of(event.tokens) +
           server::bytes_of(event.prompt) + event.vector.capacity() * sizeof(float) +
           (event.routed ? event.routed->ids.capacity() * sizeof(event.routed->ids[0]) : 0);
}

}  // namespace

std::size_t bytes_of(const std::vector<tinfer::TokenChoice>& tokens) noexcept {
    std::size_t sum = tokens.capacity() * sizeof(tinfer::TokenChoice);
    for (const auto& token : tokens) {
        sum += token.top.capacity() * sizeof(token.top[0]) + token.asked.capacity() * sizeof(float) + kBlock;
        if (token.piece.capacity() > std::string().capacity()) sum += token.piece.capacity() + kBlock;
    }
    return sum;
}

struct EventQueue::Mailbox {
    struct Message {
        std::size_t index;
        tinfer::EngineEvent event;
        std::int64_t bytes;
    };

    /// Thrown at the engine, which then cancels the request.
    struct Unwanted {};

    Mailbox(tinfer::Engine& given, AnswerMemory& memory) : engine(given), account(memory, [this] { yield(); }) {}

    /// Called on the engine's thread. What it throws ends the request; without memory its reader hears of it.
    void put(std::size_t index, const tinfer::EngineEvent& event) {
        try {
            Message message{index, event, 0};
            message.bytes = static_cast<std::int64_t>(sizeof message + bytes_of(message.event));
            if (!account.add(message.bytes)) throw Unwanted();
            const std::int64_t most_unread = account.most_unread();
            const std::lock_guard lock(mutex);
            if (has_given_way) throw Unwanted();
            const bool goes_on = !message.event.ended();
            n_unread += message.bytes;
            events.push_back(std::move(message));
            if (goes_on && n_unread > most_unread) pause(event.request);
        } catch (const Unwanted&) {
            throw;
        } catch (...) {
            const std::lock_guard lock(mutex);
            has_lost = true;
            arrived.notify_one();
            throw;
        }
        arrived.notify_one();
    }
    /// Called on any thread, which may hold other locks.
    void yield() noexcept {
        const std::lock_guard lock(mutex);
        has_given_way = true;
        events.clear();
        for (const auto id : ids) engine.cancel(id);
        arrived.notify_one();
    }

    /// Called with the lock held.
    void pause(tinfer::RequestId id) noexcept {
        is_paused = true;
        engine.pause(id);
    }
    /// Called with the lock held, when a message was taken out.
    void was_read(std::int64_t bytes, std::int64_t most_unread) noexcept {
        n_unread -= bytes;
        if (!is_paused || (!events.empty() && n_unread > most_unread / 2)) return;
        for (const auto id : ids) engine.resume(id);
        is_paused = false;
    }

    tinfer::Engine& engine;
    std::mutex mutex;
    std::condition_variable arrived;
    std::deque<Message> events;
    std::int64_t n_unread = 0;  ///< bytes of `events`
    std::vector<tinfer::RequestId> ids;
    bool is_paused = false;  ///< one of them, or several
    bool has_given_way = false;
    bool has_lost = false;  ///< an event could not be kept
    AnswerMemory::Account account;
};

EventQueue::EventQueue(tinfer::Engine& engine, std::vector<tinfer::EngineRequest> requests, AnswerMemory& memory,
                       std::size_t kept, AdapterUses* uses)
    : engine_(engine), uses_(uses), mailbox_(std::make_shared<Mailbox>(engine, memory)), n_(requests.size()) {
    keep(kept);
    mailbox_->ids.reserve(requests.size());
    try {
        for (std::size_t i = 0; i < requests.size(); ++i) {
            std::vector<std::string> adapters;
            for (const auto& use : requests[i].adapters) adapters.push_back(use.name);
            const auto id = engine_.submit(
                std::move(requests[i]), [box = mailbox_, i](const tinfer::EngineEvent& event) { box->put(i, event); });
            if (uses_ != nullptr && !adapters.empty()) uses_->add(id, std::move(adapters));
            const std::lock_guard lock(mailbox_->mutex);
            mailbox_->ids.push_back(id);
            if (mailbox_->has_given_way) engine_.cancel(id);
        }
    } catch (...) {
        cancel();
        forget_adapters();
        throw;
    }
}

EventQueue::~EventQueue() {
    if (!done()) cancel();
    forget_adapters();
}

void EventQueue::forget_adapters() noexcept {
    if (uses_ == nullptr) return;
    const std::lock_guard lock(mailbox_->mutex);
    for (const auto id : mailbox_->ids) uses_->remove(id);
}

void EventQueue::cancel() noexcept { mailbox_->yield(); }

std::vector<tinfer::RequestId> EventQueue::ids() const {
    const std::lock_guard lock(mailbox_->mutex);
    return mailbox_->ids;
}

std::optional<std::pair<std::size_t, tinfer::EngineEvent>> EventQueue::next(std::chrono::milliseconds timeout) {
    const std::int64_t most_unread = mailbox_->account.most_unread();
    std::unique_lock lock(mailbox_->mutex);
    const bool is_there = mailbox_->arrived.wait_for(
        lock, timeout, [this] { return !mailbox_->events.empty() || mailbox_->has_given_way || mailbox_->has_lost; });
    if (mailbox_->has_lost) throw ApiError(503, "out of memory", "out_of_memory");
    if (mailbox_->has_given_way) {
        lock.unlock();
        throw mailbox_->account.reason();
    }
    if (!is_there) return std::nullopt;
    auto message = std::move(mailbox_->events.front());
    mailbox_->events.pop_front();
    mailbox_->was_read(message.bytes, most_unread);
    lock.unlock();
    if (!mailbox_->account.add(-message.bytes)) throw mailbox_->account.reason();
    if (message.event.ended()) ++n_ended_;
    return std::pair(message.index, std::move(message.event));
}

void EventQueue::keep(std::size_t bytes) {
    const auto more = static_cast<std::int64_t>(bytes) - kept_;
    kept_ += more;
    if (!mailbox_->account.add(more)) throw mailbox_->account.reason();
}

void EventQueue::waits(bool is_waiting) { mailbox_->account.waits(is_waiting); }

}  // namespace tinfer::server
