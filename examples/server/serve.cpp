// SPDX-License-Identifier: MIT
#include "serve.hpp"

#include <atomic>
#include <thread>

#include "listener.hpp"
#include "routes.hpp"

namespace server {

namespace {

using tinfer::Error;
using tinfer::ErrorCode;

std::unique_ptr<httplib::Server> make_server(const ServeOptions& options, Listener*& plain) {
    plain = nullptr;
    if (!options.cert.empty()) {
#ifdef CPPHTTPLIB_OPENSSL_SUPPORT
        auto secure = std::make_unique<httplib::SSLServer>(options.cert.c_str(), options.key.c_str());
        if (!secure->is_valid())
            throw Error(ErrorCode::io_error,
                        options.cert + ", " + options.key + ": no certificate and key in PEM form");
        secure->new_task_queue = new_connection_threads;
        secure->set_read_timeout(options.read_timeout_s);
        secure->set_write_timeout(options.read_timeout_s);
        secure->set_keep_alive_timeout(options.keep_alive_s);
        return secure;
#else
        throw Error(ErrorCode::not_available, "--cert: this program was built without TLS");
#endif
    }
    ListenerLimits limits;
    limits.max_connections = options.max_connections;
    limits.read = limits.write = std::chrono::seconds(options.read_timeout_s);
    limits.keep_alive = std::chrono::seconds(options.keep_alive_s);
    limits.max_bytes = static_cast<std::size_t>(options.max_body) + (256u << 10);
    auto listener = std::make_unique<Listener>(limits);
    plain = listener.get();
    return listener;
}

}  // namespace

std::uint64_t connection_bytes(const ServeOptions& options) noexcept {
    // Of each a stack that is touched a little, and a buffer. A body comes on top while its request is answered.
    return static_cast<std::uint64_t>(options.max_connections) * (96u << 10);
}

void serve(tinfer::Engine& engine, const ServeOptions& options, const std::function<bool()>& stops,
           const std::function<void(const std::string& address)>& listening) {
    Service service(engine, options);
    Listener* plain = nullptr;
    const auto http = make_server(options, plain);
    std::atomic<bool> is_draining{false};
    add_routes(*http, service, is_draining);
    int port = options.port;
    if (port == 0) port = http->bind_to_any_port(options.host);
    else if (!http->bind_to_port(options.host, port)) port = -1;
    if (port < 0)
        throw Error(ErrorCode::io_error,
                    options.host + ":" + std::to_string(options.port) + ": this address cannot be listened on");
    if (plain != nullptr) plain->widen_backlog();
    std::thread thread([&] { (void)http->listen_after_bind(); });
    const std::string host = options.host.find(':') == std::string::npos ? options.host : "[" + options.host + "]";
    listening((options.cert.empty() ? "http://" : "https://") + host + ":" + std::to_string(port));
    while (!stops()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    is_draining = true;
    (void)engine.drain(std::chrono::seconds(options.drain_s));
    for (const auto& slot : engine.slots()) engine.cancel(slot.request);
    if (plain != nullptr) plain->close_idle();
    http->stop();
    thread.join();
}

}  // namespace server
