// SPDX-License-Identifier: MIT
// Any bytes as what clients do to an engine: the first chooses one of a few engines, the others say what happens
// next. Known requests come in any order and number, paused and resumed, strangers among them that are cancelled, run
// out of time, ask for
// what is refused, or throw in their sinks. Every known request has the bytes that it has alone, and at the end nothing
// is left.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "serving/full_engine.hpp"

namespace {

using namespace tinfer;
using namespace tinfer::test;

constexpr std::size_t kKnown = 24;
constexpr std::size_t kMaxDeeds = 24;

void expect(bool condition) {
    if (!condition) std::abort();
}

class Fuzzed {
public:
    Fuzzed() {
        requests_ = full_requests(*world_.model, kKnown, 60, 12);
        EngineOptions plain{.context = {.n_ctx = 640, .n_seq_max = 1}, .share_prefixes = false};
        plain.adapters = world_.adapters;
        expected_ = alone(*world_.model, plain_requests(requests_), plain);
        for (int i = 0; i < 4; ++i) {
            EngineOptions options = world_.with_all({.context = {.n_ctx = i < 2 ? 384 : 2048, .n_seq_max = 1 + 2 * i},
                                                     .max_batch_tokens = i % 2 == 0 ? 16 : 128,
                                                     .max_queue = 12,
                                                     .n_kept = i,
                                                     .slice = std::chrono::milliseconds(1)});
            if (i > 0) options.store = PrefixStoreOptions{.memory_limit = 1u << 18};
            engines_.push_back(std::make_unique<Engine>(*world_.model, options));
        }
    }

    void run(std::span<const std::uint8_t> deeds, Engine& engine) {
        Answers answers, strangers;
        std::vector<std::size_t> asked;
        std::vector<RequestId> ids, all;
        std::size_t n = 0;
        for (std::size_t i = 0; i + 1 < deeds.size(); i += 2) {
            const std::uint8_t deed = deeds[i], value = deeds[i + 1];
            switch (deed % 10) {
                case 0:
                case 1:
                case 2:
                    if (const auto id =
                            submit(engine, requests_[value % kKnown], answers.sink(asked.size()), answers)) {
                        asked.push_back(value % kKnown);
                        all.push_back(*id);
                    }
                    break;
                case 3: {
                    const auto id = submit(engine, stranger(value), strangers.sink(n++), strangers);
                    if (id) ids.push_back(*id);
                    if (id) all.push_back(*id);
                    break;
                }
                case 4:
                    if (!ids.empty()) engine.cancel(ids[value % ids.size()]);
                    break;
                case 5: {
                    EngineRequest limited = stranger(value);
                    limited.time_limit = std::chrono::milliseconds(1 + value % 32);
                    (void)submit(engine, std::move(limited), strangers.sink(n++), strangers);
                    break;
                }
                case 6: refused(engine, value); break;
                case 7:
                    if (!all.empty()) engine.pause(all[value % all.size()]);
                    break;
                case 8:
                    if (!all.empty()) engine.resume(all[value % all.size()]);
                    break;
                default: {
                    auto sink = strangers.sink(n++);
                    (void)submit(
                        engine, stranger(value),
                        [&strangers, sink, left = static_cast<int>(value % 6)](const EngineEvent& event) mutable {
                            if (event.ended() || left-- > 0) return sink(event);
                            strangers.give_up();
                            throw std::runtime_error("a client's fault");
                        },
                        strangers);
                }
            }
            if (deed >= 128) std::this_thread::sleep_for(std::chrono::microseconds(value * 16));
        }
        for (const RequestId id : all) engine.resume(id);
        answers.wait();
        strangers.wait();
        for (std::size_t i = 0; i < asked.size(); ++i) expect(answers[i].bits() == expected_[asked[i]]);
        const auto stats = engine.stats();
        expect(stats.queued == 0);
    }

    Engine& engine(std::uint8_t which) { return *engines_[which % engines_.size()]; }

private:
    /// nullopt where the queue is full: nothing is kept, and the sink is never called.
    std::optional<RequestId> submit(Engine& engine, EngineRequest request, EventSink sink, Answers& answers) {
        try {
            return engine.submit(std::move(request), std::move(sink));
        } catch (const Error& error) {
            expect(error.code() == ErrorCode::limit_exceeded);
            answers.give_up();
            return std::nullopt;
        }
    }
    static EngineRequest stranger(std::uint8_t value) {
        EngineRequest request{.prompt = random_tokens(1 + value % 64 * 4, 90, value % 8),
                              .sampler = {.logit_bias = {{Token{2}, -1e9f}}, .seed = value}};
        request.generation.n_predict = value % 3 == 0 ? 200 : 10 + value % 64;
        request.share_prefix = value % 5 != 0;
        if (value % 7 == 0) request.adapters = {{"red", 0.5f}};
        if (value % 4 == 1) request.speculate = EngineRequest::Speculate::ngram;
        return request;
    }
    static void refused(Engine& engine, std::uint8_t value) {
        EngineRequest request{.prompt = {Token{1}}};
        if (value % 4 == 0) request.prompt.clear();
        if (value % 4 == 1) request.prompt = {Token{-1 - value}};
        if (value % 4 == 2) request.adapters = {{"nobody"}};
        if (value % 4 == 3) request.n_top = 101;
        try {
            engine.submit(std::move(request), {});
            std::abort();
        } catch (const Error& error) {
            expect(error.code() == ErrorCode::bad_parameter || error.code() == ErrorCode::index_out_of_range);
        }
    }

    World world_;
    std::vector<EngineRequest> requests_;
    std::vector<std::string> expected_;
    std::vector<std::unique_ptr<Engine>> engines_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static Fuzzed fuzzed;
    if (size < 3) return 0;
    fuzzed.run({data + 1, std::min(size - 1, 2 * kMaxDeeds)}, fuzzed.engine(data[0]));
    return 0;
}
