// SPDX-License-Identifier: MIT
// What comes of a round: scores, drawn tokens, vectors, and the events that tell of them.
#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "serving/scheduler.hpp"

namespace tinfer::serving {

namespace {

double seconds_between(Clock::time_point begin, Clock::time_point end) noexcept {
    return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

// The tokens of a share are in the cache: the tree learns of them, and what can be told is told.
void Scheduler::advance(const Share& share) {
    Request& request = *share.request;
    if (request.is_over) return;
    if (request.pools()) return give_vector(request);
    const std::size_t before = request.n_done, done = before + share.n_tokens;
    request.n_done = done;
    sequences_.append(*request.seq, std::span(request.tokens).subspan(before, share.n_tokens));
    if (done == request.checkpoint) sequences_.keep_copy(*request.seq);
    const std::size_t again = std::min(done, request.n_most_done) - std::min(before, request.n_most_done);
    const std::size_t of_prompt = std::min(done, request.n_prompt) - std::min(before, request.n_prompt);
    request.n_most_done = std::max(request.n_most_done, done);
    request.n_computed += of_prompt - std::min(of_prompt, again);
    inbox_.update([&](EngineStats& stats) {
        stats.recomputed_tokens += again;
        stats.prompt_tokens += of_prompt - std::min(of_prompt, again);
    });

    EngineEvent event = progress(request);
    std::size_t row = share.first_row;
    if (request.wants_scores()) {
        const std::size_t scored = request.n_scored;
        score(request, share, event);
        row += request.n_scored - std::max<std::size_t>(scored, 1);
    }
    if (done == request.tokens.size()) draw(request, row, event);
    else deliver(request, event);
}

// The logits behind token i tell how probable token i + 1 was.
void Scheduler::score(Request& request, const Share& share, EngineEvent& event) {
    const Vocab& vocab = context_.model().vocab();
    const auto n_top = static_cast<std::size_t>(std::max(request.asked.n_top, 0));
    if (request.n_scored == 0) {
        event.prompt.push_back(
            {.token = request.tokens[0], .piece = std::string(vocab.piece(request.tokens[0], true))});
        request.n_scored = 1;
    }
    std::size_t row = share.first_row;
    const std::size_t end = std::min(request.n_done + 1, request.n_prompt);
    while (request.n_scored < end) {
        const Token token = request.tokens[request.n_scored];
        event.prompt.push_back(log_probs_.choice(context_.logits(static_cast<int>(row++)), token, n_top));
        event.prompt.back().piece = vocab.piece(token, true);
        ++request.n_scored;
    }
}

void Scheduler::draw(Request& request, std::size_t row, EngineEvent& event) {
    Generation& generation = *request.generation;
    if (request.kind == EngineRequest::Kind::score || request.asked.generation.n_predict == 0) {
        event.text = generation.end(StopReason::limit);
        event.stop = StopReason::limit;
        return finish(request, std::move(event));
    }
    if (!request.sampler_has_prompt)
        for (std::size_t i = 0; i < request.n_prompt; ++i) request.sampler->accept(request.tokens[i]);
    request.sampler_has_prompt = true;
    const auto index = static_cast<int>(row);
    const Token token = request.sampler->sample(context_, index);
    if (!request.first_token) request.first_token = Clock::now();
    event.text = generation.accept(token);
    if (generation.tokens().size() > event.n_generated) {
        TokenChoice choice{.token = token, .piece = {}};
        if (request.asked.n_top >= 0)
            choice = log_probs_.choice(context_.logits(index), token, static_cast<std::size_t>(request.asked.n_top));
        const auto& shown = request.asked.generation.shown;
        choice.piece = context_.model().vocab().piece(token, std::ranges::find(shown, token) != shown.end());
        event.tokens.push_back(std::move(choice));
        event.n_generated = generation.tokens().size();
        inbox_.update([](EngineStats& stats) { ++stats.generated_tokens; });
    }
    event.stop = generation.stop();
    if (!event.stop) {
        request.tokens.push_back(token);
        if (request.tokens.size() > n_longest_) {
            event.text += generation.end(StopReason::context);
            event.stop = StopReason::context;
        }
    }
    event.stop ? finish(request, std::move(event)) : deliver(request, event);
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

EngineEvent Scheduler::progress(const Request& request) const {
    EngineEvent event;
    event.request = request.id;
    event.n_prompt = request.n_prompt;
    event.n_prompt_done = std::min(std::max(request.n_done, request.n_most_done), request.n_prompt);
    event.n_cached = request.n_cached;
    event.n_generated = request.generation ? request.generation->tokens().size() : 0;
    event.seed = request.sampler ? request.sampler->seed() : 0;
    event.n_pushed_back = request.n_pushed_back;
    return event;
}

void Scheduler::deliver(Request& request, const EngineEvent& event) noexcept {
    try {
        if (request.sink) request.sink(event);
    } catch (...) {  // whoever listened does not any more
        request.sink = nullptr;
        request.is_cancelled = true;
    }
}

// Its sequence is free before the sink hears of the end.
void Scheduler::finish(Request& request, EngineEvent event) noexcept {
    if (request.is_over) return;
    request.is_over = true;
    leave_sequence(request, !event.error);
    const auto now = Clock::now();
    event.queued_s = seconds_between(request.submitted, request.started.value_or(now));
    if (request.first_token) event.first_token_s = seconds_between(request.submitted, *request.first_token);
    event.timings.prompt_n = request.n_computed;
    if (request.started) event.timings.prompt_s = seconds_between(*request.started, request.first_token.value_or(now));
    if (request.first_token) {
        event.timings.generation_s = seconds_between(*request.first_token, now);
        event.timings.generation_n = event.n_generated;
    }
    if (!request.started) inbox_.left_queue();
    inbox_.update([&](EngineStats& stats) {
        stats.cache_slots_used = sequences_.n_cache_slots() == 0 ? 0 : sequences_.n_cache_slots() - sequences_.n_free();
        ++(event.error ? stats.failed : event.stop == StopReason::interrupt ? stats.interrupted : stats.ended);
    });
    inbox_.leaves(request.id);
    deliver(request, event);
    request.sink = nullptr;
    inbox_.request_ended();
}

void Scheduler::interrupt(Request& request, bool timed_out) noexcept {
    if (request.is_over) return;
    try {
        EngineEvent event = progress(request);
        if (request.generation) event.text = request.generation->end(StopReason::interrupt);
        event.stop = StopReason::interrupt;
        event.timed_out = timed_out;
        finish(request, std::move(event));
    } catch (...) {
        fail_request(request, Error(ErrorCode::out_of_memory, "engine: an allocation failed"));
    }
}

void Scheduler::fail_request(Request& request, const Error& error) noexcept {
    if (request.is_over) return;
    EngineEvent event = progress(request);
    event.error = error;
    finish(request, std::move(event));
}

// What a decode threw is said to all that took part in it.
void Scheduler::fail_round(const Error& error) noexcept {
    context_.abandon();
    for (const auto& request : running_) fail_request(*request, error);
    sweep();
}

void Scheduler::publish() {
    std::vector<SlotInfo> slots;
    const auto now = Clock::now();
    for (const auto& list : {&running_, &waiting_})
        for (const auto& request : *list) {
            SlotInfo slot{.request = request->id, .kind = request->kind, .seq = request->seq};
            if (request->seq)
                slot.state = request->is_generating() ? SlotInfo::State::generating : SlotInfo::State::reading;
            slot.n_prompt = request->n_prompt;
            slot.n_prompt_done = std::min(std::max(request->n_done, request->n_most_done), request->n_prompt);
            slot.n_cached = request->n_cached;
            slot.n_generated = request->generation ? request->generation->tokens().size() : 0;
            slot.seconds = seconds_between(request->submitted, now);
            slots.push_back(slot);
        }
    inbox_.publish(std::move(slots));
    inbox_.update([&](EngineStats& stats) {
        stats.running = running_.size();
        stats.kept = sequences_.n_kept();
        stats.cache_slots_used = sequences_.n_cache_slots() == 0 ? 0 : sequences_.n_cache_slots() - sequences_.n_free();
        stats.dropped_sequences = sequences_.n_dropped();
    });
}

}  // namespace tinfer::serving
