// SPDX-License-Identifier: MIT
// The routes, and the checks before all of them: keys, origins, hosts, limits. A path is compared with the names of
// routes as a whole.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "http.hpp"
#include "models.hpp"
#include "reply.hpp"
#include "service.hpp"

namespace tinfer::server {

/// A path and its only method.
struct Route {
    std::string_view path, method;
};
/// All routes except /v1/models/{id} and /traces/{file}.
[[nodiscard]] std::span<const Route> routes() noexcept;

/// The body of a request while it is read, on its thread: it waits for room, and gives up where its client leaves.
class Reading {
public:
    Reading(Broker& broker, Client& client, std::size_t size)
        : watch_(client), wanted_(broker, [this] { return watch_.gone(); }), slot_(broker.body_slots, size) {}

private:
    ClientWatch watch_;
    WantedRequest wanted_;
    BodySlots::Slot slot_;
};

/// Answers requests by their routes: with 503 while the first models are loaded and during draining. Routes of a model
/// get the one that the request names, once it is there.
class Router final : public Application {
public:
    /// Has all routes. `broker` must outlive it.
    explicit Router(Broker& broker);

    /// Errors that handlers throw become error documents of the route's API. `path` must be static.
    using GetHandler = std::function<void(Service&, const Request&, Response&)>;
    void get(std::string_view path, GetHandler handler);
    /// The handler gets the body, whatever its content type.
    using PostHandler = std::function<void(Service&, Body, Response&)>;
    void post(std::string_view path, PostHandler handler);
    /// Routes of the whole server, which load no model. The body of a GET is empty.
    using ServerHandler = std::function<void(Broker&, const Request&, Body, Response&)>;
    void of_server(std::string_view path, ServerHandler handler);

    [[nodiscard]] bool admit(const Request& request, Response& response) override;
    void answer(const Request& request, Body body, Response& response) override;
    void refuse(const Request* request, Response& response, const ApiError& error) override;
    void sent(const Request* request, const Response& response, std::chrono::duration<double> took,
              bool is_whole) noexcept override;

private:
    using ModelHandler = std::function<void(Service&, const Request&, Body, Response&)>;
    using Handler = std::variant<ModelHandler, ServerHandler>;
    /// Why a request is not answered; null if it is.
    [[nodiscard]] std::optional<ApiError> objection(const Request& request, std::string_view method,
                                                    Response& response) const;
    void answer_by_model(const ModelHandler& handler, const Request& request, Body body, Response& response,
                         std::optional<Models::Use>& use);
    Broker& broker_;
    const bool is_loopback_;
    std::map<std::string_view, Handler> handlers_;
};

// The parts of a Router.
void add_generating_routes(Router& router);
void add_text_routes(Router& router);
void add_ollama_routes(Router& router);
void add_pull_route(Router& router);
void add_vector_routes(Router& router);
void add_state_routes(Router& router);
/// A part of the page for people. Throws ApiError if the server has none.
void set_page(Broker& broker, std::string_view path, Response& response);

/// What a request says of its model, whatever its route.
struct ModelChoice {
    std::optional<std::string> name{};
    bool is_stream = false;  ///< answers are to come as events
    bool autoload = true;    ///< false: not if it is not in memory
};
/// Reads it from the query of a GET or from the body of a POST. Throws ApiError 400 for what is no JSON object.
[[nodiscard]] ModelChoice model_choice(Broker& broker, const Request& request, const Body& body, Client& client);
/// Waits for a place at the model while the client is there; nullopt once it has gone, or after `patience`.
[[nodiscard]] std::optional<Models::Use> wait_for_model(Models::Ticket& ticket, ClientWatch& watch,
                                                        std::optional<std::chrono::seconds> patience);

/// Throws ApiError 501 for a model that was started to give vectors.
void check_gives_text(const Service& service);
/// Answers with what `reply` gives, whole or as a stream, as its job says.
void send_reply(Service& service, std::shared_ptr<Reply> reply, Response& response);

void set_json(Response& response, const Json& document, int status = 200);
/// Sets a JSON document of any size; throws ApiError if there is no room for it.
void set_answer(Broker& broker, Response& response, std::string document);
inline void set_answer(Service& service, Response& response, std::string document) {
    set_answer(service.broker, response, std::move(document));
}

/// Whether the given key is one of the keys, in constant time.
[[nodiscard]] bool is_known_key(const std::vector<std::string>& keys, std::string_view given);
/// Whether a Host header names the loopback interface.
[[nodiscard]] bool is_loopback_host(std::string_view host);
[[nodiscard]] bool is_loopback_address(std::string_view address);
/// Whether a page of another origin sends the request, as far as its browser tells: Origin names another authority than
/// the request, or Sec-Fetch-Site another site. Navigation to the page of the server is none of its business.
[[nodiscard]] bool is_cross_origin(const Request& request);

}  // namespace tinfer::server
