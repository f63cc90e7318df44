// SPDX-License-Identifier: MIT
// A mixture that is larger than the memory it may have: the same bits with every limit, on every number of threads, in
// every cut; memory as planned; errors that leave everything as before.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "runtime/paging_support.hpp"
#include "support/child_process.hpp"
#include "support/failing_calls.hpp"
#include "support/golden.hpp"

namespace tinfer::test {

TEST_CASE("[N22] paging: the same bits with every limit, number of threads and cut of the batch") {
    for (const auto& mixed :
         {std::pair{"qwen3moe", DType::f32}, {"llama-moe", DType::q8_0}, {"qwen2moe", DType::f16}}) {
        const std::string arch = mixed.first;
        const DType type = mixed.second;
        CAPTURE(arch);
        const TempFolder folder;
        const auto path = mixture(arch, type).save(folder.path());
        const auto tokens = random_tokens(40, 128, 9);
        const auto whole = Model::load(path);
        const auto expected = all_bits(whole, tokens, {.n_ctx = 64, .n_threads = 1});
        REQUIRE(one_by_one(whole, tokens, {.n_ctx = 64, .n_threads = 1}) == expected);
        const std::uint64_t least = least_limit(path), all = whole.info().weight_bytes;
        REQUIRE(least > 0);
        for (const std::uint64_t limit : {least, least + (all - least) / 2, all - 1}) {
            if (limit < least || limit >= all) continue;
            CAPTURE(limit);
            const auto model = Model::load(path, {.memory_limit = limit});
            for (const int n_threads : {1, 2, 3}) {
                CHECK(all_bits(model, tokens, {.n_ctx = 64, .n_threads = n_threads}) == expected);
                CHECK(all_bits(model, tokens, {.n_ctx = 64, .n_ubatch = 7, .n_threads = n_threads}) == expected);
                CHECK(one_by_one(model, tokens, {.n_ctx = 64, .n_threads = n_threads}) == expected);
            }
            Pager& pager = pager_of(model);
            CHECK(pager.counts().misses > 0);
            CHECK(pager.used_bytes() <= pager.slot_bytes());
            if (const auto resident = pager.resident_bytes()) CHECK(*resident <= pager.used_bytes());
        }
    }
}

TEST_CASE("[N22] paging: memory is as it was planned, and within the limit") {
    const TempFolder folder;
    const auto path = mixture("qwen3moe").save(folder.path());
    const std::uint64_t least = least_limit(path);
    const ContextOptions small{.n_ctx = 64, .n_threads = 2};
    for (const std::uint64_t limit : {least, least + 4096, least + 100'000}) {
        const auto planned = plan(path, {.memory_limit = limit}, small);
        const auto model = Model::load(path, {.memory_limit = limit});
        Context context(model, small);
        REQUIRE(context.decode(random_tokens(30, 128, 3)) == DecodeStatus::ok);
        const auto counted = context.memory();
        CHECK(planned.weights_mapped == 0);
        CHECK(counted.weights_mapped == 0);
        CHECK(counted.weights_copied == planned.weights_copied);
        CHECK(counted.weights_paged == planned.weights_paged);
        CHECK(counted.weights_copied + counted.weights_paged <= limit);
        CHECK(counted.total() == planned.total());
    }
    CHECK(code_of([&] { static_cast<void>(Model::load(path, {.memory_limit = least - 1})); }) ==
          ErrorCode::limit_exceeded);
    const auto fits = Model::load(path, {.memory_limit = std::uint64_t{1} << 40});
    CHECK(detail::impl_of(fits.file()).file->pager() == nullptr);
    CHECK(fits.file().tensors()[0].address != nullptr);
}

TEST_CASE("[N22] paging: places are known before anything is loaded") {
    const TempFolder folder;
    const auto path = mixture("qwen3moe").save(folder.path());
    const std::uint64_t least = least_limit(path);
    std::uint64_t read = 0;
    for (const WeightPlacement& weight : weight_placement(path, {.memory_limit = least})) {
        const bool is_expert = weight.tensor.find("_exps.") != std::string::npos;
        CHECK(weight.place == (is_expert ? WeightPlace::paged : WeightPlace::read));
        if (is_expert) CHECK(weight.offset == weight.file_offset);
        else read = std::max(read, weight.offset + weight.bytes);
    }
    CHECK(read <= Context(Model::load(path, {.memory_limit = least}), {.n_ctx = 32}).memory().weights_copied);
    for (const WeightPlacement& weight : weight_placement(path, {.memory_limit = std::uint64_t{1} << 40}))
        CHECK(weight.place == WeightPlace::mapped);
}

TEST_CASE("[N22] paging: contexts on several threads, and decodes in slices of time, share the pager of their model") {
    const TempFolder folder;
    const auto path = mixture("qwen3moe").save(folder.path());
    const auto tokens = random_tokens(24, 128, 5);
    const auto expected = all_bits(Model::load(path), tokens, {.n_ctx = 64, .n_threads = 1});
    const auto model = Model::load(path, {.memory_limit = least_limit(path)});
    std::vector<std::vector<std::uint32_t>> got(3);
    std::vector<std::thread> threads;
    for (auto& bits : got)
        threads.emplace_back([&] { bits = bits_of(logits_of(model, tokens, {.n_ctx = 64, .n_threads = 1})); });
    for (std::thread& thread : threads) thread.join();
    for (const auto& bits : got) CHECK(bits == expected);

    // Two decodes of one thread that are both unfinished: neither may hold what the other waits for.
    std::array<Context, 2> contexts{Context(model, {.n_ctx = 64, .n_threads = 2}),
                                    Context(model, {.n_ctx = 64, .n_threads = 1})};
    for (Context& context : contexts) context.begin(tokens);
    for (std::array<bool, 2> is_done{}; !is_done[0] || !is_done[1];)
        for (std::size_t i = 0; i < 2; ++i)
            if (!is_done[i]) is_done[i] = contexts[i].step(std::chrono::nanoseconds(1)) != StepStatus::pending;
    const auto last = slice(expected, tokens.size() - 1, 128);
    for (const Context& context : contexts) CHECK(bits_of(context.logits()) == last);
}

TEST_CASE("[N22] paging: a file that is cut ends the decode as a transaction, and the next one is right") {
    const TempFolder folder;
    const auto path = mixture("qwen3moe").save(folder.path());
    const auto tokens = random_tokens(20, 128, 5);
    const auto expected = one_by_one(Model::load(path), tokens, {.n_ctx = 64, .n_threads = 1});
    const CutFile file(path);
    const auto model = Model::load(path, {.memory_limit = least_limit(path)});
    Context context(model, {.n_ctx = 64, .n_threads = 2});
    std::vector<std::uint32_t> all;
    int n_failed = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        const std::span token(&tokens[i], 1);
        file.cut();
        bool has_failed = false;
        DecodeStatus status = DecodeStatus::cancelled;
        try {
            status = context.decode(token);  // ok where all that it needs was there
        } catch (const Error& error) {
            has_failed = true;
            CHECK(error.code() == ErrorCode::io_error);
            CHECK(std::string(error.what()).find("_exps.weight', expert ") != std::string::npos);
        }
        if (has_failed) CHECK(context.count(SeqId{0}) == static_cast<int>(i));
        file.restore();
        if (has_failed) status = context.decode(token);
        REQUIRE(status == DecodeStatus::ok);
        n_failed += has_failed ? 1 : 0;
        const auto row = bits_of(context.logits());
        all.insert(all.end(), row.begin(), row.end());
    }
    CHECK(n_failed > 2);
    CHECK(all == expected);
}

#if defined(__linux__) && !defined(TINFER_EMULATED)
TEST_CASE("[N22] paging: a read that fails ends the decode as a transaction, one that comes in parts changes nothing") {
    const TempFolder folder;
    const auto path = mixture("qwen3moe").save(folder.path());
    const auto tokens = random_tokens(10, 128, 5);
    const auto expected =
        slice(all_bits(Model::load(path), tokens, {.n_ctx = 64, .n_threads = 1}), tokens.size() - 1, 128);
    const std::uint64_t least = least_limit(path);
    // A read ahead that fails is made again when a step needs it: that is no error of the decode.
    for (const auto& way :
         {std::pair{Fault::error, false}, {Fault::error, true}, {Fault::interrupt, true}, {Fault::part, true}}) {
        const Fault fault = way.first;
        const bool ahead = way.second;
        CAPTURE(static_cast<int>(fault));
        CAPTURE(ahead);
        CHECK(in_child(120, [&] {
                  if (!begin_failing_calls()) return 0;  // no filter of system calls here
                  const auto model = Model::load(path, {.memory_limit = least});
                  pager_of(model).set_ahead(ahead);
                  Context context(model, {.n_ctx = 64, .n_threads = 1});
                  const auto decodes = [&] {
                      return context.decode(tokens) == DecodeStatus::ok && bits_of(context.logits()) == expected;
                  };
                  for (std::uint64_t n = 1; n < 2000; n += 7) {
                      context.clear();
                      fail_call_at(n, fault);
                      bool has_thrown = false, is_right = false;
                      try {
                          is_right = decodes();
                      } catch (const Error& error) {
                          if (error.code() != ErrorCode::io_error) return 2;
                          has_thrown = true;
                      }
                      const bool has_failed = call_failed();
                      fail_call_at(0, fault);
                      if (has_thrown && (fault != Fault::error || !has_failed || context.count(SeqId{0}) != 0))
                          return 3;
                      if (!has_thrown && !is_right) return 4;
                      if (has_failed && fault == Fault::error && !ahead && !has_thrown) return 5;
                      context.clear();
                      if (!decodes()) return 6;
                      if (!has_failed) return n > 20 ? 0 : 7;  // every seventh call has failed
                  }
                  return 8;
              }) == "exit 0");
    }
}

TEST_CASE(
    "[N22] paging: a decode that waits for a read that does not come can be cancelled, and the next one is right") {
    const TempFolder folder;
    const auto path = mixture("qwen3moe").save(folder.path());
    const auto tokens = random_tokens(10, 128, 5);
    const auto expected =
        slice(all_bits(Model::load(path), tokens, {.n_ctx = 64, .n_threads = 1}), tokens.size() - 1, 128);
    const std::uint64_t least = least_limit(path);
    CHECK(in_child(120, [&] {
              if (!begin_failing_calls()) return 0;  // no filter of system calls here
              const auto model = Model::load(path, {.memory_limit = least});
              pager_of(model).set_ahead(false);
              Context context(model, {.n_ctx = 64, .n_threads = 1});
              int n_cancelled = 0;
              for (std::uint64_t n = 1; n < 100 && n_cancelled == 0; n += 11) {
                  fail_call_at(n, Fault::late);
                  const auto begin = std::chrono::steady_clock::now();
                  const auto passed = [&] { return std::chrono::steady_clock::now() - begin; };
                  context.set_cancel([&] { return call_failed() && passed() > std::chrono::milliseconds(20); });
                  const DecodeStatus status = context.decode(tokens);
                  const bool waits = call_failed();
                  fail_call_at(0, Fault::late);
                  if (waits && status == DecodeStatus::cancelled) {
                      if (passed() > std::chrono::milliseconds(900)) return 2;  // it has waited for the read
                      if (context.count(SeqId{0}) != 0) return 3;
                      ++n_cancelled;
                  }
                  context.clear();
                  context.set_cancel({});
                  if (context.decode(tokens) != DecodeStatus::ok || bits_of(context.logits()) != expected) return 4;
                  context.clear();
              }
              return n_cancelled > 0 ? 0 : 5;
          }) == "exit 0");
}

TEST_CASE("[N22] paging: a forked process is told that it cannot run the model") {
    const TempFolder folder;
    const auto path = mixture("qwen3moe").save(folder.path());
    const auto tokens = random_tokens(4, 128, 5);
    CHECK(in_child(60, [&] {
              const auto model = Model::load(path, {.memory_limit = least_limit(path)});
              const pid_t child = ::fork();
              if (child == 0) {
                  Context context(model, {.n_ctx = 64, .n_threads = 1});
                  try {
                      static_cast<void>(context.decode(tokens));
                  } catch (const Error& error) {
                      ::_exit(error.code() == ErrorCode::not_available ? 7 : 1);
                  }
                  ::_exit(2);
              }
              int status = 0;
              ::waitpid(child, &status, 0);
              return WIFEXITED(status) ? WEXITSTATUS(status) : 3;
          }) == "exit 7");
}
#endif

TEST_CASE("[N22][golden] paging: every golden mixture gives the same bits with limits down to the least") {
    if (skip_without_golden()) return;
    int n_paged = 0;
    for (const GoldenModel& golden : golden_models()) {
        CAPTURE(golden.name);
        const auto whole = Model::load(golden.file);
        if (whole.info().n_expert == 0 || golden.encoder) continue;
        const std::uint64_t least = least_limit(golden.file), all = whole.info().weight_bytes;
        if (least == 0 || least >= all) continue;
        ++n_paged;
        const auto tokens = random_tokens(24, whole.info().n_vocab, 2);
        const auto expected = all_bits(whole, tokens, {.n_ctx = 64, .n_threads = 1});
        for (const std::uint64_t limit : {least, (least + all) / 2}) {
            const auto model = Model::load(golden.file, {.memory_limit = limit});
            for (const int n_threads : {1, 2})
                CHECK(all_bits(model, tokens, {.n_ctx = 64, .n_threads = n_threads}) == expected);
            CHECK(pager_of(model).counts().misses > 0);
        }
    }
    CHECK(n_paged > 5);
}

}  // namespace tinfer::test
