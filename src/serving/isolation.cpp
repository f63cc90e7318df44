// SPDX-License-Identifier: MIT
// Chooses the requests of a round. Requests with observers have rounds of their own, alternating with one for all
// others. A round that throws has changed nothing, and the culprit is unknown: it is found by bisection, computing
// halves of the round until a single request fails. Results do not depend on how requests are batched.

#include <algorithm>

#include "serving/scheduler.hpp"

namespace tinfer::serving {

void Scheduler::choose_round() noexcept {
    round_suspects_ = 0;
    round_alone_ = nullptr;
    for (const auto& request : running_) round_suspects_ = std::max(round_suspects_, request->suspects);
    if (round_suspects_ != 0) return;
    n_suspect_groups_ = 0;
    const Request* first = nullptr;
    bool has_others = false;
    for (const auto& request : running_) {
        if (request->sits_out()) continue;
        if (request->trace == nullptr) has_others = true;
        else if (first == nullptr) first = request.get();
        if (request->trace != nullptr && request->id > last_alone_ && round_alone_ == nullptr)
            round_alone_ = request.get();
    }
    if (round_alone_ == nullptr && !has_others) round_alone_ = first;
    last_alone_ = round_alone_ == nullptr ? RequestId{} : round_alone_->id;
}

bool Scheduler::in_round(const Request& request) const noexcept {
    if (request.sits_out()) return false;
    if (round_suspects_ != 0) return request.suspects == round_suspects_;
    return round_alone_ == nullptr ? request.trace == nullptr : &request == round_alone_;
}

void Scheduler::round_threw(const Error& error) noexcept {
    try {
        context_.abandon();
    } catch (...) {  // thrown by an observer: the decode has ended anyway
    }
    inbox_.update([](EngineStats& stats) { ++stats.failed_rounds; });
    // The requests in the batch; if it was not built yet, all that were chosen.
    const auto took_part = [&](const Owned& request) {
        return !request->is_over && in_round(*request) &&
               (parts_.empty() || std::ranges::find(parts_, request.get(), &RoundPart::request) != parts_.end());
    };
    const auto n = static_cast<std::size_t>(std::ranges::count_if(running_, took_part));
    const std::uint32_t older = n_suspect_groups_ + 1, younger = n_suspect_groups_ + 2;
    n_suspect_groups_ += 2;
    std::size_t i = 0;
    for (const auto& request : running_) {
        if (!took_part(request)) continue;
        if (n > 1) {
            request->suspects = i++ < n / 2 ? older : younger;
        } else if (!drafts_.empty() && request->drafts) {
            stop_drafting(*request);  // retry without speculation
        } else {
            fail_request(*request, error);
        }
    }
}

void Scheduler::round_went_well() noexcept {
    for (const auto& request : running_)
        if (in_round(*request) &&
            (parts_.empty() || std::ranges::find(parts_, request.get(), &RoundPart::request) != parts_.end()))
            request->suspects = 0;
}

}  // namespace tinfer::serving
