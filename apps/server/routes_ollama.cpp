// SPDX-License-Identifier: MIT
// Routes of Ollama's interface.
#include "ollama.hpp"
#include "ollama_card.hpp"
#include "routes.hpp"
#include "vectors.hpp"

namespace tinfer::server {

namespace {

void generate(ollama::Kind kind, Service& service, Body text, Response& response) {
    check_gives_text(service);
    std::shared_ptr<Reply> reply;
    {
        const Body read_once = std::move(text);
        const Reading reading(service, response.client, read_once.size());
        ollama::Ask ask = ollama::read(kind, parse_body(read_once.text()), service);
        if (!ask.job) {
            set_json(response, ollama::nothing(kind, ask));
            if (!ask.stream) return;
            response.set_content(to_line(ollama::nothing(kind, ask)) + "\n", "application/x-ndjson");
            return;
        }
        reply = std::make_shared<Reply>(service, *std::move(ask.job), [&](const Job& kept) {
            return ollama::protocol(kind, service, kept, std::move(ask.model));
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
        const Reading reading(service, response.client, read_once.size());
        const Json body = parse_body(read_once.text());
        Fields fields(body);
        model = ollama::read_model(fields, service).value_or(service.id);
        check_gives_vectors(service);
        fields.take({"options"});  // of a load, which change nothing
        (void)ollama::read_keep_alive(fields);
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
        document = {
            {"model", model},
            {"total_duration",
             std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin).count()},
            {"load_duration", 0},
            {"prompt_eval_count", n_tokens}};
    if (!job.warnings.empty()) document["warnings"] = job.warnings;
    std::string whole = to_line(document);
    open_member(whole, is_old ? "embedding" : "embeddings");
    if (!is_old) list = "[" + std::move(list) + "]";
    else if (list.empty()) list = "[]";
    held.reset();
    set_answer(service, response, whole + list + "}");
}

void show(Service& service, const Body& text, Response& response) {
    const Reading reading(service, response.client, text.size());
    const Json body = parse_body(text.text());
    Fields fields(body);
    if (!ollama::read_model(fields, service)) fields.refuse("model", "is missing");
    fields.take({"options", "system", "template"});
    const bool is_verbose = fields.boolean("verbose").value_or(false);
    Json document = ollama::show(service, is_verbose);
    if (const auto warnings = check_unknown(fields, service); !warnings.empty()) document["warnings"] = warnings;
    set_answer(service, response, to_line(document));
}

/// The model is here, or it does not come: a server of one model gets no other.
void pull(Service& service, const Body& text, Response& response) {
    const Reading reading(service, response.client, text.size());
    const Json body = parse_body(text.text());
    Fields fields(body);
    fields.take({"insecure", "username", "password"});
    const bool is_stream = fields.boolean("stream").value_or(true);
    auto name = fields.text("model"), old = fields.text("name");
    if (!name) name = std::move(old);
    if (!name || name->empty()) fields.refuse("model", "is missing");
    if (*name != service.id && *name != ollama::with_tag(service.id))
        throw ApiError(403, "pulling is off; this server has its model alone", "not_supported");
    const Json done{{"status", "success"}};
    if (is_stream) response.set_content(to_line(done) + "\n", "application/x-ndjson");
    else set_json(response, done);
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
    router.get("/api/tags", [](Service& service, const auto&, auto& response) {
        set_json(response, {{"models", Json::array({ollama::tag(service)})}});
    });
    router.get("/api/ps", [](Service& service, const auto&, auto& response) {
        set_json(response, {{"models", Json::array({ollama::running(service, -1)})}});
    });
    router.get("/api/version", [](Service&, const auto&, auto& response) {
        set_json(response, {{"version", ollama::kVersion}});
    });
    router.post("/api/show", show);
    router.post("/api/pull", pull);
}

}  // namespace tinfer::server
