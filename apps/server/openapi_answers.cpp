// SPDX-License-Identifier: MIT
// Schemas of response documents.
#include "openapi.hpp"

namespace tinfer::server::schema {

namespace {

Json count() { return {{"type", "integer"}, {"minimum", 0}}; }
Json real() { return {{"type", "number"}}; }
Json real_or_null() { return {{"type", {"number", "null"}}}; }
Json string() { return {{"type", "string"}}; }

Json with_head(Json fields, std::string_view object_name, std::vector<std::string> required) {
    Json all{{"id", string()},
             {"object", is(object_name)},
             {"created", count()},
             {"model", string()},
             {"system_fingerprint", {{"type", "string"}, {"pattern", "^[0-9a-f]{32}(-sample)?$"}}}};
    for (const auto& [name, value] : fields.items()) all[name] = value;
    all["warnings"] = list_of(string());
    for (const char* name : {"id", "object", "created", "model", "system_fingerprint"}) required.emplace_back(name);
    return object(all, required);
}

Json token_probability(bool with_top) {
    Json fields{{"token", string()},
                {"logprob", real_or_null()},
                {"bytes", list_of({{"type", "integer"}, {"minimum", 0}, {"maximum", 255}})}};
    std::vector<std::string> required{"token", "logprob", "bytes"};
    if (with_top) {
        fields["top_logprobs"] = list_of(token_probability(false));
        required.emplace_back("top_logprobs");
    }
    return object(fields, required);
}

Json usage() {
    return object({{"prompt_tokens", count()},
                   {"completion_tokens", count()},
                   {"total_tokens", count()},
                   {"prompt_tokens_details",
                    object({{"cached_tokens", count()}, {"truncated_tokens", count()}}, {"cached_tokens"})}},
                  {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details"});
}

Json timings() {
    return object({{"queued_s", real()},
                   {"first_token_s", real()},
                   {"prompt_n", count()},
                   {"cached_n", count()},
                   {"prompt_s", real()},
                   {"prompt_tps", real_or_null()},
                   {"generation_n", count()},
                   {"generation_s", real()},
                   {"generation_tps", real_or_null()},
                   {"drafted_n", count()},
                   {"accepted_n", count()},
                   {"gain", real()},
                   {"seed", count()}},
                  {"prompt_n", "cached_n", "generation_n", "seed"});
}

Json trace() {
    Json result = object(
        {{"file", string()}, {"bytes", count()}, {"events", count()}, {"dropped_events", count()}, {"error", string()}},
        {"file", "bytes", "events", "dropped_events"});
    result["description"] = "Where the request asked for it: a file in the server's folder for traces.";
    return result;
}

Json receipt() {
    Json result = string();
    result["description"] = "Where the request asked for it: the text of a file that tinfer replay reads.";
    return result;
}

Json chat_completion() {
    const Json call =
        object({{"id", string()},
                {"type", is("function")},
                {"function", object({{"name", string()}, {"arguments", string()}}, {"name", "arguments"})}},
               {"id", "type", "function"});
    const Json message = object({{"role", is("assistant")},
                                 {"content", {{"type", {"string", "null"}}}},
                                 {"refusal", {{"type", "null"}}},
                                 {"reasoning_content", string()},
                                 {"tool_calls", list_of(call)}},
                                {"role", "content"});
    const Json probabilities = or_null(object({{"content", list_of(token_probability(true))}}, {"content"}));
    const Json choice = object({{"index", count()},
                                {"message", message},
                                {"logprobs", probabilities},
                                {"finish_reason", {{"enum", {"stop", "length", "tool_calls"}}}},
                                {"trace", trace()},
                                {"receipt", receipt()}},
                               {"index", "message", "logprobs", "finish_reason"});
    return with_head({{"choices", list_of(choice)}, {"usage", usage()}, {"timings", timings()}}, "chat.completion",
                     {"choices", "usage"});
}

Json text_completion() {
    const Json top{{"type", {"object", "null"}}, {"additionalProperties", real()}};
    const Json probabilities = or_null(object({{"tokens", list_of(string())},
                                               {"token_logprobs", list_of(real_or_null())},
                                               {"top_logprobs", list_of(top)},
                                               {"text_offset", list_of(count())}},
                                              {"tokens", "token_logprobs", "top_logprobs", "text_offset"}));
    const Json choice = object({{"index", count()},
                                {"text", string()},
                                {"logprobs", probabilities},
                                {"finish_reason", {{"enum", {"stop", "length"}}}},
                                {"trace", trace()},
                                {"receipt", receipt()}},
                               {"index", "text", "logprobs", "finish_reason"});
    return with_head({{"choices", list_of(choice)}, {"usage", usage()}, {"timings", timings()}}, "text_completion",
                     {"choices", "usage"});
}

Json response() {
    const Json text_part =
        object({{"type", {{"enum", {"output_text", "reasoning_text"}}}}, {"text", string()}}, {"type", "text"});
    const Json item = any_of(
        {object({{"id", string()}, {"type", {{"enum", {"message", "reasoning"}}}}, {"content", list_of(text_part)}},
                {"id", "type"}),
         object({{"id", string()},
                 {"type", is("function_call")},
                 {"call_id", string()},
                 {"name", string()},
                 {"arguments", string()}},
                {"id", "type", "call_id", "name", "arguments"})});
    return object({{"id", string()},
                   {"object", is("response")},
                   {"created_at", count()},
                   {"status", {{"enum", {"completed", "incomplete"}}}},
                   {"model", string()},
                   {"output", list_of(item)},
                   {"usage", object({{"input_tokens", count()}, {"output_tokens", count()}, {"total_tokens", count()}},
                                    {"input_tokens", "output_tokens", "total_tokens"})},
                   {"system_fingerprint", string()},
                   {"trace", trace()},
                   {"receipt", receipt()},
                   {"warnings", list_of(string())}},
                  {"id", "object", "created_at", "status", "model", "output", "usage"});
}

Json message() {
    const Json block = any_of(
        {object({{"type", is("text")}, {"text", string()}}, {"type", "text"}),
         object({{"type", is("thinking")}, {"thinking", string()}}, {"type", "thinking"}),
         object({{"type", is("tool_use")}, {"id", string()}, {"name", string()}, {"input", {{"type", "object"}}}},
                {"type", "id", "name", "input"})});
    return object(
        {{"id", string()},
         {"type", is("message")},
         {"role", is("assistant")},
         {"model", string()},
         {"content", list_of(block)},
         {"stop_reason", {{"enum", {"end_turn", "max_tokens", "stop_sequence", "tool_use"}}}},
         {"stop_sequence", {{"type", {"string", "null"}}}},
         {"usage", object({{"input_tokens", count()}, {"output_tokens", count()}}, {"input_tokens", "output_tokens"})},
         {"system_fingerprint", string()},
         {"trace", trace()},
         {"receipt", receipt()},
         {"warnings", list_of(string())}},
        {"id", "type", "role", "model", "content", "stop_reason", "usage"});
}

Json vectors() {
    const Json embedding = any_of({list_of(real()), {{"type", "string"}, {"contentEncoding", "base64"}}});
    return object(
        {{"object", is("list")},
         {"data", list_of(object({{"object", is("embedding")}, {"index", count()}, {"embedding", embedding}},
                                 {"object", "index", "embedding"}))},
         {"model", string()},
         {"usage", object({{"prompt_tokens", count()}, {"total_tokens", count()}}, {"prompt_tokens", "total_tokens"})},
         {"traces", list_of(trace())},
         {"warnings", list_of(string())}},
        {"object", "data", "model", "usage"});
}

Json ranks() {
    const Json one =
        object({{"index", count()}, {"relevance_score", real()}, {"document", object({{"text", string()}}, {"text"})}},
               {"index", "relevance_score"});
    return object({{"object", is("list")},
                   {"model", string()},
                   {"results", list_of(one)},
                   {"usage", {{"type", "object"}}},
                   {"traces", list_of(trace())}},
                  {"object", "model", "results", "usage"});
}

Json model() {
    return object(
        {{"id", string()},
         {"object", is("model")},
         {"created", count()},
         {"owned_by", string()},
         {"parent", {{"type", {"string", "null"}}, {"description", "Of an adapter: the model."}}},
         {"aliases", list_of(string())},
         {"status",
          object({{"value", {{"enum", {"loaded", "loading", "unloaded", "failed"}}}}, {"error", string()}}, {"value"})},
         {"max_model_len", count()},
         {"meta", object({{"n_ctx", count()},
                          {"n_ctx_train", count()},
                          {"n_params", count()},
                          {"size", count()},
                          {"n_vocab", count()},
                          {"n_embd", count()},
                          {"n_expert", count()},
                          {"n_expert_used", count()},
                          {"moe_layers", count()},
                          {"architecture", string()},
                          {"adapters", list_of(string())},
                          {"defaults", {{"type", "object"}}},
                          {"offers", list_of({{"enum", {"receipt", "trace", "activity"}}})},
                          {"system_fingerprint", string()}},
                         {"n_ctx", "n_params", "size", "n_vocab"})}},
        {"id", "object", "created", "owned_by", "meta"});
}

Json slot() {
    return object({{"id", {{"type", {"integer", "null"}}, {"description", "Sequence, while it runs."}}},
                   {"request", count()},
                   {"model", string()},
                   {"kind", string()},
                   {"state", {{"enum", {"queued", "reading", "generating"}}}},
                   {"prompt_tokens", count()},
                   {"prompt_tokens_done", count()},
                   {"cached_tokens", count()},
                   {"generated_tokens", count()},
                   {"seconds", real()},
                   {"prompt", {{"type", "string"}, {"description", "With --expose-text."}}},
                   {"text", {{"type", "string"}, {"description", "With --expose-text."}}}},
                  {"id", "request", "kind", "state", "prompt_tokens", "generated_tokens"});
}

Json with_warnings(const std::string& name, Json value) {
    return object({{name, std::move(value)}, {"warnings", list_of(string())}}, {name});
}

Json activity() {
    const Json classes{{"type", "object"},
                       {"additionalProperties", count()},
                       {"description", "Bytes of weights by part of the block, of keys, values and recurrent states."}};
    const Json layer = object({{"layer", count()},
                               {"weight_bytes", count()},
                               {"cache_bytes", count()},
                               {"classes", classes},
                               {"experts", list_of(count())}},
                              {"layer", "weight_bytes", "cache_bytes", "classes"});
    const Json outside = object({{"weight_bytes", count()}, {"cache_bytes", count()}, {"classes", classes}}, {});
    return object({{"runs", count()}, {"tokens", count()}, {"layers", list_of(layer)}, {"outside", outside}},
                  {"runs", "tokens", "layers", "outside"});
}

}  // namespace

Json answers() {
    const Json nullable{{"type", {"string", "null"}}};
    const Json error = object({{"message", string()}, {"type", string()}, {"code", nullable}, {"param", nullable}},
                              {"message", "type", "code", "param"});
    return {
        {"Health", object({{"status", is("ok")}}, {"status"})},
        {"Loading", object({{"status", is("loading")}, {"error", error}}, {"error"})},
        {"Error", object({{"error", error}}, {"error"})},
        {"MessagesError", object({{"type", is("error")},
                                  {"error", object({{"type", string()}, {"message", string()}}, {"type", "message"})}},
                                 {"type", "error"})},
        {"Event", object({{"event", string()},
                          {"data",
                           {{"type", "string"},
                            {"description", "A document, or [DONE] behind the last one of chat and completions."}}}},
                         {"data"})},
        {"Model", model()},
        {"Models", object({{"object", is("list")}, {"data", list_of(reference("Model"))}}, {"object", "data"})},
        {"Success", object({{"success", {{"const", true}}}}, {"success"})},
        {"Slots", list_of(slot())},
        {"Activity", activity()},
        {"ChatCompletion", chat_completion()},
        {"Completion", text_completion()},
        {"Response", response()},
        {"Message", message()},
        {"Embeddings", vectors()},
        {"Ranks", ranks()},
        {"Count", with_warnings("input_tokens", count())},
        {"Tokens",
         with_warnings("tokens", list_of(any_of({count(), object({{"id", count()},
                                                                  {"piece", any_of({string(), list_of(count())})}},
                                                                 {"id", "piece"})})))},
        {"Text", with_warnings("text", string())},
        {"Prompt", with_warnings("prompt", string())}};
}

}  // namespace tinfer::server::schema
