// SPDX-License-Identifier: MIT
// Requests and responses as the routes see them, and what they may know of the client behind them.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "api_error.hpp"
#include "http_body.hpp"
#include "http_head.hpp"
#include "wire.hpp"

namespace tinfer::server {

/// The client of one request. Lives as long as its connection; used by the connection's thread, except for what
/// breaker() returns.
class Client {
public:
    explicit Client(Wire& wire) noexcept : wire_(wire) {}
    /// What has been sent for the next request is no sign of a client that is still there.
    [[nodiscard]] Presence presence() {
        const Presence presence = wire_.presence();
        return presence == Presence::here && wire_.has_ended() ? Presence::silent : presence;
    }
    /// Writes an interim response (100), which clients skip. True without writing for HTTP/1.0 clients, which do not
    /// know it. Not once the response has begun.
    [[nodiscard]] bool write_interim();
    /// Returns a function that breaks the connection; any thread may call it while the connection is open.
    [[nodiscard]] std::function<void()> breaker() const;
    void set_http_11(bool is_http_11) noexcept { is_http_11_ = is_http_11; }
    /// While a response is being written, write_interim() writes nothing.
    void set_answering(bool is_answering) noexcept { is_answering_ = is_answering; }

private:
    Wire& wire_;
    bool is_http_11_ = false, is_answering_ = false;
};

/// Detects whether a client has gone. A half-closed connection looks the same as a closed one, so a few bytes are sent
/// now and then: a closed one answers with a reset.
class ClientWatch {
public:
    /// `ask` writes bytes that are ignored at this point of the response; false if they could not be written.
    ClientWatch(Client& client, std::function<bool()> ask) : client_(client), ask_(std::move(ask)) {}
    /// Before the response begins.
    explicit ClientWatch(Client& client) : ClientWatch(client, [&client] { return client.write_interim(); }) {}
    /// Whether the connection is broken. Checks at most every 20 ms.
    [[nodiscard]] bool gone();

private:
    using Clock = std::chrono::steady_clock;
    Client& client_;
    std::function<bool()> ask_;
    Clock::time_point look_at_ = Clock::now(), ask_at_{};
    std::chrono::seconds pause_{1};  ///< until the next bytes; grows each time
};

using Request = Head;

/// False if the client cannot be written to, and nothing more has to be.
using WriteBytes = std::function<bool(std::string_view)>;
/// Writes a body; false if it is not complete. What it throws ends the connection.
using BodySource = std::function<bool(const WriteBytes&)>;

/// What the log of requests tells beside the request and its status, once the answer is sent.
struct RequestFacts {
    std::string model, finish;  ///< finish: why the answers ended, each once
    std::size_t n_prompt = 0, n_cached = 0, n_generated = 0;
    bool has_tokens = false;     ///< the numbers are told
    std::string prompt, answer;  ///< the begin of each, where the log is to have texts
};

struct Response {
    explicit Response(Client& given) noexcept : client(given) {}

    Client& client;
    std::shared_ptr<void> held{};           ///< what the body needs; released after it
    std::shared_ptr<RequestFacts> facts{};  ///< null: nobody asks
    std::chrono::nanoseconds load_time{};   ///< that the request has waited for its model
    int status = 200;
    bool may_last = false;  ///< beyond ConnectionLimits::whole, as long as its client reads
    std::vector<std::pair<std::string_view, std::string>> fields;  ///< names are literals
    std::string_view type;                                         ///< of the body, a literal
    /// Of a source: its size, or unknown for a stream.
    struct Source {
        static constexpr std::size_t kUnknown = ~std::size_t{0};
        std::size_t size;
        BodySource write;
    };
    std::variant<std::string, Source> body;

    void set_header(std::string_view name, std::string value);  ///< replaces a field of the same name
    void set_content(std::string text, std::string_view content_type);
    void set_source(std::size_t size, std::string_view content_type, BodySource source);
    void set_stream(std::string_view content_type, BodySource source);
};

/// Answers requests. All members are called on the threads of connections; what they throw is answered with an error.
class Application {
public:
    virtual ~Application() = default;
    /// Looks at a request before its body is read. False: the response is complete. True: answer() gets the request,
    /// with its body if the method is POST.
    [[nodiscard]] virtual bool admit(const Request& request, Response& response) = 0;
    virtual void answer(const Request& request, Body body, Response& response) = 0;
    /// Makes the response for a request that could not be read or answered. `request`: null if its head was not read.
    virtual void refuse(const Request* request, Response& response, const ApiError& error) = 0;
    /// Told when a response has been sent. `is_whole`: to its end.
    virtual void sent(const Request* /*request*/, const Response& /*response*/, std::chrono::duration<double> /*took*/,
                      bool /*is_whole*/) noexcept {}
};

/// Status line and header fields, with the empty line. `rest`: fields that belong to the connection, each with CR LF.
[[nodiscard]] std::string head_of(const Response& response, std::string_view rest);

}  // namespace tinfer::server
