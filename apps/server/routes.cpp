// SPDX-License-Identifier: MIT
#include "routes.hpp"

#include <algorithm>
#include <array>

#include "delivery.hpp"
#include "request_log.hpp"

namespace tinfer::server {

namespace {

constexpr std::array<Route, 38> kRoutes{{
    {"/", "GET"},
    {"/page/libraries.js", "GET"},
    {"/viewer", "GET"},
    {"/health", "GET"},
    {"/v1/health", "GET"},
    {"/v1/models", "GET"},
    {"/models", "GET"},
    {"/models/load", "POST"},
    {"/models/unload", "POST"},
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
    {"/infill", "POST"},
    {"/props", "GET"},
    {"/api/chat", "POST"},
    {"/api/generate", "POST"},
    {"/api/embed", "POST"},
    {"/api/embeddings", "POST"},
    {"/api/tags", "GET"},
    {"/api/ps", "GET"},
    {"/api/show", "POST"},
    {"/api/version", "GET"},
    {"/api/pull", "POST"},
}};

/// Routes of Ollama's interface that change what the server has, with any method: paths, and what begins with them and
/// a slash.
constexpr std::array<std::string_view, 6> kNotSupported{"/api/create", "/api/push",  "/api/copy",
                                                        "/api/delete", "/api/blobs", "/api/me"};

std::optional<ApiError> not_supported(std::string_view path) {
    for (const auto name : kNotSupported)
        if (path.starts_with(name) && (path.size() == name.size() || path[name.size()] == '/'))
            return ApiError(501,
                            std::string(name) + " is not supported by tinfer" +
                                (name == "/api/delete" ? "; use tinfer rm" : ""),
                            "not_supported");
    return std::nullopt;
}

/// Clients of Ollama's interface look at / whether somebody is here; who asks for any kind gets a line of text.
bool wants_page(const Request& request) {
    const auto accepted = request.find("Accept");
    return accepted.empty() || accepted.find("text/html") != accepted.npos;
}

constexpr std::string_view kModels = "/v1/models/";  ///< and an id behind it; without one like /v1/models

constexpr std::string_view kTraces = "/traces/";  ///< and the name of a file

/// The path under which a route has its handler.
std::string_view handler_path(std::string_view path) {
    if (path == kModels) return kModels.substr(0, kModels.size() - 1);
    if (path.starts_with(kTraces)) return kTraces;
    return path.starts_with(kModels) ? kModels : path;
}

/// Parts of the page for people. They are there while the model loads, and without a key.
bool is_page(std::string_view path) { return path == "/" || path == "/page/libraries.js" || path == "/viewer"; }

std::string_view method_of(std::string_view path) {
    if (path.starts_with(kModels) || path.starts_with(kTraces)) return "GET";
    for (const auto& route : kRoutes)
        if (route.path == path) return route.method;
    return "";
}

/// How a route is called in /metrics.
std::string_view metrics_name(const Request* request) {
    if (request == nullptr || method_of(request->path).empty()) return "other";
    const auto path = handler_path(request->path);
    return path == kModels ? "/v1/models/{id}" : path == kTraces ? "/traces/{file}" : path;
}

std::string allowed_methods(std::string_view method) {
    return std::string(method) + (method == "GET" ? ", HEAD, OPTIONS" : ", OPTIONS");
}

bool is_health(std::string_view path) { return path == "/health" || path == "/v1/health"; }

bool needs_key(std::string_view path, const ServeOptions& options) {
    return !is_health(path) && !is_page(path) && !(options.open_metrics && path == "/metrics");
}

std::string_view key_of(const Request& request) {
    const auto header = request.find("Authorization");
    const auto space = header.find(' ');
    if (space != header.npos && equal_names(header.substr(0, space), "bearer"))
        return header.substr(std::min(header.size(), header.find_first_not_of(' ', space)));
    return request.find("x-api-key");
}

/// Whether the command line names the origin; then browsers are told.
bool allow_origin(const ServeOptions& options, std::string_view origin, Response& response) {
    if (origin.empty()) return false;
    for (const auto& allowed : options.cors)
        if (allowed == "*" || allowed == origin) {
            response.set_header("Access-Control-Allow-Origin", allowed);
            response.set_header("Vary", "Origin");
            response.set_header("Access-Control-Allow-Headers", "authorization, content-type, x-api-key");
            response.set_header("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
            return true;
        }
    return false;
}

/// Without the port, if that is the one of the scheme.
std::string_view without_default_port(std::string_view authority, bool is_https) {
    const std::string_view port = is_https ? ":443" : ":80";
    if (authority.ends_with(port)) authority.remove_suffix(port.size());
    return authority;
}

}  // namespace

bool is_cross_origin(const Request& request) {
    const auto site = request.find("Sec-Fetch-Site");
    if (site == "same-origin") return false;  // also behind a proxy, where Host is not what the browser has asked
    if (const auto origin = request.find("Origin"); !origin.empty()) {
        const auto colon = origin.find("://");
        if (colon == origin.npos) return true;  // "null": a page without an origin
        const bool is_https = equal_names(origin.substr(0, colon), "https");
        return !equal_names(without_default_port(origin.substr(colon + 3), is_https),
                            without_default_port(request.host, is_https));
    }
    if (site.empty() || site == "none") return false;
    return !is_page(request.path) || request.find("Sec-Fetch-Mode") != "navigate" ||
           request.find("Sec-Fetch-Dest") != "document";
}

bool is_known_key(const std::vector<std::string>& keys, std::string_view given) {
    unsigned found = 0;
    for (const std::string& key : keys) {
        unsigned difference = static_cast<unsigned>(key.size() != given.size());
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
    if (host.starts_with("[::1]")) return host.size() == 5 || host[5] == ':';
    host = host.substr(0, host.find(':'));
    return equal_names(host, "localhost") ||
           (host.starts_with("127.") && host.find_first_not_of("0123456789.") == host.npos);
}

void set_json(Response& response, const Json& document, int status) {
    response.status = status;
    response.set_content(to_line(document), "application/json");
}

void set_answer(Broker& broker, Response& response, std::string document) {
    set_body(broker.memory, response, std::move(document));
    response.status = 200;
}

std::span<const Route> routes() noexcept { return kRoutes; }

Router::Router(Broker& broker) : broker_(broker), is_loopback_(is_loopback_address(broker.options.host)) {
    add_state_routes(*this);
    add_generating_routes(*this);
    add_text_routes(*this);
    add_vector_routes(*this);
    add_ollama_routes(*this);
}

void Router::get(std::string_view path, GetHandler handler) {
    handlers_[path] =
        ModelHandler([handler = std::move(handler)](Service& service, const Request& request, Body,
                                                    Response& response) { handler(service, request, response); });
}

void Router::post(std::string_view path, PostHandler handler) {
    handlers_[path] =
        ModelHandler([handler = std::move(handler)](Service& service, const Request&, Body body, Response& response) {
            handler(service, std::move(body), response);
        });
}

void Router::of_server(std::string_view path, ServerHandler handler) { handlers_[path] = std::move(handler); }

std::optional<ApiError> Router::objection(const Request& request, std::string_view method, Response& response) const {
    const auto& options = broker_.options;
    // A browser sends Host in 1.1 always; who sends none is none, so that no page is behind the request.
    if (is_loopback_ && (request.is_http_11 || !request.host.empty()) && !is_loopback_host(request.host))
        return ApiError(403, "this host name is not served here", "host_not_allowed");
    const auto origin = request.find("Origin");
    if (!allow_origin(options, origin, response) && is_cross_origin(request))
        return ApiError(403,
                        "pages of " + (origin.empty() ? "another site" : std::string(origin.substr(0, 128))) +
                            " may not ask here; --cors ORIGIN allows it",
                        "origin_not_allowed");
    if (request.path == "*") return {};
    const auto refused = not_supported(request.path);
    if (method.empty() && !refused) return ApiError(404, "there is no " + request.path.substr(0, 128), "not_found");
    if (request.method == "OPTIONS") return {};
    if (!options.api_keys.empty() && needs_key(request.path, options) &&
        !is_known_key(options.api_keys, key_of(request)))
        return ApiError(401, "a valid API key is needed: Authorization: Bearer KEY", "invalid_api_key");
    if (refused) return refused;
    if (request.method != method && !(method == "GET" && request.method == "HEAD")) {
        response.set_header("Allow", allowed_methods(method));
        return ApiError(405,
                        std::string(request.method.substr(0, 32)) + " is not for " + request.path.substr(0, 128) +
                            ", " + std::string(method) + " is",
                        "method_not_allowed");
    }
    if (broker_.is_draining()) return ApiError(503, "the server is stopping", "stopping");
    if (const auto coding = request.find("Content-Encoding");
        method == "POST" && !coding.empty() && !equal_names(coding, "identity")) {
        response.set_header("Accept-Encoding", "identity");
        return ApiError(415, "bodies with a Content-Encoding are not read here", "unsupported_content_encoding");
    }
    if (method == "POST" && equal_names(request.find("Content-Type").substr(0, 10), "multipart/"))
        return ApiError(400, "the body is read as JSON, not in parts", "invalid_json");
    if (broker_.models() == nullptr && !is_page(request.path))
        return ApiError(503, "the model is being loaded", "loading");
    return {};
}

bool Router::admit(const Request& request, Response& response) {
    const auto method = method_of(request.path);
    if (const auto error = objection(request, method, response)) {
        refuse(&request, response, *error);
        return false;
    }
    if (request.method != "OPTIONS") return true;
    response.status = 204;
    response.set_header("Allow", request.path == "*" ? "GET, HEAD, POST, OPTIONS" : allowed_methods(method));
    return false;
}

void Router::answer(const Request& request, Body body, Response& response) {
    std::optional<Models::Use> use;
    if (broker_.options.log_requests) response.facts = std::make_shared<RequestFacts>();
    const auto report = [&](const ApiError& error) {
        refuse(&request, response, use ? use->service().told(error) : error);
    };
    try {
        if (request.path == "/" && !wants_page(request)) {
            response.set_content("tinfer is running\n", "text/plain; charset=utf-8");
        } else if (is_page(request.path)) {  // while the model loads, too: the page itself waits for it
            set_page(broker_, request.path, response);
        } else {
            const Handler& handler = handlers_.at(handler_path(request.path));
            if (const auto* whole = std::get_if<ServerHandler>(&handler))
                (*whole)(broker_, request, std::move(body), response);
            else answer_by_model(std::get<ModelHandler>(handler), request, std::move(body), response, use);
        }
    } catch (const ApiError& error) {
        return report(error);
    } catch (const tinfer::Error& error) {
        return report(translate(error));
    } catch (const std::bad_alloc&) {
        return report(ApiError(503, "out of memory", "out_of_memory"));
    } catch (const std::exception& error) {
        return report(ApiError(500, error.what(), "internal"));
    }
    if (use && response.facts) response.facts->model = use->service().id;
    (use ? use->service().metrics : broker_.metrics).request(metrics_name(&request), response.status);
    if (use) response.held = std::make_shared<Models::Use>(*std::move(use));
}

void Router::sent(const Request* request, const Response& response, std::chrono::duration<double> took,
                  bool is_whole) noexcept {
    const auto& options = broker_.options;
    if (!options.log_requests || !options.request_log) return;
    try {
        options.request_log(request_line(request, response, took, is_whole));
    } catch (...) {  // no memory, or nobody reads: the answer has gone out
    }
}

void Router::refuse(const Request* request, Response& response, const ApiError& error) {
    const auto is_below = [&](std::string_view path) { return request != nullptr && request->path.starts_with(path); };
    Json document = is_below("/v1/messages") ? error.to_messages_json()
                    : is_below("/api/")      ? error.to_text_json()
                                             : error.to_json();
    if (error.code == "loading" && request != nullptr && is_health(request->path)) {
        Json status{{"status", "loading"}};
        status.update(document);
        document = std::move(status);
    }
    set_json(response, document, error.status);
    if (error.status == 503) response.set_header("Retry-After", std::to_string(error.retry_after_s));
    if (error.status == 401) response.set_header("WWW-Authenticate", "Bearer");
    broker_.metrics.request(metrics_name(request), response.status);
}

}  // namespace tinfer::server
