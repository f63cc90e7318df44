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
std::atomic<bool> is_late{true};

void late_team(int n_threads, TeamFn fn, void* context) noexcept {
    if (n_threads > 1) ++n_teams;
    last_size = n_threads;
    std::vector<std::jthread> helpers;
    for (int t = 1; t < n_threads; ++t)
        helpers.emplace_back([=] {
            if (is_late) std::this_thread::sleep_for(std::chrono::milliseconds(4));
            fn(context, t, n_threads);
        });
    fn(context, 0, n_threads);
}

struct Watcher : Observer {
    TraceLevel level = TraceLevel::counts;
    Delivery delivery = Delivery::batched;
    int n_runs = 0, n_threads = 0;
    [[nodiscard]] TraceRequest request() const override { return {.level = level, .delivery = delivery}; }
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

TEST_CASE("shared processors: a leader that went alone has its team again when the others have gone") {
    test::TempFolder folder;
    const auto model = Model::load(TinyModel::of("llama").save(folder.path()));
    const auto tokens = test::random_tokens(40, 128, 1);
    const auto expected = bits_of(test::logits_of(model, tokens, {.n_threads = 1}));
    Context context(model, {.n_ctx = 64, .n_threads = 2, .logits_all = true});
    use_late_team(context);
    bool is_slow = false;  // each slice takes a while
    context.set_cancel([&] {
        if (is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        return false;
    });
    is_late = true;
    context.begin(tokens);
    auto status = StepStatus::pending;
    const auto slice = [&] {
        const int before = n_teams;
        status = context.step(std::chrono::nanoseconds(1));
        return n_teams > before;
    };
    const auto begin = std::chrono::steady_clock::now();
    while (status == StepStatus::pending && slice()) {
    }
    // One bad moment does not leave a long run to one thread.
    CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(50));
    REQUIRE(status == StepStatus::pending);
    is_late = false;
    is_slow = true;
    bool has_team = false;
    for (int i = 0; i < 20 && !has_team && status == StepStatus::pending; ++i) has_team = slice();
    CHECK(has_team);
    is_slow = false;
    while (status == StepStatus::pending) (void)slice();
    is_late = true;
    REQUIRE(status == StepStatus::ok);
    std::vector<float> logits;
    for (int i = 0; i < 40; ++i) {
        const auto row = context.logits(i);
        logits.insert(logits.end(), row.begin(), row.end());
    }
    CHECK(bits_of(logits) == expected);
}

TEST_CASE("shared processors: the team shrinks, too, where each run has another number of tokens") {
    test::TempFolder folder;
    const auto model = Model::load(TinyModel::of("llama").save(folder.path()));
    Context context(model, {.n_ctx = 64, .n_threads = 2});
    use_late_team(context);
    int n_alone = 0;
    for (int i = 0; i < 400; ++i) {
        const auto tokens = test::random_tokens(i % 2 == 0 ? 3 : 4, 128, 1);
        if (context.room(SeqId{0}) < 4) context.clear();
        REQUIRE(context.decode(tokens) == DecodeStatus::ok);
        n_alone += last_size == 1;
    }
    CHECK(n_alone > 300);
}

TEST_CASE("shared processors: time that callbacks take is not taken for other programs'") {
    test::TempFolder folder;
    const auto model = Model::load(TinyModel::of("llama").save(folder.path()));
    Context context(model, {.n_ctx = 64, .n_threads = 2});
    auto& runner = detail::impl_of(context).runner;
    runner.team_limit = 2;
    struct Slow final : Watcher {
        void on_step_begin(const StepView&) override { std::this_thread::sleep_for(std::chrono::microseconds(300)); }
    };
    const auto slow = std::make_shared<Slow>();
    slow->level = TraceLevel::steps;
    slow->delivery = Delivery::immediate;
    const auto attached = context.attach(slow);
    for (int i = 0; i < 40; ++i) {
        REQUIRE(context.decode(std::array{Token{1}}) == DecodeStatus::ok);
        CHECK(slow->n_threads == 2);
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
