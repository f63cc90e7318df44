// SPDX-License-Identifier: MIT
// The engine's state of a request.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "generation/drafts.hpp"
#include "serving/prefix_tree.hpp"
#include "serving/request_trace.hpp"
#include "tinfer/engine.hpp"

namespace tinfer::serving {

using Clock = std::chrono::steady_clock;

struct Request {
    RequestId id{};
    EngineRequest::Kind kind{};
    EngineRequest asked;        ///< fields that the members below took over are empty
    std::vector<Token> tokens;  ///< the prompt, then the sampled tokens
    std::size_t n_prompt = 0;
    AdapterSet adapters;
    EventSink sink;
    std::optional<Sampler> sampler;  ///< these three: only for text generation
    std::optional<Generation> generation;
    std::optional<generation::Drafts> drafts;
    std::shared_ptr<Drafter> drafter;     ///< lent by the engine
    std::shared_ptr<RequestTrace> trace;  ///< null: no observers
    Attachment attachment;                ///< of the trace, since the request first ran

    std::optional<SeqId> seq;         ///< while it runs
    std::size_t n_done = 0;           ///< tokens in its sequence
    std::size_t n_most_done = 0;      ///< largest n_done so far: tokens below it are being recomputed
    std::size_t n_scored = 0;         ///< prompt tokens whose scores were delivered
    std::size_t n_cached = 0;         ///< tokens found in the cache when it first ran
    std::size_t checkpoint = 0;       ///< number of tokens at which a copy of the sequence is kept; 0: none
    std::size_t next_keep = 0;        ///< number of tokens at which the sequence goes to the store next; 0: never
    double round_s = 0, plain_s = 0;  ///< of rounds since it generates: seconds, and those without drafts
    std::size_t n_pushed_back = 0, n_computed = 0, n_drafted = 0, n_accepted = 0;
    std::uint32_t suspects = 0;       ///< not 0: id of the part of a round that threw, which runs before all others
    bool has_grammar = false;         ///< the sampler's constraint is a SlicedConstraint
    bool sampler_has_prompt = false;  ///< the sampler's penalties know the prompt
    bool may_wait = true;             ///< for an older request with the same prefix
    bool is_held = false;             ///< its next token waits for the constraint's mask; it takes part in no round
    std::vector<float> held_row;      ///< the logits of that token
    std::optional<Clock::time_point> paused_since;  ///< as the engine's thread has seen it
    bool is_over = false;                           ///< its last event was delivered
    /// By Engine::cancel(), or because its sink threw; by Engine::pause(). These two are for any thread.
    std::atomic<bool> is_cancelled{false}, is_paused{false};

    Clock::time_point submitted, deadline = Clock::time_point::max();
    std::optional<Clock::time_point> started, first_token;

    [[nodiscard]] std::size_t n_left() const noexcept { return tokens.size() - n_done; }
    [[nodiscard]] bool is_generating() const noexcept { return tokens.size() > n_prompt && n_left() == 1; }
    /// Takes part in no round. One whose round threw is paused when it is known for whom.
    [[nodiscard]] bool sits_out() const noexcept { return is_held || (paused_since && suspects == 0); }
    [[nodiscard]] bool wants_scores() const noexcept { return asked.score_prompt && n_scored < n_prompt; }
    [[nodiscard]] bool pools() const noexcept {
        return kind == EngineRequest::Kind::embed || kind == EngineRequest::Kind::rank;
    }
    /// Tokens that it may share: not the last one, whose logits are needed, and none if all have to be scored.
    [[nodiscard]] std::size_t n_shareable() const noexcept { return wants_scores() ? 0 : tokens.size() - 1; }
};

}  // namespace tinfer::serving
