// SPDX-License-Identifier: MIT
#include "listener.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

namespace server {

namespace {

using Clock = std::chrono::steady_clock;

thread_local int t_socket = -1;  // of the request that this thread answers
thread_local bool t_closes = false;

/// Whether the socket is ready before the time is up.
bool wait_for(int sock, short events, Clock::time_point until) {
    while (true) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
        if (left <= 0) return false;
        pollfd entry{sock, events, 0};
        const int n = poll(&entry, 1, static_cast<int>(std::min<std::int64_t>(left, 60'000)));
        if (n > 0) return true;
        if (n < 0 && errno != EINTR) return false;
    }
}

bool has_left(int sock) {
    char byte = 0;
    const auto n = recv(sock, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

void name_of(const sockaddr_storage& address, std::string& ip, int& port) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (address.ss_family == AF_INET) {
        sockaddr_in v4{};
        std::memcpy(&v4, &address, sizeof v4);
        port = ntohs(v4.sin_port);
        if (inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size()) != nullptr) ip = text.data();
    } else if (address.ss_family == AF_INET6) {
        sockaddr_in6 v6{};
        std::memcpy(&v6, &address, sizeof v6);
        port = ntohs(v6.sin6_port);
        if (inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size()) != nullptr) ip = text.data();
    }
}

/// A connection whose requests have to arrive in time.
class TimedStream : public httplib::Stream {
public:
    TimedStream(int sock, const ListenerLimits& limits) : sock_(sock), limits_(limits) {}

    void begin_request() {
        until_ = Clock::now() + limits_.read;
        n_read_ = 0;
    }
    [[nodiscard]] bool has_buffered() const noexcept { return begin_ < end_; }
    /// The rest of a request did not come: what follows is no new one.
    [[nodiscard]] bool has_failed() const noexcept { return has_failed_; }

    bool is_readable() const override { return has_buffered() || wait_for(sock_, POLLIN, until_); }
    bool is_writable() const override {
        return !has_left(sock_) && wait_for(sock_, POLLOUT, Clock::now() + limits_.write);
    }
    ssize_t read(char* out, std::size_t size) override {
        if (!has_buffered()) {
            if (n_read_ > limits_.max_bytes || !wait_for(sock_, POLLIN, until_)) {
                has_failed_ = true;
                return -1;
            }
            const auto n = recv(sock_, buffer_.data(), buffer_.size(), 0);
            if (n <= 0) return n;
            begin_ = 0;
            end_ = static_cast<std::size_t>(n);
            n_read_ += end_;
        }
        const auto n = std::min(size, end_ - begin_);
        std::memcpy(out, buffer_.data() + begin_, n);
        begin_ += n;
        return static_cast<ssize_t>(n);
    }
    ssize_t write(const char* data, std::size_t size) override {
        std::size_t done = 0;
        while (done < size) {
            if (!wait_for(sock_, POLLOUT, Clock::now() + limits_.write)) return -1;
            const auto n = send(sock_, data + done, size - done, MSG_NOSIGNAL);
            if (n < 0 && errno != EINTR && errno != EAGAIN) return -1;
            if (n > 0) done += static_cast<std::size_t>(n);
        }
        return static_cast<ssize_t>(done);
    }
    void get_remote_ip_and_port(std::string& ip, int& port) const override {
        sockaddr_storage address{};
        socklen_t size = sizeof address;
        if (getpeername(sock_, reinterpret_cast<sockaddr*>(&address), &size) == 0) name_of(address, ip, port);
    }
    void get_local_ip_and_port(std::string& ip, int& port) const override {
        sockaddr_storage address{};
        socklen_t size = sizeof address;
        if (getsockname(sock_, reinterpret_cast<sockaddr*>(&address), &size) == 0) name_of(address, ip, port);
    }
    socket_t socket() const override { return sock_; }

private:
    int sock_;
    const ListenerLimits& limits_;
    Clock::time_point until_{};
    bool has_failed_ = false;
    std::size_t n_read_ = 0, begin_ = 0, end_ = 0;
    std::array<char, 16384> buffer_;
};

/// What is still on its way is read for a moment, so that the response is not lost with it.
void close_gently(int sock) {
    ::shutdown(sock, SHUT_WR);
    const auto until = Clock::now() + std::chrono::seconds(1);
    std::array<char, 16384> ignored;
    while (wait_for(sock, POLLIN, until) && recv(sock, ignored.data(), ignored.size(), MSG_DONTWAIT) > 0) {
    }
    ::close(sock);
}

class ConnectionThreads : public httplib::TaskQueue {
public:
    void enqueue(std::function<void()> job) override {
        std::unique_lock lock(mutex_);
        ++n_running_;
        lock.unlock();
        try {
            std::thread([this, job = std::move(job)] {
                job();
                const std::lock_guard ended(mutex_);
                --n_running_;
                changed_.notify_all();
            }).detach();
        } catch (const std::system_error&) {  // no thread to be had: this one does it
            lock.lock();
            --n_running_;
        }
    }
    void shutdown() override {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return n_running_ == 0; });
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::size_t n_running_ = 0;
};

}  // namespace

Listener::Listener(ListenerLimits limits) : limits_(limits) {
    new_task_queue = new_connection_threads;
    set_tcp_nodelay(true);
    set_keep_alive_timeout(limits_.keep_alive.count());
    set_keep_alive_max_count(1'000'000);
}

void Listener::widen_backlog() noexcept { (void)::listen(svr_sock_, SOMAXCONN); }

bool Listener::process_and_close_socket(socket_t sock) {
    bool ok = false;
    if (n_connections_.fetch_add(1) >= limits_.max_connections) {
        static constexpr std::string_view kFull =
            "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        (void)send(sock, kFull.data(), kFull.size(), MSG_NOSIGNAL);
    } else {
        t_socket = sock;
        ok = serve(sock);
        t_socket = -1;
    }
    close_gently(sock);
    --n_connections_;
    return ok;
}

bool Listener::serve(socket_t sock) {
    TimedStream stream(sock, limits_);
    bool ok = true, closed = false;
    while (ok && !closed && !closing_) {
        const auto until = Clock::now() + limits_.keep_alive;
        while (!stream.has_buffered() &&
               !wait_for(sock, POLLIN, std::min(until, Clock::now() + std::chrono::milliseconds(500))))
            if (closing_ || Clock::now() >= until) return ok;
        if (!stream.has_buffered() && has_left(sock)) return ok;
        stream.begin_request();
        t_closes = false;
        ok = process_request(stream, closing_, closed, nullptr) && !stream.has_failed() && !t_closes;
    }
    return ok;
}

bool client_gone() { return t_socket >= 0 && has_left(t_socket); }

void close_behind_this() noexcept { t_closes = true; }

httplib::TaskQueue* new_connection_threads() { return new ConnectionThreads; }

}  // namespace server
