// SPDX-License-Identifier: MIT
// The answers to one request of a client while they come: a mailbox between the engine's thread and a connection's.
#pragma once

#include <tinfer/tinfer.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace server {

class Exchange {
public:
    /// Submits all of them, or none. Throws what submit() throws.
    Exchange(tinfer::Engine& engine, std::vector<tinfer::EngineRequest> requests);
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;
    /// Cancels what still runs.
    ~Exchange();

    /// The next event and the request that it is about. nullopt after `timeout`.
    [[nodiscard]] std::optional<std::pair<std::size_t, tinfer::EngineEvent>> next(std::chrono::milliseconds timeout);
    [[nodiscard]] bool done() const noexcept { return n_ended_ == ids_.size(); }
    [[nodiscard]] const std::vector<tinfer::RequestId>& ids() const noexcept { return ids_; }
    void cancel();

private:
    struct Mailbox;
    tinfer::Engine& engine_;
    std::shared_ptr<Mailbox> mailbox_;
    std::vector<tinfer::RequestId> ids_;
    std::size_t n_ended_ = 0;
};

}  // namespace server
