// SPDX-License-Identifier: MIT
#include "listener.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>

#include <tinfer/tinfer.hpp>

namespace tinfer::server {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookForStop{100};
constexpr std::chrono::milliseconds kWaitForMemory{50};
constexpr int kSendBuffer = 128 << 10;         ///< bytes that the system keeps for a client that does not read
constexpr int kFailuresInARow = 16;            ///< that cost no pause
constexpr std::int64_t kRefusedAtOnce = 64;    ///< connections beyond the limit that are told so with patience
constexpr std::int64_t kReadAtEnd = 32 << 20;  ///< bytes to read at most from a client after the response

constexpr std::string_view kFull =
    "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Reads what is still arriving for a moment; otherwise a reset could discard the response.
void end_gently(int sock) noexcept {
    ::shutdown(sock, SHUT_WR);
    const auto until = Clock::now() + std::chrono::seconds(1);
    std::array<char, 16384> ignored;
    for (std::int64_t n_left = kReadAtEnd; n_left > 0 && wait_for(sock, POLLIN, until);) {
        const auto n = recv(sock, ignored.data(), ignored.size(), MSG_DONTWAIT);
        if (n <= 0) break;
        n_left -= n;
    }
}

/// Says that the server is full, to a client of plain HTTP.
void say_full(int sock, bool is_plain) noexcept {
    if (is_plain) (void)send(sock, kFull.data(), kFull.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/// A socket that listens on one of the addresses of `host`; -1, with errno, if there is none.
int listen_on(const addrinfo& address) noexcept {
    const int sock =
        ::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol);
    if (sock < 0) return -1;
    const int yes = 1, no = 0;
    // SO_REUSEPORT would let a second program listen on the same address.
    (void)setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (address.ai_family == AF_INET6) (void)setsockopt(sock, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    if (::bind(sock, address.ai_addr, address.ai_addrlen) == 0 && ::listen(sock, SOMAXCONN) == 0) return sock;
    const int error = errno;
    ::close(sock);
    errno = error;
    return -1;
}

int port_of(int sock) noexcept {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    if (getsockname(sock, reinterpret_cast<sockaddr*>(&address), &size) != 0) return -1;
    in_port_t port = 0;  // the same place in both kinds of addresses
    static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
    std::memcpy(&port, reinterpret_cast<const char*>(&address) + offsetof(sockaddr_in, sin_port), sizeof port);
    return ntohs(port);
}

}  // namespace

AcceptFailure accept_failure(int error) noexcept {
    switch (error) {
        case EMFILE:
        case ENFILE:
        case ENOBUFS:
        case ENOMEM: return AcceptFailure::wait;
        case EBADF:
        case EFAULT:
        case EINVAL:
        case ENOTSOCK: return AcceptFailure::fatal;
        default: return AcceptFailure::again;  // errors of the network or of a connection that is gone: accept(2)
    }
}

Listener::Listener(Application& application, ConnectionLimits limits, std::int64_t max_connections,
                   std::size_t max_bodies, std::shared_ptr<TlsContext> tls)
    : group_(application, limits, max_bodies), tls_(std::move(tls)), max_connections_(max_connections) {}

Listener::~Listener() {
    close_idle();
    stops_ = true;
    if (accepting_.joinable()) accepting_.join();
    std::unique_lock lock(mutex_);
    for (const int sock : open_) (void)::shutdown(sock, SHUT_RDWR);
    ended_.wait(lock, [this] { return open_.empty(); });
}

int Listener::listen(const std::string& host, int port) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const int unknown = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
    const auto fail = [&](const std::string& why) {
        throw tinfer::Error(tinfer::ErrorCode::io_error,
                            host + ":" + std::to_string(port) + ": this address cannot be listened on: " + why);
    };
    if (unknown != 0) fail(gai_strerror(unknown));
    for (const auto* address = found; address != nullptr && listening_ < 0; address = address->ai_next)
        listening_ = listen_on(*address);
    if (listening_ < 0) fail(std::generic_category().message(errno));
    accepting_ = std::thread([this] { accept_all(); });
    return port_of(listening_);
}

void Listener::accept_all() noexcept {
    int n_failures = 0;  // in a row
    while (!stops_ && failure_ == 0) {
        if (!wait_for(listening_, POLLIN, Clock::now() + kLookForStop)) continue;
        const int sock = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (sock >= 0) {
            start(sock);
            n_failures = 0;
            continue;
        }
        const int error = errno;
        const auto failure = accept_failure(error);
        if (failure == AcceptFailure::fatal) failure_ = error;
        if (failure == AcceptFailure::wait || ++n_failures > kFailuresInARow)
            std::this_thread::sleep_for(kWaitForMemory);
    }
    ::close(listening_);
}

/// Gives a connection a thread. Without one it is told so and closed at once: served here it would keep all others out.
void Listener::start(int sock) noexcept {
    const int yes = 1;
    (void)setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    (void)setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof kSendBuffer);
    std::unique_lock lock(mutex_);
    const bool is_beyond_limit = n_connections_ >= max_connections_;
    const auto n_beyond = static_cast<std::int64_t>(open_.size()) - n_connections_;
    try {
        if (!is_beyond_limit || n_beyond < kRefusedAtOnce) {
            open_.insert(sock);
            std::thread([this, sock, is_beyond_limit] { run(sock, is_beyond_limit); }).detach();
            if (!is_beyond_limit) ++n_connections_;
            return;
        }
    } catch (...) {  // neither memory nor a thread
        open_.erase(sock);
    }
    lock.unlock();
    say_full(sock, tls_ == nullptr);
    ::close(sock);
}

void Listener::run(int sock, bool is_beyond_limit) noexcept {
    if (is_beyond_limit) {
        say_full(sock, tls_ == nullptr);
    } else {
        try {
            Wire wire(sock, tls_.get());
            if (!group_.closing && wire.accept(Clock::now() + group_.limits.read)) {
                Connection(wire, group_).serve();
                wire.end();
            }
        } catch (...) {  // no memory for a connection: it ends
        }
    }
    end_gently(sock);
    const std::lock_guard lock(mutex_);
    open_.erase(sock);
    if (!is_beyond_limit) --n_connections_;
    ::close(sock);
    ended_.notify_all();
}

}  // namespace tinfer::server
