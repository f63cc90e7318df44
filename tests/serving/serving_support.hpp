// SPDX-License-Identifier: MIT
// Requests with seeds, and what came of them, for tests of the engine.
#pragma once

#include <doctest/doctest.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "support/tiny_model.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer::test {

/// All events of one request, joined.
struct Answer {
    std::string text;
    std::vector<TokenChoice> tokens, prompt;
    std::vector<float> vector;
    std::optional<StopReason> stop;
    std::optional<Error> error;
    std::size_t n_cached = 0, n_generated = 0, n_events = 0, n_ends = 0, n_pushed_back = 0;
    bool timed_out = false;
    std::shared_ptr<const RequestCounts> touched;
    std::shared_ptr<const Receipt> receipt;
    std::shared_ptr<const RoutedExperts> routed;

    /// What must not depend on anything but the request: text, ids, bits of log-probabilities, how it ended.
    [[nodiscard]] std::string bits() const {
        std::string out = text;
        const auto add = [&](const auto& value) { out.append(reinterpret_cast<const char*>(&value), sizeof value); };
        for (const auto* list : {&tokens, &prompt})
            for (const TokenChoice& choice : *list) {
                add(choice.token);
                out += choice.piece;
                add(choice.log_prob.value_or(1));
                for (const auto& [token, log_prob] : choice.top) {
                    add(token);
                    add(log_prob);
                }
            }
        for (const float value : vector) add(value);
        out += stop ? to_string(*stop) : "none";
        out += error ? error->what() : "";
        return out;
    }
};

/// Sinks for any number of requests, and a wait for all of them.
class Answers {
public:
    [[nodiscard]] EventSink sink(std::size_t i) {
        const std::lock_guard lock(mutex_);
        answers_[i];
        ++open_;
        return [this, i](const EngineEvent& event) {
            const std::lock_guard guard(mutex_);
            Answer& answer = answers_[i];
            answer.text += event.text;
            answer.tokens.insert(answer.tokens.end(), event.tokens.begin(), event.tokens.end());
            answer.prompt.insert(answer.prompt.end(), event.prompt.begin(), event.prompt.end());
            ++answer.n_events;
            answer.n_cached = event.n_cached;
            answer.n_generated = event.n_generated;
            answer.n_pushed_back = event.n_pushed_back;
            if (!event.ended()) return;
            answer.vector = event.vector;
            answer.stop = event.stop;
            answer.error = event.error;
            answer.timed_out = event.timed_out;
            answer.touched = event.touched;
            answer.receipt = event.receipt;
            answer.routed = event.routed;
            ++answer.n_ends;
            --open_;
            changed_.notify_all();
        };
    }
    /// A sink that threw is not called again.
    void give_up() noexcept {
        const std::lock_guard lock(mutex_);
        --open_;
        changed_.notify_all();
    }
    void wait() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return open_ == 0; });
    }
    /// Behind wait().
    [[nodiscard]] const Answer& operator[](std::size_t i) { return answers_.at(i); }
    [[nodiscard]] std::vector<std::string> bits() {
        std::vector<std::string> out;
        for (const auto& [i, answer] : answers_) out.push_back(answer.bits());
        return out;
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::size_t, Answer> answers_;
    std::size_t open_ = 0;
};

/// Tokens that the answer drew.
[[nodiscard]] inline std::vector<Token> ids_of(const Answer& answer) {
    std::vector<Token> out;
    for (const auto& choice : answer.tokens) out.push_back(choice.token);
    return out;
}

/// n different requests with seeds: prompts that share beginnings or do not, all kinds of samplers, scores, stop
/// strings, log-probabilities.
[[nodiscard]] inline std::vector<EngineRequest> mixed_requests(const Model& model, std::size_t n, int most_prompt,
                                                               int most_predict) {
    const int n_vocab = static_cast<int>(std::min<std::size_t>(model.vocab().size(), 90));
    const auto common = random_tokens(most_prompt, n_vocab, 7);
    std::vector<EngineRequest> requests;
    for (std::size_t i = 0; i < n; ++i) {
        const auto k = static_cast<int>(i);
        EngineRequest request;
        const int n_common = i % 3 == 0 ? 0 : most_prompt * (k % 7) / 10;
        request.prompt.assign(common.begin(), common.begin() + n_common);
        for (const Token token : random_tokens(1 + k * 5 % (most_prompt / 3), n_vocab, 100 + i))
            request.prompt.push_back(token);
        request.sampler = {.temp = i % 4 == 0 ? 0.0f : 0.9f, .seed = static_cast<std::uint32_t>(1000 + i)};
        if (i % 5 == 1) request.sampler.penalty_repeat = 1.3f;
        if (i % 11 == 3) request.sampler.mirostat = 2;
        request.generation.n_predict = 1 + k * 7 % most_predict;
        if (i % 6 == 2) request.n_top = k % 4;
        if (i % 9 == 4) {
            request.kind = EngineRequest::Kind::score;
            request.n_top = 2;
        }
        if (i % 10 == 5) request.score_prompt = true;
        if (i % 8 == 6) request.generation.stop = {"a", "t1"};
        if (i % 13 == 7) request.share_prefix = false;
        requests.push_back(std::move(request));
    }
    return requests;
}

/// One at a time, each on an engine that nobody used before it, or all on one.
[[nodiscard]] inline std::vector<std::string> alone(const Model& model, const std::vector<EngineRequest>& requests,
                                                    const EngineOptions& options) {
    Answers answers;
    Engine engine(model, options);
    for (std::size_t i = 0; i < requests.size(); ++i) {
        engine.submit(requests[i], answers.sink(i));
        answers.wait();
    }
    return answers.bits();
}

/// All at once, in the order of `order`.
[[nodiscard]] inline std::vector<std::string> together(Engine& engine, const std::vector<EngineRequest>& requests,
                                                       const std::vector<std::size_t>& order) {
    Answers answers;
    for (const std::size_t i : order) engine.submit(requests[i], answers.sink(i));
    answers.wait();
    return answers.bits();
}

}  // namespace tinfer::test
