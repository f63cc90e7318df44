// SPDX-License-Identifier: MIT
// Routes for models, state and metrics, and the page.
#include <tinfer/version.hpp>

#include "delivery.hpp"
#include "openapi.hpp"
#include "page.hpp"
#include "routes.hpp"
#include "trace_folder.hpp"

namespace tinfer::server {

namespace {

Json slot_of(const Service& service, const tinfer::SlotInfo& slot) {
    Json document{{"id", slot.seq ? Json(static_cast<std::int32_t>(*slot.seq)) : Json()},
                  {"request", static_cast<std::uint64_t>(slot.request)},
                  {"kind", tinfer::to_string(slot.kind)},
                  {"state", tinfer::to_string(slot.state)},
                  {"prompt_tokens", slot.n_prompt},
                  {"prompt_tokens_done", slot.n_prompt_done},
                  {"cached_tokens", slot.n_cached},
                  {"generated_tokens", slot.n_generated},
                  {"seconds", slot.seconds}};
    if (const auto texts = service.texts.find(slot.request)) {
        document["prompt"] = texts->first;
        document["text"] = texts->second;
    }
    return document;
}

}  // namespace

void add_state_routes(Router& router) {
    const auto get = [&](const char* path, Router::GetHandler handler) { router.get(path, std::move(handler)); };
    for (const char* path : {"/health", "/v1/health"})
        get(path, [](Service&, const auto&, auto& response) { set_json(response, {{"status", "ok"}}); });
    for (const char* path : {"/v1/models", "/models"})
        get(path, [](Service& service, const auto&, auto& response) {
            set_json(response, {{"object", "list"}, {"data", Json::array({service.model_card()})}});
        });
    get("/v1/models/", [](Service& service, const auto& request, auto& response) {
        service.check_model(request.path.substr(std::string_view("/v1/models/").size()));
        set_json(response, service.model_card());
    });
    get("/props", [](Service& service, const auto&, auto& response) {  // what editors ask before they begin
        const auto& paths = service.model.file().paths();
        set_json(response, {{"default_generation_settings", {{"n_ctx", service.engine.max_tokens()}}},
                            {"total_slots", service.engine.options().context.n_seq_max},
                            {"model_path", paths.front().filename().string()},
                            {"chat_template", service.chat_template(false).source()},
                            {"chat_template_caps",
                             {{"supports_tools", service.able(true).tools},
                              {"supports_system_role", service.able(false).system_role}}},
                            {"modalities", {{"vision", false}, {"audio", false}}},
                            {"build_info", "tinfer " + std::string(tinfer::version())},
                            {"is_sleeping", false}});
    });
    get("/openapi.json", [](Service& service, const auto&, auto& response) {
        response.status = 200;
        set_shared_body(response, service.description([&] { return to_line(openapi(service)); }), "application/json");
    });
    get("/metrics", [](Service& service, const auto&, auto& response) {
        response.status = 200;
        set_body(service.memory, response, service.metrics.text(service.engine, service.id),
                 "text/plain; version=0.0.4");
    });
    get("/slots", [](Service& service, const auto&, auto& response) {
        std::string list;
        for (const auto& slot : service.engine.slots())
            list += (list.empty() ? "[" : ",") + to_line(slot_of(service, slot));
        set_answer(service, response, list.empty() ? "[]" : list + "]");
    });
    get("/traces/", [](Service& service, const auto& request, auto& response) {
        const auto name = request.path.substr(std::string_view("/traces/").size());
        if (service.traces == nullptr) throw ApiError(404, "this server keeps no traces", "not_found");
        service.traces->read(name, response);
    });
    get("/activity", [](Service& service, const auto&, auto& response) {
        if (service.options.activity == nullptr || service.engine.options().observers.empty())
            throw ApiError(501, "this program was built without observers, which see what is read", "not_supported");
        response.set_header("Cache-Control", "no-store");
        set_json(response, service.options.activity->look());
    });
}

void set_page(Broker& broker, std::string_view path, Response& response) {
    const auto& viewer = broker.options.viewer;
    if (broker.options.no_page || (path == "/viewer" && viewer.empty()))
        throw ApiError(404, "there is no page here", "not_found");
    response.set_header("X-Content-Type-Options", "nosniff");
    if (path == "/page/libraries.js") {
        response.set_header("Cache-Control", "no-cache");
        return set_fixed_body(response, page_libraries(), "text/javascript; charset=utf-8");
    }
    response.set_header("Referrer-Policy", "no-referrer");
    if (path == "/viewer") {  // its policy of contents stands in the page, which is also shipped as a file
        response.set_header("X-Frame-Options", "DENY");
        return set_fixed_body(response, viewer, "text/html; charset=utf-8");
    }
    // The page's own script and style are allowed by their hashes; what a library or a text brings is not.
    response.set_header("Content-Security-Policy",
                        "default-src 'none'; style-src " + std::string(page_style_hash()) + "; script-src 'self' " +
                            std::string(page_script_hash()) +
                            "; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                            "frame-ancestors 'none'");
    set_fixed_body(response, page_parts(), "text/html; charset=utf-8");
}

}  // namespace tinfer::server
