// SPDX-License-Identifier: MIT
// Accepts connections on one address and gives each a thread, with a limit on their number. With or without TLS.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "connection.hpp"

namespace tinfer::server {

/// What follows from a failed accept(2).
enum class AcceptFailure : std::uint8_t {
    again,  ///< it concerns one connection, or nothing: accept the next one
    wait,   ///< descriptors or memory are short: later there may be some
    fatal,  ///< the listening socket is unusable
};
[[nodiscard]] AcceptFailure accept_failure(int error) noexcept;

class Listener {
public:
    /// `tls` null: plain HTTP. `application` must outlive the listener. `max_bodies`: bytes of all bodies together.
    Listener(Application& application, ConnectionLimits limits, std::int64_t max_connections, std::size_t max_bodies,
             std::shared_ptr<TlsContext> tls = {});
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;
    /// Breaks all connections, and waits for their threads.
    ~Listener();

    /// Listens on an address, and begins to accept connections. Port 0: any that is free. Returns the port. Throws
    /// tinfer::Error: io_error. Call it once.
    int listen(const std::string& host, int port);
    /// Why no more connections can be accepted, as an errno; 0 as long as they can. Any thread.
    [[nodiscard]] int failure() const noexcept { return failure_; }
    /// Closes idle connections now, and others after their current response. Any thread.
    void close_idle() noexcept { group_.closing = true; }
    /// Number of requests that were read and are not completely answered. Any thread.
    [[nodiscard]] std::int64_t n_answering() const noexcept { return group_.n_answering; }

private:
    void accept_all() noexcept;
    void start(int sock) noexcept;
    void run(int sock, bool is_beyond_limit) noexcept;

    ConnectionGroup group_;
    const std::shared_ptr<TlsContext> tls_;
    const std::int64_t max_connections_;
    int listening_ = -1;
    std::atomic<bool> stops_{false};
    std::atomic<int> failure_{0};
    std::mutex mutex_;
    std::condition_variable ended_;
    std::set<int> open_;              ///< sockets that have a thread
    std::int64_t n_connections_ = 0;  ///< of them, those within the limit
    std::thread accepting_;
};

}  // namespace tinfer::server
