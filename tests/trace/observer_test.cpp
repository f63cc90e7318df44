// SPDX-License-Identifier: MIT
// The observer as a guest: it comes and goes at run time, gets what it asked for in the promised order, and changes
// nothing: plans, kernels and every bit of the logits are the same with and without it.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "base/access.hpp"
#include "base/error.hpp"
#include "support/code_of.hpp"
#include "trace/trace_support.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

ContextOptions plain(int n_threads = 1) { return {.n_ctx = 128, .n_seq_max = 2, .n_threads = n_threads}; }

void decode(Context& context, int token) { REQUIRE(context.decode(std::array{Token{token}}) == DecodeStatus::ok); }

/// Calls a function from one kind of callback.
class Caller : public Observer {
public:
    std::function<void()> on_everything;
    [[nodiscard]] TraceRequest request() const override {
        return {.delivery = immediate ? Delivery::immediate : Delivery::batched};
    }
    void on_session(const SessionInfo&) override { call(); }
    void on_plan(const PlanView&) override { call(); }
    void on_run_begin(const RunInfo&) override { call(); }
    void on_step_begin(const StepView&) override { call(); }
    void on_step_end(const KernelEvent&, const StepValues&) override { call(); }
    void on_events(std::span<const KernelEvent>) override { call(); }
    void on_run_end(const RunResult&) override { call(); }
    void on_sample(const SampleEvent&) override { call(); }
    void on_mark(std::uint64_t, std::string_view) override { call(); }
    void on_detach(const SessionSummary&) noexcept override { ++detached; }
    bool immediate = false;
    int calls = 0, detached = 0;

private:
    void call() {
        ++calls;
        if (on_everything) on_everything();
    }
};

class Shared : public Caller {
public:
    [[nodiscard]] bool thread_safe() const override { return true; }
};

/// Writes its letter and the callback's into a shared list.
class Letter : public Observer {
public:
    Letter(char letter, std::string& list) : letter_(letter), list_(list) {}
    void on_run_begin(const RunInfo&) override { list_ += letter_; }
    void on_events(std::span<const KernelEvent>) override { list_ += letter_; }
    void on_run_end(const RunResult&) override { list_ += letter_; }

private:
    char letter_;
    std::string& list_;
};

}  // namespace

TEST_CASE("[X16] trace: observers are attached and detached at run time; events go on where they stopped") {
    Context context(load_tiny("llama"), plain());
    decode(context, 1);
    const auto first = std::make_shared<Recorder>();
    auto attached = context.attach(first);
    CHECK(attached.attached());
    CHECK(first->calls == "s");
    decode(context, 2);
    CHECK(first->calls == "spbve");
    decode(context, 3);
    CHECK(first->calls == "spbvebve");
    attached.detach();
    CHECK(!attached.attached());
    CHECK(first->calls == "spbvebved");
    CHECK(first->summary.runs == 2);
    CHECK(first->summary.events == first->events.size());
    CHECK(first->summary.filtered == 0);
    CHECK(first->summary.error.empty());
    decode(context, 4);
    CHECK(first->calls == "spbvebved");
    attached.detach();  // once more is no harm
    const std::uint64_t seen = first->events.size();

    const auto second = std::make_shared<Recorder>();
    {
        const auto again = context.attach(second);
        decode(context, 5);
        CHECK(second->events.front().index == seen);
        CHECK(second->runs.front().info.run == 2);
        CHECK(second->events.front().begin >= first->events.back().end);  // time zero stays that of the first attach
        CHECK(second->session.wall_clock_ns == first->session.wall_clock_ns);
    }
    CHECK(second->calls == "spbved");
    CHECK(code_of([&] { const auto none = context.attach(nullptr); }) == ErrorCode::bad_parameter);
}

TEST_CASE("trace: an attachment may outlive its context, and a context its attachments") {
    const Model model = load_tiny("llama");
    const auto recorder = std::make_shared<Recorder>();
    Attachment attached;
    {
        Context context(model, plain());
        attached = context.attach(recorder);
        Context moved(std::move(context));
        decode(moved, 1);
        CHECK(attached.attached());
    }
    CHECK(recorder->calls == "spbved");
    CHECK(!attached.attached());
    attached.request_detach();
    attached.detach();
    Context context(model, plain());
    attached = context.attach(recorder);  // free again
    CHECK(attached.attached());
    const auto other = std::make_shared<Recorder>();
    attached = context.attach(other);  // replacing detaches
    CHECK(recorder->calls.back() == 'd');
    CHECK(other->calls == "s");
}

TEST_CASE("trace: an observer serves one context unless it says that it is thread safe") {
    const Model model = load_tiny("llama");
    Context one(model, plain()), two(model, plain());
    const auto single = std::make_shared<Caller>();
    const auto attached = one.attach(single);
    CHECK(code_of([&] { const auto again = two.attach(single); }) == ErrorCode::bad_parameter);
    CHECK(code_of([&] { const auto again = one.attach(single); }) == ErrorCode::bad_parameter);
    const auto shared = std::make_shared<Shared>();
    const auto on_one = one.attach(shared), on_two = two.attach(shared);
    decode(one, 1);
    const int calls = shared->calls;
    decode(two, 1);
    CHECK(shared->calls > calls);
    class Unwilling : public Observer {
        void on_session(const SessionInfo&) override { throw std::runtime_error("no"); }
    };
    const auto unwilling = std::make_shared<Unwilling>();
    CHECK_THROWS_WITH((void)one.attach(unwilling), "no");
    CHECK(detail::Access::n_attached(*unwilling) == 0);
    decode(one, 2);
}

TEST_CASE("trace: several observers are called in the order of attaching, each as it asked") {
    Context context(load_tiny("llama"), plain(2));
    std::string list;
    const auto a = context.attach(std::make_shared<Letter>('a', list));
    auto b = context.attach(std::make_shared<Letter>('b', list));
    const auto c = context.attach(std::make_shared<Letter>('c', list));
    decode(context, 1);
    CHECK(list == "abcabcabc");
    b.detach();
    list.clear();
    decode(context, 1);
    CHECK(list == "acacac");

    const auto batched = std::make_shared<Recorder>(),
               immediate = std::make_shared<Recorder>(TraceRequest{.delivery = Delivery::immediate});
    const auto first = context.attach(batched), second = context.attach(immediate);
    decode(context, 1);
    std::string steps;
    for (std::size_t i = 0; i < immediate->events.size(); ++i) steps += "{}";
    CHECK(batched->calls == "spbve");
    CHECK(immediate->calls == "spb" + steps + "e");
    REQUIRE(batched->events.size() == immediate->events.size());
    for (std::size_t i = 0; i < batched->events.size(); ++i)
        CHECK(batched->events[i].signature() == immediate->events[i].signature());
}

TEST_CASE("trace: filters choose events by op, layer, part, phase, tensor and run; the others keep their index") {
    const Model model = load_tiny("llama");
    struct Case {
        std::string name;
        EventFilter filter;
        std::function<bool(const SeenEvent&)> passes;
    };
    const auto touches = [](std::string_view part) {
        return [part](const SeenEvent& event) {
            for (const SeenAccess& access : event.accesses)
                if (access.name.find(part) != std::string::npos) return true;
            return false;
        };
    };
    const std::vector<Case> cases{
        {"op",
         {.ops = {Op::attention, Op::rope}},
         [](const SeenEvent& e) { return e.op == Op::attention || e.op == Op::rope; }},
        {"layer", {.layers = {1}}, [](const SeenEvent& e) { return e.layer == 1; }},
        {"no layer", {.layers = {kNoLayer}}, [](const SeenEvent& e) { return e.layer == kNoLayer; }},
        {"part",
         {.parts = {Part::ffn, Part::head}},
         [](const SeenEvent& e) { return e.part == Part::ffn || e.part == Part::head; }},
        {"phase", {.phases = {Phase::decode}}, [](const SeenEvent& e) { return e.phase == Phase::decode; }},
        {"tensor", {.tensors = {"blk.?.ffn_*.weight"}}, touches(".ffn_")},
        {"cache", {.tensors = {"cache_k-0"}}, touches("cache_k-0")},
        {"nth", {.every_nth_run = 2}, [](const SeenEvent& e) { return e.run % 2 == 0; }},
        {"range", {.first_run = 1, .last_run = 2}, [](const SeenEvent& e) { return e.run == 1 || e.run == 2; }},
        {"both",
         {.ops = {Op::attention}, .layers = {0}},
         [](const SeenEvent& e) { return e.op == Op::attention && e.layer == 0; }},
        {"none", {.tensors = {"nothing*"}}, [](const SeenEvent&) { return false; }},
    };
    for (const Case& c : cases)
        for (const auto delivery : {Delivery::batched, Delivery::immediate}) {
            CAPTURE(c.name);
            ContextOptions options = plain();
            options.fuse = false;
            Context context(model, options);
            const auto all = std::make_shared<Recorder>();
            const auto some = std::make_shared<Recorder>(TraceRequest{.delivery = delivery, .filter = c.filter});
            const auto check = std::make_shared<CoverageCheck>();
            auto attached_all = context.attach(all), attached_some = context.attach(some),
                 attached_check = context.attach(check);
            REQUIRE(context.decode(random_tokens(5, 100, 1)) == DecodeStatus::ok);
            for (int i = 0; i < 4; ++i) decode(context, i);
            std::vector<std::uint64_t> expected, seen;
            for (const SeenEvent& event : all->events)
                if (c.passes(event)) expected.push_back(event.index);
            for (const SeenEvent& event : some->events) seen.push_back(event.index);
            CHECK(seen == expected);
            CHECK((expected.empty() == (c.name == "none")));
            attached_some.detach();
            CHECK(some->summary.events == expected.size());
            CHECK(some->summary.filtered == all->events.size() - expected.size());
            CHECK(differences_of(*check) == "");
        }
}

TEST_CASE("trace: immediate delivery shows the values that the step read and wrote") {
    class Watch : public Observer {
    public:
        [[nodiscard]] TraceRequest request() const override { return {.delivery = Delivery::immediate}; }
        void on_step_end(const KernelEvent& event, const StepValues& values) override {
            CHECK(values.value(8).missing == StepValues::Missing::not_requested);
            CHECK(values.value(77).missing == StepValues::Missing::not_requested);
            for (const Access& access : event.accesses)
                if (access.kind == AccessKind::elided) {
                    CHECK(values.value(access.slot).missing == StepValues::Missing::elided);
                    CHECK(values.value(access.slot).data.empty());
                    ++elided;
                }
            if (event.step->op == Op::get_rows && event.step->nodes[0]->name == "inp_embd")
                CHECK(values.value(2).data.size() == 3 * 4);
            if (event.step->op != Op::silu) return;
            const auto y = values.value(0), x = values.value(1);
            CHECK(y.tensor == event.step->nodes[0]->output);
            REQUIRE(x.data.size() == x.tensor->bytes);
            REQUIRE(x.data.size() == y.data.size());
            for (std::size_t i = 0; i < x.data.size() / 4; ++i) {
                const double in = reinterpret_cast<const float*>(x.data.data())[i],
                             out = reinterpret_cast<const float*>(y.data.data())[i];
                // exp, 1+, / in float: a few units in the last place (2^-24 each)
                CHECK(std::abs(out - in / (1 + std::exp(-in))) <= 8 * 0x1p-24 * std::abs(in));
                largest = std::max(largest, std::abs(out));
            }
            ++steps;
        }
        int steps = 0, elided = 0;
        double largest = 0;
    };
    for (const bool fuse : {false, true}) {
        ContextOptions options = plain(3);
        options.fuse = fuse;
        Context context(load_tiny("llama", DType::q8_0), options);
        const auto watch = std::make_shared<Watch>();
        const auto attached = context.attach(watch);
        REQUIRE(context.decode(random_tokens(3, 100, 1)) == DecodeStatus::ok);
        CHECK(watch->steps == (fuse ? 0 : 2));
        CHECK((watch->elided > 0) == fuse);
        if (!fuse) CHECK(watch->largest > 0.01);
    }
}

TEST_CASE("[X16] trace: a request to detach inside a callback takes effect after the decode") {
    for (const bool by_destruction : {false, true}) {
        ContextOptions options = plain();
        options.n_ubatch = 2;
        Context context(load_tiny("llama"), options);
        const auto caller = std::make_shared<Caller>();
        auto attached = std::make_unique<Attachment>(context.attach(caller));
        caller->on_everything = [&] {
            if (!attached) return;
            if (by_destruction) attached.reset();
            else attached->request_detach();
        };
        REQUIRE(context.decode(random_tokens(6, 100, 1)) == DecodeStatus::ok);
        CHECK(caller->calls ==
              1 + 3 * 3 + 2);  // session; begin, events and end of three runs; plans without and with outputs
        CHECK(caller->detached == 1);
        const int calls = caller->calls;
        decode(context, 1);
        CHECK(caller->calls == calls);
    }
}

TEST_CASE("trace: inside a callback the same context is busy; queries and other contexts are not") {
    const Model model = load_tiny("llama");
    for (const bool immediate : {false, true}) {
        Context context(model, plain(2)), other(model, plain());
        Sampler sampler(model.vocab(), {.temp = 0});
        const auto caller = std::make_shared<Caller>();
        caller->immediate = immediate;
        Attachment attached;
        int checked = 0;
        caller->on_everything = [&] {
            const auto busy = [&](const std::function<void()>& action) { CHECK(code_of(action) == ErrorCode::busy); };
            busy([&] { (void)context.decode(std::array{Token{1}}); });
            busy([&] { (void)context.seq_rm(SeqId{0}); });
            busy([&] { context.seq_cp(SeqId{0}, SeqId{1}); });
            busy([&] { context.seq_keep(SeqId{0}); });
            busy([&] { context.clear(); });
            busy([&] { const auto again = context.attach(std::make_shared<Caller>()); });
            busy([&] { context.mark("x"); });
            if (attached.attached()) busy([&] { attached.detach(); });
            CHECK(context.used() >= 0);
            CHECK(context.model().info().n_layer == 2);
            CHECK(other.decode(std::array{Token{1}}) == DecodeStatus::ok);
            other.clear();
            { const auto there = other.attach(std::make_shared<Caller>()); }
            if (checked == 0)  // another thread meets the same refusal
                std::thread([&] { busy([&] { (void)context.decode(std::array{Token{1}}); }); }).join();
            ++checked;
        };
        attached = context.attach(caller);
        decode(context, 1);
        context.mark("here");
        (void)sampler.sample(context);
        CHECK(checked == caller->calls);
        CHECK(checked > (immediate ? 40 : 6));
        caller->on_everything = nullptr;
        decode(context, 2);
        CHECK(context.count(SeqId{0}) == 2);
    }
}

TEST_CASE("trace: a plan is announced once, by its hash, however often the context makes it anew") {
    using Hash = std::array<std::uint8_t, 16>;
    struct Plans : Observer {
        std::vector<std::pair<std::uint32_t, Hash>> announced;
        std::map<std::uint32_t, Hash> by_id;
        int runs = 0, unknown = 0;
        std::uint64_t wrong_steps = 0;
        void on_plan(const PlanView& plan) override {
            announced.emplace_back(plan.id, plan.hash);
            by_id.emplace(plan.id, plan.hash);
        }
        void on_run_begin(const RunInfo& run) override {
            ++runs;
            const auto known = by_id.find(run.plan->id);
            unknown += known == by_id.end() || known->second != run.plan->hash ? 1 : 0;
        }
        void on_events(std::span<const KernelEvent> events) override {
            for (const KernelEvent& event : events)  // of the plan that is shown, not of one before
                wrong_steps += &event.run->plan->steps[event.step->number] == event.step ? 0 : 1;
        }
    };
    const Model model = load_tiny("llama");
    Context context(model, {.n_ctx = 128, .n_ubatch = 128});
    const auto first = std::make_shared<Plans>(), second = std::make_shared<Plans>();
    const auto check = std::make_shared<CoverageCheck>();
    const auto attached = context.attach(first), checked = context.attach(check);
    std::optional<Attachment> later;
    constexpr int kLengths = 90;  // more than the context keeps plans (16), and more than the session keeps views (64)
    for (int round = 0; round < 3; ++round) {
        if (round == 1) later = context.attach(second);
        for (int n = 1; n <= kLengths; ++n) {
            context.clear();
            REQUIRE(context.decode(random_tokens(n, 100, 6)) == DecodeStatus::ok);
        }
    }
    for (const auto& [observer, rounds] : {std::pair(first, 3), std::pair(second, 2)}) {
        CHECK(observer->runs == rounds * kLengths);
        CHECK(observer->unknown == 0);
        CHECK(observer->wrong_steps == 0);
        CHECK(observer->announced.size() == kLengths);
        std::set<std::uint32_t> ids;
        std::set<Hash> hashes;
        for (const auto& [id, hash] : observer->announced) {
            ids.insert(id);
            hashes.insert(hash);
        }
        CHECK(ids.size() == kLengths);
        CHECK(hashes.size() == kLengths);
    }
    CHECK(first->announced == second->announced);
    CHECK(check->runs() == 3 * kLengths);
    CHECK(differences_of(*check) == "");
}

TEST_CASE("trace: marks and samples are seen by every observer, with their time and choice") {
    const Model model = load_tiny("llama");
    Context context(model, plain());
    const auto a = std::make_shared<Recorder>(), b = std::make_shared<Recorder>();
    const auto attached_a = context.attach(a), attached_b = context.attach(b);
    Sampler sampler(model.vocab(), {.top_k = 5, .temp = 0.8f, .seed = 3});
    Batch batch;
    for (int i = 0; i < 3; ++i) batch.add(Token{i}, Pos{i}, SeqId{0}, i > 0);
    REQUIRE(context.decode(std::array{Token{9}}) == DecodeStatus::ok);
    batch.clear();
    batch.add(Token{4}, Pos{1}, SeqId{0}, true);
    batch.add(Token{4}, Pos{0}, SeqId{1}, true);
    REQUIRE(context.decode(batch) == DecodeStatus::ok);
    context.mark("second question");
    const Token chosen = sampler.sample(context, -2);
    for (const auto& recorder : {a, b}) {
        REQUIRE(recorder->marks.size() == 1);
        CHECK(recorder->marks[0].second == "second question");
        CHECK(recorder->marks[0].first >= recorder->events.back().end);
        REQUIRE(recorder->samples.size() == 1);
        const SampleEvent& sample = recorder->samples[0];
        CHECK(sample.run == 1);
        CHECK(sample.time >= recorder->marks[0].first);
        CHECK(sample.duration > 0);
        CHECK(sample.output_index == 0);
        CHECK(sample.token == chosen);
        CHECK(sample.p > 0);
        CHECK(sample.p <= 1);
        CHECK(sample.candidates_left >= 1);
        CHECK(sample.candidates_left <= 5);
    }
}

TEST_CASE("[N1] trace: logits, plan hashes and kernel names are the same whoever watches") {
    const auto tokens = random_tokens(16, 100, 6);
    struct Outcome {
        std::vector<std::uint32_t> bits;
        std::vector<std::array<std::uint8_t, 16>> hashes;
        std::vector<std::string> kernels;
    };
    const auto run = [&](const Model& model, const ContextOptions& options, const std::vector<TraceRequest>& requests) {
        Context context(model, options);
        std::vector<std::shared_ptr<Recorder>> recorders;
        std::vector<Attachment> attachments;
        for (const TraceRequest& request : requests) {
            recorders.push_back(std::make_shared<Recorder>(request));
            attachments.push_back(context.attach(recorders.back()));
        }
        Outcome outcome;
        const auto decode_some = [&](std::size_t first, std::size_t n) {
            REQUIRE(context.decode(std::span(tokens).subspan(first, n)) == DecodeStatus::ok);
            const auto bits = bits_of(context.logits());
            outcome.bits.insert(outcome.bits.end(), bits.begin(), bits.end());
        };
        decode_some(0, 13);
        for (std::size_t i = 13; i < tokens.size(); ++i) decode_some(i, 1);
        for (const auto& recorder : recorders) {
            Outcome one;
            for (const SeenPlan& plan : recorder->plans) {
                one.hashes.push_back(plan.hash);
                one.kernels.insert(one.kernels.end(), plan.kernels.begin(), plan.kernels.end());
            }
            if (recorder != recorders.front()) {
                CHECK(one.hashes == outcome.hashes);
                CHECK(one.kernels == outcome.kernels);
            }
            outcome.hashes = one.hashes;
            outcome.kernels = one.kernels;
        }
        return outcome;
    };
    for (const char* arch : {"llama", "qwen2moe", "qwen3"})
        for (const int n_threads : {1, 3})
            for (const bool fuse : {true, false}) {
                if (n_threads == 3 && !fuse) continue;
                CAPTURE(arch);
                ContextOptions options = plain(n_threads);
                options.n_ubatch = 8;
                options.fuse = fuse;
                const Model model = load_tiny(arch, DType::q4_k);
                const Outcome undisturbed = run(model, options, {});
                Outcome watched;
                for (const auto level : {TraceLevel::counts, TraceLevel::steps, TraceLevel::threads})
                    for (const auto delivery : {Delivery::batched, Delivery::immediate}) {
                        const TraceRequest request{.level = level, .delivery = delivery};
                        const TraceRequest filtered{.level = level, .delivery = delivery, .filter = {.layers = {1}}};
                        for (const auto& requests :
                             {std::vector{request}, std::vector{request, filtered, TraceRequest{}}}) {
                            const Outcome outcome = run(model, options, requests);
                            CHECK(outcome.bits == undisturbed.bits);
                            CHECK(outcome.hashes.size() == 3);  // 8 rows, 5 rows with the head, 1
                            if (watched.hashes.empty()) watched = outcome;
                            CHECK(outcome.hashes == watched.hashes);
                            CHECK(outcome.kernels == watched.kernels);
                        }
                    }
            }
}
