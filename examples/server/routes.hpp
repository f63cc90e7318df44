// SPDX-License-Identifier: MIT
// The routes, and what stands before all of them: keys, origins, hosts, limits.
#pragma once

#include <httplib.h>

#include <span>

#include "service.hpp"

namespace server {

/// A path and the one method that it has.
struct Route {
    std::string_view path, method;
};
/// All of them, but /v1/models/{id}.
[[nodiscard]] std::span<const Route> routes() noexcept;

/// Puts all routes on a server; `hub` outlives it. Requests get 503 while it loads and once it drains.
void add_routes(httplib::Server& http, Hub& hub);

// What add_routes is made of.
void add_generating_routes(httplib::Server& http, Hub& hub);
void add_text_routes(httplib::Server& http, Hub& hub);
void add_vector_routes(httplib::Server& http, Hub& hub);
void add_state_routes(httplib::Server& http, Hub& hub);

/// Errors of handlers become documents, in the shape of the route's protocol.
using GetHandler = std::function<void(Service&, const httplib::Request&, httplib::Response&)>;
void add_get(httplib::Server& http, Hub& hub, const std::string& path, GetHandler handler);
/// The handler owns the body, of whatever content type it claims to be.
using PostHandler = std::function<void(Service&, std::string body, httplib::Response&)>;
void add_post(httplib::Server& http, Hub& hub, const std::string& path, PostHandler handler);
void set_json(httplib::Response& response, const json& document, int status = 200);
/// A document of whatever size, as text; throws ApiError where there is no room for it.
void set_answer(Service& service, httplib::Response& response, std::string document);
void set_error(const httplib::Request& request, httplib::Response& response, const ApiError& error);

/// Whether one of the keys is the given one; takes as long whatever is wrong.
[[nodiscard]] bool is_known_key(const std::vector<std::string>& keys, std::string_view given);
/// Whether a Host header names this machine's loopback.
[[nodiscard]] bool is_loopback_host(std::string_view host);
[[nodiscard]] bool is_loopback_address(std::string_view address);

}  // namespace server
