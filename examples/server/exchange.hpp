// SPDX-License-Identifier: MIT
// The answers to one request of a client while they come: a mailbox between the engine's thread and a connection's.
#pragma once

#include <tinfer/tinfer.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "answer_memory.hpp"

namespace server {

class Exchange {
public:
    /// Submits all of them, or none. What waits to be taken counts in `memory`, which outlives the engine. Throws what
    /// submit() throws.
    Exchange(tinfer::Engine& engine, std::vector<tinfer::EngineRequest> requests, AnswerMemory& memory);
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;
    /// Cancels what still runs.
    ~Exchange();

    /// The next event and the request that it is about. nullopt after `timeout`. Throws ApiError where the answers had
    /// to go because they took too much.
    [[nodiscard]] std::optional<std::pair<std::size_t, tinfer::EngineEvent>> next(std::chrono::milliseconds timeout);
    /// Counts so many bytes that the reader keeps of the events it has taken. Throws as next() does.
    void keep(std::size_t bytes);
    /// Whether the reader waits for its client.
    void waits(bool is_waiting);
    [[nodiscard]] bool done() const noexcept { return n_ended_ == n_; }
    [[nodiscard]] std::vector<tinfer::RequestId> ids() const;
    void cancel();

private:
    struct Mailbox;
    tinfer::Engine& engine_;
    std::shared_ptr<Mailbox> mailbox_;
    std::size_t n_, n_ended_ = 0;
    std::int64_t kept_ = 0;
};

/// Bytes that tokens with their probabilities take.
[[nodiscard]] std::size_t bytes_of(const std::vector<tinfer::TokenChoice>& tokens) noexcept;

}  // namespace server
