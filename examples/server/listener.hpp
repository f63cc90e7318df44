// SPDX-License-Identifier: MIT
// The HTTP server of cpp-httplib with limits that it does not have: on the number of connections, on the time that a
// client takes for a whole request, and on what is read of a body that is too large.
#pragma once

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <functional>

namespace server {

struct ListenerLimits {
    std::int64_t max_connections = 1000;
    std::chrono::seconds read{30};        ///< head and body of one request, together
    std::chrono::seconds keep_alive{30};  ///< until the next request begins
    std::chrono::seconds write{30};       ///< until a client takes more
    std::size_t max_bytes = 9u << 20;     ///< of one request
};

class Listener : public httplib::Server {
public:
    explicit Listener(ListenerLimits limits);

    [[nodiscard]] std::int64_t n_connections() const noexcept { return n_connections_; }
    /// Behind bind_to_port(): lets as many connections wait to be taken as the system allows; the library says five.
    void widen_backlog() noexcept;
    /// Connections end behind the response they are at; idle ones end at once.
    void close_idle() noexcept { closing_ = true; }

private:
    bool process_and_close_socket(socket_t sock) override;
    bool serve(socket_t sock);

    ListenerLimits limits_;
    std::atomic<std::int64_t> n_connections_{0};
    std::atomic<bool> closing_{false};
};

/// Whether the client of the request that this thread answers has closed its connection.
[[nodiscard]] bool client_gone();
/// Ends the connection of this thread behind its response: what follows cannot be told from the rest of a request.
void close_behind_this() noexcept;
/// A thread for each connection, made when it is needed.
[[nodiscard]] httplib::TaskQueue* new_connection_threads();

}  // namespace server
