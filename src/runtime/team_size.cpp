// SPDX-License-Identifier: MIT
#include "runtime/team_size.hpp"

namespace tinfer::runtime {

namespace {

constexpr double kDisturbed = 0.1;  // share of the time without a processor: more than the odd interrupt takes
constexpr double kGain = 0.95;      // of the time, from which on another size is worth it
constexpr int kShortestPause = 4, kLongestPause = 64;
constexpr double kDearest = 32;  // windows to wait for each window that a trial without gain has taken

}  // namespace

int TeamSize::choose(int n) noexcept {
    if (n != most_) {
        *this = {};
        most_ = now_ = n;
    }
    return now_;
}

void TeamSize::note(double wall, double on_processor) noexcept {
    wall_ += wall;
    on_processor_ += on_processor;
    ++n_runs_;
    const double time = wall_ / n_runs_, missed = 1 - on_processor_ / wall_, spent = wall_;
    const bool hopeless = before_ != 0 && wall_ > kWindow / 4 && time > 1.5 * time_before_;
    if (wall_ < kWindow && !hopeless) return;
    wall_ = on_processor_ = 0;
    n_runs_ = 0;
    if (before_ != 0) return end_trial(time, spent);
    n_disturbed_ = missed > kDisturbed ? n_disturbed_ + 1 : 0;
    if (n_disturbed_ == 0 && now_ == most_) pause_ = wait_ = 0;
    if (wait_ > 0) {
        --wait_;
        return;
    }
    const bool down = n_disturbed_ > 1 && now_ > 1, up = now_ < most_;  // a single window may be bad luck
    if (up && (!down || try_larger_)) start_trial(std::min(larger(now_), most_), time);
    else if (down) start_trial(smaller(now_), time);
}

void TeamSize::start_trial(int size, double time) noexcept {
    before_ = now_;
    time_before_ = time;
    now_ = size;
}

// Ends a trial. After each one without a gain the pause until the next doubles, and grows with what the trial has cost,
// so that trials take less than two hundredths of the time.
void TeamSize::end_trial(double time, double spent) noexcept {
    const bool gained = time < kGain * time_before_;
    if (!gained) {
        try_larger_ = now_ < before_;
        now_ = before_;
    }
    pause_ = gained || pause_ == 0 ? kShortestPause : std::min(2 * pause_, kLongestPause);
    wait_ = gained ? pause_ : std::max(pause_, static_cast<int>(std::min(kDearest * spent / kWindow, 1e6)));
    before_ = 0;
    n_disturbed_ = 0;
}

}  // namespace tinfer::runtime
