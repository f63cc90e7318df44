// SPDX-License-Identifier: MIT
// Speculative decoding: drafted tokens are verified in the round that computes the next token, unless it reads prompts,
// and accepted as long as the sampler draws the same. If drafting fails, a request continues without it.
#include <algorithm>

#include "base/access.hpp"
#include "base/error.hpp"
#include "runtime/context.hpp"
#include "serving/scheduler.hpp"

namespace tinfer::serving {

// How many tokens may be drafted behind the next one.
std::size_t Scheduler::draft_limit(const Request& request, std::size_t share) const {
    if (!request.drafts || !request.is_generating()) return 0;
    std::size_t limit = std::min(share, n_longest_ - std::min(n_longest_, request.tokens.size()));
    if (const auto n_predict = request.asked.generation.n_predict; n_predict >= 0)
        limit = std::min(limit, static_cast<std::size_t>(n_predict) - request.generation->tokens().size() - 1);
    return limit;
}

// Adds the next token of each request, followed by drafted ones: at most an even share of `n_spare`. The context's head
// is asked once for all that want it. Returns nothing drafted for those whose drafter failed, which go on without one.
void Scheduler::add_with_drafts(std::vector<Going>& going, std::size_t n_spare) {
    const std::size_t share = n_spare / std::max<std::size_t>(going.size(), 1);
    const auto without_failure = [&](Request& request, auto&& fn) {
        try {
            fn();
        } catch (...) {
            stop_drafting(request);
        }
    };
    std::vector<bool> drafts(going.size());
    for (std::size_t i = 0; i < going.size(); ++i) {
        Request& request = *going[i].request;
        const std::size_t limit = draft_limit(request, share);
        drafts[i] = limit > 0;
        if (limit == 0) continue;
        without_failure(request, [&] {
            lend_drafter(request);
            going[i].of_head = request.drafts->begin(context_, *request.sampler, limit);
        });
    }
    const double seconds = ask_head(going);
    for (std::size_t i = 0; i < going.size(); ++i) {
        Going& one = going[i];
        Request& request = *one.request;
        if (drafts[i] && request.drafts)
            without_failure(request, [&] {
                one.draft =
                    request.drafts->finish(context_, one.n_proposed, one.least, one.of_head.empty() ? 0.0 : seconds);
            });
        add(request, 1);
        for (const Token token : one.draft) {
            drafts_.push_back(token);
            batch_.add(token, *request.seq, true);
            ++n_rows_;
        }
        parts_.back().n_drafted = one.draft.size();
    }
}

// Returns the seconds that it took.
double Scheduler::ask_head(std::vector<Going>& going) {
    std::vector<runtime::Head::Ask> asks;
    Context::Impl& context = detail::impl_of(context_);
    for (const Going& one : going)
        if (!one.of_head.empty())
            asks.push_back({.seq = *one.request->seq,
                            .drawn = one.request->tokens.back(),
                            .pos = context.end_of(*one.request->seq),
                            .out = one.of_head});
    if (asks.empty()) return 0;
    const auto begin = Clock::now();
    try {
        context.head->draft(asks);
    } catch (...) {  // no memory: this round goes on without
        return 0;
    }
    auto ask = asks.begin();
    for (Going& one : going) {
        if (one.of_head.empty()) continue;
        one.n_proposed = ask->proposal.n;
        one.least = ask->proposal.least;
        ++ask;
    }
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

void Scheduler::lend_drafter(Request& request) {
    if (request.asked.speculate != EngineRequest::Speculate::draft || request.drafter != nullptr || drafters_.empty())
        return;
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

// What a check costs is shared by all requests of the round, and what it gains is the drafted one's alone. So a request
// is told what its own drafts would have taken if all had drafted as it did; without drafts of its own, nothing, unless
// nobody drafted.
void Scheduler::note_drafts(double seconds) noexcept {
    if (reads_prompts_) return;
    const auto n_going = static_cast<double>(parts_.size());
    double n_drafted = 0;
    for (const RoundPart& part : parts_) n_drafted += static_cast<double>(part.n_drafted);
    try {
        double& plain = plain_rounds_.try_emplace(parts_.size(), seconds).first->second;
        if (n_drafted == 0) plain += (std::min(seconds, 2 * plain) - plain) / 4;
        plain = std::min(plain, seconds);
        for (const RoundPart& part : parts_) {
            part.request->round_s += seconds;
            part.request->plain_s +=
                n_drafted == 0 ? seconds : plain * static_cast<double>(std::max<std::size_t>(part.n_kept, 1));
            if (!part.request->drafts || (n_drafted > 0 && part.n_drafted == 0)) continue;
            const double share = n_drafted == 0 ? 1.0 : n_going * static_cast<double>(part.n_drafted) / n_drafted;
            part.request->drafts->note(part.n_drafted, part.n_kept - std::min<std::size_t>(part.n_kept, 1),
                                       plain + (seconds - plain) * share);
        }
    } catch (const std::bad_alloc&) {  // nothing is learned from this round
    }
}

}  // namespace tinfer::serving
