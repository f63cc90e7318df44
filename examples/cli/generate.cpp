// SPDX-License-Identifier: MIT
// The generation loop and the search for stop strings.
#include "generate.hpp"

#include <algorithm>
#include <chrono>

namespace cli {

namespace {

class Stopwatch {
public:
    [[nodiscard]] double seconds() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    }

private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Prompts longer than one decode may take go in pieces.
tinfer::DecodeStatus decode_prompt(tinfer::Context& context, std::span<const tinfer::Token> prompt) {
    const auto piece = static_cast<std::size_t>(context.options().n_batch);
    auto status = tinfer::DecodeStatus::ok;
    for (std::size_t at = 0; at < prompt.size() && status == tinfer::DecodeStatus::ok; at += piece)
        status = context.decode(prompt.subspan(at, std::min(piece, prompt.size() - at)));
    return status;
}

std::vector<tinfer::Token> stop_tokens(const tinfer::Vocab& vocab, const std::vector<std::string>& stops) {
    std::vector<tinfer::Token> tokens;
    for (const auto& stop : stops)
        if (const auto token = vocab.find(stop); token && vocab.is_control(*token)) tokens.push_back(*token);
    return tokens;
}

}  // namespace

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
    std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

std::string StopStrings::push(std::string_view text) {
    if (found_) return {};
    held_ += text;
    std::size_t first = held_.npos;
    for (const auto& stop : stops_) first = std::min(first, held_.find(stop));
    if (first != held_.npos) {
        found_ = true;
        held_.resize(first);
        return flush();
    }
    // The longest end of what we have that begins a stop string stays here.
    std::size_t keep = 0;
    for (const auto& stop : stops_)
        for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n)
            if (held_.ends_with(std::string_view(stop).substr(0, n))) keep = n;
    // A stop string may be any bytes: cut between characters only.
    const auto is_inside = [&] { return (static_cast<unsigned char>(held_[held_.size() - keep]) & 0xC0) == 0x80; };
    while (keep > 0 && keep < held_.size() && is_inside()) ++keep;
    std::string shown = held_.substr(0, held_.size() - keep);
    held_.erase(0, shown.size());
    return shown;
}

Generation generate(tinfer::Context& context, tinfer::Sampler& sampler, const GenerationRequest& request,
                    const std::function<void(std::string_view)>& emit) {
    const tinfer::Vocab& vocab = context.model().vocab();
    const auto ends = stop_tokens(vocab, request.stops);
    Generation result;
    result.prompt_n = request.text.size() + request.prompt.size();
    tinfer::Utf8Stream characters;
    StopStrings stops(request.stops);
    const auto show = [&](std::string_view text) {
        const std::string shown = stops.push(text);
        if (shown.empty()) return;
        result.text += shown;
        emit(shown);
    };

    Stopwatch prompt_watch;
    auto status = request.text.empty() ? tinfer::DecodeStatus::ok : context.encode(request.text);
    if (status == tinfer::DecodeStatus::ok) status = decode_prompt(context, request.prompt);
    result.prompt_s = prompt_watch.seconds();
    if (status == tinfer::DecodeStatus::no_room)
        throw tinfer::Error(tinfer::ErrorCode::no_room, "prompt of " + std::to_string(request.prompt.size()) +
                                                            " tokens does not fit: n_ctx = " + std::to_string(context.options().n_ctx));

    Stopwatch watch;
    result.stop = Generation::Stop::limit;
    while (status == tinfer::DecodeStatus::ok && static_cast<std::int64_t>(result.tokens.size()) != request.n_predict) {
        const auto token = sampler.sample(context, -1);
        if (vocab.is_eog(token) || std::find(ends.begin(), ends.end(), token) != ends.end()) {
            result.stop = vocab.is_eog(token) ? Generation::Stop::eog : Generation::Stop::string;
            break;
        }
        result.tokens.push_back(token);
        show(characters.push(vocab.piece(token)));
        if (stops.found()) {
            result.stop = Generation::Stop::string;
            break;
        }
        if (static_cast<std::int64_t>(result.tokens.size()) != request.n_predict) status = context.decode(std::span(&token, 1));
    }
    if (status == tinfer::DecodeStatus::cancelled) result.stop = Generation::Stop::interrupt;
    if (!stops.found()) {
        show(characters.flush());
        const std::string rest = stops.flush();
        result.text += rest;
        if (!rest.empty()) emit(rest);
    }
    result.generation_s = watch.seconds();
    return result;
}

json to_json(const Generation& generation, double load_s) {
    static constexpr std::array kStops{"eog", "limit", "string", "interrupt"};
    const auto rate = [](double n, double seconds) { return seconds > 0 ? n / seconds : 0.0; };
    const auto n = generation.tokens.size();
    json tokens = json::array();
    for (const auto token : generation.tokens) tokens.push_back(static_cast<std::int32_t>(token));
    return {
        {"text", generation.text},
        {"tokens", std::move(tokens)},
        {"stop", kStops[static_cast<std::size_t>(generation.stop)]},
        {"timings",
         {{"load_s", load_s},
          {"prompt_n", generation.prompt_n},
          {"prompt_s", generation.prompt_s},
          {"prompt_tps", rate(double(generation.prompt_n), generation.prompt_s)},
          {"generation_n", n},
          {"generation_s", generation.generation_s},
          {"generation_tps", rate(double(n), generation.generation_s)}}},
    };
}

}  // namespace cli
