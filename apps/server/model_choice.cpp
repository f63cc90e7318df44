// SPDX-License-Identifier: MIT
// Which model a request is for, and the time until it is there.
#include "fields.hpp"
#include "routes.hpp"

namespace tinfer::server {

namespace {

constexpr std::chrono::milliseconds kAskClient{50};  ///< how often a client is asked whether it is still there
constexpr std::chrono::seconds kSilence{15};         ///< longest time without a byte in a stream

/// Routes whose streams are server-sent events, in which a comment can stand for "not yet".
bool has_events(std::string_view path) { return !path.starts_with("/api/"); }

std::optional<std::string> text_of(const Json& body, const char* name) {
    const Json* const found = body.find(name);
    if (found == nullptr || !found->is_string() || found->get<std::string>().empty()) return std::nullopt;
    return found->get<std::string>();
}

/// An answer, or an error, as the rest of a stream of events that has begun.
bool write_rest(const Request& request, Response& inner, const WriteBytes& write) {
    if (const auto* source = std::get_if<Response::Source>(&inner.body)) return source->write(write);
    const std::string_view event = request.path.starts_with("/v1/messages") ? "event: error\ndata: " : "data: ";
    return write(std::string(event) + std::get<std::string>(inner.body) + "\n\n");
}

}  // namespace

ModelChoice model_choice(Broker& broker, const Request& request, const Body& body, Client& client) {
    ModelChoice choice;
    if (request.method != "POST") {
        choice.name = request.parameter("model");
        choice.autoload = request.parameter("autoload") != "false";
    } else if (body.size() > 0) {
        const Reading reading(broker, client, body.size());
        const Json document = parse_body(body.text());
        choice.name = text_of(document, "model");
        if (!choice.name && request.path.starts_with("/api/")) choice.name = text_of(document, "name");
        const Json* const stream = document.find("stream");
        choice.is_stream = stream != nullptr && *stream == Json(true) && has_events(request.path);
    }
    if (choice.name && choice.name->empty()) choice.name.reset();
    return choice;
}

std::optional<Models::Use> wait_for_model(Models::Ticket& ticket, ClientWatch& watch,
                                          std::optional<std::chrono::seconds> patience) {
    const auto begin = std::chrono::steady_clock::now();
    for (;;) {
        if (auto use = ticket.wait(kAskClient)) return use;
        if (watch.gone() || (patience && std::chrono::steady_clock::now() - begin >= *patience)) return std::nullopt;
    }
}

void Router::answer_by_model(const ModelHandler& handler, const Request& request, Body body, Response& response,
                             std::optional<Models::Use>& use) {
    Models& models = *broker_.models();
    // Where there is one model, the handler reads the name together with the rest.
    const bool is_only = models.has_one() && request.method == "POST";
    const ModelChoice choice = is_only ? ModelChoice{} : model_choice(broker_, request, body, response.client);
    HostedModel& model = models.find(choice.name);
    if (!choice.autoload) {
        use.reset();
        if (auto there = models.look(model)) use.emplace(*std::move(there));
        else
            throw ApiError(400, "model '" + model.id + "' is not in memory, and autoload is false", "model_not_loaded");
        return handler(use->service(), request, std::move(body), response);
    }
    const auto begin = std::chrono::steady_clock::now();
    auto ticket = std::make_shared<Models::Ticket>(models, model);
    ClientWatch watch(response.client);
    auto given = wait_for_model(*ticket, watch, choice.is_stream ? std::optional(kSilence) : std::nullopt);
    if (given) {
        response.load_time = std::chrono::steady_clock::now() - begin;
        use.emplace(*std::move(given));
        return handler(use->service(), request, std::move(body), response);
    }
    if (watch.gone()) {
        response.status = 499;
        return;
    }
    // The stream begins before the model is there, so that the client hears that it is being worked for.
    response.set_header("Cache-Control", "no-store");
    response.set_header("X-Accel-Buffering", "no");
    auto kept = std::make_shared<Body>(std::move(body));
    response.set_stream("text/event-stream", [this, &handler, &request, ticket, kept, begin, facts = response.facts,
                                              &client = response.client](const WriteBytes& write) {
        client.set_answering(true);
        Response inner(client);
        inner.facts = facts;
        std::optional<Models::Use> late;
        try {
            ClientWatch there(client, [&] { return write(": ping\n\n"); });
            while (!late) {
                if (!write(": ping\n\n")) return false;
                if (auto got = wait_for_model(*ticket, there, kSilence)) late.emplace(*std::move(got));
                else if (there.gone()) return false;
            }
            inner.load_time = std::chrono::steady_clock::now() - begin;
            if (facts) facts->model = late->service().id;
            handler(late->service(), request, std::move(*kept), inner);
        } catch (const ApiError& error) {
            refuse(&request, inner, late ? late->service().told(error) : error);
        } catch (const tinfer::Error& error) {
            refuse(&request, inner, late ? late->service().told(translate(error)) : translate(error));
        }
        const bool is_whole = write_rest(request, inner, write);
        client.set_answering(false);
        return is_whole;
    });
}

}  // namespace tinfer::server
