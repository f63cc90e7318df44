// SPDX-License-Identifier: MIT
// Events for sinks, and the state that other threads can see.
#include <algorithm>

#include "base/error.hpp"
#include "serving/scheduler.hpp"

namespace tinfer::serving {

namespace {

double seconds_between(Clock::time_point begin, Clock::time_point end) noexcept {
    return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

EngineEvent Scheduler::progress(const Request& request) const noexcept {
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
    } catch (...) {  // a sink that throws is not called again
        request.sink = nullptr;
        request.is_cancelled = true;
    }
}

// Ends a request. Its sequence is released before the sink gets the last event.
void Scheduler::finish(Request& request, EngineEvent event) noexcept {
    if (request.is_over) return;
    request.is_over = true;
    add_trace(request, event);
    add_routes(request, event);
    request.attachment = {};
    leave_sequence(request, !event.error);
    stop_drafting(request);
    n_may_run_ = n_running_;
    const auto now = Clock::now();
    event.queued_s = seconds_between(request.submitted, request.started.value_or(now));
    if (request.first_token) event.first_token_s = seconds_between(request.submitted, *request.first_token);
    event.timings.prompt_n = request.n_computed;
    if (request.started) event.timings.prompt_s = seconds_between(*request.started, request.first_token.value_or(now));
    if (request.first_token) {
        event.timings.generation_s = seconds_between(*request.first_token, now);
        event.timings.generation_n = event.n_generated;
    }
    event.timings.drafted_n = request.n_drafted;
    event.timings.accepted_n = request.n_accepted;
    if (request.round_s > 0) event.timings.plain_s = event.timings.generation_s * request.plain_s / request.round_s;
    if (!request.started) inbox_.left_queue();
    inbox_.update([&](EngineStats& stats) {
        stats.cache_slots_used = sequences_.n_cache_slots() == 0 ? 0 : sequences_.n_cache_slots() - sequences_.n_free();
        ++(event.error ? stats.failed : event.stop == StopReason::interrupt ? stats.interrupted : stats.ended);
    });
    inbox_.leaves(request.id);
    deliver(request, event);
    request.sink = nullptr;
    inbox_.request_ended(request);
}

void Scheduler::add_trace(const Request& request, EngineEvent& event) noexcept {
    if (request.trace == nullptr) return;
    try {
        event.touched = request.trace->counts();
        if (event.stop && request.sampler)
            event.receipt = request.trace->receipt(std::span(request.tokens).first(request.n_prompt), *request.sampler,
                                                   request.asked.generation, *event.stop);
    } catch (...) {
        event.stop.reset();
        event.error = as_error(std::current_exception());
    }
}

void Scheduler::add_routes(const Request& request, EngineEvent& event) noexcept {
    if (!request.asked.routed_experts || event.error || !request.seq) return;
    try {
        event.routed = std::make_shared<RoutedExperts>(routes_->of(*request.seq, request.n_done));
    } catch (...) {
        event.stop.reset();
        event.error = as_error(std::current_exception());
    }
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

void Scheduler::publish() noexcept {
    try {
        std::vector<SlotInfo> slots;
        const auto now = Clock::now();
        for (const auto& list : {&running_, &waiting_})
            for (const auto& request : *list) {
                SlotInfo slot{.request = request->id, .kind = request->kind, .seq = request->seq};
                if (request->seq)
                    slot.state = request->is_generating() || request->is_held ? SlotInfo::State::generating
                                                                              : SlotInfo::State::reading;
                slot.n_prompt = request->n_prompt;
                slot.n_prompt_done = std::min(std::max(request->n_done, request->n_most_done), request->n_prompt);
                slot.n_cached = request->n_cached;
                slot.n_generated = request->generation ? request->generation->tokens().size() : 0;
                slot.seconds = seconds_between(request->submitted, now);
                slots.push_back(slot);
            }
        inbox_.publish(std::move(slots));
        count_grammars();
    } catch (...) {  // out of memory: keep the previous ones
    }
    inbox_.update([&](EngineStats& stats) {
        stats.running = running_.size();
        stats.kept = sequences_.n_kept();
        stats.cache_slots_used = sequences_.n_cache_slots() == 0 ? 0 : sequences_.n_cache_slots() - sequences_.n_free();
        stats.dropped_sequences = sequences_.n_dropped();
        if (counts_ != nullptr) stats.bytes = counts_->counts();
        if (store_) stats.store = store_->stats();
    });
}

}  // namespace tinfer::serving
