// SPDX-License-Identifier: MIT
// One connection: reads and writes with deadlines, with or without TLS.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <sys/types.h>

namespace tinfer::server {

/// Certificate and key of a server, for TLS 1.2 and later.
class TlsContext;
/// Throws tinfer::Error: io_error if the files are not a matching certificate and key in PEM format, not_available if
/// the program was built without TLS.
[[nodiscard]] std::shared_ptr<TlsContext> make_tls(const std::string& cert, const std::string& key);

/// Waits until a socket is ready for `events` of poll(); false on timeout.
[[nodiscard]] bool wait_for(int sock, short events, std::chrono::steady_clock::time_point until);

/// silent: the client has shut down its sending side, and may still read. A closed connection looks the same until
/// something is written.
enum class Presence : std::uint8_t { here, silent, gone };

/// Used by one thread. Does not own the socket.
class Wire {
public:
    using Clock = std::chrono::steady_clock;

    /// With a TLS context, call accept() first.
    Wire(int sock, TlsContext* tls);
    Wire(const Wire&) = delete;
    Wire& operator=(const Wire&) = delete;
    ~Wire();

    /// TLS handshake. True without TLS.
    [[nodiscard]] bool accept(Clock::time_point until);
    /// 0: end of stream; -1: timeout or broken connection.
    [[nodiscard]] ssize_t read(char* out, std::size_t size, Clock::time_point until);
    /// Writes everything before `until`; `patience` restarts whenever the client reads something.
    [[nodiscard]] bool write(const char* data, std::size_t size, std::chrono::seconds patience,
                             Clock::time_point until = Clock::time_point::max());
    /// Whether read() would return buffered bytes at once.
    [[nodiscard]] bool has_pending() const;
    /// The state of the client, as far as it is known without writing.
    [[nodiscard]] Presence presence();
    /// Whether the client has shut down its sending side, although bytes of it are still to be read. Where the system
    /// does not say so: false.
    [[nodiscard]] bool has_ended() const noexcept;
    /// Sends TLS close_notify, if needed.
    void end();
    [[nodiscard]] int socket() const noexcept { return sock_; }

private:
    struct Tls;
    int sock_;
    std::unique_ptr<Tls> tls_;
};

}  // namespace tinfer::server
