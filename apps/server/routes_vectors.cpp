// SPDX-License-Identifier: MIT
// POST /v1/embeddings and POST /v1/rerank.
#include <algorithm>
#include <bit>
#include <cmath>

#include "capabilities.hpp"
#include "event_queue.hpp"
#include "routes.hpp"

namespace tinfer::server {

namespace {

constexpr std::size_t kMaxTexts = 2048;
constexpr std::size_t kNumberText = 24;  ///< maximum bytes of a number in JSON
constexpr std::chrono::milliseconds kVectorPoll{20};

/// The share of one answer in AnswerMemory.
class Held {
public:
    explicit Held(AnswerMemory& memory) : share_(memory, [] {}) {}  // nothing to cut: add() is called often enough
    /// Throws ApiError if the answer was cut.
    void add(std::size_t bytes) {
        if (!share_.add(static_cast<std::int64_t>(bytes))) throw share_.reason();
    }

private:
    AnswerMemory::Share share_;
};

struct VectorResults {
    struct One {
        std::vector<float> vector;
        std::size_t n_prompt = 0;
    };
    std::vector<One> all;
    Json traces = Json::array();  ///< per text, if asked for
};

/// Runs all requests, a few at a time so that the queue has room for others. nullopt: the client has gone.
std::optional<VectorResults> run(Service& service, const Job& job, std::vector<tinfer::EngineRequest> requests,
                                 Held& held, Client& client) {
    Traces traces(service, job, requests);
    const auto at_once = static_cast<std::size_t>(std::max(1, service.engine.options().context.n_seq_max));
    VectorResults results;
    std::size_t n_tokens = 0;
    for (const auto& request : requests) n_tokens += request.prompt.capacity();
    held.add(requests.size() * sizeof(VectorResults::One) + n_tokens * sizeof(tinfer::Token));
    results.all.resize(requests.size());
    ClientWatch watch(client);
    for (std::size_t first = 0; first < requests.size(); first += at_once) {
        const std::size_t last = std::min(requests.size(), first + at_once);
        std::vector<tinfer::EngineRequest> some(std::make_move_iterator(requests.begin() + std::ptrdiff_t(first)),
                                                std::make_move_iterator(requests.begin() + std::ptrdiff_t(last)));
        EventQueue queue(service.engine, std::move(some), service.memory);
        while (!queue.done()) {
            auto event = queue.next(kVectorPoll);
            if (watch.gone()) return std::nullopt;
            held.add(event ? event->second.vector.capacity() * sizeof(float) : 0);
            if (!event) continue;
            if (event->second.error) throw translate(*event->second.error, "input");
            if (event->second.ended())
                results.all[first + event->first] = {std::move(event->second.vector), event->second.n_prompt};
        }
    }
    if (job.trace)
        for (std::size_t i = 0; i < requests.size(); ++i) results.traces.push_back(traces.close(i));
    return results;
}

void normalize(std::vector<float>& vector) {
    double sum = 0;
    for (const float x : vector) sum += double(x) * x;
    if (sum <= 0) return;
    const double scale = 1 / std::sqrt(sum);
    for (float& x : vector) x = static_cast<float>(x * scale);
}

std::string base64(const std::vector<float>& values) {
    static constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string bytes;
    for (const float value : values)
        for (auto bits = std::bit_cast<std::uint32_t>(value), i = 0u; i < 4; ++i, bits >>= 8)
            bytes += static_cast<char>(bits & 255);
    std::string out;
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        std::uint32_t word = 0;
        const std::size_t n = std::min<std::size_t>(3, bytes.size() - i);
        for (std::size_t j = 0; j < 3; ++j) word = word << 8 | (j < n ? static_cast<unsigned char>(bytes[i + j]) : 0u);
        for (std::size_t j = 0; j < 4; ++j) out += j <= n ? kDigits[(word >> (18 - 6 * j)) & 63] : '=';
    }
    return out;
}

/// Maximum tokens to encode: more than fit, so that errors can usually tell the count.
std::size_t most_tokens(const Service& service) { return 2 * service.engine.max_tokens(); }

std::vector<tinfer::Token> input_tokens(const Json& item, const std::string& path, const Service& service) {
    if (item.is_string())
        return encode_within(most_tokens(service), path, service, [&] {
            return service.model.vocab().encode(item.get<std::string>(), {.max_tokens = most_tokens(service)});
        });
    if (!item.is_array()) throw bad_request(path, "a text or a list of token ids is expected");
    return read_token_ids(item, path, service);
}

void check_length(const std::vector<tinfer::Token>& tokens, const std::string& path, const Service& service) {
    if (tokens.empty()) throw bad_request(path, "is empty");
    if (tokens.size() > service.engine.max_tokens())
        throw ApiError(400,
                       path + ": " + std::to_string(tokens.size()) + " tokens are more than the limit of " +
                           std::to_string(service.engine.max_tokens()),
                       "context_length_exceeded", path);
}

struct VectorJob {
    Job job;  ///< common to all texts
    std::vector<tinfer::EngineRequest> requests;
    std::optional<std::int64_t> dimensions{};
    bool as_base64 = false;
};

VectorJob read_embeddings(Service& service, Client& client, std::string_view text) {
    const Reading reading(service, client, text.size());
    const Json body = parse_body(text);
    Fields fields(body);
    service.check_model(fields.text("model"));
    fields.take({"user"});
    if (!service.gives_vectors() || service.ranks())
        throw ApiError(501, "this server gives no vectors; an embedding model, or --pooling mean at its start, does",
                       "not_supported");
    const Json* input = fields.find("input");
    if (input == nullptr) fields.refuse("input", "is missing");
    VectorJob job;
    read_capabilities(fields, service, job.job, false);
    job.as_base64 = fields.word("encoding_format", {"float", "base64"}).value_or("float") == "base64";
    job.dimensions = fields.integer("dimensions", 1, service.model.info().n_embd);
    const bool is_list = input->is_array() && !input->empty() && !input->front().is_number();
    if (is_list && input->size() > kMaxTexts)
        fields.refuse("input", "a list of at most " + std::to_string(kMaxTexts) + " is expected");
    add_warnings(fields, service, job.job);
    for (std::size_t i = 0; i < (is_list ? input->size() : 1); ++i) {
        const std::string path = is_list ? "input[" + std::to_string(i) + "]" : "input";
        auto& one = job.requests.emplace_back(job.job.request);
        one.kind = tinfer::EngineRequest::Kind::embed;
        one.prompt = input_tokens(is_list ? (*input)[i] : *input, path, service);
        check_length(one.prompt, path, service);
    }
    return job;
}

void embeddings(Service& service, Body body, Response& response) {
    auto job = read_embeddings(service, response.client, body.text());
    body.clear();
    const auto n_numbers = static_cast<std::size_t>(job.dimensions.value_or(service.model.info().n_embd));
    const std::size_t size = job.requests.size() * (n_numbers * (job.as_base64 ? 6 : kNumberText) + 64);
    service.memory.check(size, "input", "send fewer texts at once, or ask for base64");
    std::optional<Held> held(std::in_place, service.memory);
    auto results = run(service, job.job, std::move(job.requests), *held, response.client);
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
                         {"embedding", job.as_base64 ? Json(base64(vector)) : Json(vector)}});
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
        const Reading reading(service, response.client, text.size());
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
            const std::size_t longest = most_tokens(service);
            one.prompt = encode_within(longest, path, service, [&] {
                return pair_tokens(service.model.vocab(), *query, documents[i], longest);
            });
            check_length(one.prompt, path, service);
        }
    }
    std::optional<Held> held(std::in_place, service.memory);
    held->add((gives_texts ? 3 : 1) * text.size());
    text.clear();
    const auto results = run(service, job, std::move(requests), *held, response.client);
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
