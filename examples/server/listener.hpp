// SPDX-License-Identifier: MIT
// The HTTP server of cpp-httplib with limits that it does not have: on the number of connections, on the time that a
// client takes for a whole request, on what is read of a body that is too large, and on the bytes that all requests
// hold together. With and without TLS.
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
    std::chrono::seconds keep_alive{30};  ///< until the next request begins
    std::chrono::seconds write{30};       ///< until a client takes more
    std::chrono::seconds whole{660};      ///< from the first byte of a request until its response is taken
    std::size_t max_bytes = 9u << 20;     ///< of one request
    std::size_t max_held = 72u << 20;     ///< of all requests that are read or answered; one more is told so with 503
};

/// Certificate and key of a server, for TLS 1.2 and later.
class TlsContext;
/// Throws tinfer::Error: io_error where the files hold no certificate and key in PEM form that go together,
/// not_available where the program was built without TLS.
[[nodiscard]] std::shared_ptr<TlsContext> make_tls(const std::string& cert, const std::string& key);

class Listener : public httplib::Server {
public:
    /// `tls` null: plain HTTP.
    explicit Listener(ListenerLimits limits, std::shared_ptr<TlsContext> tls = {});

    [[nodiscard]] std::int64_t n_connections() const noexcept { return n_connections_; }
    /// Behind bind_to_port(): lets as many connections wait to be taken as the system allows; the library says five.
    void widen_backlog() noexcept;
    /// Connections end behind the response they are at; idle ones end at once.
    void close_idle() noexcept { closing_ = true; }
    /// Requests that have been read, and whose responses have not been written.
    [[nodiscard]] std::int64_t n_answering() const noexcept { return n_answering_; }
    /// Breaks all connections, whatever they are at.
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

/// Follows the client of the request that this thread answers. One that has ended its own side gets a few bytes now and
/// then: if it has closed the connection, they come back as a reset.
class ClientWatch {
public:
    /// `ask` writes bytes that mean nothing where the response stands; false: they could not be written.
    explicit ClientWatch(std::function<bool()> ask) : ask_(std::move(ask)) {}
    /// Whether the connection is broken. Looks at most every 20 ms, however often it is called.
    [[nodiscard]] bool gone();

private:
    using Clock = std::chrono::steady_clock;
    std::function<bool()> ask_;
    Clock::time_point look_at_ = Clock::now(), ask_at_{};
    std::chrono::seconds pause_{1};  ///< until it is asked again; longer each time
};
/// An interim response (100), for a ClientWatch before the response begins. True, and nothing written, where the client
/// speaks HTTP/1.0, which has none.
[[nodiscard]] bool write_interim();
/// The request of this thread has been read. `has_interim`: by its head the client understands interim responses.
void begin_answer(bool has_interim) noexcept;
/// Breaks the connection of the thread that has called this; any thread may call what it gives, while the connection
/// is open.
[[nodiscard]] std::function<void()> break_connection();
/// Ends the connection of this thread behind its response: what follows cannot be told from the rest of a request.
void close_behind_this() noexcept;
/// Why the request of this thread could not be read.
enum class ReadFailure : std::uint8_t { none, too_slow, too_large, overloaded };
[[nodiscard]] ReadFailure read_failure() noexcept;

}  // namespace server
