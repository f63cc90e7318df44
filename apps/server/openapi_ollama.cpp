// SPDX-License-Identifier: MIT
// Schemas of Ollama's interface and of /infill, as read by ollama_read.cpp, routes_ollama.cpp and infill.cpp.
#include "infill.hpp"
#include "openapi.hpp"

namespace tinfer::server::schema {

namespace {

constexpr std::int64_t kMostTokens = 1 << 30;

Json one_value(std::vector<Json> values, std::string_view what) {
    Json list = Json::array();
    for (auto& value : values) list.push_back(std::move(value));
    return {{"enum", list}, {"description", what}};
}

Json any_text() { return {{"type", "string"}}; }

/// "model", or its old name.
void add_model_names(Json& fields, const Service& service) {
    fields["model"] = service.options.any_model ? text("Any name.")
                                                : word("This server has one.", {service.id, service.id + ":latest"});
    fields["name"] = text("The old name of model; counts where that is not there.");
}

/// An object that has to have one of the two.
Json with_model_name(Json fields, const Service& service) {
    add_model_names(fields, service);
    Json one = any_text();
    one["minLength"] = 1;
    Json result = object(std::move(fields));
    result["anyOf"] = Json::array({object({{"model", one}}, {"model"}), object({{"name", one}}, {"name"})});
    return result;
}

void add_keep_alive(Json& fields) {
    fields["keep_alive"] = any_of(
        {{{"type", "null"}}, {{"type", "number"}}, {{"type", "string"}, {"pattern", "^-?[0-9]{1,4}(ms|s|m|h)$"}}});
}

Json options_of_ollama(const Service& service) {
    Json fields = Json::object();
    add_sampling(fields, service);
    const auto room = static_cast<std::int64_t>(service.engine.max_tokens());
    const std::int64_t most = service.options.clip_max_tokens ? kMostTokens : std::max<std::int64_t>(1, room - 1);
    fields["num_predict"] = any_of({{{"type", "null"}},
                                    {{"type", "integer"}, {"minimum", -2}, {"maximum", -1}},
                                    {{"type", "integer"}, {"minimum", 1}, {"maximum", most}}});
    fields["num_ctx"] = whole("Above the server's own: a warning.", 0, kMostTokens);
    fields["tfs_z"] = one_value({1, nullptr}, "Off.");
    fields["penalize_newline"] = one_value({false, nullptr}, "Not there.");
    for (const char* name :
         {"num_batch", "num_gpu", "main_gpu", "num_thread", "num_keep", "numa", "use_mmap", "use_mlock", "low_vram",
          "f16_kv", "vocab_only", "logits_all", "embedding_only", "draft_num_predict"})
        fields[name] = {{"description", "Without effect."}};
    return or_null(object(fields));
}

/// What chats and texts have in common.
Json common_of_ollama(const Service& service) {
    Json fields = Json::object();
    add_model_names(fields, service);
    add_keep_alive(fields);
    fields["stream"] = flag("Lines, one object each; without it, too.");
    fields["options"] = options_of_ollama(service);
    fields["format"] = any_of({{{"enum", {nullptr, "", "json"}}},
                               {{"type", "object"}, {"format", "json-schema"}, {"description", "A JSON schema."}}});
    const bool thinks = !tinfer::AnswerParser(service.chat_template(false)).reasoning_end().empty();
    fields["think"] = thinks ? any_of({flag("Thoughts."), word("How long.", {"low", "medium", "high", "max"})})
                             : one_value({false, nullptr}, "This model does not think.");
    fields["logprobs"] = flag("Log-probabilities of the answer's tokens.");
    fields["top_logprobs"] = whole("Needs logprobs: true.", 0, 20);
    fields["truncate"] = flag("The fewest oldest messages go where there is no room for all.");
    fields["shift"] = flag("The same.");
    fields["template"] = one_value({"", nullptr}, "Prompts are made with the server's template.");
    fields["images"] = {{"type", {"array", "null"}}, {"maxItems", 0}, {"description", "This server reads no images."}};
    for (const char* name : {"width", "height", "steps"}) fields[name] = one_value({0, nullptr}, "No images are made.");
    return fields;
}

Json chat_of_ollama(const Service& service) {
    const Json call =
        object({{"function", object({{"name", any_text()}, {"arguments", or_null({{"type", "object"}})}}, {"name"})}},
               {"function"});
    Json message{{"role", {{"type", "string"}, {"enum", {"system", "user", "assistant", "tool"}}}},
                 {"content", text("")},
                 {"thinking", text("")},
                 {"tool_calls", or_null(list_of(call))},
                 {"tool_name", text("")},
                 {"tool_call_id", text("")},
                 {"images", {{"type", {"array", "null"}}, {"maxItems", 0}}}};
    Json fields = common_of_ollama(service);
    fields["messages"] = or_null(list_of(object(message, {"role"})));
    fields["tools"] = tools();
    return object(fields);
}

Json text_of_ollama(const Service& service) {
    Json fields = common_of_ollama(service);
    fields["prompt"] = text("Without it: the model is loaded, or unloaded by keep_alive 0.");
    fields["system"] = text("Not with raw.");
    fields["suffix"] = can_infill(service.model.vocab()) ? text("What follows the answer.")
                                                         : one_value({"", nullptr}, "This model fills in nothing.");
    fields["raw"] = flag("The prompt as it stands.");
    const auto last = static_cast<std::int64_t>(service.model.vocab().size()) - 1;
    fields["context"] = {{"type", {"array", "null"}},
                         {"maxItems", 4096},
                         {"items", {{"type", "integer"}, {"minimum", 0}, {"maximum", last}}},
                         {"description", "Ids that an earlier answer gave, in front of the prompt; not with raw."}};
    return object(fields);
}

Json vectors_of_ollama(const Service& service, bool is_old) {
    Json fields{{"truncate", flag("Texts that do not fit are cut.")},
                {"options", {{"description", "Without effect."}}}};
    add_model_names(fields, service);
    add_keep_alive(fields);
    Json one = any_text();
    if (service.model.vocab().encode("").empty()) one["minLength"] = 1;
    const auto last = static_cast<std::int64_t>(service.model.vocab().size()) - 1;
    const Json ids{
        {"type", "array"}, {"minItems", 1}, {"items", {{"type", "integer"}, {"minimum", 0}, {"maximum", last}}}};
    if (is_old) fields["prompt"] = or_null(one);
    else
        fields["input"] = any_of(
            {{{"type", "null"}}, one, ids, {{"type", "array"}, {"items", any_of({one, ids})}, {"maxItems", 64}}});
    if (!is_old) fields["dimensions"] = whole("The first so many, normalized again.", 1, service.model.info().n_embd);
    return object(fields);
}

Json infill_body(const Service& service) {
    Json fields = Json::object();
    add_sampling(fields, service);
    fields["model"] = service.options.any_model ? text("Any name.") : word("This server has one.", {service.id});
    for (const char* name : {"input_prefix", "input_suffix", "prompt", "filename"}) fields[name] = text("");
    const Json extra = object({{"filename", text("")}, {"text", any_text()}}, {"text"});
    fields["input_extra"] = or_null({{"type", "array"}, {"maxItems", 1024}, {"items", extra}});
    fields["n_predict"] = whole("0: only reads; -1: as many as fit.", -1, kMostTokens);
    fields["n_indent"] = whole("Ends before a line that is indented less.", 0, 4096);
    fields["t_max_predict_ms"] = whole("Ends at a line's end after so long.", -1, 24 * 3600 * 1000);
    fields["n_cmpl"] = whole("Answers.", 1, 8);
    fields["stream"] = flag("Server-sent events.");
    fields["response_fields"] = or_null({{"type", "array"}, {"maxItems", 256}, {"items", any_text()}});
    return object(fields);
}

}  // namespace

Json ollama_requests(const Service& service) {
    Json all = Json::object();
    if (service.gives_vectors() && !service.ranks()) {
        all["OllamaEmbed"] = vectors_of_ollama(service, false);
        all["OllamaEmbeddings"] = vectors_of_ollama(service, true);
    } else if (!service.gives_vectors()) {
        all["OllamaChat"] = chat_of_ollama(service);
        all["OllamaGenerate"] = text_of_ollama(service);
        if (can_infill(service.model.vocab())) all["InfillRequest"] = infill_body(service);
    }
    Json show{{"verbose", flag("Long arrays of the metadata, too.")}},
        pull{{"stream", flag("Lines; without it, too.")}};
    all["OllamaShow"] = with_model_name(std::move(show), service);
    all["OllamaPull"] = with_model_name(std::move(pull), service);
    if (service.broker.pulls() != nullptr)
        all["OllamaPull"]["properties"]["model"] = text("OWNER/REPO[:QUANT] of the hub, or the name of a model here.");
    return all;
}

Json ollama_answers() {
    const Json count{{"type", "integer"}, {"minimum", 0}}, vector = list_of({{"type", "number"}});
    Json answer{{"model", any_text()},      {"created_at", any_text()}, {"done", {{"type", "boolean"}}},
                {"response", any_text()},   {"thinking", any_text()},   {"message", {{"type", "object"}}},
                {"context", list_of(count)}};
    answer["done_reason"] = {{"enum", {"stop", "length", "load", "unload"}}};
    for (const char* name : {"total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration",
                             "eval_count", "eval_duration", "cached_tokens"})
        answer[name] = count;
    const Json model = object({{"name", any_text()},
                               {"model", any_text()},
                               {"size", count},
                               {"digest", any_text()},
                               {"details", {{"type", "object"}}}},
                              {"name", "model", "size", "digest", "details"});
    return {
        {"OllamaError", object({{"error", any_text()}}, {"error"})},
        {"OllamaAnswer", object(answer, {"model", "created_at", "done"})},
        {"OllamaVectors", object({{"model", any_text()},
                                  {"embeddings", list_of(vector)},
                                  {"total_duration", count},
                                  {"load_duration", count},
                                  {"prompt_eval_count", count}},
                                 {"model", "embeddings"})},
        {"OllamaVector", object({{"embedding", vector}}, {"embedding"})},
        {"OllamaModels", object({{"models", list_of(model)}}, {"models"})},
        {"OllamaModel", object({{"template", any_text()},
                                {"details", {{"type", "object"}}},
                                {"model_info", {{"type", "object"}}},
                                {"capabilities", list_of(any_text())}},
                               {"details", "model_info", "capabilities"})},
        {"OllamaVersion", object({{"version", any_text()}}, {"version"})},
        {"OllamaStatus",
         object({{"status", any_text()}, {"digest", any_text()}, {"total", count}, {"completed", count}}, {"status"})},
        {"Infill", any_of({{{"type", "object"}}, list_of({{"type", "object"}})})}};
}

}  // namespace tinfer::server::schema
