// SPDX-License-Identifier: MIT
// The size of a team, with machines that are made up: what a run takes with so many threads, and how much of that time
// the thread that waits has a processor.
#include <doctest/doctest.h>

#include <functional>

#include "runtime/team_size.hpp"

namespace tinfer::runtime {

namespace {

struct Machine {
    std::function<double(int)> seconds, share;
};

struct Days {
    TeamSize team;
    double total = 0;
    int last = 0;
    /// So many seconds of runs; how many of the runs were of `size`.
    double run(const Machine& machine, double seconds, int n, int size) {
        int n_runs = 0, n_of_size = 0;
        for (double spent = 0; spent < seconds; ++n_runs) {
            last = team.choose(n);
            REQUIRE(last >= 1);
            REQUIRE(last <= n);
            n_of_size += last == size;
            const double time = machine.seconds(last);
            team.note(time, time * machine.share(last));
            spent += time;
        }
        return double(n_of_size) / n_runs;
    }
};

const Machine kQuiet{[](int n) { return 0.004 / n; }, [](int) { return 0.99; }};
const Machine kCrowded{[](int n) { return n == 1 ? 0.004 : 0.02; },
                       [](int n) { return n == 1 ? 0.98 : 0.5; }};  // threads of others give way
const Machine kLoops{[](int n) { return n == 1 ? 0.008 : 0.006; }, [](int) { return 0.5; }};  // they do not

}  // namespace

TEST_CASE("team size: on a quiet machine all threads run, always") {
    for (const int n : {1, 2, 16}) {
        Days days;
        CHECK(days.run(kQuiet, 10, n, n) == 1);
    }
}

TEST_CASE("team size: one bad moment changes nothing") {
    Days days;
    (void)days.run(kQuiet, 1, 2, 2);
    CHECK(days.run(kCrowded, TeamSize::kWindow, 2, 2) == 1);
    CHECK(days.run(kQuiet, 10, 2, 2) == 1);
}

TEST_CASE("team size: where a smaller team is faster it is found, kept, and left when the others have gone") {
    Days days;
    (void)days.run(kCrowded, 1, 2, 1);
    CHECK(days.run(kCrowded, 20, 2, 1) > 0.98);
    CHECK(days.last == 1);
    (void)days.run(kQuiet, 5, 2, 2);
    CHECK(days.run(kQuiet, 10, 2, 2) == 1);
}

TEST_CASE("team size: where a smaller team is slower it is tried ever more seldom") {
    Days days;
    (void)days.run(kLoops, 1, 2, 2);
    CHECK(days.run(kLoops, 30, 2, 2) > 0.97);
}

TEST_CASE("team size: the best of many sizes is found step by step") {
    const Machine machine{[](int n) { return 0.001 * (n <= 6 ? 24.0 / n : 4.0 + 2 * (n - 6)); },
                          [](int n) { return n <= 6 ? 0.98 : 0.6; }};
    Days days;
    (void)days.run(machine, 10, 16, 6);
    CHECK(days.run(machine, 20, 16, 6) > 0.9);
    for (int n = 16; n > 1; n = TeamSize::smaller(n)) {
        CHECK(TeamSize::smaller(n) >= 1);
        CHECK(TeamSize::larger(TeamSize::smaller(n)) > TeamSize::smaller(n));
    }
}

TEST_CASE("team size: a trial that goes badly is over at once") {
    const Machine machine{[](int n) { return n == 2 ? 0.004 : 0.4; }, [](int) { return 0.5; }};
    Days days;
    CHECK(days.run(machine, 20, 2, 1) < 0.002);  // runs; each took a hundred times as long
}

TEST_CASE("team size: another number of threads begins anew") {
    Days days;
    (void)days.run(kCrowded, 2, 2, 1);
    CHECK(days.last == 1);
    CHECK(days.team.choose(4) == 4);
}

}  // namespace tinfer::runtime
