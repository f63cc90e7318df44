// SPDX-License-Identifier: MIT
// Text to tokens and back, and what a template makes of messages.
#include "job.hpp"
#include "routes.hpp"

namespace server {

namespace {

void tokenize(Service& service, const std::string& body, httplib::Response& response) {
    const ReadingRoom::Place place(service.reading, body.size());
    const json document = parse_body(body);
    Fields fields(document);
    auto text = fields.text("text");
    if (!text) text = fields.text("content");
    if (!text) fields.refuse("text", "is missing");
    tinfer::EncodeOptions options;
    options.add_special = fields.boolean("add_special").value_or(false);
    options.parse_special = fields.boolean("parse_special").value_or(false);
    json ids = json::array();
    for (const auto token : service.model.vocab().encode(*text, options))
        ids.push_back(static_cast<std::int32_t>(token));
    set_json(response, {{"tokens", ids}});
}

void detokenize(Service& service, const std::string& body, httplib::Response& response) {
    const ReadingRoom::Place place(service.reading, body.size());
    const json document = parse_body(body);
    Fields fields(document);
    const json* list = fields.list("tokens");
    if (list == nullptr) fields.refuse("tokens", "is missing");
    set_json(response, {{"text", service.model.vocab().decode(read_token_ids(*list, "tokens", service))}});
}

void apply_template(Service& service, const std::string& body, httplib::Response& response) {
    const ReadingRoom::Place place(service.reading, body.size());
    const json document = parse_body(body);
    Fields fields(document);
    const bool follows = fields.boolean("add_generation_prompt").value_or(true);
    const Conversation talk = read_conversation(fields);
    try {
        set_json(response, {{"prompt", render(service, talk, follows).text}});
    } catch (const tinfer::Error& error) {
        throw translate(error, "messages");
    }
}

}  // namespace

void add_text_routes(httplib::Server& http, Hub& hub) {
    add_post(http, hub, "/tokenize", tokenize);
    add_post(http, hub, "/detokenize", detokenize);
    add_post(http, hub, "/apply-template", apply_template);
}

}  // namespace server
