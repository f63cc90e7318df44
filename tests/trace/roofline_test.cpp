// SPDX-License-Identifier: MIT
// Roofline: its arithmetic on events made by hand, and its sums on real runs against what the file and the clock say.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>

#include "trace/trace_support.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

constexpr RooflinePeaks kPeaks{.bytes = 10e9, .int8_macs = 400e9, .f32_macs = 100e9};

/// A plan of steps over weights of given roles and types, whose events take the times and do the work they are told.
class Script {
public:
    explicit Script(std::size_t n) : tensors_(n), operands_(n), steps_(n), ranges_(n) {
        for (std::size_t i = 0; i < n; ++i) {
            steps_[i].number = static_cast<std::uint32_t>(i);
            steps_[i].op = Op::mul_mat;
        }
        plan_.id = 7;
        run_.plan = &plan_;
    }
    /// Step i reads all of a weight of so many bytes, `passes` times.
    void weight(std::size_t i, std::string_view role, DType type, std::uint64_t bytes, std::uint16_t passes = 1) {
        tensors_[i].tensor_class = TensorClass::weight;
        tensors_[i].type = type;
        tensors_[i].role = role;
        tensors_[i].n_dims = 2;
        tensors_[i].bytes = bytes;
        operands_[i].tensor = &tensors_[i];
        operands_[i].passes = passes;
        steps_[i].operands = std::span(&operands_[i], 1);
    }
    /// Step i writes a result and reads part of a cache, and no weight.
    void cache(std::size_t i, Op op, std::uint64_t length, std::uint32_t count) {
        tensors_[i].tensor_class = TensorClass::cache_k;
        ranges_[i] = {.length = length, .stride = 4096, .count = count};
        operands_[i].tensor = &tensors_[i];
        operands_[i].kind = AccessKind::ranges;
        operands_[i].ranges = std::span(&ranges_[i], 1);
        steps_[i].operands = std::span(&operands_[i], 1);
        steps_[i].op = op;
    }
    void run(Roofline& roofline, std::span<const KernelEvent> events, std::uint64_t end) {
        plan_.steps = steps_;
        run_.begin = 0;
        roofline.on_events(events);
        roofline.on_run_end({.run = &run_, .end = end});
    }
    [[nodiscard]] KernelEvent event(std::size_t i, std::uint64_t begin, std::uint64_t end, std::uint64_t macs) const {
        KernelEvent event;
        event.run = &run_;
        event.step = &steps_[i];
        event.begin = begin;
        event.end = end;
        event.accesses = steps_[i].operands;
        event.macs = macs;
        return event;
    }

private:
    std::vector<TensorInfo> tensors_;
    std::vector<Access> operands_;
    std::vector<StepView> steps_;
    std::vector<AccessRange> ranges_;
    PlanView plan_;
    RunInfo run_;
};

const RooflineRow& row_of(const std::vector<RooflineRow>& rows, std::string_view role) {
    const auto found = std::ranges::find(rows, role, &RooflineRow::role);
    if (found == rows.end()) throw std::runtime_error("no row of role " + std::string(role));
    return *found;
}

}  // namespace

TEST_CASE("roofline: bytes, multiply-accumulates and seconds of a role add up, and the nearer roof is named") {
    Script script(4);
    script.weight(0, "ffn_down", DType::q4_k, 1'000'000);
    script.weight(1, "ffn_down", DType::q6_k, 3'000'000);
    script.weight(2, "output", DType::f16, 200'000, 2);
    script.cache(3, Op::attention, 128, 100);
    Roofline roofline(kPeaks);
    script.run(roofline,
               std::array{script.event(0, 0, 200'000, 2'000'000), script.event(1, 200'000, 700'000, 6'000'000),
                          script.event(2, 700'000, 800'000, 8'000'000), script.event(3, 810'000, 850'000, 1000)},
               1'000'000);

    const auto rows = roofline.rows();
    REQUIRE(rows.size() == 3);
    CHECK(roofline.runs() == 1);
    CHECK(roofline.run_seconds() == doctest::Approx(1e-3));
    CHECK(roofline.step_seconds() == doctest::Approx(0.84e-3));

    const RooflineRow& down = rows[0];  // 4 MB in 0.7 ms: 0.4 ms at 10 GB/s, 0.02 ms at 400 GMAC/s
    CHECK(down.role == "ffn_down");
    CHECK(down.calls == 2);
    CHECK(down.seconds == doctest::Approx(0.7e-3));
    CHECK(down.bytes == 4'000'000);
    CHECK(down.weight_bytes == 4'000'000);
    CHECK(down.int8_macs == 8'000'000);
    CHECK(down.f32_macs == 0);
    CHECK(down.gbps() == doctest::Approx(4e-3 / 0.7e-3));
    CHECK(down.gmacs() == doctest::Approx(8e-3 / 0.7e-3));
    CHECK(down.bound() == RooflineRow::Bound::memory);
    CHECK(down.of_peak() == doctest::Approx(0.4 / 0.7));

    const RooflineRow& output =
        rows[1];  // two passes over 0.2 MB: 0.04 ms; 8 million products of floats: 0.08 ms of 0.1
    CHECK(output.role == "output");
    CHECK(output.bytes == 400'000);
    CHECK(output.weight_bytes == 200'000);
    CHECK(output.f32_macs == 8'000'000);
    CHECK(output.bound() == RooflineRow::Bound::compute);
    CHECK(output.of_peak() == doctest::Approx(0.8));

    const RooflineRow& attention = rows[2];
    CHECK(attention.role.empty());
    CHECK(attention.op == Op::attention);
    CHECK(attention.bytes == 12'800);
    CHECK(attention.weight_bytes == 0);
    CHECK(attention.cache_bytes == 12'800);
    CHECK(attention.of_peak() == doctest::Approx(0.032));  // 12.8 kB in 40 µs: neither roof is near
    CHECK(attention.bound() == RooflineRow::Bound::overhead);
    CHECK(to_string(attention.bound()) == "overhead");

    const std::string report = roofline.report();
    CHECK(std::ranges::count(report, '\n') == 5);
    CHECK(report.find("ffn_down                mul_mat                   2      0.700   70.0 %     5.71      11.4   "
                      "57.1 %  memory") != std::string::npos);
}

TEST_CASE("roofline: without peaks nothing is said of roofs, and an elided or scratch operand counts nothing") {
    Script script(1);
    script.weight(0, "attn_q", DType::q8_0, 1000);
    Roofline roofline;
    KernelEvent event = script.event(0, 0, 100, 50);
    std::vector<Access> accesses(event.accesses.begin(), event.accesses.end());
    accesses.push_back(accesses[0]);
    accesses.back().kind = AccessKind::elided;
    accesses.push_back(accesses[0]);
    accesses.back().scratch = true;
    event.accesses = accesses;
    script.run(roofline, std::array{event}, 100);
    const auto rows = roofline.rows();
    REQUIRE(rows.size() == 1);
    CHECK(rows[0].bytes == 1000);
    CHECK(rows[0].bound() == RooflineRow::Bound::unknown);
    CHECK(rows[0].of_peak() == 0);
    CHECK(Roofline().report().starts_with("role"));
}

TEST_CASE("roofline: plans of another context are not taken for those of the first, whatever their numbers") {
    Script first(1), second(2);
    first.weight(0, "attn_q", DType::q8_0, 1000);
    second.weight(0, "ffn_up", DType::q8_0, 10);
    second.weight(1, "ffn_down", DType::q8_0, 20);
    Roofline roofline;
    first.run(roofline, std::array{first.event(0, 0, 100, 1)}, 100);
    second.run(roofline, std::array{second.event(0, 0, 10, 1), second.event(1, 10, 30, 1)}, 30);
    const auto rows = roofline.rows();
    REQUIRE(rows.size() == 3);
    CHECK(row_of(rows, "attn_q").bytes == 1000);
    CHECK(row_of(rows, "ffn_up").bytes == 10);
    CHECK(row_of(rows, "ffn_down").bytes == 20);
}

TEST_CASE("[N7] roofline: role times sum to nearly all of the decode's wall time, weight bytes to those of the file") {
    TinyModel tiny = TinyModel::wide("llama", DType::q4_k);
    tiny.n_embd = 2048;  // steps long enough for the clock
    tiny.n_ff = 5632;
    tiny.n_head = 32;
    tiny.n_head_kv = 4;
    tiny.n_layer = 4;
    tiny.n_vocab = 2000;
    Context context(load_tiny(tiny), {.n_ctx = 128, .n_threads = 1});
    const auto decode = [&](int token) { REQUIRE(context.decode(std::array{Token{token}}) == DecodeStatus::ok); };
    decode(1);  // the first builds the plan
    const auto roofline = std::make_shared<Roofline>(kPeaks);
    const auto attached = context.attach(roofline);
    decode(2);  // the first with an observer describes it

    // Steps lie inside runs, runs inside decodes, and nearly nothing is left over. Whatever else runs on the machine
    // may interrupt what is left over: one of some rounds has to be undisturbed.
    constexpr int kRounds = 10, kDecodes = 5;
    double best = 0;
    for (int round = 0; round < kRounds; ++round) {
        const double steps_before = roofline->step_seconds(), runs_before = roofline->run_seconds();
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < kDecodes; ++i) decode(3 + i);
        const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        const double steps = roofline->step_seconds() - steps_before, runs = roofline->run_seconds() - runs_before;
        CHECK(steps <= runs);
        CHECK(runs <= wall);
        best = std::max(best, steps / wall);
    }
    CHECK(best >= 0.97);

    const auto rows = roofline->rows();
    constexpr std::uint64_t kCounted = kRounds * kDecodes + 1;
    std::uint64_t expected = 0, seen = 0;
    for (const TensorInfo& tensor : context.model().file().tensors())
        expected += kCounted * (tensor.role == "token_embd" ? tensor.row_bytes : tensor.bytes);
    for (const RooflineRow& row : rows) seen += row.weight_bytes;
    CHECK(seen == expected);

    const RooflineRow& down = row_of(rows, "ffn_down");
    const TensorInfo& tensor = *context.model().file().find("blk.0.ffn_down.weight");
    CHECK(down.calls == kCounted * 4);
    CHECK(down.weight_bytes == down.calls * tensor.bytes);
    CHECK(down.int8_macs == down.calls * 5632 * 2048);
    CHECK(down.gbps() ==
          doctest::Approx(static_cast<double>(down.calls * tensor.bytes) / down.seconds / 1e9).epsilon(0.05));
    CHECK(std::ranges::is_sorted(rows, std::ranges::greater{}, &RooflineRow::seconds));
}
