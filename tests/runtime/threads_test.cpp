// SPDX-License-Identifier: MIT
// The barrier, and contexts in many threads at once. Teams of std::thread stand in for OpenMP here, because the thread
// sanitizer understands them.
#include <doctest/doctest.h>

#include <thread>

#include "runtime/context.hpp"
#include "runtime/threads.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"

namespace tinfer {

namespace {

using test::bits_of;
using test::TinyModel;

void std_thread_team(int n_threads, runtime::TeamFn fn, void* context) noexcept {
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

TEST_CASE("[N13][K8] threads: no thread passes a barrier before all have arrived") {
    for (const int n : {1, 2, 5}) {
        runtime::Barrier barrier;
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

TEST_CASE("[N2][K8] threads: a team of any size gives the same bits, with observers of every level") {
    test::TempFolder folder;
    const auto model = Model::load(TinyModel::of("qwen3moe").save(folder.path()));
    const auto tokens = test::random_tokens(37, 128, 1);
    const auto expected = bits_of(test::logits_of(model, tokens, {.n_threads = 1}));
    struct Levels : Observer {
        TraceRequest wanted;
        [[nodiscard]] TraceRequest request() const override { return wanted; }
    };
    for (const int n : {2, 3, 7}) {
        for (const auto& [level, delivery] : {std::pair{TraceLevel::threads, Delivery::batched}, {TraceLevel::steps, Delivery::immediate}}) {
            Context context(model, {.n_ctx = 64, .n_threads = n, .logits_all = true});
            context.impl().team = std_thread_team;
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
        context.impl().team = std_thread_team;
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

TEST_CASE("[N13] threads: a second thread in the same context gets busy, not a race") {
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

}  // namespace tinfer
