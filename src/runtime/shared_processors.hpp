// SPDX-License-Identifier: MIT
// What runs do where other programs have their processors, too. There are four answers, each from what a run has shown,
// and all are here: a team is made smaller (team_size.hpp); a thread that waits for the others sleeps sooner, and the
// team's threads are made for each run; a leader that sleeps for most of a run does the rest alone, and tries its team
// again later. docs/processes.md says what they gain, bench_sharing measures it. No bit depends on them.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>

#include "runtime/team_size.hpp"

namespace tinfer::runtime {

class SharedProcessors {
public:
    /// In seconds: of wall-clock time, and of processor time of the thread that leads.
    struct Time {
        double wall = 0, on_processor = 0;
        Time& operator+=(const Time& other) noexcept {
            wall += other.wall;
            on_processor += other.on_processor;
            return *this;
        }
    };
    struct Team {
        int n_threads = 1;
        bool is_tried = false;  ///< its size is one that is tried or was: the time of the run is wanted
        bool shares = false;    ///< with other programs: threads that wait sleep soon, and are made for the run
        std::chrono::nanoseconds shortest_count{};  ///< LeaderSleeps::goes_alone
    };

    /// The team of a run of so many tokens, at most n_threads. `may_shrink`: nobody wants to see each thread's times.
    [[nodiscard]] Team choose(std::size_t n_tokens, int n_threads, bool may_shrink) noexcept;
    /// A slice of the run took so long. `has_read`: pages of files; then its time says nothing about other programs.
    void note_slice(const Time& slice, bool has_read) noexcept;
    /// The run has got to its end.
    void note_end() noexcept;

private:
    void look_for_others(const Time& slice) noexcept;

    std::array<TeamSize, 5> team_sizes_;  // of runs of 1, 2, up to 4, 8, 16 tokens
    TeamSize* team_size_ = nullptr;       // of this run; null: it has all threads
    bool has_read_ = false;               // this run
    Time run_;                            // so far
    Time window_;                         // of runs since other programs were last looked for
    bool was_missed_ = false;             // in the window before, other programs had the processors
    bool shares_ = false;
    double shared_for_ = 0;  // seconds of runs since then
};

/// How often and how long the leader has slept at barriers, and since when that is counted; once it is alone, since
/// when it is. Pauses between slices do not count.
class LeaderSleeps {
public:
    using Clock = std::chrono::steady_clock;
    /// How long threads that share their processors spin: more than most waits; other programs have the rest.
    static constexpr auto kSharedSpin = std::chrono::microseconds(30);

    void restart(Clock::time_point now) noexcept {
        n_ = 0;
        slept_ = {};
        since_ = now;
    }
    void pause(Clock::duration time) noexcept { since_ += time; }
    void note(Clock::duration slept) noexcept {
        ++n_;
        slept_ += slept;
    }
    [[nodiscard]] bool are_many() const noexcept { return n_ >= kFew; }
    /// Of n threads each sleeps the fraction s of the time, so they do n · (1 - s) threads' work: less than the leader
    /// alone where s > (n - 1) / n. Judged from `shortest` on.
    [[nodiscard]] bool goes_alone(Clock::time_point now, int n_threads, Clock::duration shortest) noexcept {
        const auto time = now - since_;
        if (time < shortest) return false;
        const bool alone = slept_ * n_threads > time * (n_threads - 1);
        if (alone || time > kLongest) restart(now);
        return alone;
    }
    /// A leader that is alone tries its team again: the other programs may have gone.
    [[nodiscard]] bool tries_team(Clock::time_point now) const noexcept { return now - since_ > kLongest; }

private:
    // The leader sleeps where processors are shared with other work: a step can then take as long as another program's
    // time slice.
    static constexpr int kFew = 3;
    static constexpr auto kLongest = std::chrono::milliseconds(100);  // of counting, and until a team is tried again

    int n_ = 0;
    Clock::duration slept_{};
    Clock::time_point since_{};
};

}  // namespace tinfer::runtime
