// SPDX-License-Identifier: MIT
// Schemas of request bodies, as read by read_chat.cpp, anthropic.cpp, responses.cpp and the routes.
#include <tinfer/tinfer.hpp>

#include "job.hpp"
#include "openapi.hpp"

namespace tinfer::server::schema {

namespace {

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

/// The most tokens of an answer, by the row and the room that there is.
Json max_tokens(const Service& service, const WholeField& row) {
    const auto room = static_cast<std::int64_t>(service.engine.max_tokens());
    return whole("Longest answer, tokens. Where prompt and answer do not fit together, status 400 says so, unless "
                 "clip_max_tokens takes what fits.",
                 row.least, service.options.clip_max_tokens ? row.most : std::max(row.least, room - 1));
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
        const Json use = object({{"name", name}, {"scale", number("1 without it.", -kMaxScale, kMaxScale)}}, {"name"});
        const Json one = any_of({name, use});
        fields["lora"] = described(
            any_of({{{"type", "null"}}, name, use, {{"type", "array"}, {"items", one}, {"maxItems", kMaxLoras}}}),
            "Adapters of this answer, each at most once.");
    }
    const auto never = [&](const char* field, const char* why) {
        fields[field] = {{"enum", {false, nullptr}}, {"description", why}};
    };
    if (service.traces == nullptr) never("trace", "This server writes no traces: --trace-dir allows them.");
    else add(fields, field::trace);
    if (!gives_text) return;
    WordField sources = field::speculate;
    if (!service.engine.options().draft) sources.words = sources.words.first(sources.words.size() - 1);
    add(fields, sources);
    if (!service.options.receipts) never("receipt", "This server gives no receipts: --receipts allows them.");
    else add(fields, field::receipt);
}

void add_model(Json& fields, const Service& service) {
    fields["model"] = service.broker.takes_any_name() ? text("Any name.") : word("This server has one.", {service.id});
}

void add_token_fields(Json& fields, const Service& service) {
    add(fields, field::return_token_ids, field::return_tokens_as_token_ids, field::prompt_logprobs);
    fields["prompt_logprob_token_ids"] = {
        {"type", {"array", "null"}},
        {"items", {{"type", "integer"}, {"minimum", 0}, {"maximum", last_token(service)}}},
        {"minItems", 1},
        {"maxItems", kMaxScored},
        {"description", "Log-probabilities of these along the prompt, as a NumPy file in base64; no stream."}};
    add(fields, field::prompt_logprob_start);
    if (service.engine.options().routed_experts) add(fields, field::return_routed_experts);
    else
        fields["return_routed_experts"] = {
            {"enum", {false, nullptr}},
            {"description", "This server keeps none: --routed-experts, for models with some."}};
    add(fields, field::routed_experts_start_len, field::routed_experts_prompt_start, field::routed_experts_format);
}

void add_room(Json& fields) { add(fields, field::truncate, field::clip_max_tokens); }

void add_stream(Json& fields) {
    Json options{{"include_obfuscation", {{"description", "Any."}}}};
    add(options, field::include_usage);
    fields["stream_options"] = or_null(object(std::move(options)));
    add(fields, field::stream, field::prompt_progress);
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

/// As vLLM's clients say it; the older fields guided_… are read, and not described.
Json structured_outputs() {
    Json pattern = text(field::regex_help);
    pattern["format"] = "regular-expression";
    const Json choices{{"type", "array"},
                       {"items", {{"type", "string"}}},
                       {"minItems", 1},
                       {"maxItems", kMaxChoices},
                       {"description", field::choice_help}};
    Json any_object = Json::object();
    add(any_object, field::json_object);
    return described(any_of({{{"type", "null"}},
                             object({{"json", json_schema(field::json_help)}}, {"json"}),
                             object({{"regex", pattern}}, {"regex"}),
                             object({{"choice", choices}}, {"choice"}),
                             object({{"grammar", grammar()}}, {"grammar"}),
                             object(any_object, {"json_object"})}),
                     "What the answer is, one of these; in place of response_format and grammar.");
}

Json strict() { return flag(field::strict.help); }

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
    add(fields, field::parallel_tool_calls, field::reasoning_effort, field::enable_thinking);
    for (const char* name : {"template_kwargs", "chat_template_kwargs"})
        fields[name] = {{"type", {"object", "null"}},
                        {"description", "Further variables of the template."},
                        {"maxProperties", kMaxVariables},
                        {"propertyNames", {{"not", {{"enum", {"messages", "tools", "bos_token", "eos_token"}}}}}}};
}

Json chat(const Service& service) {
    Json fields = Json::object();
    add_model(fields, service);
    add_conversation(fields);
    for (const auto& row : {field::max_completion_tokens, field::max_tokens})
        fields[row.name] = max_tokens(service, row);
    add(fields, field::n, field::continue_final_message, field::logprobs, field::top_logprobs);
    add_token_fields(fields, service);
    fields["response_format"] = response_format();
    fields["structured_outputs"] = structured_outputs();
    add(fields, field::reasoning_format, field::reasoning_budget);
    add_stream(fields);
    add_room(fields);
    add_sampling(fields, service);
    add_taken(fields, kTakenOfChats);
    fields["web_search_options"] = {{"type", "null"}};
    return object(fields, {"messages"});
}

Json completion(const Service& service) {
    const Json one = any_of({prompt_text(service), token_ids(service)});
    Json fields = Json::object();
    add_model(fields, service);
    fields["prompt"] = any_of({prompt_text(service),
                               token_ids(service),
                               {{"type", "array"}, {"items", one}, {"minItems", 1}, {"maxItems", kMaxPrompts}}});
    using tinfer::Special;
    const auto& vocab = service.model.vocab();
    fields["suffix"] = text("What follows the text that the model fills in; with one text as prompt.");
    if (!vocab.special(Special::fim_pre) || !vocab.special(Special::fim_suf) || !vocab.special(Special::fim_mid)) {
        fields["suffix"]["maxLength"] = 0;
        fields["suffix"]["description"] = "This model fills nothing in.";
    }
    fields["max_tokens"] = max_tokens(service, field::max_text_tokens);
    add(fields, field::n_each, field::best_of, field::n_logprobs, field::echo);
    add_token_fields(fields, service);
    fields["response_format"] = response_format();
    fields["structured_outputs"] = structured_outputs();
    add_stream(fields);
    add_room(fields);
    add_sampling(fields, service);
    add_taken(fields, kTakenOfUsers);
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
    fields["text"] = or_null(object({{"format", flat_format()}}));
    fields["reasoning"] = or_null(object({{"effort", text("Where the template knows it.")}}));
    fields["max_output_tokens"] = max_tokens(service, field::max_output_tokens);
    add(fields, field::parallel_tool_calls, field::stream, field::store);
    for (const char* name : {"previous_response_id", "conversation"}) fields[name] = {{"type", "null"}};
    fields["stream_options"] = or_null(object({{"include_obfuscation", {{"description", "Any."}}}}));
    add_room(fields);
    add_sampling(fields, service);
    add_taken(fields, kTakenOfResponses);
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
    add(fields, field::stop_sequences);
    fields["output_config"] =
        or_null(object({{"effort", text("Where the template knows it.")}, {"format", flat_format()}}));
    fields["mcp_servers"] = {
        {"type", {"array", "null"}}, {"maxItems", 0}, {"description", "This server asks no other servers."}};
    fields["context_management"] = {{"description", "Messages are taken as they are: warned of."}};
    add_taken(fields, kTakenOfMessages);
    fields["max_tokens"] = max_tokens(service, field::max_tokens);
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
        {string, ids, {{"type", "array"}, {"items", any_of({string, ids})}, {"minItems", 1}, {"maxItems", kMaxTexts}}});
    add(fields, field::encoding_format);
    fields["dimensions"] = whole("The first so many, normalized again.", 1, service.model.info().n_embd);
    add_capabilities(fields, service, false);
    add_taken(fields, kTakenOfUsers);
    return object(fields, {"input"});
}

Json rerank(const Service& service) {
    const Json string{{"type", "string"}};
    Json fields = Json::object();
    add_model(fields, service);
    fields["query"] = string;
    fields["documents"] =
        any_of({string, {{"type", "array"}, {"items", string}, {"minItems", 1}, {"maxItems", kMaxTexts}}});
    add(fields, field::top_n, field::return_documents);
    add_capabilities(fields, service, false);
    add_taken(fields, kTakenOfUsers);
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
    add(fields, field::dry_breakers);
    fields["logit_bias"] = {
        {"type", {"object", "null"}},
        {"description", "Added to logits, by token id."},
        {"propertyNames", {{"pattern", numbers_up_to(last_token(service))}}},
        {"additionalProperties", {{"type", "number"}, {"minimum", -kMaxBias}, {"maximum", kMaxBias}}}};
    fields["samplers"] = described(any_of({{{"type", "null"}},
                                           {{"type", "string"}, {"format", "sampler-chain"}},
                                           {{"type", "array"},
                                            {"maxItems", kMaxChainNames},
                                            {"items", {{"type", "string"}, {"format", "sampler-name"}}}}}),
                                   "The chain of samplers: names in order.");
    add(fields, field::seed, field::stop, field::cache_prompt);
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
    Json tokenize = object({{"text", text("")}, {"content", text("Another name of text.")}});
    add(tokenize["properties"], field::add_special, field::parse_special, field::with_pieces);
    const Json string{{"type", "string"}};
    tokenize["anyOf"] = Json::array({object({{"text", string}}, {"text"}), object({{"content", string}}, {"content"})});
    add_taken(tokenize["properties"], kTakenOfModels);
    all["TokenizeRequest"] = tokenize;
    const Json any_name{{"type", "string"}, {"description", "Any name."}};
    all["ModelRequest"] = object({{"model", service.broker.takes_any_name() ? any_name : is(service.id)}}, {"model"});
    Json detokenize{{"tokens", token_ids(service)}};
    add_taken(detokenize, kTakenOfModels);
    all["DetokenizeRequest"] = object(detokenize, {"tokens"});
    Json conversation = Json::object();
    add(conversation, field::add_generation_prompt);
    add_conversation(conversation);
    add_taken(conversation, kTakenOfModels);
    all["TemplateRequest"] = object(conversation, {"messages"});
    all["ChatMessage"] = chat_message();
    return all;
}

}  // namespace tinfer::server::schema
