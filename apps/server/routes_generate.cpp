// SPDX-License-Identifier: MIT
// Routes that generate text.
#include "infill.hpp"
#include "routes.hpp"

namespace tinfer::server {

void check_gives_text(const Service& service) {
    if (service.gives_vectors())
        throw ApiError(501, "this model was started to give vectors; it generates no text", "not_supported");
}

void send_reply(Service& service, std::shared_ptr<Reply> reply, Response& response) {
    reply->report_to(response.facts);
    if (!reply->job().stream) {
        ClientWatch watch(response.client);
        auto document = reply->whole([&] { return watch.gone(); });
        reply.reset();
        if (document) set_answer(service, response, *std::move(document));
        else response.status = 499;  // the client has gone
        return;
    }
    response.status = 200;
    response.set_header("Cache-Control", "no-store");
    response.set_header("X-Accel-Buffering", "no");
    const auto type = reply->protocol().stream_type();
    response.set_stream(type, [reply = std::move(reply), &client = response.client](const WriteBytes& write) {
        ClientWatch watch(client, [&] { return write(reply->protocol().probe()); });
        return reply->stream(write, [&] { return watch.gone(); });
    });
}

namespace {

using MakeProtocol = std::function<std::unique_ptr<Protocol>(const Service&, const Job&, const Json&)>;
using ReadJob = std::function<Job(Json&, const Service&)>;  ///< may change the body

void answer(Service& service, Body text, Response& response, const ReadJob& read, const MakeProtocol& protocol) {
    check_gives_text(service);
    std::shared_ptr<Reply> reply;
    {
        const Body read_once = std::move(text);
        const Reading reading(service.broker, response.client, read_once.size());
        Json body = parse_body(read_once.text());
        reply = std::make_shared<Reply>(service, read(body, service),
                                        [&](const Job& kept) { return protocol(service, kept, body); });
    }
    send_reply(service, std::move(reply), response);
}

}  // namespace

void add_generating_routes(Router& router) {
    const auto add = [&](const char* path, ReadJob read, MakeProtocol protocol) {
        router.post(path, [read = std::move(read), protocol = std::move(protocol)](Service& service, Body body,
                                                                                   Response& response) {
            answer(service, std::move(body), response, read, protocol);
        });
    };
    const MakeProtocol openai = [](const Service& s, const Job& job, const Json&) { return openai_protocol(s, job); };
    for (const char* path : {"/v1/chat/completions", "/chat/completions"}) add(path, read_chat, openai);
    for (const char* path : {"/v1/completions", "/completions"}) add(path, read_completion, openai);
    add("/infill", read_infill, infill_protocol);
    add("/v1/responses", read_responses, responses_protocol);
    add(
        "/v1/messages", [](const Json& body, const Service& s) { return read_anthropic(body, s); },
        [](const Service& s, const Job& job, const Json&) { return anthropic_protocol(s, job); });
    router.post("/v1/messages/count_tokens", [](Service& service, const Body& body, Response& response) {
        const Reading reading(service.broker, response.client, body.size());
        const Job job = read_anthropic(parse_body(body.text()), service, true);
        Json document{{"input_tokens", job.prompts.front().tokens.size()}};
        if (!job.warnings.empty()) document["warnings"] = job.warnings;
        set_json(response, document);
    });
}

}  // namespace tinfer::server
