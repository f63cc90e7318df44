// SPDX-License-Identifier: MIT
#include "runtime/shared_processors.hpp"

#include <bit>
#include <utility>

namespace tinfer::runtime {

namespace {

constexpr std::size_t kFewTokens = 16;  // of a run whose team may be made smaller
// So long the leader counts its sleeps in longer runs before it goes on alone: one bad moment should not leave the rest
// of a long prompt to one thread.
constexpr auto kLongRunCount = std::chrono::milliseconds(50);

constexpr double kShared = 0.3;   // fraction of the time without a processor, from which on other programs have it
constexpr double kWindow = 0.02;  // seconds over which that is judged
constexpr double kSharedSeconds = 0.6;  // until it is judged again: threads that sleep are often without a processor

}  // namespace

// Only runs of few tokens have so many barriers that a smaller team may be faster.
SharedProcessors::Team SharedProcessors::choose(std::size_t n_tokens, int n_threads, bool may_shrink) noexcept {
    const bool is_short = n_tokens > 0 && n_tokens <= kFewTokens;
    team_size_ = nullptr;
    run_ = {};
    has_read_ = false;
    if (is_short && n_threads > 1 && may_shrink) {
        team_size_ = &team_sizes_[static_cast<std::size_t>(std::bit_width(n_tokens - 1))];
        n_threads = team_size_->choose(n_threads);
    }
    return {.n_threads = n_threads,
            .is_tried = team_size_ != nullptr,
            .shares = shares_ && n_threads > 1,
            .shortest_count = is_short ? std::chrono::nanoseconds{} : kLongRunCount};
}

void SharedProcessors::note_slice(const Time& slice, bool has_read) noexcept {
    run_ += slice;
    if (has_read) has_read_ = true;
    else look_for_others(slice);
}

void SharedProcessors::note_end() noexcept {
    if (team_size_ != nullptr && !has_read_) team_size_->note(run_.wall, run_.on_processor);
}

// A thread that spins at barriers is on its processor all the time, if nobody else is. Where others are, threads sleep
// sooner, and are made for each run: those of OpenMP would spin for milliseconds after it.
void SharedProcessors::look_for_others(const Time& slice) noexcept {
    if (shares_) {
        shared_for_ += slice.wall;
        if (shared_for_ < kSharedSeconds) return;
        shares_ = was_missed_ = false;
        window_ = {};
        return;
    }
    window_ += slice;
    if (window_.wall < kWindow) return;
    const bool is_missed = window_.wall - window_.on_processor > kShared * window_.wall;
    window_ = {};
    shares_ = std::exchange(was_missed_, is_missed) && is_missed;  // a single window may be bad luck
    shared_for_ = 0;
}

}  // namespace tinfer::runtime
