// SPDX-License-Identifier: MIT
// The HTTP server of cpp-httplib with limits that it lacks: on the number of connections, on the time for a whole
// request, on the bytes read of a body that is too large, and on the memory of all requests together. With or without
// TLS.
#pragma once

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>

namespace server {

struct ListenerLimits {
    std::int64_t max_connections = 1000;
    std::chrono::seconds read{30};        ///< head and body of one request, together
    std::chrono::seconds keep_alive{30};  ///< idle time before the next request
    std::chrono::seconds write{30};       ///< time without progress of a client
    std::chrono::seconds whole{660};      ///< from the first byte of a request to the last of its response
    std::size_t max_bytes = 9u << 20;     ///< per request
    std::size_t max_held = 72u << 20;     ///< of all requests in progress; beyond, a request gets 503
};

/// Certificate and key of a server, for TLS 1.2 and later.
class TlsContext;
/// Throws tinfer::Error: io_error if the files are not a matching certificate and key in PEM format, not_available if
/// the program was built without TLS.
[[nodiscard]] std::shared_ptr<TlsContext> make_tls(const std::string& cert, const std::string& key);

class Listener : public httplib::Server {
public:
    /// `tls` null: plain HTTP.
    explicit Listener(ListenerLimits limits, std::shared_ptr<TlsContext> tls = {});

    [[nodiscard]] std::int64_t n_connections() const noexcept { return n_connections_; }
    /// After bind_to_port(): raises the backlog of waiting connections from the library's five to the system's maximum.
    void widen_backlog() noexcept;
    /// Closes idle connections now, and others after their current response.
    void close_idle() noexcept { closing_ = true; }
    /// Number of requests that were read and are not completely answered.
    [[nodiscard]] std::int64_t n_answering() const noexcept { return n_answering_; }
    /// Breaks all connections immediately.
    void break_all() noexcept;

private:
    bool process_and_close_socket(socket_t sock) override;
    bool serve(socket_t sock);

    ListenerLimits limits_;
    std::shared_ptr<TlsContext> tls_;
    std::atomic<std::int64_t> n_connections_{0}, n_answering_{0};
    std::mutex open_mutex_;
    std::set<int> open_;  ///< sockets
    std::atomic<std::size_t> n_held_{0};
    std::atomic<bool> closing_{false};
};

/// Detects whether the client of this thread's request has gone. A half-closed connection looks the same as a closed
/// one, so a few bytes are sent now and then: a closed one answers with a reset.
class ClientWatch {
public:
    /// `ask` writes bytes that are ignored at this point of the response; false if they could not be written.
    explicit ClientWatch(std::function<bool()> ask) : ask_(std::move(ask)) {}
    /// Whether the connection is broken. Checks at most every 20 ms.
    [[nodiscard]] bool gone();

private:
    using Clock = std::chrono::steady_clock;
    std::function<bool()> ask_;
    Clock::time_point look_at_ = Clock::now(), ask_at_{};
    std::chrono::seconds pause_{1};  ///< until the next bytes; grows each time
};
/// Writes an interim response (100), for a ClientWatch before the response begins. True without writing for HTTP/1.0
/// clients, which do not know it.
[[nodiscard]] bool write_interim();
/// Marks this thread's request as read. `has_interim`: the client understands interim responses.
void begin_answer(bool has_interim) noexcept;
/// Returns a function that breaks this thread's connection; any thread may call it while the connection is open.
[[nodiscard]] std::function<void()> break_connection();
/// Closes this thread's connection after the response, because unread bytes of the request may follow.
void close_behind_this() noexcept;
/// Why this thread's request could not be read.
enum class ReadFailure : std::uint8_t { none, too_slow, too_large, overloaded };
[[nodiscard]] ReadFailure read_failure() noexcept;

}  // namespace server
