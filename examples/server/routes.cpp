// SPDX-License-Identifier: MIT
#include "routes.hpp"

#include <algorithm>
#include <array>

#include "listener.hpp"

namespace server {

namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 21> kRoutes{{
    {"/", "GET"},
    {"/health", "GET"},
    {"/v1/health", "GET"},
    {"/v1/models", "GET"},
    {"/metrics", "GET"},
    {"/slots", "GET"},
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
    {"/models", "GET"},
}};

std::string_view method_of(const std::string& path) {
    for (const auto& [known, method] : kRoutes)
        if (known == path) return method;
    return path.starts_with("/v1/models/") ? "GET" : "";
}

bool needs_key(const std::string& path) { return path != "/health" && path != "/v1/health" && path != "/"; }

std::string key_of(const httplib::Request& request) {
    const std::string header = request.get_header_value("Authorization");
    if (header.size() > 7 && header.compare(0, 7, "Bearer ") == 0) return header.substr(7);
    return request.get_header_value("x-api-key");
}

using Handled = httplib::Server::HandlerResponse;

Handled refuse(const httplib::Request& request, httplib::Response& response, const ApiError& error) {
    set_error(request, response, error);
    return Handled::Handled;
}

void allow_origin(const Service& service, const httplib::Request& request, httplib::Response& response) {
    const std::string origin = request.get_header_value("Origin");
    if (origin.empty()) return;
    for (const auto& allowed : service.options.cors)
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

void set_error(const httplib::Request& request, httplib::Response& response, const ApiError& error) {
    const bool is_messages = request.path.starts_with("/v1/messages");
    set_json(response, is_messages ? error.to_messages_json() : error.to_json(), error.status);
    if (error.status == 503) response.set_header("Retry-After", "1");
    if (error.status == 401) response.set_header("WWW-Authenticate", "Bearer");
}

httplib::Server::Handler guarded(Service& service,
                                 std::function<void(const httplib::Request&, httplib::Response&)> handler) {
    return [&service, handler = std::move(handler)](const httplib::Request& request, httplib::Response& response) {
        try {
            handler(request, response);
        } catch (const ApiError& error) {
            set_error(request, response, error);
        } catch (const tinfer::Error& error) {
            set_error(request, response, translate(error));
        } catch (const std::bad_alloc&) {
            set_error(request, response, ApiError(503, "out of memory", "out_of_memory"));
        } catch (const std::exception& error) {
            set_error(request, response, ApiError(500, error.what(), "internal"));
        }
        service.metrics.request(request.path.starts_with("/v1/models/") ? "/v1/models/{id}" : request.path,
                                response.status < 0 ? 200 : response.status);
    };
}

void add_routes(httplib::Server& http, Service& service, const std::atomic<bool>& is_draining) {
    const auto& options = service.options;
    http.set_payload_max_length(static_cast<std::size_t>(options.max_body));
    const bool is_loopback = is_loopback_address(options.host);
    http.set_pre_routing_handler([&, is_loopback](const httplib::Request& request, httplib::Response& response) {
        if (is_loopback && !is_loopback_host(request.get_header_value("Host")))
            return refuse(request, response, ApiError(403, "this host name is not served here", "host_not_allowed"));
        allow_origin(service, request, response);
        if (request.method == "OPTIONS") {
            response.status = 204;
            return Handled::Handled;
        }
        if (!options.api_keys.empty() && needs_key(request.path) && !is_known_key(options.api_keys, key_of(request)))
            return refuse(request, response,
                          ApiError(401, "a valid API key is needed: Authorization: Bearer KEY", "invalid_api_key"));
        if (is_draining) return refuse(request, response, ApiError(503, "the server is stopping", "stopping"));
        return Handled::Unhandled;
    });
    const httplib::Server::HandlerWithResponse say_error = [&service, &options](const httplib::Request& request,
                                                                                httplib::Response& response) {
        if (!response.body.empty()) return Handled::Unhandled;
        const int status = response.status;
        if (status != 404) {
            close_behind_this();
            response.set_header("Connection", "close");
        }
        const auto method = method_of(request.path);
        if (status == 404 && !method.empty() && method != request.method) {
            response.set_header("Allow", std::string(method));
            set_error(request, response,
                      ApiError(405, request.method + " is not for " + request.path + ", " + std::string(method) + " is",
                               "method_not_allowed"));
        } else if (status == 404) {
            set_error(request, response, ApiError(404, "there is no " + request.path.substr(0, 128), "not_found"));
        } else if (status == 413) {
            set_error(request, response,
                      ApiError(413,
                               "the body is larger than the limit of " + std::to_string(options.max_body) + " bytes",
                               "body_too_large"));
        } else {
            set_error(request, response,
                      ApiError(status < 400 ? 400 : status, "the request could not be read", "bad_request"));
        }
        service.metrics.request("other", response.status);
        return Handled::Handled;
    };
    http.set_error_handler(say_error);
    http.set_exception_handler([](const httplib::Request& request, httplib::Response& response, std::exception_ptr) {
        set_error(request, response, ApiError(500, "an unexpected error", "internal"));
    });
    add_state_routes(http, service);
    add_generating_routes(http, service);
    add_text_routes(http, service);
    add_vector_routes(http, service);
}

}  // namespace server
