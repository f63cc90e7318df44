// SPDX-License-Identifier: MIT
#include "token_score.hpp"

#include <algorithm>
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

std::string token_name(tinfer::Token token, std::string_view piece, bool by_id) {
    return by_id ? "token_id:" + std::to_string(static_cast<std::int32_t>(token)) : std::string(piece);
}

Json token_score(const tinfer::Vocab& vocab, const tinfer::TokenChoice& token, int n_top, bool by_ids) {
    Json top = Json::array();
    for (const auto& [id, value] : token.top) {
        if (top.size() >= static_cast<std::size_t>(std::max(n_top, 0))) break;
        const auto piece = vocab.piece(id, true);
        top.push_back(
            {{"token", token_name(id, piece, by_ids)}, {"logprob", finite(value)}, {"bytes", bytes_of(piece)}});
    }
    return {{"token", token_name(token.token, token.piece, by_ids)},
            {"logprob", token.log_prob ? finite(*token.log_prob) : Json()},
            {"bytes", bytes_of(token.piece)},
            {"top_logprobs", top}};
}

Json prompt_score(const tinfer::Vocab& vocab, const tinfer::TokenChoice& token, int n_top) {
    if (!token.log_prob) return {};
    Json scores = Json::object();
    const auto add = [&](tinfer::Token id, double value, std::size_t rank) {
        scores[std::to_string(static_cast<std::int32_t>(id))] = {
            {"logprob", finite(value)}, {"rank", rank}, {"decoded_token", vocab.piece(id, true)}};
    };
    add(token.token, *token.log_prob, token.rank);
    for (std::size_t i = 0; i < token.top.size() && i < static_cast<std::size_t>(std::max(n_top, 0)); ++i)
        add(token.top[i].first, token.top[i].second, i + 1);
    return scores;
}

}  // namespace tinfer::server
