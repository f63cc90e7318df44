// SPDX-License-Identifier: MIT
// Text to tokens and back, and what a template makes of messages.
#include "job.hpp"
#include "routes.hpp"

namespace server {

void add_text_routes(httplib::Server& http, Service& service) {
    http.Post("/tokenize", guarded(service, [&service](const auto& request, auto& response) {
                  const json body = parse_body(request.body);
                  Fields fields(body);
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
              }));
    http.Post("/detokenize", guarded(service, [&service](const auto& request, auto& response) {
                  const json body = parse_body(request.body);
                  Fields fields(body);
                  const json* list = fields.list("tokens");
                  if (list == nullptr) fields.refuse("tokens", "is missing");
                  const auto n_vocab = static_cast<std::int64_t>(service.model.vocab().size());
                  std::vector<tinfer::Token> tokens;
                  for (const json& item : *list) {
                      const std::int64_t id = item.is_number_integer() ? item.template get<std::int64_t>() : -1;
                      if (id < 0 || id >= n_vocab)
                          fields.refuse("tokens", item.dump().substr(0, 32) + " is no token of a vocabulary of " +
                                                      std::to_string(n_vocab));
                      tokens.push_back(tinfer::Token{static_cast<std::int32_t>(id)});
                  }
                  set_json(response, {{"text", service.model.vocab().decode(tokens)}});
              }));
    http.Post("/apply-template", guarded(service, [&service](const auto& request, auto& response) {
                  const json body = parse_body(request.body);
                  Fields fields(body);
                  const bool follows = fields.boolean("add_generation_prompt").value_or(true);
                  const Conversation talk = read_conversation(fields);
                  try {
                      set_json(response, {{"prompt", render(service, talk, follows).text}});
                  } catch (const tinfer::Error& error) {
                      throw translate(error, "messages");
                  }
              }));
}

}  // namespace server
