// SPDX-License-Identifier: MIT
#include "routes.hpp"

#include <algorithm>
#include <array>

#include "delivery.hpp"
#include "listener.hpp"

namespace server {

namespace {

constexpr std::array<Route, 23> kRoutes{{
    {"/", "GET"},
    {"/health", "GET"},
    {"/v1/health", "GET"},
    {"/v1/models", "GET"},
    {"/models", "GET"},
    {"/metrics", "GET"},
    {"/slots", "GET"},
    {"/activity", "GET"},
    {"/openapi.json", "GET"},
    {"/v1/chat/completions", "POST"},
    {"/chat/completions", "POST"},
    {"/v1/completions", "POST"},
    {"/completions", "POST"},
    {"/v1/responses", "POST"},
    {"/v1/messages", "POST"},
    {"/v1/messages/count_tokens", "POST"},
    {"/v1/embeddings", "POST"},
    {"/embeddings", "POST"},
    {"/v1/rerank", "POST"},
    {"/rerank", "POST"},
    {"/tokenize", "POST"},
    {"/detokenize", "POST"},
    {"/apply-template", "POST"},
}};

std::string_view method_of(const std::string& path) {
    for (const auto& route : kRoutes)
        if (route.path == path) return route.method;
    return path.starts_with("/v1/models/") ? "GET" : "";
}

std::string allowed_methods(std::string_view method) {
    return std::string(method) + (method == "GET" ? ", HEAD, OPTIONS" : ", OPTIONS");
}

bool is_health(const std::string& path) { return path == "/health" || path == "/v1/health"; }

bool needs_key(const std::string& path) { return !is_health(path) && path != "/"; }

std::string key_of(const httplib::Request& request) {
    const std::string header = request.get_header_value("Authorization");
    if (header.size() > 7 && header.compare(0, 7, "Bearer ") == 0) return header.substr(7);
    return request.get_header_value("x-api-key");
}

using Handled = httplib::Server::HandlerResponse;

/// An unread body would be taken for the next request.
void leave_body(const httplib::Request& request, httplib::Response& response) {
    if (!request.has_header("Content-Length") && !request.has_header("Transfer-Encoding")) return;
    close_behind_this();
    response.set_header("Connection", "close");
}

Handled refuse(Hub& hub, const httplib::Request& request, httplib::Response& response, const ApiError& error) {
    leave_body(request, response);
    set_error(request, response, error);
    hub.metrics.request("other", response.status);
    return Handled::Handled;
}

void allow_origin(const ServeOptions& options, const httplib::Request& request, httplib::Response& response) {
    const std::string origin = request.get_header_value("Origin");
    if (origin.empty()) return;
    for (const auto& allowed : options.cors)
        if (allowed == "*" || allowed == origin) {
            response.set_header("Access-Control-Allow-Origin", allowed == "*" ? "*" : origin);
            response.set_header("Vary", "Origin");
            response.set_header("Access-Control-Allow-Headers", "authorization, content-type, x-api-key");
            response.set_header("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
            return;
        }
}

}  // namespace

bool is_known_key(const std::vector<std::string>& keys, std::string_view given) {
    unsigned found = 0;
    for (const std::string& key : keys) {
        unsigned difference = static_cast<unsigned>(key.size() ^ given.size());
        for (std::size_t i = 0; i < key.size(); ++i)
            difference |= static_cast<unsigned char>(key[i]) ^
                          static_cast<unsigned char>(given.empty() ? '\0' : given[i % given.size()]);
        found |= static_cast<unsigned>(difference == 0);
    }
    return found != 0;
}

bool is_loopback_address(std::string_view address) {
    return address == "localhost" || address == "::1" || address == "[::1]" || address.starts_with("127.");
}

bool is_loopback_host(std::string_view host) {
    if (host.starts_with('[')) return host.substr(0, host.find(']') + 1) == "[::1]";
    host = host.substr(0, host.find(':'));
    return host == "localhost" || (host.starts_with("127.") && host.find_first_not_of("0123456789.") == host.npos);
}

void set_json(httplib::Response& response, const json& document, int status) {
    response.status = status;
    response.set_content(to_line(document), "application/json");
}

void set_answer(Service& service, httplib::Response& response, std::string document) {
    set_body(service.memory, response, std::move(document));
    response.status = 200;
}

void set_error(const httplib::Request& request, httplib::Response& response, const ApiError& error) {
    const bool is_messages = request.path.starts_with("/v1/messages");
    set_json(response, is_messages ? error.to_messages_json() : error.to_json(), error.status);
    if (error.status == 503) response.set_header("Retry-After", "1");
    if (error.status == 401) response.set_header("WWW-Authenticate", "Bearer");
}

namespace {

void guard(Hub& hub, const httplib::Request& request, httplib::Response& response,
           const std::function<void()>& handler) {
    try {
        handler();
    } catch (const ApiError& error) {
        set_error(request, response, error);
    } catch (const tinfer::Error& error) {
        set_error(request, response, translate(error));
    } catch (const std::bad_alloc&) {
        set_error(request, response, ApiError(503, "out of memory", "out_of_memory"));
    } catch (const std::exception& error) {
        set_error(request, response, ApiError(500, error.what(), "internal"));
    }
    hub.metrics.request(request.path.starts_with("/v1/models/") ? "/v1/models/{id}" : request.path,
                        response.status < 0 ? 200 : response.status);
}

}  // namespace

void add_get(httplib::Server& http, Hub& hub, const std::string& path, GetHandler handler) {
    http.Get(path, [&hub, handler = std::move(handler)](const httplib::Request& request, httplib::Response& response) {
        guard(hub, request, response, [&] { handler(*hub.service(), request, response); });
    });
}

void add_post(httplib::Server& http, Hub& hub, const std::string& path, PostHandler handler) {
    // The library would parse form data, which curl claims to send by default, and refuse more than 8 KiB of it.
    http.Post(path, [&hub, handler = std::move(handler)](const httplib::Request& request, httplib::Response& response,
                                                         const httplib::ContentReader& reader) {
        std::string body;
        const auto most = static_cast<std::size_t>(hub.options.max_body);
        bool fits = true;
        if (request.has_header("Content-Length") || request.has_header("Transfer-Encoding")) {
            const bool is_whole = reader([&](const char* data, std::size_t size) {
                fits = body.size() + size <= most;
                if (fits) body.append(data, size);
                return fits;
            });
            if (!fits) response.status = 413;
            if (!is_whole || !fits) return;  // the error handler responds
        }
        response.status = -1;
        begin_answer(request.version == "HTTP/1.1");
        guard(hub, request, response, [&] { handler(*hub.service(), std::move(body), response); });
    });
}

namespace {

/// Checks before all routes.
Handled before_routes(Hub& hub, bool is_loopback, const httplib::Request& request, httplib::Response& response) {
    const auto& options = hub.options;
    const auto no = [&](const ApiError& error) { return refuse(hub, request, response, error); };
    if (is_loopback && !is_loopback_host(request.get_header_value("Host")))
        return no(ApiError(403, "this host name is not served here", "host_not_allowed"));
    allow_origin(options, request, response);
    const auto method = method_of(request.path);
    if (method.empty()) return no(ApiError(404, "there is no " + request.path.substr(0, 128), "not_found"));
    if (request.method == "OPTIONS") {
        leave_body(request, response);
        response.status = 204;
        response.set_header("Allow", allowed_methods(method));
        return Handled::Handled;
    }
    if (!options.api_keys.empty() && needs_key(request.path) && !is_known_key(options.api_keys, key_of(request)))
        return no(ApiError(401, "a valid API key is needed: Authorization: Bearer KEY", "invalid_api_key"));
    if (request.method != method && !(method == "GET" && request.method == "HEAD")) {
        response.set_header("Allow", allowed_methods(method));
        return no(ApiError(405, request.method + " is not for " + request.path + ", " + std::string(method) + " is",
                           "method_not_allowed"));
    }
    if (hub.is_draining()) return no(ApiError(503, "the server is stopping", "stopping"));
    if (hub.service() == nullptr && request.path != "/") {
        const ApiError error(503, "the model is being loaded", "loading");
        if (!is_health(request.path)) return no(error);
        json document{{"status", "loading"}};
        document.update(error.to_json());
        set_json(response, document, 503);
        response.set_header("Retry-After", "1");
        hub.metrics.request(request.path, 503);
        return Handled::Handled;
    }
    return Handled::Unhandled;
}

/// Errors that the library detects: headers and bodies that it could not read.
Handled say_error(Hub& hub, const httplib::Request& request, httplib::Response& response) {
    if (!response.body.empty() || response.status == 204 || response.status == 499) return Handled::Unhandled;
    close_behind_this();
    response.set_header("Connection", "close");
    ApiError error(response.status < 400 ? 400 : response.status, "the request could not be read", "bad_request");
    const auto failure = read_failure();
    // For unknown methods the library does not parse the path.
    const auto method =
        method_of(request.path.empty() ? request.target.substr(0, request.target.find('?')) : request.path);
    if (failure == ReadFailure::none && request.path.empty() && !method.empty() && !request.method.empty()) {
        response.set_header("Allow", allowed_methods(method));
        error = ApiError(405, request.method.substr(0, 32) + " is no method here", "method_not_allowed");
    }
    if (response.status == 413 || failure == ReadFailure::too_large)
        error = ApiError(413, "the body is larger than the limit of " + std::to_string(hub.options.max_body) + " bytes",
                         "body_too_large");
    if (failure == ReadFailure::overloaded)
        error = ApiError(503, "the requests of all clients together are too large now", "overloaded");
    if (failure == ReadFailure::too_slow)
        error = ApiError(408, "the request has not come within " + std::to_string(hub.options.read_timeout_s) + " s",
                         "request_timeout");
    set_error(request, response, error);
    hub.metrics.request("other", response.status);
    return Handled::Handled;
}

}  // namespace

std::span<const Route> routes() noexcept { return kRoutes; }

void add_routes(httplib::Server& http, Hub& hub) {
    http.set_payload_max_length(static_cast<std::size_t>(hub.options.max_body));
    const bool is_loopback = is_loopback_address(hub.options.host);
    http.set_pre_routing_handler([&hub, is_loopback](const httplib::Request& request, httplib::Response& response) {
        return before_routes(hub, is_loopback, request, response);
    });
    const httplib::Server::HandlerWithResponse on_error = [&hub](const httplib::Request& request,
                                                                 httplib::Response& response) {
        return say_error(hub, request, response);
    };
    http.set_error_handler(on_error);
    http.set_exception_handler([](const httplib::Request& request, httplib::Response& response, std::exception_ptr) {
        set_error(request, response, ApiError(500, "an unexpected error", "internal"));
    });
    add_state_routes(http, hub);
    add_generating_routes(http, hub);
    add_text_routes(http, hub);
    add_vector_routes(http, hub);
}

}  // namespace server
