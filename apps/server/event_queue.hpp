// SPDX-License-Identifier: MIT
// The events of the answers to one HTTP request: a mailbox between the engine's thread and the connection's thread.
// When much lies unread in it, its requests are paused until it is read.
#pragma once

#include <tinfer/tinfer.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "adapter_uses.hpp"
#include "answer_memory.hpp"

namespace tinfer::server {

class EventQueue {
public:
    /// Submits all requests, or none. Unread events count in `memory`, which must outlive the engine; `kept` is what
    /// keep() counts from the begin; `uses`, which must outlive it, learns of adapters. Throws what submit() throws,
    /// and what keep() throws.
    EventQueue(tinfer::Engine& engine, std::vector<tinfer::EngineRequest> requests, AnswerMemory& memory,
               std::size_t kept = 0, AdapterUses* uses = nullptr);
    EventQueue(const EventQueue&) = delete;
    EventQueue& operator=(const EventQueue&) = delete;
    /// Cancels requests that still run.
    ~EventQueue();

    /// The next event with the index of its request; nullopt after `timeout`. Throws ApiError if the answers were cut
    /// for lack of memory, or an event was lost for lack of it.
    [[nodiscard]] std::optional<std::pair<std::size_t, tinfer::EngineEvent>> next(std::chrono::milliseconds timeout);
    /// Counts bytes that the reader keeps of events. Throws as next() does.
    void keep(std::size_t bytes);
    /// Tells whether the reader is waiting for its client.
    void waits(bool is_waiting);
    [[nodiscard]] bool done() const noexcept { return n_ended_ == n_; }
    [[nodiscard]] std::vector<tinfer::RequestId> ids() const;

private:
    struct Mailbox;
    void cancel() noexcept;
    void forget_adapters() noexcept;
    tinfer::Engine& engine_;
    AdapterUses* const uses_;
    std::shared_ptr<Mailbox> mailbox_;
    std::size_t n_, n_ended_ = 0;
    std::int64_t kept_ = 0;
};

/// Memory of tokens with their probabilities.
[[nodiscard]] std::size_t bytes_of(const std::vector<tinfer::TokenChoice>& tokens) noexcept;

}  // namespace tinfer::server
