// SPDX-License-Identifier: MIT
// A decode in slices of time is the decode: same bits, same events, one transaction, wherever the slices end.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <thread>

#include "base/access.hpp"
#include "runtime/context.hpp"
#include "support/alloc_counter.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"

namespace tinfer {

namespace {

using namespace std::chrono_literals;
using test::bits_of;
using test::TinyModel;

void std_threads(int n_threads, TeamFn fn, void* context) noexcept {
    std::vector<std::thread> helpers;
    for (int t = 1; t < n_threads; ++t) helpers.emplace_back([=] { fn(context, t, n_threads); });
    fn(context, 0, n_threads);
    for (std::thread& helper : helpers) helper.join();
}

/// Steps to the end; how many calls that took.
int step_to_end(Context& context, std::chrono::nanoseconds budget, StepStatus expected = StepStatus::ok) {
    int n = 1;
    StepStatus status = context.step(budget);
    for (; status == StepStatus::pending; ++n) {
        CHECK(context.n_outputs() == 0);
        status = context.step(budget);
    }
    CHECK(status == expected);
    return n;
}

ErrorCode code_of_call(const std::function<void()>& fn) {
    try {
        fn();
    } catch (const Error& error) {
        return error.code();
    }
    FAIL("nothing was thrown");
    return ErrorCode::io_error;
}

/// Keeps what a trace tells of every run.
struct Recorder : Observer {
    struct Event {
        std::string name;
        std::uint64_t begin, end, busy, work_items;
        EventStatus status;
    };
    struct Run {
        std::vector<Event> events;
        RunResult result;
    };
    TraceLevel level = TraceLevel::threads;
    Delivery delivery = Delivery::batched;
    std::vector<Run> runs;
    int begun = 0, steps_begun = 0, steps_ended = 0;
    bool detached = false;
    std::chrono::steady_clock::time_point zero =
        std::chrono::steady_clock::time_point::max();  ///< of the session, or a little later
    [[nodiscard]] std::chrono::steady_clock::time_point time_of(std::uint64_t ns) const {
        return zero + std::chrono::nanoseconds(ns);
    }
    [[nodiscard]] TraceRequest request() const override { return {.level = level, .delivery = delivery}; }
    void on_run_begin(const RunInfo& run) override {
        ++begun;
        zero = std::min(zero, std::chrono::steady_clock::now() - std::chrono::nanoseconds(run.begin));
    }
    void on_step_begin(const StepView&) override { ++steps_begun; }
    void on_step_end(const KernelEvent& event, const StepValues&) override {
        ++steps_ended;
        keep(event);
    }
    void on_events(std::span<const KernelEvent> list) override {
        for (const KernelEvent& event : list) keep(event);
    }
    void on_run_end(const RunResult& result) override {
        if (runs.size() < static_cast<std::size_t>(begun)) runs.emplace_back();
        runs.back().result = result;
    }
    void on_detach(const SessionSummary&) noexcept override { detached = true; }

private:
    void keep(const KernelEvent& event) {
        if (runs.size() < static_cast<std::size_t>(begun)) runs.emplace_back();
        Event kept{std::string(event.step->nodes.back()->name), event.begin, event.end, 0, 0, event.status};
        for (const ThreadSpan& span : event.threads) kept.busy += span.busy, kept.work_items += span.work_items;
        runs.back().events.push_back(kept);
    }
};

struct SlicesFixture {
    test::TempFolder folder;
    Model model = Model::load(TinyModel::of("qwen3moe").save(folder.path()));
    std::vector<Token> first = test::random_tokens(10, 128, 1), prompt = test::random_tokens(45, 128, 2), whole = first;
    std::vector<std::uint32_t> last_row;  ///< logits of the last token after both

    SlicesFixture() {
        whole.insert(whole.end(), prompt.begin(), prompt.end());
        const auto all = bits_of(test::logits_of(model, whole));
        last_row.assign(all.end() - 128, all.end());
    }
    ContextOptions options() const { return {.n_ctx = 128, .n_ubatch = 15, .n_outputs = 1, .n_threads = 2}; }
};

}  // namespace

TEST_CASE("[N12] slices: any budget, table and number of threads gives the bits of an undivided decode") {
    for (const char* arch : {"llama", "qwen2moe"}) {
        test::TempFolder folder;
        const auto model = Model::load(TinyModel::wide(arch, DType::q4_k).save(folder.path()));
        const auto tokens = test::random_tokens(150, 160, 5);
        const auto expected = bits_of(test::logits_of(model, tokens));
        for (const Isa isa : available_isas())
            for (const int n_threads : {1, 2, 3})
                for (const std::chrono::nanoseconds budget :
                     {std::chrono::nanoseconds(-1s), 0ns, std::chrono::nanoseconds(50us),
                      std::chrono::nanoseconds::max()}) {
                    CAPTURE(arch);
                    CAPTURE(to_string(isa));
                    CAPTURE(n_threads);
                    CAPTURE(budget.count());
                    Context context(
                        model, {.n_ctx = 256, .n_ubatch = 90, .n_threads = n_threads, .isa = isa, .logits_all = true});
                    detail::impl_of(context).runner.team_limit = n_threads;
                    if (n_threads == 2) detail::impl_of(context).runner.team = std_threads;
                    context.begin(tokens);
                    const int n = step_to_end(context, budget);
                    if (budget <= 0ns) CHECK(n > 60);  // every step of two runs ends a slice
                    if (budget > 1s) CHECK(n == 1);
                    CHECK(bits_of(context.result("result_output")) == expected);
                }
    }
}

TEST_CASE("slices: teams of another size in every slice change no bit") {
    test::TempFolder folder;
    TinyModel tiny = TinyModel::wide("llama", DType::q4_k);
    tiny.n_ff = 4096;  // enough rows for chunks of several panels
    const auto model = Model::load(tiny.save(folder.path()));
    const auto tokens = test::random_tokens(6, 160, 5);
    const auto expected = bits_of(test::logits_of(model, tokens));
    for (const Isa isa : available_isas()) {
        CAPTURE(to_string(isa));
        static int n_slices;
        n_slices = 0;
        Context context(model, {.n_ctx = 64, .n_outputs = 6, .n_threads = 4, .isa = isa, .logits_all = true});
        detail::impl_of(context).runner.team_limit = 4;
        detail::impl_of(context).runner.team = [](int n_threads, TeamFn fn, void* self) noexcept {
            std_threads(1 + n_slices++ % n_threads, fn, self);
        };
        std::vector<std::uint32_t> bits;
        for (const Token token : tokens) {
            context.begin(std::span(&token, 1));
            (void)step_to_end(context, 0ns);
            const auto row = bits_of(context.logits());
            bits.insert(bits.end(), row.begin(), row.end());
        }
        CHECK(bits == expected);
    }
}

TEST_CASE("slices: long steps are cut inside, those of chunks and those of even shares") {
    test::TempFolder folder;
    TinyModel tiny = TinyModel::wide("llama", DType::q8_0);
    tiny.n_ff = 1024;
    const auto model = Model::load(tiny.save(folder.path()));
    const auto tokens = test::random_tokens(256, 160, 6);  // one run
    const auto all = bits_of(test::logits_of(model, tokens));
    Context context(model, {.n_ctx = 448, .n_outputs = 1, .n_threads = 1});
    const auto recorder = std::make_shared<Recorder>();
    const auto attached = context.attach(recorder);
    context.begin(tokens);
    const int n = step_to_end(context, 0ns);
    CHECK(bits_of(context.logits()) == std::vector<std::uint32_t>(all.end() - 160, all.end()));
    REQUIRE(recorder->runs.size() == 1);
    const auto& events = recorder->runs[0].events;
    CHECK(static_cast<std::size_t>(n) > 3 * events.size());
    const auto items = [&](std::string_view name) {
        for (const auto& event : events)
            if (event.name == name) return event.work_items;
        FAIL(name);
        return std::uint64_t{0};
    };
    CHECK(items("ffn_up-0") > 4);      // rows of a product
    CHECK(items("ffn_swiglu-0") > 4);  // activations of 256 tokens
    CHECK(items("attn-0") > 4);
}

TEST_CASE_FIXTURE(SlicesFixture, "slices: a decode abandoned after any slice leaves the state as it was") {
    Context context(model, options());
    REQUIRE(context.decode(first) == DecodeStatus::ok);
    int n = 0;
    for (int at = 0;; ++at) {
        context.begin(prompt);
        StepStatus status = StepStatus::pending;
        for (int i = 0; i < at && status == StepStatus::pending; ++i) status = context.step(0ns);
        if (status == StepStatus::ok) break;
        REQUIRE(status == StepStatus::pending);
        context.abandon();
        ++n;
        REQUIRE(context.used() == 10);
        REQUIRE(context.seq_pos_max(SeqId{0}) == Pos{9});
        REQUIRE(context.n_outputs() == 0);
    }
    CHECK(n > 60);  // more than twenty steps in each of three runs
    CHECK(bits_of(context.logits()) == last_row);
    context.abandon();  // nothing pending: nothing happens
    CHECK(bits_of(context.logits()) == last_row);
}

TEST_CASE_FIXTURE(SlicesFixture, "slices: abandoned and begun again, a decode is undisturbed") {
    Context context(model, options());
    REQUIRE(context.decode(first) == DecodeStatus::ok);
    for (const int at : {0, 1, 5, 17, 40, 66}) {
        context.begin(prompt);
        for (int i = 0; i < at; ++i) REQUIRE(context.step(0ns) == StepStatus::pending);
        context.abandon();
    }
    context.begin(prompt);
    (void)step_to_end(context, 0ns);
    CHECK(bits_of(context.logits()) == last_row);
    CHECK(context.timings().prompt_n == whole.size());
}

TEST_CASE_FIXTURE(SlicesFixture, "slices: each step is one event, and what lies between slices is nobody's time") {
    Context undivided(model, options());
    const auto reference = std::make_shared<Recorder>();
    const auto keep = undivided.attach(reference);
    REQUIRE(undivided.decode(whole) == DecodeStatus::ok);
    for (const Delivery delivery : {Delivery::batched, Delivery::immediate}) {
        Context context(model, options());
        const auto recorder = std::make_shared<Recorder>();
        recorder->delivery = delivery;
        const auto attached = context.attach(recorder);
        const auto coverage = std::make_shared<CoverageCheck>();
        const auto checked = context.attach(coverage);
        context.begin(whole);
        std::vector<std::chrono::steady_clock::time_point> pauses;  // their middles
        while (context.step(0ns) == StepStatus::pending) {
            const auto from = std::chrono::steady_clock::now();
            std::this_thread::sleep_for(2ms);
            pauses.push_back(from + (std::chrono::steady_clock::now() - from) / 2);
        }
        CHECK(bits_of(context.logits()) == last_row);
        CHECK(coverage->differences().empty());
        REQUIRE(recorder->runs.size() == reference->runs.size());
        if (delivery == Delivery::immediate) CHECK(recorder->steps_begun == recorder->steps_ended);
        std::uint64_t time = 0;
        std::vector<int> covered(pauses.size(), 0);
        for (std::size_t r = 0; r < recorder->runs.size(); ++r) {
            const auto &run = recorder->runs[r], &expected = reference->runs[r];
            REQUIRE(run.events.size() == expected.events.size());
            CHECK(run.result.status == EventStatus::ok);
            CHECK(run.result.observed_weight_bytes == expected.result.observed_weight_bytes);
            for (std::size_t i = 0; i < run.events.size(); ++i) {
                const auto& event = run.events[i];
                CHECK(event.name == expected.events[i].name);
                CHECK(event.status == EventStatus::ok);
                CHECK(event.begin >= time);
                CHECK(event.end >= event.begin);
                CHECK(event.busy <= 2 * (event.end - event.begin));
                CHECK(event.work_items >= 1);
                time = event.end;
                for (std::size_t p = 0; p < pauses.size(); ++p)
                    covered[p] +=
                        recorder->time_of(event.begin) < pauses[p] && pauses[p] < recorder->time_of(event.end);
            }
            CHECK(run.result.end >= time);
        }
        CHECK(std::ranges::all_of(covered, [](int n) { return n <= 1; }));
        CHECK(std::ranges::count(covered, 0) > 50);  // pauses between steps: two runs of more than thirty
    }
}

TEST_CASE_FIXTURE(SlicesFixture, "slices: while a decode is pending the context is busy for what would change it") {
    Context context(model, options());
    CHECK(code_of_call([&] { (void)context.step(1ms); }) == ErrorCode::bad_parameter);
    REQUIRE(context.decode(first) == DecodeStatus::ok);
    const auto recorder = std::make_shared<Recorder>();
    Attachment attached = context.attach(recorder);
    context.begin(prompt);
    for (int i = 0; i < 3; ++i) {
        const auto busy = [&](const std::function<void()>& fn) { CHECK(code_of_call(fn) == ErrorCode::busy); };
        busy([&] { (void)context.decode(first); });
        busy([&] { context.begin(first); });
        busy([&] { context.begin({Token{1}}); });
        busy([&] { context.clear(); });
        busy([&] { (void)context.seq_rm(SeqId{0}); });
        busy([&] { context.seq_keep(SeqId{0}); });
        busy([&] { context.set_threads(1, 1); });
        busy([&] { (void)context.attach(std::make_shared<Observer>()); });
        busy([&] { context.mark("now"); });
        busy([&] { attached.detach(); });
        REQUIRE(context.step(0ns) == StepStatus::pending);
    }
    Context moved(std::move(context));
    attached = {};  // asks for it; after the decode
    CHECK_FALSE(recorder->detached);
    (void)step_to_end(moved, 10us);
    CHECK(recorder->detached);
    CHECK(bits_of(moved.logits()) == last_row);
    CHECK(code_of_call([&] { (void)moved.step(1ms); }) == ErrorCode::bad_parameter);
}

TEST_CASE_FIXTURE(SlicesFixture, "slices: the batch is the context's from begin() on, copied or taken") {
    const auto embeddings_of = [&](int n) {  // rows of some values, of two sequences
        Batch batch;
        for (int i = 0; i < n; ++i) {
            std::vector<float> row(static_cast<std::size_t>(model.info().n_embd));
            for (std::size_t k = 0; k < row.size(); ++k)
                row[k] = 0.01f * static_cast<float>((i * 7 + static_cast<int>(k)) % 13 - 6);
            batch.add_embedding(row, SeqId{i % 2}, i + 1 == n);
        }
        return batch;
    };
    const auto tokens_of = [&](int n) {
        Batch batch;
        for (const Token token : test::random_tokens(n, 128, 8))
            batch.add(token, SeqId{static_cast<int>(batch.size()) % 2}, true);
        return batch;
    };
    const auto make = [&] {
        return Context(model, {.n_ctx = 128, .n_seq_max = 2, .n_ubatch = 8, .n_outputs = 64, .n_threads = 1});
    };
    for (const bool embeds : {false, true}) {
        const auto batch_of = [&](int n) { return embeds ? embeddings_of(n) : tokens_of(n); };
        Context at_once = make();
        REQUIRE(at_once.decode(batch_of(40)) == DecodeStatus::ok);
        const auto expected = bits_of(at_once.logits());
        for (const bool taken : {false, true}) {
            Context context = make();
            for (int round = 0; round < 2; ++round) {
                auto batch = std::make_unique<Batch>(batch_of(40));
                taken ? context.begin(std::move(*batch)) : context.begin(*batch);
                REQUIRE(context.step(0ns) == StepStatus::pending);
                if (!taken) {  // the caller may do with it what he likes
                    batch->clear();
                    *batch = batch_of(3);
                }
                CHECK(code_of_call([&] { context.begin(*batch); }) ==
                      ErrorCode::busy);  // and does not disturb the other
                CHECK(code_of_call([&] { context.begin(batch_of(5)); }) == ErrorCode::busy);
                batch.reset();
                step_to_end(context, 0ns);
                CHECK(bits_of(context.logits()) == expected);
                context.clear();
            }
        }
    }
}

TEST_CASE_FIXTURE(SlicesFixture,
                  "slices: mistakes, a full cache, a cancel and an observer's exception end the decode as ever") {
    bool cancel = false;
    ContextOptions wanted = options();
    wanted.cancel = [&] { return cancel; };
    Context context(model, wanted);
    REQUIRE(context.decode(first) == DecodeStatus::ok);
    CHECK(code_of_call([&] { context.begin(std::vector<Token>{}); }) == ErrorCode::invalid_batch);
    CHECK(code_of_call([&] { (void)context.step(1ms); }) == ErrorCode::bad_parameter);

    context.begin(test::random_tokens(120, 128, 3));
    CHECK(context.step(0ns) == StepStatus::no_room);
    CHECK(context.used() == 10);

    context.begin(prompt);
    for (int i = 0; i < 25; ++i) REQUIRE(context.step(0ns) == StepStatus::pending);
    cancel = true;
    CHECK(context.step(0ns) == StepStatus::cancelled);
    cancel = false;
    CHECK(context.used() == 10);

    struct Thrower : Observer {
        [[nodiscard]] TraceRequest request() const override { return {.delivery = Delivery::immediate}; }
        int left = 30;
        void on_step_end(const KernelEvent&, const StepValues&) override {
            if (--left == 0) throw std::runtime_error("enough");
        }
    };
    {
        const auto attached = context.attach(std::make_shared<Thrower>());
        context.begin(prompt);
        CHECK(code_of_call([&] {
                  while (context.step(0ns) == StepStatus::pending) {
                  }
              }) == ErrorCode::compute_failed);
        CHECK(context.used() == 10);
    }
    context.begin(prompt);
    (void)step_to_end(context, 0ns);
    CHECK(bits_of(context.logits()) == last_row);
}

TEST_CASE_FIXTURE(SlicesFixture,
                  "slices: a context that ends with a decode pending shows observers the end of the run") {
    const auto recorder = std::make_shared<Recorder>();
    for (const bool explicitly : {false, true}) {
        recorder->runs.clear();
        recorder->begun = 0;
        recorder->detached = false;
        Context context(model, options());
        const auto attached = context.attach(recorder);
        context.begin(prompt);
        for (int n = 0; n < 5; n += recorder->begun == 2) REQUIRE(context.step(0ns) == StepStatus::pending);
        if (explicitly) context.abandon();
        else Context(std::move(context));
        CHECK(recorder->detached != explicitly);
        REQUIRE(recorder->runs.size() == 2);
        CHECK(recorder->runs[0].result.status == EventStatus::ok);
        CHECK(recorder->runs[1].result.status == EventStatus::cancelled);
        CHECK(recorder->runs[1].result.rolled_back);
        for (const auto& event : recorder->runs[1].events) CHECK(event.status != EventStatus::failed);
    }
}

TEST_CASE_FIXTURE(SlicesFixture,
                  "slices: a page shared by two sequences is copied on the way, and nothing is allocated") {
    Context context(model, {.n_ctx = 256, .n_seq_max = 2, .n_ubatch = 15, .n_outputs = 2, .n_threads = 1});
    REQUIRE(context.decode(first) == DecodeStatus::ok);
    context.seq_cp(SeqId{0}, SeqId{1});
    Batch batch;
    for (int i = 0; i < 45; ++i)
        batch.add(prompt[static_cast<std::size_t>(i)], Pos{10 + i}, SeqId{i % 2 == 0 ? 0 : 1}, i >= 43);
    Batch apart;
    for (int s = 0; s < 2; ++s)
        for (int i = 0; i < 45; ++i) apart.add(prompt[static_cast<std::size_t>(i)], Pos{10 + i}, SeqId{s}, i == 44);
    CHECK(code_of_call([&] { context.begin(batch); }) == ErrorCode::invalid_batch);  // positions with gaps
    for (int round = 0; round < 2; ++round) {                                        // the first one warms up
        const test::AllocationScope scope;
        context.begin(apart);
        (void)step_to_end(context, 0ns);
        if (round == 1) CHECK(scope.count() == 0);
        CHECK(bits_of(context.logits(0)) == last_row);
        CHECK(bits_of(context.logits(1)) == last_row);
        if (round == 1) break;
        (void)context.rm_all_seqs(Pos{10}, kPosEnd);
        (void)context.seq_rm(SeqId{1});
        context.seq_cp(SeqId{0}, SeqId{1});
    }
}

}  // namespace tinfer
