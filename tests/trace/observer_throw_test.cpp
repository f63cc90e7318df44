// SPDX-License-Identifier: MIT
// Observers that throw: at every callback of every kind the decode is undone, says so, keeps the cause, and the next
// one is as if nothing had happened; or, where the observer asks for it, the run goes on without it.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <stdexcept>

#include "base/error.hpp"
#include "trace/trace_support.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

/// Throws at the k-th callback of one kind (letters as in Recorder).
class Thrower : public Recorder {
public:
    Thrower(Delivery delivery, OnThrow on_throw) : Recorder({.delivery = delivery, .on_throw = on_throw}) {}
    char kind = 0;
    int k = 0;
    bool library_error = false;
    std::map<char, int> seen;

    void on_plan(const PlanView& plan) override { Recorder::on_plan(plan), count('p'); }
    void on_run_begin(const RunInfo& run) override { Recorder::on_run_begin(run), count('b'); }
    void on_step_begin(const StepView& step) override { Recorder::on_step_begin(step), count('{'); }
    void on_step_end(const KernelEvent& event, const StepValues& values) override {
        Recorder::on_step_end(event, values), count('}');
    }
    void on_events(std::span<const KernelEvent> list) override { Recorder::on_events(list), count('v'); }
    void on_run_end(const RunResult& result) override { Recorder::on_run_end(result), count('e'); }

private:
    void count(char which) {
        if (seen[which]++ != k || which != kind) return;
        kind = 0;  // once
        if (library_error) fail(ErrorCode::busy, "boom");
        throw std::runtime_error("boom");
    }
};

// Two micro-batches after a page copy: five tokens behind a shared prefix.
struct Scene {
    explicit Scene(const Model& model, int n_threads = 1)
        : context(model, {.n_ctx = 64, .n_seq_max = 2, .n_ubatch = 3, .n_threads = n_threads}) {
        REQUIRE(context.decode(std::span(tokens).first(4)) == DecodeStatus::ok);
        context.seq_cp(SeqId{0}, SeqId{1});
    }
    [[nodiscard]] std::vector<std::uint32_t> decode() {
        REQUIRE(context.decode(std::span(tokens).subspan(4)) == DecodeStatus::ok);
        return bits_of(context.logits());
    }
    std::vector<Token> tokens = random_tokens(9, 100, 12);
    Context context;
};

std::string nested_text(const std::exception& error) {
    try {
        std::rethrow_if_nested(error);
    } catch (const std::exception& nested) {
        return nested.what();
    }
    return "nothing nested";
}

// A begin for every end, as long as no callback was left out after a throw.
void check_pairs(const Recorder& recorder) {
    for (const SeenRun& run : recorder.runs) {
        CHECK(run.ended);
        if (run.result.status != EventStatus::ok) CHECK(run.result.rolled_back);
    }
    CHECK(std::ranges::count(recorder.calls, 'b') == std::ranges::count(recorder.calls, 'e'));
}

}  // namespace

TEST_CASE("trace: an observer that throws at any callback fails the decode, which leaves the context as it was") {
    const Model model = load_tiny("llama");
    Scene undisturbed(model);
    const auto expected = undisturbed.decode();
    for (const auto delivery : {Delivery::batched, Delivery::immediate}) {
        const auto counting = std::make_shared<Thrower>(delivery, OnThrow::fail_decode);
        {
            Scene scene(model);
            const auto attached = scene.context.attach(counting);
            CHECK(scene.decode() == expected);
            CHECK(counting->seen['b'] == 3);
        }
        for (const auto& seen : counting->seen)
            for (int k = 0; k < seen.second; ++k) {
                const char kind = seen.first;
                CAPTURE(std::string(1, kind));
                CAPTURE(k);
                Scene scene(model, k % 8 == 0 ? 3 : 1);
                const auto before = std::make_shared<Recorder>(),
                           after = std::make_shared<Recorder>(TraceRequest{.delivery = delivery});
                const auto thrower = std::make_shared<Thrower>(delivery, OnThrow::fail_decode);
                thrower->kind = kind;
                thrower->k = k;
                thrower->library_error = k % 2 == 1;
                const auto a = scene.context.attach(before), attached = scene.context.attach(thrower),
                           c = scene.context.attach(after);
                bool thrown = false;
                try {
                    (void)scene.context.decode(std::span(scene.tokens).subspan(4));
                } catch (const Error& error) {
                    thrown = true;
                    CHECK(error.code() == ErrorCode::compute_failed);
                    CHECK(std::string_view(error.what()) == "observer failed: boom");
                    CHECK(nested_text(error) == "boom");
                }
                CHECK(thrown);
                CHECK(attached.attached());
                CHECK(scene.context.n_outputs() == 0);
                CHECK(scene.context.used() == 4);
                CHECK(scene.context.seq_pos_max(SeqId{0}) == Pos{3});
                CHECK(scene.context.seq_pos_max(SeqId{1}) == Pos{3});
                for (const auto& recorder : {before, after}) check_pairs(*recorder);
                if (kind == 'v') CHECK(after->runs.back().result.status == EventStatus::failed);
                CHECK(scene.decode() == expected);
                CHECK(thrower->runs.back().result.status == EventStatus::ok);
                CHECK(before->runs.back().result.status == EventStatus::ok);
            }
    }
}

TEST_CASE("trace: an observer that asks for it is detached when it throws, and the run goes on") {
    const Model model = load_tiny("llama");
    const auto expected = Scene(model).decode();
    for (const auto delivery : {Delivery::batched, Delivery::immediate})
        for (const char kind : {'p', 'b', '{', '}', 'v', 'e'}) {
            if ((delivery == Delivery::batched) == (kind == '{' || kind == '}')) continue;
            if (delivery == Delivery::immediate && kind == 'v') continue;
            CAPTURE(std::string(1, kind));
            Scene scene(model);
            const auto thrower = std::make_shared<Thrower>(delivery, OnThrow::detach);
            thrower->kind = kind;
            const auto other = std::make_shared<Recorder>();
            const auto attached = scene.context.attach(thrower), watching = scene.context.attach(other);
            CHECK(scene.decode() == expected);
            CHECK(!attached.attached());
            CHECK(thrower->seen[kind] == 1);
            CHECK(thrower->calls.back() == 'd');
            CHECK(thrower->summary.error == "boom");
            check_pairs(*other);
            CHECK(other->runs.size() == 3);
            const std::string calls = thrower->calls;
            REQUIRE(scene.context.decode(std::array{Token{1}}) == DecodeStatus::ok);
            CHECK(thrower->calls == calls);
        }
}

TEST_CASE("trace: an observer that throws at a sample takes no token from anybody: the next sample draws it again") {
    struct Unwilling : Observer {
        int n = 0, every = 3;
        std::vector<Token> shown;
        void on_sample(const SampleEvent& event) override {
            shown.push_back(event.token);
            if (++n % every != 0) throw std::runtime_error("boom");
        }
    };
    const Model model = load_tiny("llama");
    // With and without a row that is sorted (top_k), penalties that remember what was accepted, a grid of seeds.
    for (const SamplerOptions& options : {SamplerOptions{.top_k = 0, .top_p = 1, .min_p = 0, .temp = 1.5f, .seed = 7},
                                          SamplerOptions{.penalty_repeat = 1.5f, .top_k = 20, .temp = 1.2f, .seed = 8},
                                          SamplerOptions{.penalty_repeat = 1.3f, .temp = 0}}) {
        Context watched(model, {.n_ctx = 128}), alone(model, {.n_ctx = 128});
        Sampler sampler(model.vocab(), options), undisturbed(model.vocab(), options);
        const auto observer = std::make_shared<Unwilling>();
        const auto seen = std::make_shared<Recorder>();
        const auto attached = watched.attach(observer), too = watched.attach(seen);
        std::vector<Token> last{Token{3}};
        for (int i = 0; i < 40; ++i) {
            REQUIRE(watched.decode(last) == DecodeStatus::ok);
            REQUIRE(alone.decode(last) == DecodeStatus::ok);
            const Token expected = undisturbed.sample(alone.logits());
            const auto accepted = sampler.recent(64);
            std::optional<Token> drawn;
            for (int tries = 0; tries < 3; ++tries) {
                try {
                    drawn = sampler.sample(watched);
                } catch (const Error& error) {
                    CHECK(error.code() == ErrorCode::compute_failed);
                    CHECK(nested_text(error) == "boom");
                    CHECK(sampler.recent(64) == accepted);
                }
                CHECK(drawn.has_value() == (tries == 2));
            }
            CHECK(drawn == expected);
            CHECK(sampler.recent(1) == std::vector{expected});
            const Sampler copy = sampler;
            CHECK(copy.recent(64) == sampler.recent(64));
            last = {expected};
        }
        CHECK(sampler.samples() == 40);
        CHECK(observer->shown.size() == 120);
        for (std::size_t i = 0; i < observer->shown.size(); ++i)
            CHECK(observer->shown[i] == observer->shown[i / 3 * 3]);
        CHECK(seen->samples.size() == 120);
    }
}

TEST_CASE("trace: a cancelled decode ends its run as cancelled and rolled back, events counted") {
    const Model model = load_tiny("llama");
    int left = 0;
    ContextOptions options{.n_ctx = 64, .n_threads = 2};
    options.cancel = [&] { return left-- == 0; };
    Context context(model, options);
    const auto recorder = std::make_shared<Recorder>();
    auto attached = context.attach(recorder);
    left = 5;
    CHECK(context.decode(std::array{Token{1}}) == DecodeStatus::cancelled);
    REQUIRE(recorder->runs.size() == 1);
    CHECK(recorder->runs[0].ended);
    CHECK(recorder->runs[0].result.status == EventStatus::cancelled);
    CHECK(recorder->runs[0].result.rolled_back);
    CHECK(recorder->runs[0].result.events == recorder->events.size());
    CHECK(recorder->events.size() < recorder->plans.at(0).kernels.size());
    CHECK(recorder->events.back().status == EventStatus::cancelled);
    left = -1;
    REQUIRE(context.decode(std::array{Token{1}}) == DecodeStatus::ok);
    attached.detach();
    CHECK(recorder->summary.events == recorder->events.size());
    CHECK(recorder->summary.filtered == 0);
}
