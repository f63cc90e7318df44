// SPDX-License-Identifier: MIT
#include "request_log.hpp"

#include <algorithm>
#include <cmath>

#include "ollama.hpp"

namespace tinfer::server {

std::string text_begin(std::string_view text) {
    constexpr std::size_t kMost = 4096;
    std::size_t n = std::min(text.size(), kMost);
    while (n < text.size() && n > 0 && (static_cast<unsigned char>(text[n]) & 0xC0) == 0x80) --n;
    return std::string(text.substr(0, n));
}

std::string request_line(const Request* request, const Response& response, std::chrono::duration<double> took,
                         bool is_whole) {
    constexpr std::size_t kMostOfName = 256;
    constexpr double kDigits = 1e6;
    Json line{{"time", ollama::time_text(std::chrono::system_clock::now())}};
    line["method"] = request == nullptr ? Json() : Json(request->method.substr(0, kMostOfName));
    line["path"] = request == nullptr ? Json() : Json(request->path.substr(0, kMostOfName));
    line["status"] = response.status;
    line["seconds"] = std::round(took.count() * kDigits) / kDigits;
    if (!is_whole) line["broken"] = true;
    if (const RequestFacts* const facts = response.facts.get()) {
        if (!facts->model.empty()) line["model"] = facts->model;
        if (facts->has_tokens) {
            line["prompt_tokens"] = facts->n_prompt;
            line["cached_tokens"] = facts->n_cached;
            line["completion_tokens"] = facts->n_generated;
        }
        if (!facts->finish.empty()) line["finish"] = facts->finish;
        if (!facts->prompt.empty()) line["prompt"] = facts->prompt;
        if (!facts->answer.empty()) line["answer"] = facts->answer;
    }
    return line.dump({.ascii = true});
}

}  // namespace tinfer::server
