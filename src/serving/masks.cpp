// SPDX-License-Identifier: MIT
// Tokens that wait for the mask of their constraint. Most tokens need none, and most masks take microseconds. One that
// takes longer is made by other threads; its request keeps the row of logits and takes part in no round until then, so
// that the other requests go on.
#include <algorithm>
#include <vector>

#include "base/access.hpp"
#include "base/error.hpp"
#include "runtime/context.hpp"
#include "serving/scheduler.hpp"

namespace tinfer::serving {

namespace {

constexpr std::uint64_t kFirstSteps = 20'000;  // a few milliseconds, on the engine's thread

/// nullptr for a request without a grammar.
grammar::SlicedConstraint* constraint_of(Request& request) noexcept {
    return request.has_grammar ? static_cast<grammar::SlicedConstraint*>(request.sampler->constraint()) : nullptr;
}

}  // namespace

// The constraint of a request whose tokens may wait. Observers of the request itself are told of a sample in the round
// of its logits, so with them none waits.
grammar::SlicedConstraint* Scheduler::sliced(Request& request) const noexcept {
    if (request.trace != nullptr) return nullptr;
    return constraint_of(request);
}

std::optional<Token> Scheduler::draw_or_hold(Request& request, grammar::SlicedConstraint& constraint, int row) {
    constraint.pause_after(kFirstSteps);
    try {
        const Token token = request.sampler->sample(context_, row);
        constraint.pause_after(0);
        return token;
    } catch (const grammar::Paused&) {
        constraint.pause_after(0);
    }
    const auto logits = context_.logits(row);
    request.held_row.assign(logits.begin(), logits.end());
    if (mask_makers_.begin(request.id, constraint)) {
        request.is_held = true;
        return std::nullopt;
    }
    request.held_row = {};
    return request.sampler->sample(context_, row);
}

// Tells the engine's observers of a token that waited. Its run is over, and the last one of the session stands for it.
void Scheduler::tell_of_sample(Request& request, Token token) {
    auto& state = detail::impl_of(context_);
    if (!state.session->active()) return;
    SampleEvent event;
    event.token = token;
    const auto left = request.sampler->probs(static_cast<std::size_t>(context_.model().info().n_vocab));
    event.candidates_left = static_cast<std::uint32_t>(left.size());
    const auto chosen = std::ranges::find(left, static_cast<std::int32_t>(token), &Candidate::id);
    event.p = chosen == left.end() ? 0 : chosen->p;
    state.session->on_sample(event, state.sample_flag());
}

// Draws the tokens whose masks are made.
void Scheduler::draw_held() noexcept {
    while (const auto made = mask_makers_.take_made()) {
        const auto found = std::ranges::find(running_, made->id, [](const Owned& request) { return request->id; });
        if (found == running_.end()) continue;
        Request& request = **found;
        const std::vector<float> row = std::move(request.held_row);
        request.held_row = {};
        request.is_held = false;
        try {
            if (made->thrown) std::rethrow_exception(made->thrown);
            EngineEvent event = progress(request);
            const Token token = request.sampler->sample(row);
            tell_of_sample(request, token);
            take_token(request, token, row, event);
            event.stop ? finish(request, std::move(event)) : deliver(request, event);
        } catch (...) {
            fail_request(request, as_error(std::current_exception()));
        }
    }
    sweep();
}

// Ends waiting. The sampler knows that the next draw needs the mask.
void Scheduler::release(Request& request) noexcept {
    if (!request.is_held) return;
    mask_makers_.forget(request.id);
    request.is_held = false;
    request.held_row = {};
}

void Scheduler::count_grammars() {
    std::vector<const Grammar::Impl*> grammars;
    for (const auto* list : {&running_, &waiting_})
        for (const auto& request : *list)
            if (const auto* constraint = constraint_of(*request)) grammars.push_back(constraint->grammar().get());
    std::ranges::sort(grammars);
    grammars.erase(std::unique(grammars.begin(), grammars.end()), grammars.end());
    std::uint64_t bytes = 0;
    for (const Grammar::Impl* grammar : grammars) bytes += grammar->memory();
    grammar_bytes_ = bytes;
}

}  // namespace tinfer::serving
