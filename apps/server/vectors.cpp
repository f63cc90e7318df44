// SPDX-License-Identifier: MIT
#include "vectors.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "capabilities.hpp"
#include "event_queue.hpp"

namespace tinfer::server {

namespace {

constexpr std::chrono::milliseconds kVectorPoll{20};

std::vector<tinfer::Token> input_tokens(const Json& item, const std::string& path, const Service& service, bool cuts) {
    const std::size_t most = cuts ? std::numeric_limits<std::size_t>::max() : most_vector_tokens(service);
    if (item.is_string())
        return encode_within(most, path, service, [&] {
            return service.model.vocab().encode(item.get<std::string>(), {.max_tokens = most});
        });
    if (!item.is_array()) throw bad_request(path, "a text or a list of token ids is expected");
    return read_token_ids(item, path, service);
}

}  // namespace

std::optional<VectorResults> run_vectors(Service& service, const Job& job, std::vector<tinfer::EngineRequest> requests,
                                         HeldMemory& held, Client& client) {
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
        EventQueue queue(service.engine, std::move(some), service.memory, 0, &service.adapter_uses);
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

void check_gives_vectors(const Service& service) {
    if (!service.gives_vectors() || service.ranks())
        throw ApiError(501, "this server gives no vectors; an embedding model, or --pooling mean at its start, does",
                       "not_supported");
}

std::size_t most_vector_tokens(const Service& service) { return 2 * service.engine.max_tokens(); }

void check_vector_length(const std::vector<tinfer::Token>& tokens, const std::string& path, const Service& service) {
    if (tokens.empty()) throw bad_request(path, "is empty");
    if (tokens.size() > service.engine.max_tokens())
        throw ApiError(400,
                       path + ": " + std::to_string(tokens.size()) + " tokens are more than the limit of " +
                           std::to_string(service.engine.max_tokens()),
                       "context_length_exceeded", path);
}

std::vector<tinfer::EngineRequest> read_texts(const Json& input, const std::string& field, const Service& service,
                                              const tinfer::EngineRequest& request, bool cuts) {
    const bool is_list = input.is_array() && !input.empty() && !input.front().is_number();
    if (is_list && input.size() > kMaxTexts)
        throw bad_request(field, "a list of at most " + std::to_string(kMaxTexts) + " is expected");
    std::vector<tinfer::EngineRequest> requests;
    for (std::size_t i = 0; i < (is_list ? input.size() : 1); ++i) {
        const std::string path = is_list ? field + "[" + std::to_string(i) + "]" : field;
        auto& one = requests.emplace_back(request);
        one.kind = tinfer::EngineRequest::Kind::embed;
        one.prompt = input_tokens(is_list ? input[i] : input, path, service, cuts);
        if (cuts) one.prompt.resize(std::min(one.prompt.size(), service.engine.max_tokens()));
        check_vector_length(one.prompt, path, service);
    }
    return requests;
}

}  // namespace tinfer::server
