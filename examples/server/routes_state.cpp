// SPDX-License-Identifier: MIT
// What there is, how it is, and the page.
#include "page.hpp"
#include "routes.hpp"

namespace server {

namespace {

json slot_of(const tinfer::SlotInfo& slot) {
    json document{{"id", slot.seq ? json(static_cast<std::int32_t>(*slot.seq)) : json()},
                  {"request", static_cast<std::uint64_t>(slot.request)},
                  {"kind", tinfer::to_string(slot.kind)},
                  {"state", tinfer::to_string(slot.state)},
                  {"prompt_tokens", slot.n_prompt},
                  {"prompt_tokens_done", slot.n_prompt_done},
                  {"cached_tokens", slot.n_cached},
                  {"generated_tokens", slot.n_generated},
                  {"seconds", slot.seconds}};
    return document;
}

}  // namespace

void add_state_routes(httplib::Server& http, Service& service) {
    const auto get = [&](const char* path, std::function<void(const httplib::Request&, httplib::Response&)> handler) {
        http.Get(path, guarded(service, std::move(handler)));
    };
    for (const char* path : {"/health", "/v1/health"})
        get(path, [](const auto&, auto& response) { set_json(response, {{"status", "ok"}}); });
    for (const char* path : {"/v1/models", "/models"})
        get(path, [&service](const auto&, auto& response) {
            set_json(response, {{"object", "list"}, {"data", json::array({service.model_card()})}});
        });
    get(R"(/v1/models/(.+))", [&service](const auto& request, auto& response) {
        service.check_model(std::string(request.matches[1]));
        set_json(response, service.model_card());
    });
    get("/metrics", [&service](const auto&, auto& response) {
        response.status = 200;
        response.set_content(service.metrics.text(service.engine, service.id), "text/plain; version=0.0.4");
    });
    get("/slots", [&service](const auto&, auto& response) {
        json list = json::array();
        for (const auto& slot : service.engine.slots()) list.push_back(slot_of(slot));
        set_json(response, list);
    });
    if (!service.options.no_page)
        get("/", [](const auto&, auto& response) {
            response.status = 200;
            response.set_header("Content-Security-Policy",
                                "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
                                "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                                "frame-ancestors 'none'");
            response.set_header("X-Content-Type-Options", "nosniff");
            std::string text;
            for (const auto part : page_parts()) text += part;
            response.set_content(text, "text/html; charset=utf-8");
        });
}

}  // namespace server
