// SPDX-License-Identifier: MIT
// Routes for tokenizing, detokenizing and applying the template.
#include "job.hpp"
#include "routes.hpp"

namespace server {

namespace {

void tokenize(Service& service, const Body& body, Response& response) {
    const ReadingRoom::Place place(service.reading, body.size());
    const json document = parse_body(body.text());
    Fields fields(document);
    auto text = fields.text("text");
    if (!text) text = fields.text("content");
    if (!text) fields.refuse("text", "is missing");
    tinfer::EncodeOptions options;
    options.add_special = fields.boolean("add_special").value_or(false);
    options.parse_special = fields.boolean("parse_special").value_or(false);
    std::string ids;  // as text: a JSON document would take many times the memory
    for (const auto token : service.model.vocab().encode(*text, options)) {
        ids += ids.empty() ? "{\"tokens\":[" : ",";
        ids += std::to_string(static_cast<std::int32_t>(token));
    }
    if (ids.empty()) ids = "{\"tokens\":[";
    set_answer(service, response, ids + "]}");
}

void detokenize(Service& service, const Body& body, Response& response) {
    const ReadingRoom::Place place(service.reading, body.size());
    const json document = parse_body(body.text());
    Fields fields(document);
    const json* list = fields.list("tokens");
    if (list == nullptr) fields.refuse("tokens", "is missing");
    std::string text = decode_within(read_token_ids(*list, "tokens", service), "tokens", service);
    set_answer(service, response, to_line({{"text", std::move(text)}}));
}

void apply_template(Service& service, const Body& body, Response& response) {
    const ReadingRoom::Place place(service.reading, body.size());
    const json document = parse_body(body.text());
    Fields fields(document);
    const bool follows = fields.boolean("add_generation_prompt").value_or(true);
    const Conversation talk = read_conversation(fields);
    try {
        set_answer(service, response, to_line({{"prompt", render(service, talk, follows).text}}));
    } catch (const tinfer::Error& error) {
        throw translate(error, "messages");
    }
}

}  // namespace

void add_text_routes(Router& router) {
    router.post("/tokenize", tokenize);
    router.post("/detokenize", detokenize);
    router.post("/apply-template", apply_template);
}

}  // namespace server
