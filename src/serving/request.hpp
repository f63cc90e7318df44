// SPDX-License-Identifier: MIT
// A request while the engine has it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "generation/guesses.hpp"
#include "serving/prefix_tree.hpp"
#include "serving/request_trace.hpp"
#include "tinfer/engine.hpp"

namespace tinfer::serving {

using Clock = std::chrono::steady_clock;

struct Request {
    RequestId id{};
    EngineRequest::Kind kind{};
    EngineRequest asked;        ///< without what the members below took from it
    std::vector<Token> tokens;  ///< the prompt, and behind it what was drawn
    std::size_t n_prompt = 0;
    AdapterSet adapters;
    EventSink sink;
    std::optional<Sampler> sampler;  ///< these three: of requests for text
    std::optional<Generation> generation;
    std::optional<generation::Guesses> guesses;
    std::shared_ptr<Drafter> drafter;     ///< of the engine's few, while it has one of them
    std::shared_ptr<RequestTrace> trace;  ///< null: nobody watches
    Attachment attachment;                ///< of the trace, from when it first ran

    std::optional<SeqId> seq;     ///< while it runs
    std::size_t n_done = 0;       ///< tokens that its sequence holds
    std::size_t n_most_done = 0;  ///< the same at most so far: tokens before it are computed again
    std::size_t n_scored = 0;     ///< tokens of the prompt whose scores were given
    std::size_t n_cached = 0;     ///< when it first ran
    std::size_t checkpoint = 0;   ///< a copy of the sequence is kept when it has so many tokens; 0: none
    std::size_t next_keep = 0;    ///< the store takes what there is when it has so many tokens; 0: no more
    std::size_t n_pushed_back = 0, n_computed = 0, n_drafted = 0, n_accepted = 0;
    std::uint32_t suspicion = 0;      ///< not 0: of the part of a round that threw, computed before all others
    bool sampler_has_prompt = false;  ///< its tokens count for penalties
    bool may_wait = true;             ///< for an older request that reads the same tokens
    bool is_cancelled = false;
    bool is_over = false;  ///< its last event was given

    Clock::time_point submitted, deadline = Clock::time_point::max();
    std::optional<Clock::time_point> started, first_token;

    [[nodiscard]] std::size_t n_left() const noexcept { return tokens.size() - n_done; }
    [[nodiscard]] bool is_generating() const noexcept { return tokens.size() > n_prompt && n_left() == 1; }
    [[nodiscard]] bool wants_scores() const noexcept { return asked.score_prompt && n_scored < n_prompt; }
    [[nodiscard]] bool pools() const noexcept {
        return kind == EngineRequest::Kind::embed || kind == EngineRequest::Kind::rank;
    }
    /// Tokens that it may share: the logits of the last one are needed, and of every one where they are scored.
    [[nodiscard]] std::size_t n_shareable() const noexcept { return wants_scores() ? 0 : tokens.size() - 1; }
};

}  // namespace tinfer::serving
