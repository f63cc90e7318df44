// SPDX-License-Identifier: MIT
// The store of beginnings behind an engine: what it saves, and that nothing that becomes of it changes an answer.
#include <fstream>

#include "serving/full_engine.hpp"
#include "support/golden.hpp"

#if defined(__unix__)
#    include <sys/resource.h>
#    include <sys/wait.h>
#    include <unistd.h>

#    include <csignal>
#    include <thread>
#endif

using namespace tinfer;
using namespace tinfer::test;

namespace {

EngineRequest long_request(std::uint64_t seed, int n = 300) {
    return {.prompt = random_tokens(n, 90, seed), .sampler = {.seed = 1}, .generation = {.n_predict = 6}};
}

std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
        if (entry.is_regular_file()) files.push_back(entry.path());
    return files;
}

}  // namespace

TEST_CASE("[V12] engine: beginnings that no sequence holds any more come from the store") {
    const World world;
    EngineOptions options{.context = {.n_ctx = 512, .n_seq_max = 1}, .n_kept = 0};
    options.adapters = world.adapters;
    Engine plain(*world.model, options);
    const auto expected = plain.ask(long_request(1));
    CHECK(plain.ask(long_request(1)).n_cached == 0);

    options.store.emplace();
    Engine engine(*world.model, options);
    CHECK(engine.ask(long_request(1)).text == expected.text);
    CHECK(engine.ask(long_request(2)).n_cached == 0);
    const auto again = engine.ask(long_request(1));
    CHECK(again.text == expected.text);
    CHECK(again.n_cached == 256);  // whole pages
    auto with_adapter = long_request(1);
    with_adapter.adapters = {{"red"}};
    CHECK(engine.ask(with_adapter).n_cached == 0);
    CHECK(engine.ask(with_adapter).n_cached == 256);
    auto apart = long_request(1);
    apart.share_prefix = false;
    CHECK(engine.ask(apart).n_cached == 0);
    const auto stats = engine.stats();
    CHECK(stats.store.restored_tokens == 2 * 256);
    CHECK(stats.cached_tokens == 2 * 256);
    CHECK(stats.store.pages >= 3 * 4);
}

TEST_CASE("[V12] engine: whatever becomes of the store's folder, answers are the same") {
    const World world;
    const TempFolder folder;
    EngineOptions options{.context = {.n_ctx = 512, .n_seq_max = 1}, .n_kept = 0};
    const auto expected = Engine(*world.model, options).ask(long_request(1)).text;
    options.store = PrefixStoreOptions{.memory_limit = 0, .folder = folder / "store"};
    const auto ask = [&] {
        Engine engine(*world.model, options);
        const auto answer = engine.ask(long_request(1));
        CHECK(answer.text == expected);
        CHECK(engine.stats().failed == 0);
        return answer.n_cached;
    };
    CHECK(ask() == 0);
    CHECK(ask() == 256);
    SUBCASE("damaged files are computed anew, and written over") {
        for (const auto& path : files_in(folder / "store")) {
            std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
            file.seekp(200);
            file.put('\x5a');
            file.seekp(201);
            file.put('\xa5');
        }
        CHECK(ask() == 0);
        CHECK(ask() == 256);
    }
    SUBCASE("files that a crash cut short, or that are empty") {
        std::size_t i = 0;
        for (const auto& path : files_in(folder / "store")) std::filesystem::resize_file(path, i++ % 2 == 0 ? 0 : 77);
        CHECK(ask() == 0);
        CHECK(ask() == 256);
    }
    SUBCASE("a folder that is gone while the engine runs") {
        Engine engine(*world.model, options);
        CHECK(engine.ask(long_request(1)).n_cached == 256);
        std::filesystem::remove_all(folder / "store");
        std::ofstream(folder / "store") << "a file now";
        CHECK(engine.ask(long_request(1)).text == expected);
        CHECK_FALSE(engine.ask(long_request(3)).error.has_value());
    }
}

TEST_CASE("[V12] engine: recurrent and windowed models go on from checkpoints of the store") {
    for (const char* name : {"mamba", "jamba", "gemma3"}) {
        const auto file = golden_model_file(name);
        if (!file) continue;
        CAPTURE(std::string(name));
        const auto model = Model::load(*file);
        // Long enough for windows to have pages of their own.
        EngineOptions options{.context = {.n_ctx = 4096, .n_seq_max = 1}, .n_kept = 0};
        const auto expected = Engine(model, options).ask(long_request(1));
        options.store.emplace();
        options.store->checkpoint_every = 128;
        Engine engine(model, options);
        CHECK(engine.ask(long_request(1)).text == expected.text);
        const auto again = engine.ask(long_request(1));
        CHECK(again.text == expected.text);
        CHECK(again.n_cached == 256);
    }
}

#if defined(__unix__)
TEST_CASE("[V12] engine: a disk that is full keeps nothing, and no request hears of it") {
    const World world;
    const TempFolder folder;
    EngineOptions options{.context = {.n_ctx = 512, .n_seq_max = 1}, .n_kept = 0};
    const auto expected = Engine(*world.model, options).ask(long_request(1)).text;
    options.store = PrefixStoreOptions{.memory_limit = 0, .folder = folder / "store"};
    // No file may grow beyond what a page takes: writes fail as on a full disk.
    rlimit before{};
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
    auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
    rlimit full = before;
    full.rlim_cur = 1000;
    REQUIRE(setrlimit(RLIMIT_FSIZE, &full) == 0);
    std::vector<EngineEvent> answers;
    EngineStats stats;
    {
        Engine engine(*world.model, options);
        for (int i = 0; i < 2; ++i) answers.push_back(engine.ask(long_request(1)));
        stats = engine.stats();
    }
    REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
    std::signal(SIGXFSZ, handler);
    for (const EngineEvent& answer : answers) {
        CHECK(answer.text == expected);
        CHECK(answer.n_cached == 0);
    }
    CHECK(stats.store.written_pages == 0);
    CHECK(stats.failed == 0);
    Engine engine(*world.model, options);  // there is room again
    CHECK(engine.ask(long_request(1)).text == expected);
    CHECK(engine.ask(long_request(1)).n_cached == 256);
}

TEST_CASE("[V12] engine: kill -9 while it writes leaves a store that is whole") {
    const World world;
    const TempFolder folder;
    EngineOptions options{.context = {.n_ctx = 512, .n_seq_max = 1, .n_threads = 1}, .n_kept = 0};
    std::vector<std::string> expected;
    {
        Engine engine(*world.model, options);
        for (std::uint64_t i = 0; i < 6; ++i) expected.push_back(engine.ask(long_request(i)).text);
    }
    options.store = PrefixStoreOptions{.memory_limit = 0, .folder = folder / "store"};
    std::mt19937 random(1);
    std::size_t n_restored = 0;
    for (int round = 0; round < 6; ++round) {
        const pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {  // writes until it is killed
            try {
                Engine engine(*world.model, options);
                for (std::uint64_t i = 0;; ++i) (void)engine.ask(long_request(i % 6 + (i >= 6 ? 100 + i : 0)));
            } catch (...) {
            }
            _exit(1);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(20 + random() % 200));
        kill(child, SIGKILL);
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) == child);
        CHECK(WIFSIGNALED(status));
        Engine engine(*world.model, options);
        for (std::uint64_t i = 0; i < 6; ++i) {
            const auto answer = engine.ask(long_request(i));
            CHECK(answer.text == expected[static_cast<std::size_t>(i)]);
            n_restored += answer.n_cached;
        }
        CHECK(engine.stats().failed == 0);
        CHECK(engine.stats().store_errors == 0);
    }
    CHECK(n_restored > 0);
}
#endif
