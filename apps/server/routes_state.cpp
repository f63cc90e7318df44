// SPDX-License-Identifier: MIT
// Routes for models, state and metrics, and the page.
#include <tinfer/version.hpp>

#include "delivery.hpp"
#include "gateway_metrics.hpp"
#include "job.hpp"
#include "model_cards.hpp"
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

/// The models that a GET is about: the one in `model`, else all.
std::vector<HostedModel*> models_of(Models& models, const Request& request) {
    if (const auto name = request.parameter("model"); name && !name->empty()) return {&models.find(name)};
    return models.all();
}

void slots(Broker& broker, const Request& request, const Body&, Response& response) {
    std::string list;
    for (HostedModel* const model : models_of(*broker.models(), request)) {
        const auto use = broker.models()->look(*model);
        if (!use) continue;
        for (const auto& slot : use->service().engine.slots()) {
            Json document = slot_of(use->service(), slot);
            document["model"] = model->id;
            list += (list.empty() ? "[" : ",") + to_line(document);
        }
    }
    set_answer(broker, response, list.empty() ? "[]" : list + "]");
}

void metrics(Broker& broker, const Request&, const Body&, Response& response) {
    Models& models = *broker.models();
    const auto label = [](const std::string& model) { return "model=\"" + escape_label(model) + "\""; };
    const auto all = models.all();
    const std::string of_process = label(models.has_one() ? all.front()->id : std::string());
    MetricFamilies families;
    GatewayNumbers sum;
    // What is for no model counts for the only one that there is.
    if (models.has_one()) all.front()->metrics.take(broker.metrics);
    else broker.metrics.add_series(families, of_process);
    for (HostedModel* const model : all) {
        const std::string labels = label(model->id);
        const auto status = models.status(*model);
        auto totals = status.totals;
        if (const auto use = models.look(*model)) {
            auto now = totals_of(use->service().engine);
            now.add(totals);
            totals = std::move(now);
            const auto numbers = gateway_numbers(use->service());
            add_gateway_series(families, numbers, labels);
            sum.add(numbers);
        }
        model->metrics.add_series(families, labels);
        add_series(families, totals, labels);
        families.add("tinfer_model_loaded", "gauge", "Whether the model is in memory.", labels,
                     std::uint64_t{status.state == HostedModel::State::loaded});
        families.add("tinfer_model_loads_total", "counter", "Times that it was loaded.", labels, status.n_loads);
        families.add("tinfer_model_unloads_total", "counter", "Times that it was unloaded.", labels, status.n_unloads);
    }
    if (broker.options.metrics_as_vllm) add_vllm_series(families, sum);
    add_process_series(families, of_process);
    response.status = 200;
    set_body(broker.memory, response, families.text(), "text/plain; version=0.0.4");
}

/// POST /models/load and /models/unload.
HostedModel& read_model(Broker& broker, const Body& text, Client& client) {
    const Reading reading(broker, client, text.size());
    const Json body = parse_body(text.text());
    Fields fields(body);
    const auto name = fields.text("model");
    if (!name) fields.refuse("model", "is missing");
    (void)check_unknown(fields, broker.options.strict);
    return broker.models()->find(name);
}

void load(Broker& broker, const Request&, const Body& text, Response& response) {
    HostedModel& model = read_model(broker, text, response.client);
    Models::Ticket ticket(*broker.models(), model);
    ClientWatch watch(response.client);
    if (wait_for_model(ticket, watch, std::nullopt)) set_json(response, {{"success", true}});
    else response.status = 499;
}

void unload(Broker& broker, const Request&, const Body& text, Response& response) {
    broker.models()->unload(read_model(broker, text, response.client));
    set_json(response, {{"success", true}});
}

}  // namespace

void add_state_routes(Router& router) {
    const auto get = [&](const char* path, Router::GetHandler handler) { router.get(path, std::move(handler)); };
    for (const char* path : {"/health", "/v1/health"})
        router.of_server(path, [](Broker&, const Request&, Body, Response& response) {
            set_json(response, {{"status", "ok"}});
        });
    for (const char* path : {"/v1/models", "/models"})
        router.of_server(path, [](Broker& broker, const Request&, Body, Response& response) {
            set_answer(broker, response, to_line({{"object", "list"}, {"data", model_list(*broker.models())}}));
        });
    router.of_server("/v1/models/", [](Broker& broker, const Request& request, Body, Response& response) {
        const auto name = request.path.substr(std::string_view("/v1/models/").size());
        set_answer(broker, response, to_line(model_entry(*broker.models(), name)));
    });
    router.of_server("/models/load", load);
    router.of_server("/models/unload", unload);
    router.of_server("/slots", slots);
    router.of_server("/metrics", metrics);
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
    router.of_server("/traces/", [](Broker& broker, const Request& request, Body, Response& response) {
        const auto name = request.path.substr(std::string_view("/traces/").size());
        if (broker.traces == nullptr) throw ApiError(404, "this server keeps no traces", "not_found");
        broker.traces->read(name, response);
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
