// SPDX-License-Identifier: MIT
// The barrier, and contexts in many threads at once. Teams of std::thread stand in for OpenMP here, because the thread
// sanitizer understands them.
#include <doctest/doctest.h>

#include <time.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <thread>

#if defined(__linux__)
#    include <sched.h>
#endif

#include "base/access.hpp"
#include "base/barrier.hpp"
#include "base/processors.hpp"
#include "base/team.hpp"
#include "runtime/context.hpp"
#include "support/sanitizers.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"

namespace tinfer {

namespace {

using test::bits_of;
using test::TinyModel;

void std_thread_team(int n_threads, TeamFn fn, void* context) noexcept {
    std::vector<std::thread> helpers;
    for (int t = 1; t < n_threads; ++t) helpers.emplace_back([=] { fn(context, t, n_threads); });
    fn(context, 0, n_threads);
    for (std::thread& helper : helpers) helper.join();
}

struct CountEvents : Observer {
    std::uint64_t events = 0;
    void on_events(std::span<const KernelEvent> list) override { events += list.size(); }
};

}  // namespace

TEST_CASE("threads: no thread passes a barrier before all have arrived") {
    for (const int n : {1, 2, 5}) {
        Barrier barrier;
        std::atomic<int> arrived{0}, wrong{0};
        std::vector<std::thread> threads;
        for (int t = 0; t < n; ++t)
            threads.emplace_back([&] {
                for (int round = 1; round <= 200; ++round) {
                    arrived.fetch_add(1);
                    barrier.wait(n);
                    if (arrived.load() < round * n) wrong.fetch_add(1);
                    barrier.wait(n);
                }
            });
        for (std::thread& thread : threads) thread.join();
        CHECK(wrong.load() == 0);
        CHECK(arrived.load() == 200 * n);
    }
}

TEST_CASE("threads: a team of any size gives the same bits, with observers of every level") {
    test::TempFolder folder;
    const auto model = Model::load(TinyModel::of("qwen3moe").save(folder.path()));
    const auto tokens = test::random_tokens(37, 128, 1);
    const auto expected = bits_of(test::logits_of(model, tokens, {.n_threads = 1}));
    struct Levels : Observer {
        TraceRequest wanted;
        [[nodiscard]] TraceRequest request() const override { return wanted; }
    };
    for (const int n : {2, 3, 7}) {
        for (const auto& [level, delivery] :
             {std::pair{TraceLevel::threads, Delivery::batched}, {TraceLevel::steps, Delivery::immediate}}) {
            Context context(model, {.n_ctx = 64, .n_threads = n, .logits_all = true});
            detail::impl_of(context).runner.team = std_thread_team;
            detail::impl_of(context).runner.team_limit = n;
            const auto observer = std::make_shared<Levels>();
            observer->wanted = {.level = level, .delivery = delivery};
            const auto attached = context.attach(observer);
            REQUIRE(context.decode(std::span(tokens).first(30)) == DecodeStatus::ok);
            auto rows = bits_of(context.result("result_output"));
            REQUIRE(context.decode(std::span(tokens).subspan(30)) == DecodeStatus::ok);
            const auto more = bits_of(context.result("result_output"));
            rows.insert(rows.end(), more.begin(), more.end());
            CHECK(rows == expected);
        }
    }
}

TEST_CASE("[N13] threads: sixteen threads with different models, contexts, samplers and sinks do not meet") {
    test::TempFolder folder;
    std::vector<std::filesystem::path> paths;
    for (std::uint64_t seed = 0; seed < 16; ++seed) {
        TinyModel tiny = TinyModel::of(seed % 3 == 0 ? "llama" : seed % 3 == 1 ? "qwen2moe" : "qwen3");
        tiny.seed = seed;
        paths.push_back(tiny.save(folder.path()));
    }
    const auto talk = [&](std::size_t i) {
        std::size_t messages = 0;
        const auto model = Model::load(paths[i], {.log = [&](LogLevel, std::string_view) { ++messages; }});
        Context context(model, {.n_ctx = 128, .n_threads = 2});
        detail::impl_of(context).runner.team = std_thread_team;
        detail::impl_of(context).runner.team_limit = 2;
        const auto counter = std::make_shared<CountEvents>();
        const auto attached = context.attach(counter);
        Sampler sampler(model.vocab(), {.temp = 0.9f, .seed = static_cast<std::uint32_t>(i)});
        std::vector<Token> out, next = test::random_tokens(9, 128, i);
        for (int n = 0; n < 20; ++n) {
            if (context.decode(next) != DecodeStatus::ok) break;
            next = {sampler.sample(context)};
            out.push_back(next[0]);
        }
        if (counter->events == 0) out.clear();
        return out;
    };
    std::vector<std::vector<Token>> alone, together(paths.size());
    for (std::size_t i = 0; i < paths.size(); ++i) alone.push_back(talk(i));
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < paths.size(); ++i) threads.emplace_back([&, i] { together[i] = talk(i); });
    for (std::thread& thread : threads) thread.join();
    CHECK(alone == together);
    CHECK(alone[0].size() == 20);
}

TEST_CASE("threads: a second thread in the same context gets busy, not a race") {
    test::TempFolder folder;
    const auto model = Model::load(TinyModel{}.save(folder.path()));
    Context context(model, {.n_ctx = 512, .n_threads = 1});
    const auto tokens = test::random_tokens(20, 128, 2);
    std::atomic<int> refused{0}, done{0};
    const auto hammer = [&] {
        for (int i = 0; i < 40; ++i) {
            try {
                if (context.decode(std::span(tokens).first(1)) == DecodeStatus::ok) done.fetch_add(1);
            } catch (const Error& error) {
                if (error.code() == ErrorCode::busy) refused.fetch_add(1);
            }
        }
    };
    std::thread other(hammer);
    hammer();
    other.join();
    CHECK(refused.load() + done.load() == 80);
    CHECK(context.count(SeqId{0}) == done.load());
}

#if defined(__linux__)
namespace {

/// A made-up system: files that the tests write, nothing else.
struct FakeSystem {
    test::TempFolder folder;
    SystemFiles files{folder.path() / "proc", folder.path() / "sys"};
    void write(const std::filesystem::path& file, const char* text) const {
        std::filesystem::create_directories((folder.path() / file).parent_path());
        std::ofstream(folder.path() / file) << text;
    }
    [[nodiscard]] int count() const { return usable_cpu_count(files); }
};

/// Calls fn on a thread that may run on the first n processors of this one only.
void with_processors(int n, const std::function<void()>& fn) {
    std::thread([&] {
        cpu_set_t all, few;
        REQUIRE(sched_getaffinity(0, sizeof all, &all) == 0);
        CPU_ZERO(&few);
        for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&few) < n; ++cpu)
            if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &few);
        REQUIRE(sched_setaffinity(0, sizeof few, &few) == 0);
        fn();
    }).join();
}

int n_processors() {
    cpu_set_t set;
    REQUIRE(sched_getaffinity(0, sizeof set, &set) == 0);
    return CPU_COUNT(&set);
}

}  // namespace

TEST_CASE("[N11] threads: the affinity mask of the thread that makes a context limits its threads") {
    test::TempFolder folder;
    const auto model = Model::load(TinyModel{}.save(folder.path()));
    CHECK(default_thread_count() <= n_processors());
    with_processors(1, [&] {
        CHECK(default_thread_count() == 1);
        CHECK(usable_cpu_count() == 1);
        const Context context(model);
        CHECK(context.options().n_threads == 1);
        CHECK(context.options().n_threads_batch == 1);
    });
}

TEST_CASE("[N11] threads: hardware threads of one core count once") {
    const int n = n_processors();
    const FakeSystem system;
    CHECK(system.count() == n);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        const std::string topology = "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
        system.write(topology + "physical_package_id", "0\n");
        system.write(topology + "core_id", "7\n");
    }
    CHECK(system.count() == n);
#    if defined(_OPENMP)
    CHECK(default_thread_count(system.files) == 1);
    CHECK(default_thread_count(FakeSystem().files) == n);
#    endif
}

TEST_CASE("[N11] threads: the smallest quota of the control groups above limits, rounded up") {
    const int n = n_processors();
    {
        const FakeSystem system;
        system.write("sys/fs/cgroup/cpu.max", "max 100000\n");
        CHECK(system.count() == n);
        system.write("sys/fs/cgroup/cpu.max", "6400000 100000\n");
        CHECK(system.count() == std::min(n, 64));
        system.write("sys/fs/cgroup/cpu.max", "150000 100000\n");
        CHECK(system.count() == std::min(n, 2));
        system.write("sys/fs/cgroup/cpu.max", "50000 100000\n");
        CHECK(system.count() == 1);
        system.write("sys/fs/cgroup/cpu.max", "no number\n");
        CHECK(system.count() == n);
    }
    {
        const FakeSystem system;  // version 2, the group's own file and those above
        system.write("proc/self/cgroup", "0::/user/job\n");
        system.write("sys/fs/cgroup/user/job/cpu.max", "max 100000\n");
        CHECK(system.count() == n);
        system.write("sys/fs/cgroup/user/cpu.max", "10000 100000\n");
        CHECK(system.count() == 1);
        system.write("sys/fs/cgroup/user/cpu.max", "max 100000\n");
        system.write("sys/fs/cgroup/user/job/cpu.max", "100000 100000\n");
        CHECK(system.count() == 1);
    }
    {
        const FakeSystem system;  // version 1
        system.write("proc/self/cgroup", "12:memory:/other\n4:cpu,cpuacct:/job\nnonsense\n");
        system.write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
        system.write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
        CHECK(system.count() == n);
        system.write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "100000\n");
        CHECK(system.count() == 1);
    }
}

TEST_CASE("[N11] threads: a context that has nothing to do takes less than a thousandth of a processor") {
    test::TempFolder folder;
    const auto model = Model::load(TinyModel{}.save(folder.path()));
    Context context(model, {.n_threads = 4});
    REQUIRE(context.decode(test::random_tokens(40, 90, 1)) == DecodeStatus::ok);
    const auto processor_time = [] {  // of this process alone: others on the machine do not count
        timespec time{};
        REQUIRE(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) == 0);
        return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
    };
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // threads that wait for more work go to sleep
    const auto before = processor_time();
    std::this_thread::sleep_for(std::chrono::seconds(1));
    if (!test::kSanitized && !test::kEmulated) CHECK(processor_time() - before < std::chrono::milliseconds(1));
}

TEST_CASE("threads: a team is never larger than the processors it may use") {
    test::TempFolder folder;
    const auto model = Model::load(TinyModel{}.save(folder.path()));
    struct Sizes : Observer {
        int n_threads = 0;
        void on_run_begin(const RunInfo& run) override { n_threads = run.n_threads; }
    };
    with_processors(1, [&] {
        Context context(model, {.n_threads = 8});
        CHECK(context.options().n_threads == 8);
        const auto sizes = std::make_shared<Sizes>();
        const auto attached = context.attach(sizes);
        static std::atomic<int> asked;
        detail::impl_of(context).runner.team = [](int n_threads, TeamFn fn, void* self) noexcept {
            asked = n_threads;
            fn(self, 0, 1);
        };
        REQUIRE(context.decode(std::array{Token{1}}) == DecodeStatus::ok);
        CHECK(sizes->n_threads == 1);
        CHECK(asked == 1);
    });
}
#endif

}  // namespace tinfer
