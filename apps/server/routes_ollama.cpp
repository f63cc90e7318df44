// SPDX-License-Identifier: MIT
// Routes of Ollama's interface.
#include <algorithm>

#include "model_cards.hpp"
#include "ollama.hpp"
#include "ollama_card.hpp"
#include "routes.hpp"
#include "vectors.hpp"

namespace tinfer::server {

namespace {

/// How long the model stays in memory behind this request.
void keep(Service& service, std::optional<double> seconds) {
    if (seconds && service.host != nullptr) service.host->set_keep(*seconds);
}

void generate(ollama::Kind kind, Service& service, Body text, Response& response) {
    check_gives_text(service);
    std::shared_ptr<Reply> reply;
    {
        const Body read_once = std::move(text);
        const Reading reading(service.broker, response.client, read_once.size());
        ollama::Ask ask = ollama::read(kind, parse_body(read_once.text()), service);
        keep(service, ask.keep_alive);
        if (!ask.job) {
            set_json(response, ollama::nothing(kind, ask));
            if (!ask.stream) return;
            response.set_content(to_line(ollama::nothing(kind, ask)) + "\n", "application/x-ndjson");
            return;
        }
        reply = std::make_shared<Reply>(service, *std::move(ask.job), [&](const Job& kept) {
            return ollama::protocol(kind, service, kept, std::move(ask.model), response.load_time);
        });
    }
    send_reply(service, std::move(reply), response);
}

/// /api/embed, or if `is_old` /api/embeddings, which takes one text.
void embed(bool is_old, Service& service, Body text, Response& response) {
    const auto begin = std::chrono::steady_clock::now();
    Job job;
    std::vector<tinfer::EngineRequest> requests;
    std::optional<std::int64_t> dimensions;
    std::string model;
    {
        const Body read_once = std::move(text);
        const Reading reading(service.broker, response.client, read_once.size());
        const Json body = parse_body(read_once.text());
        Fields fields(body);
        model = ollama::read_model(fields, service).value_or(service.id);
        check_gives_vectors(service);
        fields.take({"options"});  // of a load, which change nothing
        keep(service, ollama::read_keep_alive(fields));
        const bool cuts = fields.boolean("truncate").value_or(false);
        const char* const field = is_old ? "prompt" : "input";
        const Json* input = fields.find(field);
        if (!is_old) dimensions = fields.integer("dimensions", 1, service.model.info().n_embd);
        add_warnings(fields, service, job);
        if (input != nullptr && is_old && !input->is_string()) fields.refuse(field, "a text is expected");
        if (input != nullptr && !(input->is_array() && input->empty()))
            requests = read_texts(*input, field, service, job.request, cuts);
    }
    const auto n_numbers = static_cast<std::size_t>(dimensions.value_or(service.model.info().n_embd));
    const std::size_t size = requests.size() * (n_numbers * kNumberText + 64);
    service.memory.check(size, "input", "send fewer texts at once");
    std::optional<HeldMemory> held(std::in_place, service.memory);
    auto results = run_vectors(service, job, std::move(requests), *held, response.client);
    if (!results) {
        response.status = 499;  // the client has gone
        return;
    }
    held->add(size);
    std::string list;
    std::size_t n_tokens = 0;
    for (auto& [vector, n_prompt] : results->all) {
        if (dimensions) vector.resize(std::min(vector.size(), static_cast<std::size_t>(*dimensions)));
        normalize(vector);
        n_tokens += n_prompt;
        list += (list.empty() ? "" : ",") + to_line(Json(vector));
    }
    Json document = Json::object();
    if (!is_old)
        document = {{"model", model},
                    {"total_duration",
                     std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin + response.load_time).count()},
                    {"load_duration", response.load_time.count()},
                    {"prompt_eval_count", n_tokens}};
    if (!job.warnings.empty()) document["warnings"] = job.warnings;
    std::string whole = to_line(document);
    open_member(whole, is_old ? "embedding" : "embeddings");
    if (!is_old) list = "[" + std::move(list) + "]";
    else if (list.empty()) list = "[]";
    held.reset();
    set_answer(service, response, whole + list + "}");
}

/// Of a model that is not in memory, too.
void show(Broker& broker, const Request&, const Body& text, Response& response) {
    Models& models = *broker.models();
    const Reading reading(broker, response.client, text.size());
    const Json body = parse_body(text.text());
    Fields fields(body);
    HostedModel& model = models.find(ollama::read_name(fields));
    fields.take({"options", "system", "template"});
    const bool is_verbose = fields.boolean("verbose").value_or(false);
    const auto card = card_of(models, model);
    Json document;
    if (const auto use = models.look(model)) {
        const Service& service = use->service();
        document =
            ollama::show(model.id, *card, service.model.file(), service.model.vocab(), service.options, is_verbose);
    } else {
        document = ollama::show(model.id, *card, model.source.open(), model.source.vocab(), options_of(models, model),
                                is_verbose);
    }
    if (const auto warnings = check_unknown(fields, broker.options.strict); !warnings.empty())
        document["warnings"] = warnings;
    set_answer(broker, response, to_line(document));
}

void tags(Broker& broker, const Request&, const Body&, Response& response) {
    Models& models = *broker.models();
    Json list = Json::array();
    for (HostedModel* const model : models.all()) {
        try {
            list.push_back(ollama::tag(model->id, *card_of(models, *model)));
        } catch (const tinfer::Error&) {  // a file that cannot be read is no model; GET /v1/models has it
        }
    }
    set_answer(broker, response, to_line({{"models", list}}));
}

void loaded(Broker& broker, const Request&, const Body&, Response& response) {
    Models& models = *broker.models();
    Json list = Json::array();
    for (HostedModel* const model : models.all()) {
        if (!models.look(*model)) continue;
        const auto status = models.status(*model);
        const double rest = status.keep_s < 0 ? -1 : std::max(0.0, status.keep_s - status.idle_s);
        list.push_back(ollama::running(model->id, *card_of(models, *model), rest));
    }
    set_answer(broker, response, to_line({{"models", list}}));
}

}  // namespace

void add_ollama_routes(Router& router) {
    using ollama::Kind;
    for (const auto& [path, kind] : {std::pair{"/api/chat", Kind::chat}, std::pair{"/api/generate", Kind::generate}})
        router.post(path, [kind = kind](Service& service, Body body, Response& response) {
            generate(kind, service, std::move(body), response);
        });
    for (const auto& [path, is_old] : {std::pair{"/api/embed", false}, std::pair{"/api/embeddings", true}})
        router.post(path, [is_old = is_old](Service& service, Body body, Response& response) {
            embed(is_old, service, std::move(body), response);
        });
    router.of_server("/api/tags", tags);
    router.of_server("/api/ps", loaded);
    router.of_server("/api/version", [](Broker&, const Request&, Body, Response& response) {
        set_json(response, {{"version", ollama::kVersion}});
    });
    router.of_server("/api/show", show);
    add_pull_route(router);
}

}  // namespace tinfer::server
