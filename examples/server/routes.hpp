// SPDX-License-Identifier: MIT
// The routes, and what stands before all of them: keys, origins, hosts, limits.
#pragma once

#include <httplib.h>

#include "service.hpp"

namespace server {

/// Puts all routes on a server; `service` outlives it. `is_draining` ends new requests with 503.
void add_routes(httplib::Server& http, Service& service, const std::atomic<bool>& is_draining);

// What add_routes is made of.
void add_generating_routes(httplib::Server& http, Service& service);
void add_text_routes(httplib::Server& http, Service& service);
void add_vector_routes(httplib::Server& http, Service& service);
void add_state_routes(httplib::Server& http, Service& service);

/// A handler whose errors become documents, in the shape of the route's protocol.
[[nodiscard]] httplib::Server::Handler
guarded(Service& service, std::function<void(const httplib::Request&, httplib::Response&)> handler);
void set_json(httplib::Response& response, const json& document, int status = 200);
void set_error(const httplib::Request& request, httplib::Response& response, const ApiError& error);

/// Whether one of the keys is the given one; takes as long whatever is wrong.
[[nodiscard]] bool is_known_key(const std::vector<std::string>& keys, std::string_view given);
/// Whether a Host header names this machine's loopback.
[[nodiscard]] bool is_loopback_host(std::string_view host);
[[nodiscard]] bool is_loopback_address(std::string_view address);

}  // namespace server
