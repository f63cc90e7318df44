// SPDX-License-Identifier: MIT
// Schemas of request bodies, as read by read_chat.cpp, anthropic.cpp, responses.cpp and the routes.
#include <tinfer/tinfer.hpp>

#include "openapi.hpp"

namespace tinfer::server::schema {

namespace {

constexpr std::int64_t kMostInt = 0x7FFFFFFF, kMostTokens = 1 << 30;
constexpr std::int64_t kMostSeed = 0x7FFFFFFFFFFFFFFF;

json described(json schema, std::string_view what) {
    schema["description"] = what;
    return schema;
}

/// A regular expression for decimal numbers from 0 to `most`.
std::string numbers_up_to(std::int64_t most) {
    const std::string digits = std::to_string(most);
    std::string pattern;
    const auto add = [&](const std::string& one) { pattern += (pattern.empty() ? "" : "|") + one; };
    const auto any = [](std::size_t n) { return n == 0 ? "" : "[0-9]{" + std::to_string(n) + "}"; };
    if (digits.size() > 1)
        add(digits.size() == 2 ? "[0-9]" : "[0-9]|[1-9][0-9]{1," + std::to_string(digits.size() - 2) + "}");
    for (std::size_t i = 0; i < digits.size(); ++i) {  // equal up to digit i, which is smaller
        const char least = i == 0 && digits.size() > 1 ? '1' : '0';
        if (digits[i] > least)
            add(digits.substr(0, i) + "[" + least + "-" + static_cast<char>(digits[i] - 1) + "]" +
                any(digits.size() - i - 1));
    }
    add(digits);
    return "^(" + pattern + ")$";
}

std::int64_t last_token(const Service& service) { return static_cast<std::int64_t>(service.model.vocab().size()) - 1; }

json token_ids(const Service& service) {
    return {{"type", "array"}, {"items", {{"type", "integer"}, {"minimum", 0}, {"maximum", last_token(service)}}}};
}

/// A text that is tokenized.
json prompt_text(const Service& service) {
    json result{{"type", "string"}};
    if (service.model.vocab().encode("").empty() && !service.model.vocab().bos()) result["minLength"] = 1;
    return result;
}

json texts(std::string_view what, std::int64_t most, std::int64_t shortest = 0) {
    const json one{{"type", "string"}, {"minLength", shortest}};
    return described(any_of({{{"type", "null"}}, one, {{"type", "array"}, {"items", one}, {"maxItems", most}}}), what);
}

json max_tokens(const Service& service, std::int64_t least = 1) {
    const auto room = static_cast<std::int64_t>(service.engine.max_tokens());
    return whole("Longest answer, tokens. Where prompt and answer do not fit together, status 400 says so, unless "
                 "clip_max_tokens takes what fits.",
                 least, service.options.clip_max_tokens ? kMostTokens : std::max(least, room - 1));
}

json grammar() {
    json result = text("A grammar of the answer, GBNF.");
    result["format"] = "gbnf";
    return result;
}

/// A field that contains a JSON schema.
json json_schema(std::string_view what, bool may_be_null = false) {
    json result{{"type", {"object", "boolean"}}, {"format", "json-schema"}, {"description", what}};
    if (may_be_null) result["type"].push_back("null");
    return result;
}

/// The form of an answer in interfaces that have the schema in the format itself.
json flat_format() {
    return any_of(
        {{{"type", "null"}},
         object({{"type", is("text")}}, {"type"}),
         object({{"type", is("json_object")}, {"schema", json_schema("What it is.", true)}}, {"type"}),
         object({{"type", is("json_schema")}, {"schema", json_schema("What the answer is.")}}, {"type", "schema"})});
}

json parameters() {
    return {{"type", {"object", "null"}}, {"format", "json-schema"}, {"description", "JSON schema of the arguments."}};
}

/// The fields that features.cpp reads.
void add_features(json& fields, const Service& service, bool gives_text = true) {
    std::vector<std::string> names;
    for (const auto& adapter : service.engine.options().adapters) names.push_back(adapter.name);
    if (names.empty()) {
        fields["lora"] = {
            {"type", {"array", "null"}}, {"maxItems", 0}, {"description", "This server has no adapters."}};
    } else {
        const json name{{"type", "string"}, {"enum", names}};
        const json use = object({{"name", name}, {"scale", number("1 without it.", -1e6, 1e6)}}, {"name"});
        const json one = any_of({name, use});
        fields["lora"] =
            described(any_of({{{"type", "null"}}, name, use, {{"type", "array"}, {"items", one}, {"maxItems", 16}}}),
                      "Adapters of this answer, each at most once.");
    }
    const auto never = [&](const char* field, const char* why) {
        fields[field] = {{"enum", {false, nullptr}}, {"description", why}};
    };
    if (service.traces == nullptr) never("trace", "This server writes no traces: --trace-dir allows them.");
    else fields["trace"] = flag("Everything that is computed for this answer, as a file; at most 16 answers at once.");
    if (!gives_text) return;
    std::vector<std::string> guesses{"off", "ngram"};
    if (service.engine.options().draft) guesses.emplace_back("draft");
    fields["speculate"] = word("Where guesses come from; they change no byte.", guesses);
    if (!service.options.receipts) never("receipt", "This server gives no receipts: --receipts allows them.");
    else fields["receipt"] = flag("What tinfer replay needs to make the answer again; not with lora.");
}

void add_sampling(json& fields, const Service& service) {
    const double any = 1e9;
    fields["temperature"] = number("0: the most probable token, always.", 0, 100);
    fields["top_p"] = number("", 0, 1);
    fields["presence_penalty"] = number("", -2, 2);
    fields["frequency_penalty"] = number("", -2, 2);
    for (const char* name : {"repeat_penalty", "penalty_repeat"}) fields[name] = number("1: none.", 1e-6, any);
    fields["penalty_last_n"] = whole("Tokens that penalties look at; -1: all.", -1, 1 << 24);
    fields["top_k"] = whole("0 or less: all.", -1, kMostInt);
    for (const char* name : {"min_p", "typical_p", "xtc_probability", "xtc_threshold"}) fields[name] = number("", 0, 1);
    fields["top_n_sigma"] = number("", -any, any);
    for (const char* name :
         {"dry_multiplier", "dry_base", "dynatemp_range", "dynatemp_exponent", "mirostat_tau", "mirostat_eta"})
        fields[name] = number("", 0, any);
    fields["dry_allowed_length"] = whole("", 0, kMostInt);
    fields["dry_penalty_last_n"] = whole("", -1, 1 << 24);
    fields["dry_breakers"] = texts("Texts that end a repetition.", 64);
    fields["mirostat"] = whole("Version; 0: off.", 0, 2);
    fields["adaptive_target"] = number("", -1, 1);
    fields["adaptive_decay"] = number("", 0, 0.99);
    fields["min_keep"] = whole("", 0, kMostInt);
    fields["logit_bias"] = {{"type", {"object", "null"}},
                            {"description", "Added to logits, by token id."},
                            {"propertyNames", {{"pattern", numbers_up_to(last_token(service))}}},
                            {"additionalProperties", {{"type", "number"}, {"minimum", -100}, {"maximum", 100}}}};
    fields["samplers"] = described(
        any_of({{{"type", "null"}},
                {{"type", "string"}, {"format", "sampler-chain"}},
                {{"type", "array"}, {"maxItems", 32}, {"items", {{"type", "string"}, {"format", "sampler-name"}}}}}),
        "The chain of samplers: names in order.");
    fields["seed"] = whole("The same seed gives the same answer; -1: another one each time.", -kMostSeed, kMostSeed);
    fields["stop"] = texts("Texts that end the answer.", 16, 1);
    fields["cache_prompt"] = flag("false: nothing is shared with other requests.");
    fields["grammar"] = grammar();
    add_features(fields, service);
}

void add_model(json& fields, const Service& service) {
    fields["model"] = service.options.any_model ? text("Any name.") : word("This server has one.", {service.id});
}

void add_room(json& fields) {
    fields["truncate"] =
        word("middle: a prompt that does not fit loses its middle, and usage counts what went.", {"middle", "none"});
    fields["clip_max_tokens"] = flag("An answer that does not fit is cut in place of refused.");
}

void add_stream(json& fields) {
    fields["stream"] = flag("Server-sent events.");
    fields["stream_options"] = or_null(object(
        {{"include_usage", flag("Usage in a last event.")}, {"include_obfuscation", {{"description", "Any."}}}}));
    fields["prompt_progress"] = flag("Events while the prompt is read.");
}

json response_format() {
    const json schema =
        object({{"name", {{"description", "Any."}}}, {"schema", json_schema("What the answer is.")}}, {"schema"});
    return described(
        any_of({{{"type", "null"}},
                object({{"type", is("text")}}, {"type"}),
                object({{"type", is("json_object")}, {"schema", json_schema("What it is.", true)}}, {"type"}),
                object({{"type", is("json_schema")}, {"json_schema", schema}}, {"type", "json_schema"})}),
        "The form of the answer.");
}

json strict() { return flag("What of the schema cannot be enforced is refused; without it, a warning."); }

json named_function(bool is_nested) {
    const json name{{"type", "string"}, {"minLength", 1}};
    json fields{{"name", name}, {"description", text("")}, {"parameters", parameters()}, {"strict", strict()}};
    if (is_nested)
        return object({{"type", is("function")}, {"function", object(fields, {"name"})}}, {"type", "function"});
    fields["type"] = is("function");
    return object(fields, {"type", "name"});
}

json part(const std::vector<std::string>& types) {
    json kinds{{"type", "string"}, {"enum", types}};
    return object({{"type", kinds}, {"text", {{"type", "string"}}}}, {"type", "text"});
}

json text_or_parts(const std::vector<std::string>& types) {
    return any_of({{{"type", "string"}}, list_of(part(types))});
}

json chat_message() {
    const json call = object(
        {{"id", text("")},
         {"type", word("", {"function"})},
         {"function", object({{"name", {{"type", "string"}}},
                              {"arguments", {{"type", {"string", "object", "null"}}, {"format", "json-arguments"}}}},
                             {"name"})}},
        {"function"});
    const json calls = or_null(list_of(call));
    const json content = text_or_parts({"text"});
    const json others{{"type", "string"}, {"enum", {"system", "developer", "user", "tool"}}};
    json fields{{"role", others}, {"content", content}, {"tool_calls", calls}};
    for (const char* name : {"name", "tool_call_id"}) fields[name] = text("");
    for (const char* name : {"reasoning_content", "reasoning", "thinking"})
        fields[name] = text("Thoughts, under the name that the client has for them.");
    json of_assistant = fields;
    of_assistant["role"] = is("assistant");
    of_assistant["content"] = or_null(content);
    return any_of({object(fields, {"role", "content"}), object(of_assistant, {"role"})});
}

/// A choice of some of the tools; in chats their names are one level deeper.
json allowed_tools(bool is_nested) {
    const json name = {{"name", {{"type", "string"}}}};
    json tool = {{"type", is("function")}};
    if (is_nested) tool["function"] = object(name, {"name"});
    else tool.update(name);
    json fields = {
        {"mode", {{"enum", {"auto", "required"}}}},
        {"tools",
         {{"type", "array"}, {"minItems", 1}, {"items", object(tool, {"type", is_nested ? "function" : "name"})}}}};
    if (!is_nested) fields["type"] = is("allowed_tools");
    return fields;
}

void add_conversation(json& fields) {
    fields["messages"] = {{"type", "array"}, {"minItems", 1}, {"items", reference("ChatMessage")}};
    fields["tools"] = or_null(list_of(named_function(true)));
    fields["tool_choice"] = described(
        any_of(
            {{{"type", "null"}},
             {{"enum", {"none", "auto", "required"}}},
             object({{"type", is("function")}, {"function", object({{"name", {{"type", "string"}}}}, {"name"})}},
                    {"type", "function"}),
             object({{"type", is("allowed_tools")}, {"allowed_tools", object(allowed_tools(true), {"mode", "tools"})}},
                    {"type", "allowed_tools"})}),
        "required, or the names of functions: needs tools that have them.");
    fields["parallel_tool_calls"] = flag("Several calls in one answer.");
    fields["reasoning_effort"] =
        word("Where the template knows it.", {"none", "minimal", "low", "medium", "high", "xhigh"});
    fields["enable_thinking"] = flag("Where the template knows it.");
    for (const char* name : {"template_kwargs", "chat_template_kwargs"})
        fields[name] = {{"type", {"object", "null"}},
                        {"description", "Further variables of the template."},
                        {"maxProperties", 256},
                        {"propertyNames", {{"not", {{"enum", {"messages", "tools", "bos_token", "eos_token"}}}}}}};
}

void add_taken(json& fields, const std::vector<std::string>& names) {
    for (const auto& name : names) fields[name] = {{"description", "Taken, and changes nothing."}};
}

json chat(const Service& service) {
    json fields = json::object();
    add_model(fields, service);
    add_conversation(fields);
    fields["max_tokens"] = fields["max_completion_tokens"] = max_tokens(service);
    fields["n"] = whole("Answers.", 1, 8);
    fields["logprobs"] = flag("");
    fields["top_logprobs"] = whole("Needs logprobs: true.", 0, 20);
    fields["response_format"] = response_format();
    fields["reasoning_format"] = word("none: what the model thinks stays in its text.", {"none", "auto", "deepseek"});
    add_stream(fields);
    add_room(fields);
    add_sampling(fields, service);
    add_taken(fields, {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
                       "prompt_cache_options", "prompt_cache_retention", "prediction"});
    fields["web_search_options"] = {{"type", "null"}};
    return object(fields, {"messages"});
}

json completion(const Service& service) {
    const json one = any_of({prompt_text(service), token_ids(service)});
    json fields = json::object();
    add_model(fields, service);
    fields["prompt"] = any_of({prompt_text(service),
                               token_ids(service),
                               {{"type", "array"}, {"items", one}, {"minItems", 1}, {"maxItems", 64}}});
    using tinfer::Special;
    const auto& vocab = service.model.vocab();
    fields["suffix"] = text("What follows the text that the model fills in; with one text as prompt.");
    if (!vocab.special(Special::fim_pre) || !vocab.special(Special::fim_suf) || !vocab.special(Special::fim_mid)) {
        fields["suffix"]["maxLength"] = 0;
        fields["suffix"]["description"] = "This model fills nothing in.";
    }
    fields["max_tokens"] = max_tokens(service, 0);
    fields["n"] = whole("Answers to each prompt.", 1, 8);
    fields["best_of"] = whole("The same as n.", 1, 8);
    fields["logprobs"] = whole("So many of the most probable tokens.", 0, 20);
    fields["echo"] = flag("The prompt, too; with logprobs its log-probabilities.");
    fields["response_format"] = response_format();
    add_stream(fields);
    add_room(fields);
    add_sampling(fields, service);
    add_taken(fields, {"user"});
    return object(fields, {"prompt"});
}

json responses(const Service& service) {
    const json content = text_or_parts({"input_text", "output_text", "text", "reasoning_text"});
    const json string{{"type", "string"}};
    const json roles{{"type", "string"}, {"enum", {"system", "developer", "user", "assistant"}}};
    const json item =
        any_of({object({{"type", word("", {"message"})}, {"role", roles}, {"content", content}}, {"role", "content"}),
                object({{"type", is("function_call")},
                        {"call_id", string},
                        {"name", string},
                        {"arguments", {{"type", "string"}, {"format", "json-arguments"}}}},
                       {"type", "call_id", "name", "arguments"}),
                object({{"type", is("function_call_output")}, {"call_id", string}, {"output", content}},
                       {"type", "call_id", "output"}),
                object({{"type", is("reasoning")}, {"content", or_null(content)}}, {"type"})});
    json fields = json::object();
    add_model(fields, service);
    fields["input"] = any_of({string, {{"type", "array"}, {"items", item}, {"minItems", 1}}});
    fields["instructions"] = text("System prompt.");
    fields["tools"] = or_null(list_of(named_function(false)));
    fields["tool_choice"] = any_of({{{"type", "null"}},
                                    {{"enum", {"none", "auto", "required"}}},
                                    object({{"type", is("function")}, {"name", text("")}}, {"type"}),
                                    object(allowed_tools(false), {"type", "mode", "tools"})});
    fields["parallel_tool_calls"] = flag("Several calls in one answer.");
    fields["text"] = or_null(object({{"format", flat_format()}}));
    fields["reasoning"] = or_null(object({{"effort", text("Where the template knows it.")}}));
    fields["max_output_tokens"] = max_tokens(service);
    fields["stream"] = flag("Server-sent events.");
    fields["store"] = flag("Nothing is stored; true is warned of.");
    for (const char* name : {"previous_response_id", "conversation"}) fields[name] = {{"type", "null"}};
    fields["stream_options"] = or_null(object({{"include_obfuscation", {{"description", "Any."}}}}));
    add_room(fields);
    add_sampling(fields, service);
    add_taken(fields,
              {"user", "metadata", "include", "service_tier", "truncation", "safety_identifier", "prompt_cache_key",
               "prompt_cache_options", "prompt_cache_retention", "background", "max_tool_calls", "client_metadata"});
    return object(fields, {"input"});
}

json messages(const Service& service, bool only_count) {
    const json string{{"type", "string"}};
    const json words = text_or_parts({"text"});
    const auto block = [&](std::vector<json> more) {
        more.insert(more.begin(), {part({"text"}), object({{"type", is("redacted_thinking")}}, {"type"})});
        return any_of({string, list_of(any_of(std::move(more)))});
    };
    const json result =
        object({{"type", is("tool_result")}, {"tool_use_id", text("")}, {"content", or_null(words)}}, {"type"});
    const json use = object(
        {{"type", is("tool_use")}, {"id", text("")}, {"name", string}, {"input", {{"type", {"object", "null"}}}}},
        {"type", "name"});
    const json thought = object({{"type", is("thinking")}, {"thinking", text("")}}, {"type"});
    const json message =
        any_of({object({{"role", is("user")}, {"content", block({result})}}, {"role", "content"}),
                object({{"role", is("assistant")}, {"content", block({use, thought})}}, {"role", "content"}),
                object({{"role", is("system")}, {"content", words}}, {"role", "content"})});
    json fields = json::object();
    add_model(fields, service);
    fields["messages"] = {{"type", "array"}, {"minItems", 1}, {"items", message}};
    fields["system"] = or_null(words);
    fields["tools"] = or_null(list_of(object({{"type", word("", {"custom"})},
                                              {"name", {{"type", "string"}, {"minLength", 1}}},
                                              {"description", text("")},
                                              {"input_schema", parameters()},
                                              {"strict", strict()}},
                                             {"name"})));
    fields["tool_choice"] = or_null(object({{"type", {{"type", "string"}, {"enum", {"auto", "any", "tool", "none"}}}},
                                            {"name", text("")},
                                            {"disable_parallel_tool_use", flag("")}},
                                           {"type"}));
    fields["thinking"] = or_null(object({{"type", text("disabled: without, where the template knows it.")}}));
    add_stream(fields);
    add_sampling(fields, service);
    fields.erase("stop");
    fields["stop_sequences"] = texts("Texts that end the answer.", 16, 1);
    fields["output_config"] =
        or_null(object({{"effort", text("Where the template knows it.")}, {"format", flat_format()}}));
    fields["mcp_servers"] = {
        {"type", {"array", "null"}}, {"maxItems", 0}, {"description", "This server asks no other servers."}};
    fields["context_management"] = {{"description", "Messages are taken as they are: warned of."}};
    add_taken(fields, {"metadata", "service_tier", "container", "betas", "cache_control", "inference_geo", "speed",
                       "diagnostics"});
    fields["max_tokens"] = max_tokens(service);
    if (only_count) return object(fields, {"messages"});
    add_room(fields);
    fields["max_tokens"]["type"] = "integer";
    return object(fields, {"messages", "max_tokens"});
}

json embeddings(const Service& service) {
    json ids = token_ids(service), string = prompt_text(service);
    ids["minItems"] = 1;
    if (service.model.vocab().encode("").empty()) string["minLength"] = 1;
    json fields = json::object();
    add_model(fields, service);
    fields["input"] = any_of(
        {string, ids, {{"type", "array"}, {"items", any_of({string, ids})}, {"minItems", 1}, {"maxItems", 2048}}});
    fields["encoding_format"] = word("base64: of little-endian floats.", {"float", "base64"});
    fields["dimensions"] = whole("The first so many, normalized again.", 1, service.model.info().n_embd);
    add_features(fields, service, false);
    add_taken(fields, {"user"});
    return object(fields, {"input"});
}

json rerank(const Service& service) {
    const json string{{"type", "string"}};
    json fields = json::object();
    add_model(fields, service);
    fields["query"] = string;
    fields["documents"] = any_of({string, {{"type", "array"}, {"items", string}, {"minItems", 1}, {"maxItems", 2048}}});
    fields["top_n"] = whole("At most so many results.", 1, kMostTokens);
    fields["return_documents"] = flag("Results with their texts.");
    add_features(fields, service, false);
    add_taken(fields, {"user"});
    return object(fields, {"query", "documents"});
}

}  // namespace

json requests(const Service& service) {
    json all = json::object();
    if (!service.gives_vectors()) {
        all["ChatRequest"] = chat(service);
        all["CompletionRequest"] = completion(service);
        all["ResponsesRequest"] = responses(service);
        all["MessagesRequest"] = messages(service, false);
    } else if (service.ranks()) {
        all["RerankRequest"] = rerank(service);
    } else {
        all["EmbeddingsRequest"] = embeddings(service);
    }
    all["CountRequest"] = messages(service, true);
    json tokenize = object({{"text", text("")},
                            {"content", text("Another name of text.")},
                            {"add_special", flag("Tokens that begin and end a text.")},
                            {"parse_special", flag("Text that spells control tokens becomes them.")}});
    const json string{{"type", "string"}};
    tokenize["anyOf"] = json::array({object({{"text", string}}, {"text"}), object({{"content", string}}, {"content"})});
    add_taken(tokenize["properties"], {"model"});
    all["TokenizeRequest"] = tokenize;
    json detokenize{{"tokens", token_ids(service)}};
    add_taken(detokenize, {"model"});
    all["DetokenizeRequest"] = object(detokenize, {"tokens"});
    json conversation{{"add_generation_prompt", flag("What begins an answer is put behind the messages.")}};
    add_conversation(conversation);
    add_taken(conversation, {"model"});
    all["TemplateRequest"] = object(conversation, {"messages"});
    all["ChatMessage"] = chat_message();
    return all;
}

}  // namespace tinfer::server::schema
