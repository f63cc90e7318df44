// SPDX-License-Identifier: MIT
// Teams whose threads do not get a processor at once, as beside other programs. Here each helper begins every slice of
// time some milliseconds late.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/access.hpp"
#include "runtime/context.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"

namespace tinfer {

namespace {

using test::bits_of;
using test::TinyModel;

std::atomic<int> n_teams{0}, last_size{0};

void late_team(int n_threads, TeamFn fn, void* context) noexcept {
    if (n_threads > 1) ++n_teams;
    last_size = n_threads;
    std::vector<std::jthread> helpers;
    for (int t = 1; t < n_threads; ++t)
        helpers.emplace_back([=] {
            std::this_thread::sleep_for(std::chrono::milliseconds(4));
            fn(context, t, n_threads);
        });
    fn(context, 0, n_threads);
}

struct Watcher : Observer {
    TraceLevel level = TraceLevel::counts;
    int n_runs = 0, n_threads = 0;
    [[nodiscard]] TraceRequest request() const override { return {.level = level}; }
    void on_run_begin(const RunInfo& run) override { ++n_runs, n_threads = run.n_threads; }
};

void use_late_team(Context& context) {
    auto& runner = detail::impl_of(context).runner;
    runner.team = late_team;
    runner.team_limit = 2;
}

}  // namespace

TEST_CASE(
    "shared processors: in slices of time too, the thread that leads goes on alone where it waits again and again") {
    test::TempFolder folder;
    const auto model = Model::load(TinyModel::of("qwen3moe").save(folder.path()));
    for (const int n_tokens : {1, 16, 40})  // up to 16 a run pauses between steps alone
        for (const bool watched : {false, true}) {
            CAPTURE(n_tokens);
            CAPTURE(watched);
            const auto tokens = test::random_tokens(static_cast<std::size_t>(n_tokens), 128, 1);
            const auto expected = bits_of(test::logits_of(model, tokens, {.n_threads = 1}));
            Context context(model, {.n_ctx = 64, .n_threads = 2, .logits_all = true});
            use_late_team(context);
            const auto watcher = std::make_shared<Watcher>();
            Attachment attached;
            if (watched) attached = context.attach(watcher);
            n_teams = 0;
            context.begin(tokens);
            int n_slices = 1;
            while (context.step(std::chrono::nanoseconds(1)) == StepStatus::pending) ++n_slices;
            CHECK(n_slices > 8);
            CHECK(n_teams.load() < n_slices);
            CHECK(watcher->n_runs == (watched ? 1 : 0));
            std::vector<float> logits;
            for (int i = 0; i < n_tokens; ++i) {
                const auto row = context.logits(i);
                logits.insert(logits.end(), row.begin(), row.end());
            }
            CHECK(bits_of(logits) == expected);
        }
}

TEST_CASE("shared processors: the team of a watched context shrinks, but for an observer of threads") {
    test::TempFolder folder;
    const auto model = Model::load(TinyModel::of("llama").save(folder.path()));
    for (const TraceLevel level : {TraceLevel::counts, TraceLevel::steps, TraceLevel::threads}) {
        CAPTURE(level);
        Context context(model, {.n_ctx = 64, .n_threads = 2});
        use_late_team(context);
        const auto watcher = std::make_shared<Watcher>();
        watcher->level = level;
        const auto attached = context.attach(watcher);
        bool has_shrunk = false;
        for (int i = 0; i < 200 && !has_shrunk; ++i) {
            if (context.room(SeqId{0}) == 0) context.clear();
            REQUIRE(context.decode(std::array{Token{1}}) == DecodeStatus::ok);
            CHECK(watcher->n_threads == last_size.load());
            has_shrunk = last_size == 1;
        }
        CHECK(has_shrunk == (level != TraceLevel::threads));
    }
}

}  // namespace tinfer
