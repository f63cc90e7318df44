// SPDX-License-Identifier: MIT
#include "openapi.hpp"

#include <tinfer/version.hpp>

#include "routes.hpp"

namespace tinfer::server {

namespace schema {

namespace {

Json typed(std::string_view type, std::string_view what) {
    Json result{{"type", {type, "null"}}};
    if (!what.empty()) result["description"] = what;
    return result;
}

}  // namespace

Json text(std::string_view what) { return typed("string", what); }
Json flag(std::string_view what) { return typed("boolean", what); }

Json number(std::string_view what, double least, double most) {
    Json result = typed("number", what);
    result["minimum"] = least;
    result["maximum"] = most;
    return result;
}

Json whole(std::string_view what, std::int64_t least, std::int64_t most) {
    Json result = typed("integer", what);
    result["minimum"] = least;
    result["maximum"] = most;
    return result;
}

Json word(std::string_view what, const std::vector<std::string>& words) {
    Json result = typed("string", what);
    result["enum"] = words;
    result["enum"].push_back(nullptr);
    return result;
}

Json object(Json properties, const std::vector<std::string>& required) {
    Json result{{"type", "object"}, {"properties", std::move(properties)}};
    if (!required.empty()) result["required"] = required;
    return result;
}

Json list_of(Json items) { return {{"type", "array"}, {"items", std::move(items)}}; }

Json any_of(std::vector<Json> schemas) {
    Json list = Json::array();
    for (auto& one : schemas) list.push_back(std::move(one));
    return {{"anyOf", list}};
}

Json or_null(Json schema) { return any_of({std::move(schema), {{"type", "null"}}}); }
Json is(std::string_view constant) { return {{"type", "string"}, {"const", constant}}; }
Json reference(std::string_view name) { return {{"$ref", "#/components/schemas/" + std::string(name)}}; }

}  // namespace schema

namespace {

struct Operation {
    std::string_view path, method, id, what, request, answer;
    bool streams = false;
};

constexpr Operation kOperations[] = {
    {"/health", "get", "health", "Whether requests can be answered.", "", "Health"},
    {"/v1/health", "get", "healthV1", "The same.", "", "Health"},
    {"/v1/models", "get", "models", "The models of this server.", "", "Models"},
    {"/models", "get", "modelsShort", "The same.", "", "Models"},
    {"/v1/models/{id}", "get", "model", "A model, by its name.", "", "Model"},
    {"/models/load", "post", "loadModel", "Loads a model.", "ModelRequest", "Success"},
    {"/models/unload", "post", "unloadModel", "Takes an idle model out of memory.", "ModelRequest", "Success"},
    {"/slots", "get", "slots", "What runs and waits.", "", "Slots"},
    {"/activity", "get", "activity", "What layers and experts have read, while somebody asks.", "", "Activity"},
    {"/metrics", "get", "metrics", "Counters for Prometheus.", "", "text/plain"},
    {"/openapi.json", "get", "openapi", "This document.", "", "application/json"},
    {"/", "get", "page", "A page for people.", "", "text/html"},
    {"/page/libraries.js", "get", "pageLibraries", "What the page renders texts with.", "", "text/javascript"},
    {"/viewer", "get", "pageViewer", "The viewer of traces, empty.", "", "text/html"},
    {"/traces/{file}", "get", "trace", "A trace that a request has asked for.", "", "application/octet-stream"},
    {"/v1/chat/completions", "post", "chat", "The next message of a conversation.", "ChatRequest", "ChatCompletion",
     true},
    {"/chat/completions", "post", "chatShort", "The same.", "ChatRequest", "ChatCompletion", true},
    {"/v1/completions", "post", "complete", "Text behind a text.", "CompletionRequest", "Completion", true},
    {"/completions", "post", "completeShort", "The same.", "CompletionRequest", "Completion", true},
    {"/v1/responses", "post", "respond", "Items behind items.", "ResponsesRequest", "Response", true},
    {"/v1/messages", "post", "message", "A conversation in the shape of Anthropic's interface.", "MessagesRequest",
     "Message", true},
    {"/v1/messages/count_tokens", "post", "countTokens", "Tokens of its prompt.", "CountRequest", "Count"},
    {"/v1/embeddings", "post", "embed", "Vectors of texts.", "EmbeddingsRequest", "Embeddings"},
    {"/embeddings", "post", "embedShort", "The same.", "EmbeddingsRequest", "Embeddings"},
    {"/v1/rerank", "post", "rerank", "Scores of documents.", "RerankRequest", "Ranks"},
    {"/rerank", "post", "rerankShort", "The same.", "RerankRequest", "Ranks"},
    {"/tokenize", "post", "tokenize", "Tokens of a text.", "TokenizeRequest", "Tokens"},
    {"/detokenize", "post", "detokenize", "The text of tokens.", "DetokenizeRequest", "Text"},
    {"/infill", "post", "infill", "Text between a prefix and a suffix.", "InfillRequest", "Infill", true},
    {"/props", "get", "props", "What editors ask of the model.", "", "application/json"},
    {"/api/chat", "post", "ollamaChat", "The next message, as Ollama gives it.", "OllamaChat", "OllamaAnswer", true},
    {"/api/generate", "post", "ollamaGenerate", "Text, the same way.", "OllamaGenerate", "OllamaAnswer", true},
    {"/api/embed", "post", "ollamaEmbed", "Vectors of texts.", "OllamaEmbed", "OllamaVectors"},
    {"/api/embeddings", "post", "ollamaEmbeddings", "The vector of a text.", "OllamaEmbeddings", "OllamaVector"},
    {"/api/tags", "get", "ollamaTags", "The models.", "", "OllamaModels"},
    {"/api/ps", "get", "ollamaPs", "Those in memory.", "", "OllamaModels"},
    {"/api/version", "get", "ollamaVersion", "The version of the interface.", "", "OllamaVersion"},
    {"/api/show", "post", "ollamaShow", "What is known of a model.", "OllamaShow", "OllamaModel"},
    {"/api/pull", "post", "ollamaPull", "Downloads a model, where it may; success for one that is here.", "OllamaPull",
     "OllamaStatus", true},
    {"/apply-template", "post", "applyTemplate", "The prompt that messages become.", "TemplateRequest", "Prompt"},
};

Json content(std::string_view type, Json schema) { return {{std::string(type), {{"schema", std::move(schema)}}}}; }

/// Of the page for people: without a key, and while the model loads.
bool is_page(const Operation& operation) { return operation.id.starts_with("page"); }

Json operation_of(const Operation& operation, const Service& service) {
    Json result{{"operationId", operation.id}, {"summary", operation.what}};
    const bool is_open = operation.id.starts_with("health") || is_page(operation);
    if (is_open) result["security"] = Json::array();
    if (operation.path.ends_with("{file}"))
        result["parameters"] = Json::array({{{"name", "file"},
                                             {"in", "path"},
                                             {"required", true},
                                             {"schema", {{"type", "string"}, {"minLength", 1}}}}});
    if (operation.path.ends_with("{id}"))
        result["parameters"] =
            Json::array({{{"name", "id"},
                          {"in", "path"},
                          {"required", true},
                          {"schema", service.broker.takes_any_name() ? Json{{"type", "string"}, {"minLength", 1}}
                                                                     : schema::is(service.id)}}});
    if (!operation.request.empty())
        result["requestBody"] = {{"required", true},
                                 {"content", content("application/json", schema::reference(operation.request))}};
    const std::string_view answer = operation.answer;
    Json good = answer == "application/json"      ? content(answer, {{"type", "object"}})
                : answer.find('/') != answer.npos ? content(answer, {{"type", "string"}})
                                                  : content("application/json", schema::reference(answer));
    if (operation.id == "page") good.update(content("text/plain", {{"type", "string"}}));
    const bool is_ollama = operation.path.starts_with("/api/");
    if (operation.streams && is_ollama) good.update(content("application/x-ndjson", {{"type", "string"}}));
    else if (operation.streams) good.update(content("text/event-stream", schema::reference("Event")));
    const Json error =
        content("application/json", schema::reference(operation.path.starts_with("/v1/messages") ? "MessagesError"
                                                      : is_ollama                                ? "OllamaError"
                                                                                                 : "Error"));
    auto& responses = result["responses"] = Json{{"200", {{"description", "What was asked for."}, {"content", good}}}};
    const auto add = [&](const char* status, const char* what) {
        responses[status] = {{"description", what}, {"content", error}};
    };
    if (!operation.request.empty()) {
        add("400", "The body is wrong: error.param names the field.");
        add("408", "The body has not come in time.");
        add("413", "The body is too large.");
    }
    const bool may_write = !operation.request.empty() && service.traces != nullptr;
    if (may_write) add("500", "The folder for traces takes no file.");
    if (!service.options.api_keys.empty() && !is_open) add("401", "A key is needed.");
    add("403", "The host is not served here.");
    if (!operation.request.empty() || operation.path.ends_with("{id}")) add("404", "There is no such model.");
    if (operation.path.ends_with("{file}")) add("404", "There is no such trace.");
    if (operation.id == "unloadModel") add("409", "The model is in use, or pinned.");
    add("405", "Another method is for this path.");
    if (!is_page(operation)) {
        add("503", "The model is being loaded, the queue is full, or the server is stopping: try again.");
        responses["503"]["headers"] = {{"Retry-After", {{"schema", {{"type", "string"}}}}}};
        if (operation.id.starts_with("health"))
            responses["503"]["content"] = content("application/json", schema::reference("Loading"));
    }
    return result;
}

}  // namespace

Json openapi(const Service& service) {
    Json requests = schema::requests(service), schemas = schema::answers();
    requests.update(schema::ollama_requests(service));
    schemas.update(schema::ollama_answers());
    Json paths = Json::object();
    for (const auto& operation : kOperations) {
        if (is_page(operation) && service.options.no_page) continue;
        if (operation.id == "pageViewer" && service.options.viewer.empty()) continue;
        if (operation.id == "trace" && service.traces == nullptr) continue;
        if (operation.id == "activity" && service.engine.options().observers.empty()) continue;
        if (!operation.request.empty() && !requests.contains(std::string(operation.request))) continue;
        paths[std::string(operation.path)] = {{std::string(operation.method), operation_of(operation, service)}};
    }
    schemas.update(requests);
    Json document{
        {"openapi", "3.1.0"},
        {"info",
         {{"title", "tinfer serve"},
          {"version", tinfer::version()},
          {"description", "Routes that this server's model cannot answer are left out: they give status 501."},
          {"license", {{"name", "MIT"}, {"identifier", "MIT"}}}}},
        {"paths", paths},
        {"components", {{"schemas", schemas}}}};
    if (!service.options.api_keys.empty()) {
        document["components"]["securitySchemes"] = {
            {"bearer", {{"type", "http"}, {"scheme", "bearer"}}},
            {"header", {{"type", "apiKey"}, {"in", "header"}, {"name", "x-api-key"}}}};
        document["security"] = Json::array({{{"bearer", Json::array()}}, {{"header", Json::array()}}});
    }
    return document;
}

}  // namespace tinfer::server
