// SPDX-License-Identifier: MIT
// Vectors of texts: what the routes for them share.
#pragma once

#include <tinfer/tinfer.hpp>

#include <optional>
#include <string>
#include <vector>

#include "answer_memory.hpp"
#include "http.hpp"
#include "job.hpp"

namespace tinfer::server {

inline constexpr std::size_t kNumberText = 24;  ///< maximum bytes of a number in JSON

/// The share of one answer in AnswerMemory.
class HeldMemory {
public:
    explicit HeldMemory(AnswerMemory& memory)
        : account_(memory, [] {}) {}  // nothing to cut: add() is called often enough
    /// Throws ApiError if the answer was cut.
    void add(std::size_t bytes) {
        if (!account_.add(static_cast<std::int64_t>(bytes))) throw account_.reason();
    }

private:
    AnswerMemory::Account account_;
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
[[nodiscard]] std::optional<VectorResults> run_vectors(Service& service, const Job& job,
                                                       std::vector<tinfer::EngineRequest> requests, HeldMemory& held,
                                                       Client& client);
/// Throws ApiError 501 for a model that gives none.
void check_gives_vectors(const Service& service);
/// Maximum tokens to encode: more than fit, so that errors can usually tell the count.
[[nodiscard]] std::size_t most_vector_tokens(const Service& service);
/// Throws ApiError 400 for none, and for more than the limit.
void check_vector_length(const std::vector<tinfer::Token>& tokens, const std::string& path, const Service& service);
/// Requests for the vectors of a text or a list of tokens, or a list of such; each is a copy of `request` but for its
/// prompt. `cuts`: a text that is too long loses its end.
[[nodiscard]] std::vector<tinfer::EngineRequest> read_texts(const Json& input, const std::string& field,
                                                            const Service& service,
                                                            const tinfer::EngineRequest& request, bool cuts = false);
/// Makes the length of a vector 1, unless it is 0.
void normalize(std::vector<float>& vector);

}  // namespace tinfer::server
