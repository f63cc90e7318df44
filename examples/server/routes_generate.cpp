// SPDX-License-Identifier: MIT
// Routes that generate text.
#include "listener.hpp"
#include "reply.hpp"
#include "routes.hpp"

namespace server {

namespace {

using MakeProtocol = std::function<std::unique_ptr<Protocol>(const Service&, const Job&, const json&)>;
using ReadJob = std::function<Job(const json&, const Service&)>;

void answer(Service& service, std::string text, httplib::Response& response, const ReadJob& read,
            const MakeProtocol& protocol) {
    if (service.gives_vectors())
        throw ApiError(501, "this model was started to give vectors; it generates no text", "not_supported");
    std::shared_ptr<Reply> reply;
    {
        const std::string read_once = std::move(text);
        const ReadingRoom::Place place(service.reading, read_once.size());
        const json body = parse_body(read_once);
        reply = std::make_shared<Reply>(service, read(body, service),
                                        [&](const Job& kept) { return protocol(service, kept, body); });
    }
    if (!reply->job().stream) {
        ClientWatch watch(write_interim);
        auto document = reply->whole([&] { return watch.gone(); });
        reply.reset();
        if (document) set_answer(service, response, *std::move(document));
        else response.status = 499;  // the client has gone
        return;
    }
    response.status = 200;
    response.set_header("Cache-Control", "no-store");
    response.set_header("X-Accel-Buffering", "no");
    response.set_chunked_content_provider("text/event-stream", [reply](std::size_t, httplib::DataSink& sink) {
        const auto write = [&](std::string_view bytes) {
            return sink.is_writable() && sink.write(bytes.data(), bytes.size());
        };
        ClientWatch watch([&] { return write(Reply::kPing); });
        reply->stream(write, [&] { return watch.gone(); });
        sink.done();
        return true;
    });
}

}  // namespace

void add_generating_routes(httplib::Server& http, Hub& hub) {
    const auto add = [&](const char* path, ReadJob read, MakeProtocol protocol) {
        add_post(http, hub, path,
                 [read = std::move(read), protocol = std::move(protocol)](Service& service, std::string body,
                                                                          httplib::Response& response) {
                     answer(service, std::move(body), response, read, protocol);
                 });
    };
    const MakeProtocol openai = [](const Service& s, const Job& job, const json&) { return openai_protocol(s, job); };
    for (const char* path : {"/v1/chat/completions", "/chat/completions"}) add(path, read_chat, openai);
    for (const char* path : {"/v1/completions", "/completions"}) add(path, read_completion, openai);
    add("/v1/responses", read_responses, responses_protocol);
    add(
        "/v1/messages", [](const json& body, const Service& s) { return read_anthropic(body, s); },
        [](const Service& s, const Job& job, const json&) { return anthropic_protocol(s, job); });
    add_post(http, hub, "/v1/messages/count_tokens",
             [](Service& service, const std::string& body, httplib::Response& response) {
                 const ReadingRoom::Place place(service.reading, body.size());
                 const Job job = read_anthropic(parse_body(body), service, true);
                 set_json(response, {{"input_tokens", job.prompts.front().tokens.size()}});
             });
}

}  // namespace server
