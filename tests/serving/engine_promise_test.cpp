// SPDX-License-Identifier: MIT
// The answer does not depend on the load: requests with adapters, grammars, guesses and scores get the same bytes
// alone, all at once, in another order, from a cold store and a warm one, and after a restart.
#include "serving/full_engine.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

void check_promise(const World& world, std::size_t n, int most_prompt, int most_predict) {
    const auto requests = full_requests(*world.model, n, most_prompt, most_predict);
    const int longest = most_prompt * 2 + std::max(most_predict, 60);
    EngineOptions cold{
        .context = {.n_ctx = longest, .n_seq_max = 1}, .max_queue = 1000, .n_kept = 7, .share_prefixes = false};
    cold.adapters = world.adapters;
    const auto expected = alone(*world.model, plain_requests(requests), cold);
    REQUIRE(expected.size() == n);

    const TempFolder folder;
    EngineOptions options = world.with_all(
        {.context = {.n_ctx = 12 * longest, .n_seq_max = 6}, .max_batch_tokens = 48, .max_queue = 1000, .n_kept = 2});
    options.store = PrefixStoreOptions{.memory_limit = 1u << 20, .folder = folder / "store", .checkpoint_every = 64};
    options.count_bytes = true;
    {
        Engine engine(*world.model, options);
        CHECK(together(engine, requests, in_order(n)) == expected);           // the store is cold
        CHECK(together(engine, requests, in_other_order(n, 1)) == expected);  // and warm
        const auto stats = engine.stats();
        CHECK(stats.accepted_tokens > 0);
        CHECK(stats.drafted_tokens > stats.accepted_tokens);
        CHECK(stats.store.written_pages > 0);
        CHECK(stats.store_errors == 0);
        CHECK(stats.failed == 0);
    }
    {
        Engine engine(*world.model, options);  // after a restart
        CHECK(together(engine, requests, in_other_order(n, 2)) == expected);
        CHECK(engine.stats().store.restored_tokens > 0);
        CHECK(engine.stats().store.read_pages > 0);
    }
    // A cache in which few requests fit at once, a store that has to drop most of what it gets.
    EngineOptions narrow = world.with_all(
        {.context = {.n_ctx = longest, .n_seq_max = 5}, .max_batch_tokens = 24, .max_queue = 1000, .n_kept = 3});
    narrow.store = PrefixStoreOptions{.memory_limit = 1u << 16, .checkpoint_every = 64};
    Engine crowded(*world.model, narrow);
    CHECK(together(crowded, requests, in_other_order(n, 3)) == expected);
    CHECK(crowded.stats().ended == n);
}

/// Vectors of texts with and without adapters.
void check_vectors(const World& world, std::size_t n) {
    std::vector<EngineRequest> requests;
    for (std::size_t i = 0; i < n; ++i) {
        EngineRequest request{.kind = EngineRequest::Kind::embed,
                              .prompt = random_tokens(1 + static_cast<int>(i * 7 % 60), 90, i)};
        if (i % 3 == 1) request.adapters = {{"blue", 0.5f}};
        if (i % 5 == 2) request.count = true;
        requests.push_back(std::move(request));
    }
    EngineOptions options{.context = {.n_ctx = 256, .n_seq_max = 1, .pooling = Pooling::mean}, .max_queue = 1000};
    options.adapters = world.adapters;
    const auto expected = alone(*world.model, plain_requests(requests), options);
    CHECK(expected[1] != expected[4]);
    options.context.n_seq_max = 5;
    Engine engine(*world.model, options);
    CHECK(together(engine, requests, in_order(n)) == expected);
    CHECK(together(engine, requests, in_other_order(n, 1)) == expected);
}

}  // namespace

TEST_CASE("[V2] engine: adapters, grammars, guesses, counts, a store and restarts change no byte") {
    const World world;
    check_promise(world, 36, 150, 24);
    check_vectors(world, 16);
}

TEST_CASE("[V2][slow] engine: nor do they for 200 requests, of a dense model and one of experts") {
    for (const char* arch : {"llama", "qwen2moe"}) {
        CAPTURE(arch);
        const World world(arch);
        check_promise(world, 200, 200, 40);
        check_vectors(world, 60);
    }
}
