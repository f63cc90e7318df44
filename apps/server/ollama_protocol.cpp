// SPDX-License-Identifier: MIT
// Answers of /api/chat and /api/generate.
#include <array>
#include <cstdio>
#include <ctime>
#include <utility>

#include "ollama.hpp"
#include "token_score.hpp"

namespace tinfer::server::ollama {

namespace {

using Clock = std::chrono::steady_clock;

std::int64_t nanoseconds(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

/// A document as a line of a stream. Readers such as Python's end lines where Unicode does, too: at NEL and at the
/// separators of lines and paragraphs, which can only stand in strings here.
std::string stream_line(const Json& document) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kEscapes{
        {{"\xC2\x85", "\\u0085"}, {"\xE2\x80\xA8", "\\u2028"}, {"\xE2\x80\xA9", "\\u2029"}}};
    std::string line = to_line(document);
    for (const auto& [raw, escape] : kEscapes)
        for (std::size_t at = 0; (at = line.find(raw, at)) != line.npos; at += escape.size())
            line.replace(at, raw.size(), escape);
    return line += '\n';
}

std::string now_text() { return time_text(std::chrono::system_clock::now()); }

class Lines : public Protocol {
public:
    Lines(Kind kind, const Service& service, const Job& job, std::string model, std::chrono::nanoseconds load_time)
        : kind_(kind), service_(service), job_(job), model_(std::move(model)), load_time_(load_time) {}

    [[nodiscard]] std::string_view stream_type() const override { return "application/x-ndjson"; }
    [[nodiscard]] std::string_view ping() const override { return {}; }
    /// White space in front of the next object.
    [[nodiscard]] std::string_view probe() const override { return " "; }

    std::string more(std::size_t, const Choice& choice, std::span<const Piece> added,
                     const tinfer::EngineEvent& from) override {
        std::string out;
        Json scores = scores_of(from);
        std::size_t n_calls = choice.answer.tool_calls.size();
        for (const Piece& piece : added) n_calls -= piece.kind == PartKind::call ? 1 : 0;
        const auto add = [&](Json document) {
            if (!scores.is_null()) document["logprobs"] = std::exchange(scores, Json());
            if (!std::exchange(has_warned_, true) && !job_.warnings.empty()) document["warnings"] = job_.warnings;
            out += stream_line(document);
        };
        for (const Piece& piece : added) {
            if (piece.kind == PartKind::content) add(part(piece.text));
            else if (piece.kind == PartKind::reasoning) add(part("", piece.text));
            else add(part("", "", Json::array({call_of(piece.call, n_calls++)})));
        }
        if (added.empty()) add(part(""));
        return out;
    }

    std::string end_choice(std::size_t, const Choice&) override { return {}; }

    std::string end(const std::vector<Choice>& choices) override {
        Json last = part("");
        finish(last, choices);
        if (!std::exchange(has_warned_, true) && !job_.warnings.empty()) last["warnings"] = job_.warnings;
        return stream_line(last);
    }

    std::string failed(const ApiError& error) override { return stream_line(error.to_text_json()); }

    std::size_t gather(std::size_t, const tinfer::EngineEvent& from, bool is_streaming) override {
        std::size_t bytes = 0;
        if (gives_context()) {
            const auto before = tokens_.capacity();
            for (const auto& token : from.tokens) tokens_.push_back(token.token);
            bytes += (tokens_.capacity() - before) * sizeof(tinfer::Token);
        }
        if (is_streaming || job_.request.n_top < 0) return bytes;
        const auto before = scores_.size();
        for (const auto& token : from.tokens) {
            if (!scores_.empty()) scores_ += ',';
            scores_ += to_line(token_score(service_.model.vocab(), token, job_.n_top));
        }
        return bytes + scores_.size() - before;
    }

    std::string whole(const std::vector<Choice>& choices) override {
        const auto& answer = choices.front().answer;
        Json calls = Json::array();
        for (std::size_t i = 0; i < answer.tool_calls.size(); ++i) calls.push_back(call_of(answer.tool_calls[i], i));
        Json document = part(answer.content, answer.reasoning, std::move(calls));
        finish(document, choices);
        if (!job_.warnings.empty()) document["warnings"] = job_.warnings;
        std::string out = to_line(document);
        if (job_.request.n_top >= 0) {
            open_member(out, "logprobs");
            out += '[' + std::move(scores_) + "]}";
        }
        return out;
    }

private:
    [[nodiscard]] bool gives_context() const { return kind_ == Kind::generate && job_.is_chat; }

    [[nodiscard]] Json part(std::string_view text, std::string_view thoughts = {}, Json calls = {}) const {
        Json document{{"model", model_}, {"created_at", now_text()}};
        if (kind_ == Kind::generate) {
            document["response"] = text;
            if (!thoughts.empty()) document["thinking"] = thoughts;
        } else {
            Json message{{"role", "assistant"}, {"content", text}};
            if (!thoughts.empty()) message["thinking"] = thoughts;
            if (!calls.empty()) message["tool_calls"] = std::move(calls);
            document["message"] = std::move(message);
        }
        document["done"] = false;
        return document;
    }

    static Json call_of(const tinfer::ToolCall& call, std::size_t index) {
        auto arguments = Json::try_parse(call.arguments);
        if (!arguments || !arguments->is_object()) arguments = Json::object();
        return {{"id", call.id},
                {"function", {{"index", index}, {"name", call.name}, {"arguments", *std::move(arguments)}}}};
    }

    [[nodiscard]] Json scores_of(const tinfer::EngineEvent& from) const {
        if (job_.request.n_top < 0) return {};
        Json scores = Json::array();
        for (const auto& token : from.tokens) scores.push_back(token_score(service_.model.vocab(), token, job_.n_top));
        return scores;
    }

    /// What the last object has.
    void finish(Json& document, const std::vector<Choice>& choices) const {
        const Choice& choice = choices.front();
        const Usage sums = usage_of(job_, choices);
        const auto& times = choice.last.timings;
        const auto total = std::chrono::nanoseconds(Clock::now() - begin_) + load_time_;
        document.update({{"done", true},
                         {"done_reason", choice.finish_reason == "length" ? "length" : "stop"},
                         {"total_duration", total.count()},
                         {"load_duration", load_time_.count()},
                         {"prompt_eval_count", sums.prompt},
                         {"prompt_eval_duration", nanoseconds(times.prompt_s)},
                         {"eval_count", sums.generated},
                         {"eval_duration", nanoseconds(times.generation_s)},
                         {"cached_tokens", sums.cached},
                         {"system_fingerprint", service_.fingerprint()}});
        if (sums.dropped > 0) document["truncated_tokens"] = sums.dropped;
        if (gives_context()) document["context"] = context_of(choice);
        add_evidence(document, choice);
    }

    /// The ids of prompt and answer. What ended the answer is among them, so that the next turn begins behind it.
    [[nodiscard]] Json context_of(const Choice& choice) const {
        const auto& vocab = service_.model.vocab();
        Json ids = Json::array();
        const auto add = [&](tinfer::Token token) { ids.push_back(static_cast<std::int32_t>(token)); };
        for (const auto token : job_.prompts.front().tokens) add(token);
        for (const auto token : tokens_) add(token);
        if (choice.last.stop == tinfer::StopReason::eog)
            if (const auto last = vocab.eot() ? vocab.eot() : vocab.eos()) add(*last);
        return ids;
    }

    const Kind kind_;
    const Service& service_;
    const Job& job_;
    const std::string model_;
    const Clock::time_point begin_ = Clock::now();
    const std::chrono::nanoseconds load_time_;
    std::vector<tinfer::Token> tokens_;  ///< of the answer, where they are given back
    std::string scores_;                 ///< of an answer that is not streamed
    bool has_warned_ = false;
};

}  // namespace

std::unique_ptr<Protocol> protocol(Kind kind, const Service& service, const Job& job, std::string model,
                                   std::chrono::nanoseconds load_time) {
    return std::make_unique<Lines>(kind, service, job, std::move(model), load_time);
}

Json nothing(Kind kind, const Ask& ask) {
    Json document{{"model", ask.model}, {"created_at", now_text()}};
    if (kind == Kind::chat) document["message"] = {{"role", "assistant"}, {"content", ""}};
    else document["response"] = "";
    document["done"] = true;
    document["done_reason"] = ask.keep_alive == 0.0 ? "unload" : "load";
    return document;
}

std::string time_text(std::chrono::system_clock::time_point time) {
    const auto since = time.time_since_epoch();
    const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
    const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(since - seconds).count();
    const std::time_t whole = seconds.count();
    std::tm parts{};
    (void)gmtime_r(&whole, &parts);
    std::array<char, 64> text{};
    const int n = std::snprintf(text.data(), text.size(), "%04d-%02d-%02dT%02d:%02d:%02d.%06d+00:00",
                                parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min,
                                parts.tm_sec, static_cast<int>(micros));
    return {text.data(), static_cast<std::size_t>(n)};
}

std::string with_tag(const std::string& name) { return name.find(':') == std::string::npos ? name + ":latest" : name; }

}  // namespace tinfer::server::ollama
