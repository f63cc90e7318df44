// SPDX-License-Identifier: MIT
// One connection: reads requests, each within its limits of bytes and time, and writes their responses. A request of
// which something stays unread, or that was malformed, is the last one.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string_view>

#include "http.hpp"

namespace tinfer::server {

struct ConnectionLimits {
    std::chrono::seconds read{30};        ///< head and body of one request, together
    std::chrono::seconds keep_alive{30};  ///< idle time before the next request
    std::chrono::seconds write{30};       ///< time without progress of a client
    std::chrono::seconds whole{660};      ///< from the first byte of a request to the last of its response
    std::size_t max_body = 8u << 20;      ///< bytes
};

/// Maximum bytes of the head of a request.
inline constexpr std::size_t kMaxHead = 64 << 10;

/// State that all connections share.
struct ConnectionGroup {
    ConnectionGroup(Application& given, ConnectionLimits allowed, std::size_t max_bodies) noexcept
        : application(given), limits(allowed), bodies(max_bodies) {}
    Application& application;
    const ConnectionLimits limits;
    BodyMemory bodies;
    std::atomic<std::int64_t> n_answering{0};  ///< requests that were read and are not completely answered
    std::atomic<bool> closing{false};          ///< connections end when they are idle, or after their response
};

class Connection {
public:
    /// `wire`: after its handshake. Both must outlive the connection.
    Connection(Wire& wire, ConnectionGroup& group) noexcept : wire_(wire), group_(group), client_(wire) {}
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    /// Serves requests until the connection has to end.
    void serve() noexcept;

private:
    using Clock = std::chrono::steady_clock;

    [[nodiscard]] bool wait_for_request();
    [[nodiscard]] bool serve_request();
    [[nodiscard]] bool read_head(Response& response, Head& head);
    [[nodiscard]] Body read_body(const Head& head);
    void read_more();
    [[noreturn]] void incomplete(ssize_t n) const;
    [[nodiscard]] bool respond(const Head* head, Response& response, bool keeps);
    [[nodiscard]] bool refuse(const Head* head, Response& response, const ApiError& error);
    [[nodiscard]] bool write_source(const Response::Source& source, std::string_view head, bool is_chunked);
    [[nodiscard]] bool write(std::string_view bytes);
    [[nodiscard]] bool write_chunk(std::string_view bytes);
    [[nodiscard]] std::string_view unread() const noexcept { return {buffer_.data() + begin_, end_ - begin_}; }

    Wire& wire_;
    ConnectionGroup& group_;
    Client client_;
    Clock::time_point begun_ = Clock::now(), read_until_{}, write_until_{};
    std::size_t begin_ = 0, end_ = 0;                 ///< unread bytes in the buffer
    std::array<char, kMaxHead + (16 << 10)> buffer_;  ///< a head, and behind it a window on what follows
};

}  // namespace tinfer::server
