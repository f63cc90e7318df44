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

#include "wire.hpp"

namespace server {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLook{20};
constexpr std::chrono::seconds kLongestPause{16};
constexpr std::int64_t kReadAtEnd = 32 << 20;  ///< bytes to read at most from a client after the response

thread_local Wire* t_wire = nullptr;                            // connection of this thread
thread_local std::atomic<std::int64_t>* t_answering = nullptr;  // Listener::n_answering_
thread_local bool t_is_read = false, t_closes = false, t_has_interim = false;
thread_local ReadFailure t_failure = ReadFailure::none;

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

/// Removes `Range` from request headers by changing its name: the library would apply it to every response, also to
/// POST, and cannot be told not to.
class RangeRemover {
public:
    void begin() noexcept {
        is_over_ = false;
        n_lines_ = n_column_ = n_same_ = 0;
    }
    void pass(char* bytes, std::size_t size) noexcept {
        for (std::size_t i = 0; i < size && !is_over_; ++i) {
            char& byte = bytes[i];
            if (byte == '\n') {
                is_over_ = n_lines_ > 0 && n_column_ == 1 && last_ == '\r';
                ++n_lines_;
                n_column_ = n_same_ = 0;
                continue;
            }
            const bool is_next = n_column_ == n_same_ && n_same_ < kName.size() && (byte | 0x20) == kName[n_same_];
            if (is_next && ++n_same_ == kName.size() && n_lines_ > 0) byte = '-';
            ++n_column_;
            last_ = byte;
        }
    }

private:
    static constexpr std::string_view kName = "range";
    bool is_over_ = false;
    char last_ = 0;
    std::size_t n_lines_ = 0, n_column_ = 0, n_same_ = 0;
};

/// A stream with deadlines for requests.
class TimedStream : public httplib::Stream {
public:
    TimedStream(Wire& wire, const ListenerLimits& limits, std::atomic<std::size_t>& held)
        : wire_(wire), limits_(limits), held_(held) {}
    TimedStream(const TimedStream&) = delete;
    TimedStream& operator=(const TimedStream&) = delete;
    ~TimedStream() override { held_ -= n_read_; }

    void begin_request() {
        until_ = Clock::now() + limits_.read;
        write_until_ = Clock::now() + limits_.whole;
        held_ -= n_read_;
        n_read_ = 0;
        t_failure = ReadFailure::none;
        head_.begin();
    }
    [[nodiscard]] bool has_buffered() const noexcept { return begin_ < end_; }
    /// The request is incomplete, so no other one can follow.
    [[nodiscard]] bool has_failed() const noexcept { return t_failure != ReadFailure::none; }

    bool is_readable() const override {
        return has_buffered() || wire_.has_pending() || wait_for(wire_.socket(), POLLIN, until_);
    }
    bool is_writable() const override {
        return wire_.presence() != Presence::gone &&
               wait_for(wire_.socket(), POLLOUT, std::min(write_until_, Clock::now() + limits_.write));
    }
    ssize_t read(char* out, std::size_t size) override {
        if (!has_buffered()) {
            if (n_read_ > limits_.max_bytes) return fail(ReadFailure::too_large);
            if (held_ > limits_.max_held) return fail(ReadFailure::overloaded);
            const auto n = wire_.read(buffer_.data(), buffer_.size(), until_);
            if (n < 0) return fail(ReadFailure::too_slow);
            if (n == 0) return 0;
            begin_ = 0;
            end_ = static_cast<std::size_t>(n);
            n_read_ += end_;
            held_ += end_;
        }
        const auto n = std::min(size, end_ - begin_);
        std::memcpy(out, buffer_.data() + begin_, n);
        begin_ += n;
        head_.pass(out, n);
        return static_cast<ssize_t>(n);
    }
    ssize_t write(const char* data, std::size_t size) override {
        return wire_.write(data, size, limits_.write, write_until_) ? static_cast<ssize_t>(size) : -1;
    }
    void get_remote_ip_and_port(std::string& ip, int& port) const override {
        sockaddr_storage address{};
        socklen_t size = sizeof address;
        if (getpeername(wire_.socket(), reinterpret_cast<sockaddr*>(&address), &size) == 0) name_of(address, ip, port);
    }
    void get_local_ip_and_port(std::string& ip, int& port) const override {
        sockaddr_storage address{};
        socklen_t size = sizeof address;
        if (getsockname(wire_.socket(), reinterpret_cast<sockaddr*>(&address), &size) == 0) name_of(address, ip, port);
    }
    socket_t socket() const override { return wire_.socket(); }

private:
    static ssize_t fail(ReadFailure why) {
        t_failure = why;
        return -1;
    }

    Wire& wire_;
    const ListenerLimits& limits_;
    std::atomic<std::size_t>& held_;
    Clock::time_point until_{}, write_until_ = Clock::time_point::max();
    std::size_t n_read_ = 0, begin_ = 0, end_ = 0;
    RangeRemover head_;
    std::array<char, 4096> buffer_;
};

/// Reads what is still arriving for a moment; otherwise a reset could discard the response.
void end_gently(int sock) {
    ::shutdown(sock, SHUT_WR);
    const auto until = Clock::now() + std::chrono::seconds(1);
    std::array<char, 16384> ignored;
    for (std::int64_t n_left = kReadAtEnd; n_left > 0 && wait_for(sock, POLLIN, until);) {
        const auto n = recv(sock, ignored.data(), ignored.size(), MSG_DONTWAIT);
        if (n <= 0) break;
        n_left -= n;
    }
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
        } catch (const std::system_error&) {  // no thread available: run it here
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

/// One thread per connection, created on demand.
httplib::TaskQueue* new_connection_threads() { return new ConnectionThreads; }

}  // namespace

Listener::Listener(ListenerLimits limits, std::shared_ptr<TlsContext> tls) : limits_(limits), tls_(std::move(tls)) {
    new_task_queue = new_connection_threads;
    set_tcp_nodelay(true);
    // The library's default would let a second program bind the same address.
    set_socket_options([](socket_t sock) {
        const int yes = 1;
        (void)setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    set_keep_alive_timeout(limits_.keep_alive.count());
    set_keep_alive_max_count(1'000'000);
}

void Listener::widen_backlog() noexcept { (void)::listen(svr_sock_, SOMAXCONN); }

void Listener::break_all() noexcept {
    const std::lock_guard lock(open_mutex_);
    for (const int sock : open_) (void)::shutdown(sock, SHUT_RDWR);
}

bool Listener::process_and_close_socket(socket_t sock) {
    bool ok = false;
    const auto note = [&](bool is_open) {
        const std::lock_guard lock(open_mutex_);
        if (is_open) open_.insert(sock);
        else open_.erase(sock);
    };
    note(true);
    if (n_connections_.fetch_add(1) >= limits_.max_connections) {
        static constexpr std::string_view kFull =
            "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        if (!tls_) (void)send(sock, kFull.data(), kFull.size(), MSG_NOSIGNAL);
    } else {
        ok = serve(sock);
    }
    end_gently(sock);
    note(false);
    ::close(sock);
    --n_connections_;
    return ok;
}

bool Listener::serve(socket_t sock) {
    Wire wire(sock, tls_.get());
    if (closing_ || !wire.accept(Clock::now() + limits_.read)) return false;
    t_wire = &wire;
    t_answering = &n_answering_;
    TimedStream stream(wire, limits_, n_held_);
    const auto has_bytes = [&] { return stream.has_buffered() || wire.has_pending(); };
    bool ok = true, closed = false;
    while (ok && !closed && !closing_) {
        const auto until = Clock::now() + limits_.keep_alive;
        bool is_idle = false;
        while (!has_bytes() && !is_idle &&
               !wait_for(sock, POLLIN, std::min(until, Clock::now() + std::chrono::milliseconds(500))))
            is_idle = closing_ || Clock::now() >= until;
        if (is_idle || (!has_bytes() && wire.presence() != Presence::here)) break;
        stream.begin_request();
        t_is_read = t_closes = t_has_interim = false;
        ok = process_request(stream, closing_, closed, nullptr) && !stream.has_failed() && !t_closes;
        if (t_is_read) --n_answering_;
    }
    t_wire = nullptr;
    t_answering = nullptr;
    wire.end();
    return ok;
}

bool ClientWatch::gone() {
    const auto now = Clock::now();
    if (t_wire == nullptr || now < look_at_) return false;
    look_at_ = now + kLook;
    const auto presence = t_wire->presence();
    if (presence != Presence::silent || now < ask_at_) return presence == Presence::gone;
    ask_at_ = now + pause_;
    pause_ = std::min(2 * pause_, kLongestPause);
    return !ask_();
}

bool write_interim() {
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    return t_wire == nullptr || !t_has_interim ||
           t_wire->write(kContinue.data(), kContinue.size(), std::chrono::seconds(1));
}

void begin_answer(bool has_interim) noexcept {
    t_has_interim = has_interim;
    if (t_answering == nullptr || t_is_read) return;
    t_is_read = true;
    ++*t_answering;
}

std::function<void()> break_connection() {
    if (t_wire == nullptr) return [] {};
    return [sock = t_wire->socket()] { (void)::shutdown(sock, SHUT_RDWR); };
}

void close_behind_this() noexcept { t_closes = true; }

ReadFailure read_failure() noexcept { return t_failure; }

}  // namespace server
