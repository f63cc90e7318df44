// SPDX-License-Identifier: MIT
// The results of a round: scores, sampled tokens, vectors.
#include <algorithm>

#include "base/error.hpp"
#include "serving/scheduler.hpp"

namespace tinfer::serving {

// Handles the results of one request's part of a committed round: adds its tokens to the prefix tree, and delivers
// scores, the sampled token or the vector.
void Scheduler::advance(RoundPart& part) {
    Request& request = *part.request;
    if (request.is_over) return;
    if (request.pools()) return give_vector(request);
    move_on(request, part.n_tokens);
    EngineEvent event = progress(request);
    std::size_t row = part.first_row;
    if (request.wants_scores()) {
        const std::size_t scored = request.n_scored;
        score(request, part, event);
        row += request.n_scored - std::max<std::size_t>(scored, 1);
    }
    if (request.n_left() == 0) draw(request, row, event);
    else deliver(request, event);
}

void Scheduler::move_on(Request& request, std::size_t n_tokens) {
    const std::size_t before = request.n_done, done = before + n_tokens;
    request.n_done = done;
    sequences_.append(*request.seq, std::span(request.tokens).subspan(before, n_tokens));
    if (done == request.checkpoint) sequences_.keep_copy(*request.seq);
    if (done == request.next_keep) {
        keep_in_store(request);
        plan_next_keep(request);
    }
    const std::size_t again = std::min(done, request.n_most_done) - std::min(before, request.n_most_done);
    const std::size_t of_prompt = std::min(done, request.n_prompt) - std::min(before, request.n_prompt);
    request.n_most_done = std::max(request.n_most_done, done);
    request.n_computed += of_prompt - std::min(of_prompt, again);
    inbox_.update([&](EngineStats& stats) {
        stats.recomputed_tokens += again;
        stats.prompt_tokens += of_prompt - std::min(of_prompt, again);
    });
}

// Handles a part whose drafted tokens were verified. The sampled tokens are delivered even if the round was not
// committed; the request then computes them again like a prompt.
void Scheduler::settle(RoundPart& part, bool is_committed) noexcept {
    Request& request = *part.request;
    if (request.is_over) return;
    try {
        if (is_committed) move_on(request, part.n_kept);
        else release(request);  // its row is computed again
        if (part.error) return fail_request(request, *part.error);
        request.n_drafted += part.n_drafted;
        request.n_accepted += part.n_kept - 1;
        inbox_.update([&](EngineStats& stats) {
            stats.drafted_tokens += part.n_drafted;
            stats.accepted_tokens += part.n_kept - 1;
        });
        part.event.stop ? finish(request, std::move(part.event)) : deliver(request, part.event);
    } catch (...) {
        fail_request(request, as_error(std::current_exception()));
    }
}

// The logits of token i give the probability of token i + 1.
void Scheduler::score(Request& request, const RoundPart& part, EngineEvent& event) {
    const Vocab& vocab = context_.model().vocab();
    const auto n_top = static_cast<std::size_t>(std::max(request.asked.n_top, 0));
    if (request.n_scored == 0) {
        event.prompt.push_back(
            {.token = request.tokens[0], .piece = std::string(vocab.piece(request.tokens[0], true))});
        request.n_scored = 1;
    }
    std::size_t row = part.first_row;
    const std::size_t end = std::min(request.n_done + 1, request.n_prompt);
    while (request.n_scored < end) {
        const Token token = request.tokens[request.n_scored];
        event.prompt.push_back(log_probs_.choice(context_.logits(static_cast<int>(row++)), token, n_top, vocab.size(),
                                                 request.asked.prompt_scored));
        event.prompt.back().piece = vocab.piece(token, true);
        ++request.n_scored;
    }
}

void Scheduler::draw(Request& request, std::size_t row, EngineEvent& event) {
    if (request.kind == EngineRequest::Kind::score || request.asked.generation.n_predict == 0) {
        event.text = request.generation->end(StopReason::limit);
        event.stop = StopReason::limit;
        return finish(request, std::move(event));
    }
    if (!request.sampler_has_prompt)
        for (std::size_t i = 0; i < request.n_prompt; ++i) request.sampler->accept(request.tokens[i]);
    request.sampler_has_prompt = true;
    (void)draw_one(request, row, event);
    event.stop ? finish(request, std::move(event)) : deliver(request, event);
}

// Samples a token from a row of logits. Unless it ends the answer, it becomes the request's next token. False where the
// token waits for the mask of a constraint.
bool Scheduler::draw_one(Request& request, std::size_t row, EngineEvent& event) {
    const auto index = static_cast<int>(row);
    grammar::SlicedConstraint* const constraint = sliced(request);
    const std::optional<Token> token =
        constraint == nullptr ? request.sampler->sample(context_, index) : draw_or_hold(request, *constraint, index);
    if (token) take_token(request, *token, context_.logits(index), event);
    return token.has_value();
}

// Handles a token that was sampled from the logits.
void Scheduler::take_token(Request& request, Token token, std::span<const float> logits, EngineEvent& event) {
    Generation& generation = *request.generation;
    if (!request.first_token) request.first_token = Clock::now();
    event.text += generation.accept(token);
    if (generation.tokens().size() > event.n_generated) {
        TokenChoice choice{.token = token, .piece = {}};
        if (request.asked.n_top >= 0)
            choice = log_probs_.choice(logits, token, static_cast<std::size_t>(request.asked.n_top),
                                       context_.model().vocab().size());
        const auto& shown = request.asked.generation.shown;
        choice.piece = context_.model().vocab().piece(token, std::ranges::find(shown, token) != shown.end());
        event.tokens.push_back(std::move(choice));
        event.n_generated = generation.tokens().size();
        inbox_.update([](EngineStats& stats) { ++stats.generated_tokens; });
    }
    event.stop = generation.stop();
    if (event.stop == StopReason::eog) event.end_token = token;
    event.stop_string = generation.stop_string();
    if (event.stop) return;
    request.tokens.push_back(token);
    if (request.tokens.size() > n_longest_) {
        event.text += generation.end(StopReason::context);
        event.stop = generation.stop();  // a stop string where what was held back has one
        event.stop_string = generation.stop_string();
        return;
    }
    if (!request.drafts) return;
    try {
        request.drafts->push({&token, 1});
    } catch (...) {
        stop_drafting(request);
    }
}

void Scheduler::give_vector(Request& request) {
    request.n_done = request.n_computed = request.tokens.size();
    inbox_.update([&](EngineStats& stats) { stats.prompt_tokens += request.n_done; });
    EngineEvent event = progress(request);
    const auto vector = context_.pooled(*request.seq);
    event.vector.assign(vector.begin(), vector.end());
    event.stop = StopReason::limit;
    finish(request, std::move(event));
}

}  // namespace tinfer::serving
