// SPDX-License-Identifier: MIT
// A server within the test's own process, so that tests can let its calls fail.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <future>
#include <string>

#include "server/serve.hpp"

namespace tinfer::server::test {

/// Serves a tiny model with a vocabulary until it is stopped.
class RunningServer {
public:
    explicit RunningServer(const std::function<void(ServeOptions&)>& change = {});
    RunningServer(const RunningServer&) = delete;
    RunningServer& operator=(const RunningServer&) = delete;
    ~RunningServer();

    [[nodiscard]] int port() const noexcept { return port_; }
    /// Ends it, and throws what it throws.
    void stop();
    /// Waits for an end that nobody asked for, and throws what the server throws.
    void wait() { serving_.get(); }
    [[nodiscard]] bool is_running() const {
        return serving_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
    }

private:
    std::filesystem::path folder_;
    std::atomic<bool> stops_{false};
    std::future<void> serving_;
    int port_ = 0;
};

}  // namespace tinfer::server::test
