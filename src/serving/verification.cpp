// SPDX-License-Identifier: MIT
// Speculative decoding: drafted tokens are verified in the round that computes the next token, unless it reads prompts,
// and accepted as long as the sampler draws the same. If drafting fails, a request continues without it.
#include <algorithm>

#include "base/access.hpp"
#include "base/error.hpp"
#include "runtime/context.hpp"
#include "serving/scheduler.hpp"

namespace tinfer::serving {

// Adds the next token of a request, followed by drafted tokens: an even share of `n_spare`, because the `n_behind`
// requests that follow may draft, too.
void Scheduler::add_with_draft(Request& request, std::size_t& n_spare, std::size_t n_behind) {
    std::size_t limit = request.drafts && request.is_generating() ? n_spare / (n_behind + 1) : 0;
    limit = std::min(limit, n_longest_ - std::min(n_longest_, request.tokens.size()));
    if (const auto n_predict = request.asked.generation.n_predict; n_predict >= 0)
        limit = std::min(limit, static_cast<std::size_t>(n_predict) - request.generation->tokens().size() - 1);
    std::span<const Token> drafted;
    if (limit > 0) {
        try {
            lend_drafter(request);
            drafted = request.drafts->draft(context_, *request.seq, request.tokens.back(), *request.sampler, limit);
        } catch (...) {
            stop_drafting(request);
        }
    }
    add(request, 1);
    for (const Token token : drafted) {
        drafts_.push_back(token);
        batch_.add(token, *request.seq, true);
        ++n_rows_;
    }
    parts_.back().n_drafted = drafted.size();
    n_spare -= drafted.size();
}

void Scheduler::lend_drafter(Request& request) {
    if (request.asked.guess != EngineRequest::Guess::draft || request.drafter != nullptr || drafters_.empty()) return;
    SpeculationOptions options = request.asked.generation.speculation;
    options.drafter = drafters_.back();
    generation::Drafts drafts(std::move(options));
    drafts.push(request.tokens);
    request.drafts.emplace(std::move(drafts));
    request.drafter = std::move(drafters_.back());
    drafters_.pop_back();
}

void Scheduler::stop_drafting(Request& request) noexcept {
    request.drafts.reset();
    if (request.drafter != nullptr) drafters_.push_back(std::move(request.drafter));  // back to where it was taken from
    request.drafter.reset();
}

// Samples from the rows of each drafted sequence until a sampled token differs from the draft.
void Scheduler::verify_drafts() noexcept {
    std::size_t first = 0;
    for (RoundPart& part : parts_) {
        if (part.n_drafted == 0) continue;
        const auto drafted = std::span(drafts_).subspan(first, part.n_drafted);
        first += part.n_drafted;
        part.was_drawn = true;
        part.event = progress(*part.request);
        try {
            bool is_drawn = false;
            do {
                is_drawn = draw_one(*part.request, part.first_row + part.n_kept, part.event);
                ++part.n_kept;
            } while (is_drawn && !part.event.stop && part.n_kept <= drafted.size() &&
                     part.request->tokens.back() == drafted[part.n_kept - 1]);
        } catch (...) {
            part.error = as_error(std::current_exception());
            part.n_kept = std::max<std::size_t>(part.n_kept, 1);
        }
    }
}

// Verifies the drafts and commits the accepted tokens. If it throws or returns anything but ok, nothing of the round is
// in the cache; the sampled tokens stay, and are computed again like a prompt.
StepStatus Scheduler::commit_verified() {
    const auto give_up = [&]() noexcept {
        for (RoundPart& part : parts_)
            if (part.was_drawn) settle(part, false);
    };
    std::vector<runtime::Keep> keeps;
    try {
        keeps.reserve(parts_.size());
        verify_drafts();
        for (const RoundPart& part : parts_)
            if (part.was_drawn) keeps.push_back({*part.request->seq, static_cast<std::int32_t>(part.n_kept)});
        const auto status = detail::impl_of(context_).commit(keeps);
        if (status == DecodeStatus::ok) return StepStatus::ok;
        give_up();
        return status == DecodeStatus::no_room ? StepStatus::no_room : StepStatus::cancelled;
    } catch (...) {
        const auto thrown = std::current_exception();
        try {
            context_.abandon();
        } catch (...) {  // report the first exception
        }
        give_up();
        std::rethrow_exception(thrown);
    }
}

void Scheduler::note_drafts(double seconds) noexcept {
    if (reads_prompts_) return;
    for (const RoundPart& part : parts_)
        if (part.request->drafts)
            part.request->drafts->note(part.n_drafted, part.n_kept - std::min<std::size_t>(part.n_kept, 1), seconds);
}

}  // namespace tinfer::serving
