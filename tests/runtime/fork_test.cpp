// SPDX-License-Identifier: MIT
// fork(): the child has one thread, whatever its parent had, and decodes all the same.
#include <doctest/doctest.h>

#include <array>
#include <fstream>

#include "base/access.hpp"
#include "base/barrier.hpp"
#include "base/processors.hpp"
#include "base/team.hpp"
#include "runtime/context.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"

#if defined(__unix__)
#    include "support/child_process.hpp"

namespace tinfer {

namespace {

using test::bits_of;
using test::in_child;
using test::TinyModel;
using Bits = decltype(bits_of(std::span<const float>()));

constexpr int kSeconds = 60;  // far more than it takes; a child that hangs does not end at all

/// A parent that has decoded with a team of two.
struct Parent {
    test::TempFolder folder;
    std::filesystem::path path = TinyModel::of("qwen3").save(folder.path());
    Model model = Model::load(path);
    std::vector<Token> tokens = test::random_tokens(12, 128, 1);
    Context context = make(model);
    Bits expected = decode(context);

    static Context make(const Model& model) {
        Context made(model, {.n_ctx = 64, .n_threads = 2});
        detail::impl_of(made).runner.team_limit = 2;  // also where there is one processor
        return made;
    }
    Bits decode(Context& own) const {
        own.clear();
        if (own.decode(tokens) != DecodeStatus::ok) return {};
        if (own.decode(std::array{Token{3}}) != DecodeStatus::ok) return {};
        return bits_of(own.logits());
    }
};

bool skip_where_forks_are_hidden() {
    const bool hidden = test::forks_are_hidden();
    if (hidden) MESSAGE("skipped: the emulator does not tell whether a process came from a fork");
    return hidden;
}

}  // namespace

TEST_CASE_FIXTURE(Parent, "fork: a child decodes with the context of its parent, and gets the same bits") {
    REQUIRE(!expected.empty());
    CHECK(in_child(kSeconds, [&] { return decode(context) == expected && decode(context) == expected ? 0 : 1; }) ==
          "exit 0");
    CHECK(decode(context) == expected);
}

TEST_CASE_FIXTURE(Parent, "fork: a child makes a context of its own, from its parent's model or from the file") {
    if (skip_where_forks_are_hidden()) return;
    CHECK(in_child(kSeconds, [&] {
              Context own = make(model);
              return decode(own) == expected ? 0 : 1;
          }) == "exit 0");
    CHECK(in_child(kSeconds, [&] {
              Context own = make(Model::load(path));
              return decode(own) == expected ? 0 : 1;
          }) == "exit 0");
    CHECK(in_child(kSeconds, [&] {  // and its child, too
              const std::string grandchild = in_child(kSeconds, [&] { return decode(context) == expected ? 0 : 1; });
              return grandchild == "exit 0" && decode(context) == expected ? 0 : 1;
          }) == "exit 0");
}

TEST_CASE_FIXTURE(Parent, "fork: a decode that is pending ends in the child as in the parent") {
    context.clear();
    context.begin(tokens);
    auto status = context.step(std::chrono::nanoseconds(1));
    REQUIRE(status == StepStatus::pending);
    const auto end = [&] {
        while (status == StepStatus::pending) status = context.step(std::chrono::milliseconds(1));
        if (status != StepStatus::ok || context.decode(std::array{Token{3}}) != DecodeStatus::ok) return 1;
        return bits_of(context.logits()) == expected ? 0 : 2;
    };
    CHECK(in_child(kSeconds, end) == "exit 0");
    CHECK(end() == 0);
}

#    if defined(_OPENMP)
TEST_CASE("fork: teams made for one call keep to OpenMP's limits") {
    std::atomic<int> n_calls{0}, n_threads_sum{0};
    std::pair<std::atomic<int>*, std::atomic<int>*> sums{&n_calls, &n_threads_sum};
    const auto count = [](void* context, int, int n_threads) noexcept {
        const auto& [calls, threads] = *static_cast<decltype(sums)*>(context);
        ++*calls;
        *threads += n_threads;
    };
#        pragma omp parallel num_threads(2)
    run_new_team(3, count, &sums);
    CHECK(n_calls == 2);  // the threads of the region, each alone
    CHECK(n_threads_sum == 2);
}
#    endif

TEST_CASE("fork: teams made for one call have the size asked for, and end with it") {
    struct Shared {
        Barrier barrier;
        std::atomic<int> sum{0}, sizes{0};
    } shared;
    for (int round = 0; round < 50; ++round)
        run_new_team(
            3,
            [](void* context, int thread, int n_threads) noexcept {
                auto& own = *static_cast<Shared*>(context);
                own.barrier.wait(n_threads);
                own.sum += thread;
                own.sizes += n_threads;
            },
            &shared);
#    if defined(_OPENMP)
    CHECK(shared.sum == 50 * 3);
    CHECK(shared.sizes == 50 * 9);
#    else
    CHECK(shared.sum == 0);
    CHECK(shared.sizes == 50);
#    endif
}

#    if defined(__linux__)
TEST_CASE("fork: a process knows whether it came from one") {
    if (skip_where_forks_are_hidden()) return;
    CHECK(!is_forked());
    CHECK(in_child(kSeconds, [] { return is_forked() ? 0 : 1; }) == "exit 0");
    const test::TempFolder folder;
    const auto of = [&](const char* line) {
        std::filesystem::create_directories(folder.path() / "self");
        std::ofstream(folder.path() / "self/stat") << line;
        return is_forked({folder.path(), folder.path()});
    };
    CHECK(!of(""));
    CHECK(!of("no fields"));
    CHECK(of("7 (a name) R 1 7 7 0 -1 4194368 99 0"));
    CHECK(of("7 (a) 0 (b)) R 1 7 7 0 -1 64 99 0"));
    CHECK(!of("7 (a name) R 1 7 7 0 -1 4194304 99 0"));
    CHECK(!of("7 (a name) R 1 7 7 0 -1"));
    CHECK(!is_forked({folder.path() / "none", folder.path()}));
}
#    endif

}  // namespace tinfer
#endif
