// SPDX-License-Identifier: MIT
#include "routed.hpp"

#include <algorithm>

#include "array_text.hpp"
#include "job.hpp"

namespace tinfer::server {

std::optional<RoutedAsk> read_routed(Fields& fields, const Service& service, int n_answers) {
    constexpr std::int64_t kMaxStart = 1 << 30;
    RoutedAsk ask;
    const bool is_asked = fields.boolean("return_routed_experts").value_or(false);
    const auto start = fields.integer("routed_experts_start_len", 0, kMaxStart);
    const auto same = fields.integer("routed_experts_prompt_start", 0, kMaxStart);
    const auto format = fields.word("routed_experts_format", {"npy", "int32"});
    if (!is_asked) return std::nullopt;
    if (start && same && *start != *same)
        fields.refuse("routed_experts_prompt_start", "is another name of routed_experts_start_len, with another value");
    ask.start = static_cast<std::size_t>(start ? *start : same.value_or(0));
    ask.is_flat = format == "int32";
    if (ask.is_flat && n_answers != 1) fields.refuse("routed_experts_format", "int32 is for one answer");
    if (service.model.info().n_expert == 0) fields.refuse("return_routed_experts", "the model has no experts");
    if (!service.engine.options().routed_experts)
        fields.refuse("return_routed_experts", "this server does not keep them; start it with --routed-experts");
    return ask;
}

std::optional<ScoredAsk> read_scored(Fields& fields, const Service& service, bool is_stream) {
    constexpr std::size_t kMaxScored = 4096;
    constexpr std::int64_t kMaxStart = 1 << 30;
    const Json* const list = fields.find("prompt_logprob_token_ids");
    const auto start = fields.integer("prompt_logprob_start", 0, kMaxStart);
    if (list == nullptr) return std::nullopt;
    if (!list->is_array() || list->size() == 0 || list->size() > kMaxScored)
        fields.refuse("prompt_logprob_token_ids",
                      "a list of 1 to " + std::to_string(kMaxScored) + " token ids is expected");
    if (is_stream) fields.refuse("prompt_logprob_token_ids", "a stream has none; ask for a whole answer");
    return ScoredAsk{read_token_ids(*list, fields.path("prompt_logprob_token_ids"), service),
                     static_cast<std::size_t>(start.value_or(0))};
}

std::string routed_text(const tinfer::EngineEvent& last, const RoutedAsk& ask) {
    const tinfer::RoutedExperts& routed = *last.routed;
    const std::size_t n_drawn = last.n_generated + (last.end_token ? 1 : 0);
    const std::size_t n = std::min(routed.n_tokens, last.n_prompt + n_drawn - 1);
    const std::size_t start = std::min(ask.start, n), n_used = static_cast<std::size_t>(routed.n_used);
    const std::size_t width = n_used * routed.layers.size();
    const bool is_small = routed.n_expert <= 256;
    std::string data;
    data.reserve((n - start) * width * (ask.is_flat ? 4 : is_small ? 1 : 2));
    for (std::size_t i = start * width; i < n * width; ++i) {
        if (ask.is_flat) add_bytes(data, static_cast<std::int32_t>(routed.ids[i]));
        else if (is_small) add_bytes(data, static_cast<std::uint8_t>(routed.ids[i]));
        else add_bytes(data, routed.ids[i]);
    }
    if (ask.is_flat) return base64(data);
    return base64(npy(is_small ? "|u1" : "<u2", {n - start, routed.layers.size(), n_used}, data));
}

std::size_t routed_text_bytes(const tinfer::EngineEvent& last) noexcept {
    constexpr std::size_t kHead = 256;
    return last.routed == nullptr ? 0 : last.routed->ids.size() * 6 + kHead;
}

void add_scored(std::string& rows, const ScoredAsk& ask, std::size_t& n_seen,
                const std::vector<tinfer::TokenChoice>& prompt) {
    for (const auto& token : prompt) {
        if (n_seen++ <= ask.start) continue;
        for (const float value : token.asked) add_bytes(rows, value);
    }
}

std::string scored_text(const ScoredAsk& ask, const std::string& rows) {
    const std::size_t width = ask.tokens.size() * sizeof(float);
    return base64(npy("<f4", {rows.size() / width, ask.tokens.size()}, rows));
}

}  // namespace tinfer::server
