// SPDX-License-Identifier: MIT
// Schemas of request bodies, as read by read_chat.cpp, anthropic.cpp, responses.cpp and the routes.
#include <tinfer/tinfer.hpp>

#include "job.hpp"
#include "openapi.hpp"

namespace tinfer::server::schema {

namespace {

constexpr std::int64_t kMaxTokens = 1 << 30;
constexpr std::int64_t kMaxSeed = 0x7FFFFFFFFFFFFFFF;

Json described(Json schema, std::string_view what) {
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

Json token_ids(const Service& service) {
    return {{"type", "array"}, {"items", {{"type", "integer"}, {"minimum", 0}, {"maximum", last_token(service)}}}};
}

/// A text that is tokenized.
Json prompt_text(const Service& service) {
    Json result{{"type", "string"}};
    if (service.model.vocab().encode("").empty() && !service.model.vocab().bos()) result["minLength"] = 1;
    return result;
}

Json texts(std::string_view what, std::int64_t most, std::int64_t shortest = 0) {
    const Json one{{"type", "string"}, {"minLength", shortest}};
    return described(any_of({{{"type", "null"}}, one, {{"type", "array"}, {"items", one}, {"maxItems", most}}}), what);
}

Json max_tokens(const Service& service, std::int64_t least = 1) {
    const auto room = static_cast<std::int64_t>(service.engine.max_tokens());
    return whole("Longest answer, tokens. Where prompt and answer do not fit together, status 400 says so, unless "
                 "clip_max_tokens takes what fits.",
                 least, service.options.clip_max_tokens ? kMaxTokens : std::max(least, room - 1));
}

Json grammar() {
    Json result = text("A grammar of the answer, GBNF.");
    result["format"] = "gbnf";
    return result;
}

/// A field that contains a JSON schema.
Json json_schema(std::string_view what, bool may_be_null = false) {
    Json result{{"type", {"object", "boolean"}}, {"format", "json-schema"}, {"description", what}};
    if (may_be_null) result["type"].push_back("null");
    return result;
}

/// The form of an answer in interfaces that have the schema in the format itself.
Json flat_format() {
    return any_of(
        {{{"type", "null"}},
         object({{"type", is("text")}}, {"type"}),
         object({{"type", is("json_object")}, {"schema", json_schema("What it is.", true)}}, {"type"}),
         object({{"type", is("json_schema")}, {"schema", json_schema("What the answer is.")}}, {"type", "schema"})});
}

Json parameters() {
    return {{"type", {"object", "null"}}, {"format", "json-schema"}, {"description", "JSON schema of the arguments."}};
}

/// The fields that capabilities.cpp reads.
void add_capabilities(Json& fields, const Service& service, bool gives_text = true) {
    std::vector<std::string> names;
    for (const auto& adapter : service.engine.options().adapters) names.push_back(adapter.name);
    if (names.empty()) {
        fields["lora"] = {
            {"type", {"array", "null"}}, {"maxItems", 0}, {"description", "This server has no adapters."}};
    } else {
        const Json name{{"type", "string"}, {"enum", names}};
        const Json use = object({{"name", name}, {"scale", number("1 without it.", -1e6, 1e6)}}, {"name"});
        const Json one = any_of({name, use});
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
    std::vector<std::string> sources{"off", "ngram"};
    if (service.engine.options().draft) sources.emplace_back("draft");
    fields["speculate"] = word("Where drafts come from; they change no byte.", sources);
    if (!service.options.receipts) never("receipt", "This server gives no receipts: --receipts allows them.");
    else fields["receipt"] = flag("What tinfer replay needs to make the answer again; not with lora.");
}

void add_model(Json& fields, const Service& service) {
    fields["model"] = service.broker.takes_any_name() ? text("Any name.") : word("This server has one.", {service.id});
}

void add_token_fields(Json& fields, const Service& service) {
    fields["return_token_ids"] = flag("The ids of prompt and answer, with one that ended it.");
    fields["return_tokens_as_token_ids"] = flag("Tokens of log-probabilities are called token_id:5.");
    fields["prompt_logprobs"] =
        whole("Log-probabilities of the prompt's tokens, and of so many others; no stream.", 0, 20);
    constexpr std::int64_t kMost = 1 << 30;
    fields["prompt_logprob_token_ids"] = {
        {"type", {"array", "null"}},
        {"items", {{"type", "integer"}, {"minimum", 0}, {"maximum", last_token(service)}}},
        {"minItems", 1},
        {"maxItems", 4096},
        {"description", "Log-probabilities of these along the prompt, as a NumPy file in base64; no stream."}};
    fields["prompt_logprob_start"] = whole("The first tokens of the prompt that are left out of them.", 0, kMost);
    if (service.engine.options().routed_experts)
        fields["return_routed_experts"] = flag("Which experts the tokens were sent to.");
    else
        fields["return_routed_experts"] = {
            {"enum", {false, nullptr}},
            {"description", "This server keeps none: --routed-experts, for models with some."}};
    fields["routed_experts_start_len"] = whole("The first tokens that are left out of them.", 0, kMost);
    fields["routed_experts_prompt_start"] = whole("The same.", 0, kMost);
    fields["routed_experts_format"] = word("A NumPy file, or flat numbers; both in base64.", {"npy", "int32"});
}

void add_room(Json& fields) {
    fields["truncate"] =
        word("middle: a prompt that does not fit loses its middle, and usage counts what went.", {"middle", "none"});
    fields["clip_max_tokens"] = flag("An answer that does not fit is cut in place of refused.");
}

void add_stream(Json& fields) {
    fields["stream"] = flag("Server-sent events.");
    fields["stream_options"] = or_null(object(
        {{"include_usage", flag("Usage in a last event.")}, {"include_obfuscation", {{"description", "Any."}}}}));
    fields["prompt_progress"] = flag("Events while the prompt is read.");
}

Json response_format() {
    const Json schema =
        object({{"name", {{"description", "Any."}}}, {"schema", json_schema("What the answer is.")}}, {"schema"});
    return described(
        any_of({{{"type", "null"}},
                object({{"type", is("text")}}, {"type"}),
                object({{"type", is("json_object")}, {"schema", json_schema("What it is.", true)}}, {"type"}),
                object({{"type", is("json_schema")}, {"json_schema", schema}}, {"type", "json_schema"})}),
        "The form of the answer.");
}

Json strict() { return flag("What of the schema cannot be enforced is refused; without it, a warning."); }

Json named_function(bool is_nested) {
    const Json name{{"type", "string"}, {"minLength", 1}};
    Json fields{{"name", name}, {"description", text("")}, {"parameters", parameters()}, {"strict", strict()}};
    if (is_nested)
        return object({{"type", is("function")}, {"function", object(fields, {"name"})}}, {"type", "function"});
    fields["type"] = is("function");
    return object(fields, {"type", "name"});
}

Json part(const std::vector<std::string>& types) {
    Json kinds{{"type", "string"}, {"enum", types}};
    return object({{"type", kinds}, {"text", {{"type", "string"}}}}, {"type", "text"});
}

Json text_or_parts(const std::vector<std::string>& types) {
    return any_of({{{"type", "string"}}, list_of(part(types))});
}

Json chat_message() {
    const Json call = object(
        {{"id", text("")},
         {"type", word("", {"function"})},
         {"function", object({{"name", {{"type", "string"}}},
                              {"arguments", {{"type", {"string", "object", "null"}}, {"format", "json-arguments"}}}},
                             {"name"})}},
        {"function"});
    const Json calls = or_null(list_of(call));
    const Json content = text_or_parts({"text"});
    const Json others{{"type", "string"}, {"enum", {"system", "developer", "user", "tool"}}};
    Json fields{{"role", others}, {"content", content}, {"tool_calls", calls}};
    for (const char* name : {"name", "tool_call_id"}) fields[name] = text("");
    for (const char* name : {"reasoning_content", "reasoning", "thinking"})
        fields[name] = text("Thoughts, under the name that the client has for them.");
    Json of_assistant = fields;
    of_assistant["role"] = is("assistant");
    of_assistant["content"] = or_null(content);
    return any_of({object(fields, {"role", "content"}), object(of_assistant, {"role"})});
}

/// A choice of some of the tools; in chats their names are one level deeper.
Json allowed_tools(bool is_nested) {
    const Json name = {{"name", {{"type", "string"}}}};
    Json tool = {{"type", is("function")}};
    if (is_nested) tool["function"] = object(name, {"name"});
    else tool.update(name);
    Json fields = {
        {"mode", {{"enum", {"auto", "required"}}}},
        {"tools",
         {{"type", "array"}, {"minItems", 1}, {"items", object(tool, {"type", is_nested ? "function" : "name"})}}}};
    if (!is_nested) fields["type"] = is("allowed_tools");
    return fields;
}

void add_conversation(Json& fields) {
    fields["messages"] = {{"type", "array"}, {"minItems", 1}, {"items", reference("ChatMessage")}};
    fields["tools"] = tools();
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

void add_taken(Json& fields, const std::vector<std::string>& names) {
    for (const auto& name : names) fields[name] = {{"description", "Taken, and changes nothing."}};
}

Json chat(const Service& service) {
    Json fields = Json::object();
    add_model(fields, service);
    add_conversation(fields);
    for (const char* name : {"max_completion_tokens", "max_tokens"}) fields[name] = max_tokens(service);
    fields["n"] = whole("Answers.", 1, 8);
    fields["continue_final_message"] =
        flag("The last message is the beginning of the answer, which goes on behind it. Not with tools or a format.");
    fields["logprobs"] = flag("");
    fields["top_logprobs"] = whole("Needs logprobs: true.", 0, 20);
    add_token_fields(fields, service);
    fields["response_format"] = response_format();
    fields["reasoning_format"] = word("none: what the model thinks stays in its text.", {"none", "auto", "deepseek"});
    fields["reasoning_budget"] =
        whole("Most tokens of thoughts; then they are closed, and the answer goes on.", 0, kMaxTokens);
    add_stream(fields);
    add_room(fields);
    add_sampling(fields, service);
    add_taken(fields, {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
                       "prompt_cache_options", "prompt_cache_retention", "prediction"});
    fields["web_search_options"] = {{"type", "null"}};
    return object(fields, {"messages"});
}

Json completion(const Service& service) {
    const Json one = any_of({prompt_text(service), token_ids(service)});
    Json fields = Json::object();
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
    add_token_fields(fields, service);
    fields["echo"] = flag("The prompt, too; with logprobs its log-probabilities.");
    fields["response_format"] = response_format();
    add_stream(fields);
    add_room(fields);
    add_sampling(fields, service);
    add_taken(fields, {"user"});
    return object(fields, {"prompt"});
}

Json responses(const Service& service) {
    const Json content = text_or_parts({"input_text", "output_text", "text", "reasoning_text"});
    const Json string{{"type", "string"}};
    const Json roles{{"type", "string"}, {"enum", {"system", "developer", "user", "assistant"}}};
    const Json item =
        any_of({object({{"type", word("", {"message"})}, {"role", roles}, {"content", content}}, {"role", "content"}),
                object({{"type", is("function_call")},
                        {"call_id", string},
                        {"name", string},
                        {"arguments", {{"type", "string"}, {"format", "json-arguments"}}}},
                       {"type", "call_id", "name", "arguments"}),
                object({{"type", is("function_call_output")}, {"call_id", string}, {"output", content}},
                       {"type", "call_id", "output"}),
                object({{"type", is("reasoning")}, {"content", or_null(content)}}, {"type"})});
    Json fields = Json::object();
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

Json messages(const Service& service, bool only_count) {
    const Json string{{"type", "string"}};
    const Json words = text_or_parts({"text"});
    const auto block = [&](std::vector<Json> more) {
        more.insert(more.begin(), {part({"text"}), object({{"type", is("redacted_thinking")}}, {"type"})});
        return any_of({string, list_of(any_of(std::move(more)))});
    };
    const Json result =
        object({{"type", is("tool_result")}, {"tool_use_id", text("")}, {"content", or_null(words)}}, {"type"});
    const Json use = object(
        {{"type", is("tool_use")}, {"id", text("")}, {"name", string}, {"input", {{"type", {"object", "null"}}}}},
        {"type", "name"});
    const Json thought = object({{"type", is("thinking")}, {"thinking", text("")}}, {"type"});
    const Json message =
        any_of({object({{"role", is("user")}, {"content", block({result})}}, {"role", "content"}),
                object({{"role", is("assistant")}, {"content", block({use, thought})}}, {"role", "content"}),
                object({{"role", is("system")}, {"content", words}}, {"role", "content"})});
    Json fields = Json::object();
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

Json embeddings(const Service& service) {
    Json ids = token_ids(service), string = prompt_text(service);
    ids["minItems"] = 1;
    if (service.model.vocab().encode("").empty()) string["minLength"] = 1;
    Json fields = Json::object();
    add_model(fields, service);
    fields["input"] = any_of(
        {string, ids, {{"type", "array"}, {"items", any_of({string, ids})}, {"minItems", 1}, {"maxItems", 2048}}});
    fields["encoding_format"] = word("base64: of little-endian floats.", {"float", "base64"});
    fields["dimensions"] = whole("The first so many, normalized again.", 1, service.model.info().n_embd);
    add_capabilities(fields, service, false);
    add_taken(fields, {"user"});
    return object(fields, {"input"});
}

Json rerank(const Service& service) {
    const Json string{{"type", "string"}};
    Json fields = Json::object();
    add_model(fields, service);
    fields["query"] = string;
    fields["documents"] = any_of({string, {{"type", "array"}, {"items", string}, {"minItems", 1}, {"maxItems", 2048}}});
    fields["top_n"] = whole("At most so many results.", 1, kMaxTokens);
    fields["return_documents"] = flag("Results with their texts.");
    add_capabilities(fields, service, false);
    add_taken(fields, {"user"});
    return object(fields, {"query", "documents"});
}

}  // namespace

void add_sampling(Json& fields, const Service& service) {
    for (const auto& field : tinfer::sampler_fields())
        for (const auto name : names_in_requests(field)) {
            const auto [least, most] = bounds_in_requests(field);
            fields[name] = field.is_whole()
                               ? whole(field.help, static_cast<std::int64_t>(least), static_cast<std::int64_t>(most))
                               : number(field.help, least, most);
        }
    fields["dry_breakers"] = texts("Texts that end a repetition.", 64);
    fields["logit_bias"] = {{"type", {"object", "null"}},
                            {"description", "Added to logits, by token id."},
                            {"propertyNames", {{"pattern", numbers_up_to(last_token(service))}}},
                            {"additionalProperties", {{"type", "number"}, {"minimum", -100}, {"maximum", 100}}}};
    fields["samplers"] = described(
        any_of({{{"type", "null"}},
                {{"type", "string"}, {"format", "sampler-chain"}},
                {{"type", "array"}, {"maxItems", 32}, {"items", {{"type", "string"}, {"format", "sampler-name"}}}}}),
        "The chain of samplers: names in order.");
    fields["seed"] = whole("The same seed gives the same answer; -1: another one each time.", -kMaxSeed, kMaxSeed);
    fields["stop"] = texts("Texts that end the answer.", 16, 1);
    fields["cache_prompt"] = flag("false: nothing is shared with other requests.");
    fields["grammar"] = grammar();
    add_capabilities(fields, service);
}

Json tools() { return or_null(list_of(named_function(true))); }

Json requests(const Service& service) {
    Json all = Json::object();
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
    Json tokenize = object({{"text", text("")},
                            {"content", text("Another name of text.")},
                            {"add_special", flag("Tokens that begin and end a text.")},
                            {"parse_special", flag("Text that spells control tokens becomes them.")},
                            {"with_pieces", flag("Each token with its text, or its bytes within a character.")}});
    const Json string{{"type", "string"}};
    tokenize["anyOf"] = Json::array({object({{"text", string}}, {"text"}), object({{"content", string}}, {"content"})});
    add_taken(tokenize["properties"], {"model"});
    all["TokenizeRequest"] = tokenize;
    const Json any_name{{"type", "string"}, {"description", "Any name."}};
    all["ModelRequest"] = object({{"model", service.broker.takes_any_name() ? any_name : is(service.id)}}, {"model"});
    Json detokenize{{"tokens", token_ids(service)}};
    add_taken(detokenize, {"model"});
    all["DetokenizeRequest"] = object(detokenize, {"tokens"});
    Json conversation{{"add_generation_prompt", flag("What begins an answer is put behind the messages.")}};
    add_conversation(conversation);
    add_taken(conversation, {"model"});
    all["TemplateRequest"] = object(conversation, {"messages"});
    all["ChatMessage"] = chat_message();
    return all;
}

}  // namespace tinfer::server::schema
