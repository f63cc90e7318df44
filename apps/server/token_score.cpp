// SPDX-License-Identifier: MIT
#include "token_score.hpp"

#include <cmath>

namespace tinfer::server {

namespace {

Json bytes_of(std::string_view piece) {
    Json bytes = Json::array();
    for (const char c : piece) bytes.push_back(static_cast<unsigned char>(c));
    return bytes;
}

}  // namespace

Json finite(double value) {
    constexpr double kLeast = -9999;
    return std::isfinite(value) ? Json(value) : Json(kLeast);
}

Json token_score(const tinfer::Vocab& vocab, const tinfer::TokenChoice& token) {
    Json top = Json::array();
    for (const auto& [id, value] : token.top) {
        const auto piece = vocab.piece(id, true);
        top.push_back({{"token", piece}, {"logprob", finite(value)}, {"bytes", bytes_of(piece)}});
    }
    return {{"token", token.piece},
            {"logprob", token.log_prob ? finite(*token.log_prob) : Json()},
            {"bytes", bytes_of(token.piece)},
            {"top_logprobs", top}};
}

}  // namespace tinfer::server
