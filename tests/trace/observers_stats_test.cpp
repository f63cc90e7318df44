// SPDX-License-Identifier: MIT
// Observers that count: their sums on events made by hand, on real runs against what else is known of them, and on
// recorded traces against the same runs live.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "support/golden.hpp"
#include "trace/trace_file_support.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

/// Weights of one file behind one another, one step for each that reads all of it, and runs of such steps.
class WeightScript {
public:
    explicit WeightScript(std::initializer_list<std::uint64_t> sizes)
        : tensors_(sizes.size()), operands_(sizes.size()), steps_(sizes.size()) {
        std::uint64_t offset = 0;
        std::size_t i = 0;
        for (const std::uint64_t size : sizes) {
            names_.push_back(std::string("w").append(std::to_string(i)));
            tensors_[i].tensor_class = TensorClass::weight;
            tensors_[i].bytes = size;
            tensors_[i].file_index = 0;
            tensors_[i].file_offset = offset;
            operands_[i].tensor = &tensors_[i];
            steps_[i].number = static_cast<std::uint32_t>(i);
            steps_[i].op = i % 2 == 0 ? Op::mul_mat : Op::rms_norm;
            steps_[i].kernel = "kernel";
            steps_[i].layer = i == 0 ? kNoLayer : static_cast<int>(i);
            steps_[i].operands = std::span(&operands_[i], 1);
            offset += size;
            ++i;
        }
        for (i = 0; i < tensors_.size(); ++i) tensors_[i].name = names_[i];
        plan_.id = 1;
        plan_.steps = steps_;
        run_.plan = &plan_;
    }
    WeightScript(const WeightScript&) = delete;
    WeightScript& operator=(const WeightScript&) = delete;

    [[nodiscard]] SessionInfo session() const {
        SessionInfo info;
        info.weights = tensors_;
        return info;
    }
    Access& operand(std::size_t i) { return operands_[i]; }
    /// A run of one event for each (step, duration), with gaps of 10 ns between.
    void run(Observer& observer, const std::vector<std::pair<std::size_t, std::uint64_t>>& steps,
             std::span<const ThreadSpan> threads = {}) {
        std::vector<KernelEvent> events;
        std::uint64_t time = run_.begin = 1000;
        for (const auto& [step, duration] : steps) {
            KernelEvent& event = events.emplace_back();
            event.run = &run_;
            event.step = &steps_[step];
            event.begin = time;
            event.end = time + duration;
            event.accesses = steps_[step].operands;
            event.bytes_read = operands_[step].bytes();
            event.macs = 100 * (step + 1);
            event.threads = threads;
            time += duration + 10;
        }
        observer.on_run_begin(run_);
        observer.on_events(events);
        observer.on_run_end({.run = &run_, .end = time});
        ++run_.run;
    }

private:
    std::vector<std::string> names_;
    std::vector<TensorInfo> tensors_;
    std::vector<Access> operands_;
    std::vector<StepView> steps_;
    PlanView plan_;
    RunInfo run_;
};

const StatsRow& row_named(const std::vector<StatsRow>& rows, std::string_view name) {
    const auto found = std::ranges::find(rows, name, &StatsRow::name);
    if (found == rows.end()) throw std::runtime_error("no row " + std::string(name));
    return *found;
}

void decode_one_by_one(Context& context, int n, std::uint64_t seed = 7) {
    for (const Token token : random_tokens(n, context.model().info().n_vocab, seed))
        REQUIRE(context.decode(std::array{token}) == DecodeStatus::ok);
}

/// The experts that each token chose, from the router's own output.
struct RouterTruth : Observer {
    std::map<int, std::vector<std::vector<std::int32_t>>> chosen;  // by layer, then token
    [[nodiscard]] TraceRequest request() const override {
        return {.delivery = Delivery::immediate, .filter = {.ops = {Op::moe_weights}}};
    }
    void on_step_end(const KernelEvent& event, const StepValues& values) override {
        const auto ids = values.value(2);
        const auto k = static_cast<std::size_t>(ids.tensor->ne[0]);
        std::vector<std::int32_t> all(ids.data.size() / 4);
        std::memcpy(all.data(), ids.data.data(), ids.data.size());
        for (std::size_t t = 0; t < all.size() / k; ++t)
            chosen[event.step->layer].emplace_back(all.begin() + static_cast<std::ptrdiff_t>(t * k),
                                                   all.begin() + static_cast<std::ptrdiff_t>((t + 1) * k));
    }
};

}  // namespace

TEST_CASE("trace stats: calls, times, bytes and thread balance of every grouping add up") {
    WeightScript script{1000, 200, 3000};
    script.operand(2).passes = 3;
    TraceStats stats(TraceLevel::threads);
    const std::array threads{ThreadSpan{.busy = 30}, ThreadSpan{.busy = 10}};
    script.run(stats, {{0, 100}, {1, 40}, {2, 500}}, threads);
    script.run(stats, {{0, 300}, {1, 40}, {2, 500}}, threads);
    CHECK(stats.request().level == TraceLevel::threads);
    CHECK(stats.runs() == 2);
    CHECK(stats.events() == 6);
    CHECK(stats.run_time() == 1480 + 60);
    CHECK(stats.gap_time() == 60);

    const auto ops = stats.rows(StatsBy::op);
    REQUIRE(ops.size() == 2);
    CHECK(ops[0].name == "mul_mat");  // by time
    CHECK(ops[0].calls == 4);
    CHECK(ops[0].time == 1400);
    CHECK(ops[0].min == 100);
    CHECK(ops[0].max == 500);
    CHECK(ops[0].median == doctest::Approx(300).epsilon(0.09));
    CHECK(ops[0].bytes_read == 8000);
    CHECK(ops[0].bytes_written == 0);
    CHECK(ops[0].bytes_streamed == 2000 + 18000);
    CHECK(ops[0].macs == 2 * 100 + 2 * 300);
    CHECK(ops[0].imbalance == doctest::Approx(1.0 / 3));  // 1 − 20/30
    CHECK(row_named(stats.rows(StatsBy::layer), "-").time == 400);
    CHECK(row_named(stats.rows(StatsBy::layer), "1").median == 40);  // all alike: exact
    CHECK(row_named(stats.rows(StatsBy::tensor), "w2").bytes_streamed == 18000);
    CHECK(row_named(stats.rows(StatsBy::kernel), "kernel").calls == 6);
    CHECK(row_named(stats.rows(StatsBy::phase), "decode").calls == 6);
    CHECK(stats.csv(StatsBy::layer).starts_with("layer,calls,time_ns,min_ns,median_ns,max_ns,"));
    CHECK(stats.csv(StatsBy::layer).find("\n1,2,80,40,40,40,400,0,400,400,0.333333\n") != std::string::npos);
    CHECK(stats.json().find(R"("run_ns":1540,"gap_ns":60)") != std::string::npos);
    CHECK(std::ranges::count(stats.report(), '\n') == 3);
}

TEST_CASE("trace stats: a tensor that a step both reads and writes counts its step once") {
    WeightScript script{64};
    std::array<Access, 2> both{script.operand(0), script.operand(0)};
    both[0].mode = AccessMode::write;
    RunInfo run;
    PlanView plan;
    StepView step;
    step.operands = both;
    plan.steps = std::span(&step, 1);
    run.plan = &plan;
    KernelEvent event;
    event.run = &run;
    event.step = &step;
    event.end = 5;
    event.accesses = both;
    TraceStats stats;
    stats.on_events(std::span(&event, 1));
    const auto rows = stats.rows(StatsBy::tensor);
    REQUIRE(rows.size() == 1);
    CHECK(rows[0].calls == 1);
    CHECK(rows[0].bytes_read == 64);
    CHECK(rows[0].bytes_written == 64);
}

TEST_CASE("trace stats: more groups than it keeps become one") {
    TraceStats stats;
    std::uint64_t calls = 0;
    for (std::uint8_t round = 0; round < 10; ++round) {
        std::vector<StepView> steps(1000);
        std::vector<std::string> names;
        for (int i = 0; i < 1000; ++i) names.push_back(std::string("k").append(std::to_string(1000 * round + i)));
        PlanView plan;
        plan.hash[0] = round;
        RunInfo run;
        run.plan = &plan;
        std::vector<KernelEvent> events(1000);
        for (std::uint32_t i = 0; i < 1000; ++i) {
            steps[i].number = i;
            steps[i].kernel = names[i];
            events[i].run = &run;
            events[i].step = &steps[i];
        }
        plan.steps = steps;
        stats.on_events(events);
    }
    const auto rows = stats.rows(StatsBy::kernel);
    CHECK(rows.size() == 8192);
    for (const StatsRow& row : rows) calls += row.calls;
    CHECK(calls == 10000);
    CHECK(row_named(rows, "(others)").calls == 10000 - 8191);
}

TEST_CASE("heat map: bytes fall into the rows they lie in, and columns become one when runs outgrow them") {
    WeightScript script{1000, 200, 2800};  // 4000 bytes in 4 rows of 1000
    HeatMap heat({.rows = 4, .columns = 2});
    heat.on_session(script.session());
    CHECK(heat.bytes_per_row() == 1000);
    script.run(heat, {{0, 1}, {1, 1}});
    script.run(heat, {{2, 1}});
    REQUIRE(heat.columns() == 2);
    CHECK(heat.bytes(0, 0) == 1000);
    CHECK(heat.bytes(1, 0) == 200);
    CHECK(heat.bytes(1, 1) == 800);
    CHECK(heat.bytes(2, 1) == 1000);
    CHECK(heat.bytes(3, 1) == 1000);
    script.run(heat, {{1, 1}});  // a third run: two to a column from here on
    CHECK(heat.runs_per_column() == 2);
    REQUIRE(heat.columns() == 2);
    CHECK(heat.bytes(1, 0) == 1000);
    CHECK(heat.bytes(1, 1) == 200);
    CHECK(heat.total_bytes() == 4200);
    CHECK(heat.csv() == "first_byte,end_byte,first_run,runs,bytes\n0,1000,0,2,1000\n1000,2000,0,2,1000\n"
                        "2000,3000,0,2,1000\n3000,4000,0,2,1000\n1000,2000,2,1,200\n");
    CHECK_THROWS_WITH_AS(static_cast<void>(heat.bytes(4, 0)), doctest::Contains("cell (4, 0)"), Error);
    CHECK_THROWS_AS(HeatMap({.rows = 0}), Error);
    CHECK_THROWS_AS(HeatMap({.columns = 1}), Error);
    WeightScript other{77};
    CHECK_THROWS_WITH_AS(heat.on_session(other.session()), doctest::Contains("another model"), Error);
}

TEST_CASE("heat map, trace stats: every byte of the weights that a decode reads, and the same from a recording") {
    const Model model = load_tiny("llama-moe", DType::q4_k);
    Context context(model, {.n_ctx = 64, .n_threads = 1});
    std::vector<std::byte> bytes;
    const auto file = std::make_shared<TraceFile>(std::make_unique<MemorySink>(bytes));
    const auto stats = std::make_shared<TraceStats>();
    const auto heat = std::make_shared<HeatMap>(HeatMapOptions{.rows = 50, .columns = 4});
    const auto experts = std::make_shared<ExpertStats>();
    const auto recorder = std::make_shared<Recorder>();
    {
        const auto attached = context.attach(
            std::make_shared<Tee>(std::vector<std::shared_ptr<Observer>>{file, stats, heat, experts, recorder}));
        decode_one_by_one(context, 9);
    }
    file->close();
    std::uint64_t weight_bytes = 0, time = 0;
    for (const SeenEvent& event : recorder->events) {
        time += event.end - event.begin;
        for (const SeenAccess& access : event.accesses)
            if (access.tensor.tensor_class == TensorClass::weight) weight_bytes += access.bytes;
    }
    CHECK(heat->total_bytes() == weight_bytes);
    CHECK(heat->runs_per_column() == 4);
    CHECK(stats->events() == recorder->events.size());
    CHECK(stats->run_time() - stats->gap_time() == time);
    for (const StatsBy by : {StatsBy::op, StatsBy::kernel, StatsBy::layer, StatsBy::part, StatsBy::phase}) {
        std::uint64_t sum = 0, calls = 0;
        for (const StatsRow& row : stats->rows(by)) sum += row.time, calls += row.calls;
        CHECK(sum == time);
        CHECK(calls == stats->events());
    }
    for (const TensorInfo& tensor : model.file().tensors())
        if (tensor.slice_bytes == 0 && tensor.role != "token_embd")
            CHECK(row_named(stats->rows(StatsBy::tensor), tensor.name).bytes_read % tensor.bytes == 0);

    const auto trace = TraceReader::from_bytes(bytes, "live");
    TraceStats stats_again;
    HeatMap heat_again({.rows = 50, .columns = 4});
    ExpertStats experts_again;
    trace.replay(stats_again);
    trace.replay(heat_again);
    trace.replay(experts_again);
    for (const StatsBy by :
         {StatsBy::op, StatsBy::kernel, StatsBy::layer, StatsBy::part, StatsBy::tensor, StatsBy::phase})
        CHECK(stats_again.csv(by) == stats->csv(by));
    CHECK(stats_again.gap_time() == stats->gap_time());
    CHECK(heat_again.csv() == heat->csv());
    CHECK(experts_again.csv() == experts->csv());
    CHECK(experts_again.report() == experts->report());
}

TEST_CASE("expert stats: counts, overlap and pairs are those of the router's own choices") {
    for (const char* arch : {"llama-moe", "qwen2moe", "qwen3moe"}) {
        CAPTURE(arch);
        const Model model = load_tiny(arch);
        Context context(model, {.n_ctx = 128, .n_seq_max = 2, .n_threads = 1});
        const auto stats = std::make_shared<ExpertStats>();
        const auto truth = std::make_shared<RouterTruth>();
        const auto first = context.attach(stats), second = context.attach(truth);
        REQUIRE(context.decode(random_tokens(12, model.info().n_vocab, 5)) == DecodeStatus::ok);
        std::map<int, std::size_t> n_prompt;  // the last layer may see the output alone
        for (const auto& [layer, chosen] : truth->chosen) n_prompt[layer] = chosen.size();
        decode_one_by_one(context, 20);
        const auto layers = stats->layers();
        REQUIRE(layers.size() == truth->chosen.size());
        for (std::size_t l = 0; l < layers.size(); ++l) {
            const ExpertLayer& layer = layers[l];
            const auto& chosen = truth->chosen.at(layer.layer);
            REQUIRE(layer.n_experts == 5);
            std::vector<std::uint64_t> counts(5, 0), of_decode(5, 0);
            for (std::size_t t = 0; t < chosen.size(); ++t)
                for (const std::int32_t e : chosen[t]) {
                    ++counts[static_cast<std::size_t>(e)];
                    if (t >= n_prompt[layer.layer]) ++of_decode[static_cast<std::size_t>(e)];
                }
            CHECK(layer.tokens == counts);
            CHECK(stats->tokens(layer.layer, Phase::decode) == of_decode);
            CHECK(stats->tokens(layer.layer, SeqId{0}) == counts);
            CHECK(stats->tokens(layer.layer, SeqId{1}) == std::vector<std::uint64_t>(5, 0));
            double overlap = 0;
            for (std::size_t t = n_prompt[layer.layer] + 1; t < chosen.size(); ++t)
                overlap +=
                    static_cast<double>(std::ranges::count_if(
                        chosen[t],
                        [&](std::int32_t e) { return std::ranges::find(chosen[t - 1], e) != chosen[t - 1].end(); })) /
                    static_cast<double>(chosen[t].size());
            CHECK(layer.pairs == 19);
            CHECK(layer.overlap == doctest::Approx(overlap / 19));
            if (l + 1 == layers.size()) {
                CHECK(layer.next_layer == kNoLayer);
                continue;
            }
            CHECK(layer.next_layer == layers[l + 1].layer);
            std::vector<std::uint64_t> together(25, 0);
            const auto& next = truth->chosen.at(layer.next_layer);
            for (std::size_t t = 0; t < 20; ++t)
                for (const std::int32_t a : chosen[n_prompt[layer.layer] + t])
                    for (const std::int32_t b : next[n_prompt[layer.next_layer] + t])
                        ++together[static_cast<std::size_t>(5 * a + b)];
            CHECK(layer.together_with_next == together);
        }
        CHECK(std::ranges::count(stats->csv(), '\n') == 1 + 5 * static_cast<std::ptrdiff_t>(layers.size()));
    }
}

TEST_CASE("tee: every branch sees what it would have seen attached alone") {
    const Model model = load_tiny("llama");
    const TraceRequest wants_all{.level = TraceLevel::threads},
        wants_values{.delivery = Delivery::immediate, .filter = {.ops = {Op::mul_mat}, .layers = {1}}},
        wants_few{.filter = {.tensors = {"blk.0.*"}, .every_nth_run = 2}};
    const auto run = [&](bool through_tee, const std::vector<std::shared_ptr<Observer>>& observers) {
        Context context(model, exercise_options());
        std::vector<Attachment> attached;
        if (through_tee) attached.push_back(context.attach(std::make_shared<Tee>(observers)));
        else
            for (const auto& observer : observers) attached.push_back(context.attach(observer));
        exercise(context);
        context.mark("done");
    };
    const auto recorders = [&] {
        return std::vector<std::shared_ptr<Recorder>>{std::make_shared<Recorder>(wants_all),
                                                      std::make_shared<Recorder>(wants_values),
                                                      std::make_shared<Recorder>(wants_few)};
    };
    for (const bool with_values : {true, false}) {
        auto alone = recorders(), teed = recorders();
        if (!with_values) alone.erase(alone.begin() + 1), teed.erase(teed.begin() + 1);
        run(false, {alone.begin(), alone.end()});
        run(true, {teed.begin(), teed.end()});
        for (std::size_t i = 0; i < alone.size(); ++i) {
            CAPTURE(i);
            CHECK(teed[i]->calls == alone[i]->calls);
            REQUIRE(teed[i]->events.size() == alone[i]->events.size());
            for (std::size_t e = 0; e < alone[i]->events.size(); ++e) {
                const SeenEvent &a = alone[i]->events[e], &b = teed[i]->events[e];
                CHECK(a.signature() == b.signature());
                CHECK(a.index == b.index);
                REQUIRE(a.accesses.size() == b.accesses.size());
                for (std::size_t x = 0; x < a.accesses.size(); ++x) CHECK(a.accesses[x].ranges == b.accesses[x].ranges);
                CHECK(a.threads.size() == b.threads.size());
            }
            CHECK(teed[i]->summary.events == alone[i]->summary.events);
            CHECK(teed[i]->summary.filtered == alone[i]->summary.filtered);
            CHECK(teed[i]->summary.runs == alone[i]->summary.runs);
            CHECK(teed[i]->marks.size() == 1);
        }
    }
    CHECK_THROWS_AS(Tee({nullptr}), Error);
}

TEST_CASE("tee: what a branch throws fails the decode, or leaves that branch alone, as it asked") {
    struct Throws : Observer {
        explicit Throws(OnThrow on) : on_throw(on) {}
        OnThrow on_throw;
        SessionSummary summary;
        [[nodiscard]] TraceRequest request() const override { return {.on_throw = on_throw}; }
        void on_events(std::span<const KernelEvent>) override { throw std::runtime_error("broken"); }
        void on_detach(const SessionSummary& s) noexcept override { summary = s; }
    };
    const Model model = load_tiny("llama");
    for (const OnThrow on : {OnThrow::fail_decode, OnThrow::detach}) {
        Context context(model, {.n_ctx = 32});
        const auto throws = std::make_shared<Throws>(on);
        const auto recorder = std::make_shared<Recorder>();
        {
            const auto attached =
                context.attach(std::make_shared<Tee>(std::vector<std::shared_ptr<Observer>>{throws, recorder}));
            if (on == OnThrow::fail_decode) {
                CHECK_THROWS_WITH_AS(static_cast<void>(context.decode(std::array{Token{1}})),
                                     doctest::Contains("broken"), Error);
            } else {
                CHECK(context.decode(std::array{Token{1}}) == DecodeStatus::ok);
                CHECK(recorder->events.size() > 0);
            }
        }
        CHECK((throws->summary.error == "broken") == (on == OnThrow::detach));
    }
}
