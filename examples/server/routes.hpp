// SPDX-License-Identifier: MIT
// The routes, and the checks before all of them: keys, origins, hosts, limits.
#pragma once

#include <httplib.h>

#include <span>

#include "service.hpp"

namespace server {

/// A path and its only method.
struct Route {
    std::string_view path, method;
};
/// All routes except /v1/models/{id}.
[[nodiscard]] std::span<const Route> routes() noexcept;

/// Adds all routes to a server; `hub` must outlive it. Requests get 503 while the model loads and during draining.
void add_routes(httplib::Server& http, Hub& hub);

// The parts of add_routes().
void add_generating_routes(httplib::Server& http, Hub& hub);
void add_text_routes(httplib::Server& http, Hub& hub);
void add_vector_routes(httplib::Server& http, Hub& hub);
void add_state_routes(httplib::Server& http, Hub& hub);

/// Errors of handlers become error documents of the route's API.
using GetHandler = std::function<void(Service&, const httplib::Request&, httplib::Response&)>;
void add_get(httplib::Server& http, Hub& hub, const std::string& path, GetHandler handler);
/// The handler gets the body, whatever its content type.
using PostHandler = std::function<void(Service&, std::string body, httplib::Response&)>;
void add_post(httplib::Server& http, Hub& hub, const std::string& path, PostHandler handler);
void set_json(httplib::Response& response, const json& document, int status = 200);
/// Sets a JSON document of any size; throws ApiError if there is no room for it.
void set_answer(Service& service, httplib::Response& response, std::string document);
void set_error(const httplib::Request& request, httplib::Response& response, const ApiError& error);

/// Whether the given key is one of the keys, in constant time.
[[nodiscard]] bool is_known_key(const std::vector<std::string>& keys, std::string_view given);
/// Whether a Host header names the loopback interface.
[[nodiscard]] bool is_loopback_host(std::string_view host);
[[nodiscard]] bool is_loopback_address(std::string_view address);

}  // namespace server
