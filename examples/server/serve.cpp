// SPDX-License-Identifier: MIT
#include "serve.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <optional>
#include <system_error>
#include <thread>

#ifdef __GLIBC__
#    include <malloc.h>
#endif

#include "listener.hpp"
#include "routes.hpp"

namespace server {

namespace {

using tinfer::Error;
using tinfer::ErrorCode;

ListenerLimits limits_of(const ServeOptions& options) {
    ListenerLimits limits;
    limits.max_connections = options.max_connections;
    limits.read = limits.write = std::chrono::seconds(options.read_timeout_s);
    limits.keep_alive = std::chrono::seconds(options.keep_alive_s);
    limits.whole = limits.read + limits.write + std::chrono::seconds(options.request_timeout_s);
    limits.max_bytes = static_cast<std::size_t>(options.max_body) + (256u << 10);
    limits.max_held = 8 * limits.max_bytes;
    return limits;
}

/// Runs the listening thread, and ends it when leaving the scope.
class Listening {
public:
    explicit Listening(Listener& listener)
        : listener_(listener), thread_([this] {
              (void)listener_.listen_after_bind();
              has_ended_ = true;
          }) {}
    Listening(const Listening&) = delete;
    Listening& operator=(const Listening&) = delete;
    ~Listening() {
        listener_.close_idle();
        while (!listener_.is_running() && !has_ended_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        listener_.stop();
        listener_.break_all();
        thread_.join();
    }

private:
    Listener& listener_;
    std::atomic<bool> has_ended_{false};
    std::thread thread_;
};

/// Makes the allocator return the memory of documents to the system. By default glibc raises its mmap threshold after
/// large blocks, and keeps small ones in each of its arenas.
void return_memory() noexcept {
#ifdef __GLIBC__
    (void)mallopt(M_MMAP_THRESHOLD, 128 << 10);
    (void)mallopt(M_ARENA_MAX, 2);
#endif
}

}  // namespace

std::uint64_t connection_bytes(const ServeOptions& options) noexcept {
    // Per connection: a little stack, a small response, the state of TLS.
    return static_cast<std::uint64_t>(options.max_connections) * ((options.cert.empty() ? 112u : 176u) << 10);
}

std::uint64_t body_bytes(const ServeOptions& options) noexcept {
    // A document of brackets only takes 24 times the size of its text; one of maximum size is read at a time.
    return limits_of(options).max_held + 24 * static_cast<std::uint64_t>(options.max_body);
}

void serve(const ServeOptions& options, const std::function<std::unique_ptr<tinfer::Engine>()>& load,
           const ServeEvents& events) {
    return_memory();
    Hub hub(options);
    std::unique_ptr<tinfer::Engine> engine;
    std::optional<Service> service;  // both must outlive the listener
    Listener listener(limits_of(options), options.cert.empty() ? nullptr : make_tls(options.cert, options.key));
    add_routes(listener, hub);
    int port = options.port;
    errno = 0;
    if (port == 0) port = listener.bind_to_any_port(options.host);
    else if (!listener.bind_to_port(options.host, port)) port = -1;
    if (port < 0)
        throw Error(ErrorCode::io_error, options.host + ":" + std::to_string(options.port) +
                                             ": this address cannot be listened on" +
                                             (errno == 0 ? "" : ": " + std::generic_category().message(errno)));
    listener.widen_backlog();
    const std::string host = options.host.find(':') == std::string::npos ? options.host : "[" + options.host + "]";
    const std::string address = (options.cert.empty() ? "http://" : "https://") + host + ":" + std::to_string(port);
    const Listening listening(listener);
    if (events.listening) events.listening(address);
    engine = load();
    service.emplace(*engine, hub);
    hub.open(*service);
    const auto cancel_all = [&] {
        for (const auto& slot : engine->slots()) engine->cancel(slot.request);
    };
    try {
        if (events.ready) events.ready(address);
    } catch (...) {  // do not wait for requests that came meanwhile
        hub.drain();
        cancel_all();
        throw;
    }
    while (!events.stops()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    hub.drain();
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(options.drain_s);
    (void)engine->drain(std::chrono::seconds(options.drain_s));
    cancel_all();
    // Generated text is being sent; slow clients get the rest of the time, at least a second.
    const auto last = std::max(until, std::chrono::steady_clock::now() + std::chrono::seconds(1));
    while (listener.n_answering() > 0 && std::chrono::steady_clock::now() < last)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

}  // namespace server
