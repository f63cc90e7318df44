// SPDX-License-Identifier: MIT
// One connection: bytes in and out before a time, with TLS or without.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <sys/types.h>

namespace server {

class TlsContext;

/// Whether a socket is ready for `events` of poll() before the time is up.
[[nodiscard]] bool wait_for(int sock, short events, std::chrono::steady_clock::time_point until);

/// silent: it sends no more, and may still read. One that has closed its connection looks the same until something is
/// written to it.
enum class Presence : std::uint8_t { here, silent, gone };

/// Of one thread. Does not own the socket.
class Wire {
public:
    using Clock = std::chrono::steady_clock;

    /// With a context accept() comes first.
    Wire(int sock, TlsContext* tls);
    Wire(const Wire&) = delete;
    Wire& operator=(const Wire&) = delete;
    ~Wire();

    /// Agrees with the client on keys. True without TLS.
    [[nodiscard]] bool accept(Clock::time_point until);
    /// 0: the client ends; -1: nothing came in time, or the connection broke.
    [[nodiscard]] ssize_t read(char* out, std::size_t size, Clock::time_point until);
    /// Writes all of it, before `until`; `patience` begins again with whatever the client takes.
    [[nodiscard]] bool write(const char* data, std::size_t size, std::chrono::seconds patience,
                             Clock::time_point until = Clock::time_point::max());
    /// Whether read() gives something without waiting for the socket.
    [[nodiscard]] bool has_pending() const;
    /// What can be told of the client without a word to it.
    [[nodiscard]] Presence presence();
    /// Says goodbye, where that is due.
    void end();
    [[nodiscard]] int socket() const noexcept { return sock_; }

private:
    struct Tls;
    int sock_;
    std::unique_ptr<Tls> tls_;
};

}  // namespace server
