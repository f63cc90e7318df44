// SPDX-License-Identifier: MIT
#include "serve.hpp"

#include <algorithm>
#include <csignal>
#include <optional>
#include <system_error>
#include <thread>

#ifdef __GLIBC__
#    include <malloc.h>
#endif

#include "fields.hpp"
#include "listener.hpp"
#include "routes.hpp"

namespace tinfer::server {

namespace {

ConnectionLimits limits_of(const ServeOptions& options) {
    ConnectionLimits limits;
    limits.read = limits.write = std::chrono::seconds(options.read_timeout_s);
    limits.keep_alive = std::chrono::seconds(options.keep_alive_s);
    limits.whole = limits.read + limits.write + std::chrono::seconds(options.request_timeout_s);
    limits.max_body = static_cast<std::size_t>(options.max_body);
    return limits;
}

/// Bytes of all bodies that are received at a time.
std::size_t max_bodies(const ServeOptions& options) noexcept {
    return 9 * std::max(static_cast<std::size_t>(options.max_body), BodyMemory::kSmall);
}

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
    // Per connection: the head of a request, a little stack, a small response, the state of TLS.
    const std::uint64_t others = options.cert.empty() ? 112 << 10 : 176 << 10;
    return static_cast<std::uint64_t>(options.max_connections) * (sizeof(Connection) + others);
}

std::uint64_t grammar_bytes(int n_parallel) noexcept {
    constexpr std::size_t kEach = Service::kMatchingBytes + tinfer::GrammarOptions::kMaskBytes;
    return Service::kGrammarBytes + static_cast<std::uint64_t>(n_parallel) * kEach;
}

std::uint64_t body_bytes(const ServeOptions& options) noexcept {
    return max_bodies(options) + kParseCost * BodySlots::bytes_at_once(static_cast<std::size_t>(options.max_body));
}

std::uint64_t request_bytes(std::size_t max_tokens, int n_parallel, int max_queue) noexcept {
    // The tokens of a prompt stand in the job, in the request and in what the engine computes with.
    constexpr std::uint64_t kOthers = 32 << 10;  // sampler, generation, documents
    const auto n = static_cast<std::uint64_t>(n_parallel) + static_cast<std::uint64_t>(max_queue);
    return n * (3 * max_tokens * sizeof(tinfer::Token) + kOthers);
}

void serve(const ServeOptions& options, const std::function<std::unique_ptr<tinfer::Engine>()>& load,
           const ServeEvents& events) {
    ModelSource only{.id = {}, .at_start = true, .pin = true, .load = [&] {
                         LoadedModel loaded;
                         loaded.engine = load();
                         return loaded;
                     }};
    std::vector<ModelSource> sources;
    sources.push_back(std::move(only));
    serve(options, std::move(sources), 0, events);
}

void serve(const ServeOptions& options, std::vector<ModelSource> sources, std::uint64_t memory,
           const ServeEvents& events, std::optional<Pulling> pulling) {
    return_memory();
    (void)std::signal(SIGPIPE, SIG_IGN);  // TLS writes without MSG_NOSIGNAL
    Broker broker(options);
    Models models(broker, std::move(sources), memory, options.max_waiting, pulling.has_value());
    std::optional<Pulls> pulls;  // like the models outlives the listener
    if (pulling) pulls.emplace(models, *std::move(pulling));
    Router router(broker);
    Listener listener(router, limits_of(options), options.max_connections, max_bodies(options),
                      options.cert.empty() ? nullptr : make_tls(options.cert, options.key));
    const int port = listener.listen(options.host, options.port);
    const std::string host = options.host.find(':') == std::string::npos ? options.host : "[" + options.host + "]";
    const std::string address = (options.cert.empty() ? "http://" : "https://") + host + ":" + std::to_string(port);
    if (events.listening) events.listening(address);
    models.load_first();
    broker.open(models, pulls ? &*pulls : nullptr);
    try {
        if (events.ready) events.ready(address);
    } catch (...) {  // do not wait for requests that came meanwhile
        broker.drain();
        models.drain(std::chrono::seconds(0));
        throw;
    }
    while (!events.stops() && listener.failure() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    broker.drain();
    if (pulls) pulls->stop();
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(options.drain_s);
    models.drain(std::chrono::seconds(options.drain_s));
    // Generated text is being sent; slow clients get the rest of the time, at least a second.
    const auto last = std::max(until, std::chrono::steady_clock::now() + std::chrono::seconds(1));
    while (listener.n_answering() > 0 && std::chrono::steady_clock::now() < last)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (const int error = listener.failure(); error != 0)
        throw tinfer::Error(tinfer::ErrorCode::io_error, address + ": no more connections can be accepted: " +
                                                             std::generic_category().message(error));
}

}  // namespace tinfer::server
