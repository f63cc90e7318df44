// SPDX-License-Identifier: MIT
// Routes for tokenizing, detokenizing and applying the template.
#include "job.hpp"
#include "routes.hpp"

namespace tinfer::server {

namespace {

/// Warnings of fields that were not read, as a member behind the text of a JSON object.
std::string with_warnings(std::string document, const Fields& fields, const Service& service) {
    const auto warnings = check_unknown(fields, service.options.strict);
    if (warnings.empty()) return document;
    open_member(document, "warnings");
    return document + to_line(warnings) + "}";
}

/// The text of a token, or its bytes where they are part of a character.
std::string piece_of(std::string_view piece) {
    if (Json text(piece); Json::parse(to_line(text)) == piece) return to_line(text);
    Json bytes = Json::array();
    for (const char c : piece) bytes.push_back(static_cast<unsigned char>(c));
    return to_line(bytes);
}

void tokenize(Service& service, const Body& body, Response& response) {
    const Reading reading(service.broker, response.client, body.size());
    const Json document = parse_body(body.text());
    Fields fields(document);
    fields.take(kTakenOfModels);
    auto text = fields.text("text");
    const auto content = fields.text("content");
    if (!text) text = content;
    if (!text) fields.refuse("text", "is missing");
    tinfer::EncodeOptions options;
    options.add_special = fields.is_set(field::add_special);
    options.parse_special = fields.is_set(field::parse_special);
    const bool has_pieces = fields.is_set(field::with_pieces);
    std::string ids;  // as text: a JSON document would take many times the memory
    for (const auto token : service.model.vocab().encode(*text, options)) {
        ids += ids.empty() ? "{\"tokens\":[" : ",";
        const std::string id = std::to_string(static_cast<std::int32_t>(token));
        ids += has_pieces ? "{\"id\":" + id + ",\"piece\":" + piece_of(service.model.vocab().piece(token, true)) + "}"
                          : id;
    }
    if (ids.empty()) ids = "{\"tokens\":[";
    set_answer(service, response, with_warnings(ids + "]}", fields, service));
}

void detokenize(Service& service, const Body& body, Response& response) {
    const Reading reading(service.broker, response.client, body.size());
    const Json document = parse_body(body.text());
    Fields fields(document);
    fields.take(kTakenOfModels);
    const Json* list = fields.list("tokens");
    if (list == nullptr) fields.refuse("tokens", "is missing");
    std::string text = decode_within(read_token_ids(*list, "tokens", service), "tokens", service);
    set_answer(service, response, with_warnings(to_line({{"text", std::move(text)}}), fields, service));
}

void apply_template(Service& service, const Body& body, Response& response) {
    const Reading reading(service.broker, response.client, body.size());
    const Json document = parse_body(body.text());
    Fields fields(document);
    fields.take(kTakenOfModels);
    const bool follows = fields.boolean(field::add_generation_prompt).value_or(true);
    const Conversation talk = read_conversation(fields);
    try {
        const bool has_tools = !talk.tools.is_null();
        const auto rendered = tinfer::render_prompt(service.chat_template(has_tools), service.able(has_tools),
                                                    service.model.vocab(), talk, follows);
        set_answer(service, response, with_warnings(to_line({{"prompt", rendered.text}}), fields, service));
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

}  // namespace tinfer::server
