// SPDX-License-Identifier: MIT
// POST /v1/embeddings and POST /v1/rerank.
#include <algorithm>

#include "array_text.hpp"
#include "capabilities.hpp"
#include "routes.hpp"
#include "vectors.hpp"

namespace tinfer::server {

namespace {

std::string base64_of(const std::vector<float>& values) {
    std::string bytes;
    for (const float value : values) add_bytes(bytes, value);
    return base64(bytes);
}

struct VectorJob {
    Job job;  ///< common to all texts
    std::vector<tinfer::EngineRequest> requests;
    std::optional<std::int64_t> dimensions{};
    bool as_base64 = false;
};

VectorJob read_embeddings(Service& service, Client& client, std::string_view text) {
    const Reading reading(service.broker, client, text.size());
    const Json body = parse_body(text);
    Fields fields(body);
    service.check_model(fields.text("model"));
    fields.take({"user"});
    check_gives_vectors(service);
    const Json* input = fields.find("input");
    if (input == nullptr) fields.refuse("input", "is missing");
    VectorJob job;
    read_capabilities(fields, service, job.job, false);
    job.as_base64 = fields.word("encoding_format", {"float", "base64"}).value_or("float") == "base64";
    job.dimensions = fields.integer("dimensions", 1, service.model.info().n_embd);
    add_warnings(fields, service, job.job);
    job.requests = read_texts(*input, "input", service, job.job.request);
    return job;
}

void embeddings(Service& service, Body body, Response& response) {
    auto job = read_embeddings(service, response.client, body.text());
    body.clear();
    const auto n_numbers = static_cast<std::size_t>(job.dimensions.value_or(service.model.info().n_embd));
    const std::size_t size = job.requests.size() * (n_numbers * (job.as_base64 ? 6 : kNumberText) + 64);
    service.memory.check(size, "input", "send fewer texts at once, or ask for base64");
    std::optional<HeldMemory> held(std::in_place, service.memory);
    auto results = run_vectors(service, job.job, std::move(job.requests), *held, response.client);
    if (!results) {
        response.status = 499;
        return;
    }
    held->add(size);
    std::string data;  // as text: a JSON document would take many times the memory
    data.reserve(size);
    std::size_t n_tokens = 0;
    for (std::size_t i = 0; i < results->all.size(); ++i) {
        auto vector = std::move(results->all[i].vector);
        n_tokens += results->all[i].n_prompt;
        if (job.dimensions) vector.resize(std::min(vector.size(), static_cast<std::size_t>(*job.dimensions)));
        normalize(vector);
        data += i == 0 ? "[" : ",";
        data += to_line({{"object", "embedding"},
                         {"index", i},
                         {"embedding", job.as_base64 ? Json(base64_of(vector)) : Json(vector)}});
    }
    Json document{{"object", "list"},
                  {"model", service.id},
                  {"usage", {{"prompt_tokens", n_tokens}, {"total_tokens", n_tokens}}}};
    if (job.job.trace) document["traces"] = results->traces;
    if (!job.job.warnings.empty()) document["warnings"] = job.job.warnings;
    std::string before = to_line(document);
    open_member(before, "data");
    data.insert(0, before);
    held.reset();
    set_answer(service, response, std::move(data += "]}"));
}

/// The tokens of a (query, document) pair as classifiers were trained: BERT puts one separator between them, others an
/// end and a begin token.
std::vector<tinfer::Token> pair_tokens(const tinfer::Vocab& vocab, const std::string& query, const std::string& text,
                                       std::size_t most) {
    auto tokens = vocab.encode(query, {.max_tokens = most});
    const auto separator = vocab.special(tinfer::Special::sep);
    const bool has_end = !tokens.empty() && (tokens.back() == separator || tokens.back() == vocab.eos());
    if (!has_end && vocab.eos()) tokens.push_back(*vocab.eos());
    if (vocab.algorithm() != "bert" && separator) tokens.push_back(*separator);
    const auto second = vocab.encode(text, {.add_special = false, .max_tokens = most});
    tokens.insert(tokens.end(), second.begin(), second.end());
    if (vocab.eos()) tokens.push_back(*vocab.eos());
    else if (separator) tokens.push_back(*separator);
    return tokens;
}

void rerank(Service& service, Body text, Response& response) {
    std::vector<tinfer::EngineRequest> requests;
    std::vector<std::string> documents;
    Job job;
    bool gives_texts = false;
    std::size_t most = 0;
    {
        const Reading reading(service.broker, response.client, text.size());
        const Json body = parse_body(text.text());
        Fields fields(body);
        service.check_model(fields.text("model"));
        fields.take({"user"});
        if (!service.ranks()) throw ApiError(501, "this model is no reranker", "not_supported");
        const auto query = fields.text("query");
        if (!query) fields.refuse("query", "is missing");
        documents = fields.texts("documents", kMaxTexts);
        if (documents.empty()) fields.refuse("documents", "is missing");
        gives_texts = fields.boolean("return_documents").value_or(false);
        most = static_cast<std::size_t>(
            fields.integer("top_n", 1, 1 << 30).value_or(static_cast<std::int64_t>(documents.size())));
        read_capabilities(fields, service, job, false);
        add_warnings(fields, service, job);
        for (std::size_t i = 0; i < documents.size(); ++i) {
            auto& one = requests.emplace_back(job.request);
            one.kind = tinfer::EngineRequest::Kind::rank;
            const std::string path = "documents[" + std::to_string(i) + "]";
            const std::size_t longest = most_vector_tokens(service);
            one.prompt = encode_within(longest, path, service, [&] {
                return pair_tokens(service.model.vocab(), *query, documents[i], longest);
            });
            check_vector_length(one.prompt, path, service);
        }
    }
    std::optional<HeldMemory> held(std::in_place, service.memory);
    held->add((gives_texts ? 3 : 1) * text.size());
    text.clear();
    const auto results = run_vectors(service, job, std::move(requests), *held, response.client);
    if (!results) {
        response.status = 499;
        return;
    }
    std::vector<std::pair<float, std::size_t>> order;
    std::size_t n_tokens = 0;
    for (std::size_t i = 0; i < results->all.size(); ++i) {
        order.emplace_back(results->all[i].vector.at(0), i);
        n_tokens += results->all[i].n_prompt;
    }
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    Json list = Json::array();
    for (const auto& [score, index] : order) {
        if (list.size() == most) break;
        Json item{{"index", index}, {"relevance_score", score}};
        if (gives_texts) item["document"] = {{"text", documents[index]}};
        list.push_back(item);
    }
    Json document{{"object", "list"},
                  {"model", service.id},
                  {"results", list},
                  {"usage", {{"prompt_tokens", n_tokens}, {"total_tokens", n_tokens}}}};
    if (job.trace) document["traces"] = results->traces;
    if (!job.warnings.empty()) document["warnings"] = job.warnings;
    std::string whole = to_line(document);
    held.reset();
    set_answer(service, response, std::move(whole));
}

}  // namespace

void add_vector_routes(Router& router) {
    for (const char* path : {"/v1/embeddings", "/embeddings"}) router.post(path, embeddings);
    for (const char* path : {"/v1/rerank", "/rerank"}) router.post(path, rerank);
}

}  // namespace tinfer::server
