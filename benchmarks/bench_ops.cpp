// SPDX-License-Identifier: MIT
// Everything of a model that is no matrix: quantizers, norms, activations, RoPE, softmax, in nanoseconds per value, and
// what meeting costs: barrier and parallel region. Rows of the 1.1B shape, from the cache, one thread.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "base/team.hpp"
#include "kernel_run.hpp"
#include "support/random_blocks.hpp"

namespace tinfer::bench {

namespace {

constexpr std::string_view kUsage =
    "usage: bench_ops [--table auto,avx2,…] [--tokens 1,64] [--threads 1,2] [--seconds 0.05] [--smoke] [--json]\n"
    "Ops in ns per value on one thread, after comparing with the reference table; barrier and parallel region in ns.\n";

constexpr std::int64_t kEmbd = 2048, kFf = 5632, kHeads = 32, kHeadDim = 64, kVocab = 32000;

test::TestTensor floats(test::TestTensor::Shape ne, std::uint64_t seed) {
    test::TestTensor tensor(DType::f32, ne);
    const auto values = test::random_floats(ne[0] * ne[1] * ne[2] * ne[3], seed, test::Extremes::none);
    std::memcpy(tensor.bytes().data(), values.data(), tensor.bytes().size());
    return tensor;
}

/// An op on operands of its own. Slot 0 is written.
struct Case {
    std::string name;
    Op op;
    DType type;                             ///< that selects the kernel
    std::vector<test::TestTensor> tensors;  ///< by slot
    OpParams params{};

    [[nodiscard]] std::vector<kernels::Operand> operands() const {
        std::vector<kernels::Operand> operands;
        for (const auto& tensor : tensors) operands.push_back(tensor.operand());
        return operands;
    }
    [[nodiscard]] double n_values() const {
        const auto& ne = tensors[1].operand().ne;
        return static_cast<double>(ne[0] * ne[1] * ne[2] * ne[3]);
    }
};

template <class... Inputs>
Case make_case(std::string name, Op op, DType type, test::TestTensor out, Inputs... inputs) {
    Case made{std::move(name), op, type, {}};
    made.tensors.push_back(std::move(out));
    (made.tensors.push_back(std::move(inputs)), ...);
    return made;
}

std::vector<Case> cases(std::int64_t n) {
    std::vector<Case> all;
    const auto rows = [n](DType type, std::int64_t width) { return test::TestTensor(type, {width, n, 1, 1}); };
    const auto add = [&](Case made) -> OpParams& { return all.emplace_back(std::move(made)).params; };
    for (const DType type : {DType::x8_32, DType::x8_256}) {
        const std::string suffix = cat(".", to_string(type));
        add(make_case("quantize" + suffix, Op::quantize, type, rows(type, kEmbd), floats({kEmbd, n, 1, 1}, 1)));
        add(make_case("rms_norm_quantize" + suffix, Op::rms_norm_quantize, type, rows(type, kEmbd),
                      floats({kEmbd, n, 1, 1}, 1), floats({kEmbd, 1, 1, 1}, 2)))
            .eps = 1e-5f;
        add(make_case("silu_mul_quantize" + suffix, Op::silu_mul_quantize, type, rows(type, kFf),
                      floats({kFf, n, 1, 1}, 1), floats({kFf, n, 1, 1}, 2)));
    }
    add(make_case("rms_norm", Op::rms_norm, DType::none, rows(DType::f32, kEmbd), floats({kEmbd, n, 1, 1}, 1),
                  floats({kEmbd, 1, 1, 1}, 2)))
        .eps = 1e-5f;
    add(make_case("silu", Op::silu, DType::none, rows(DType::f32, kFf), floats({kFf, n, 1, 1}, 1)));
    add(make_case("silu_mul", Op::silu_mul, DType::none, rows(DType::f32, kFf), floats({kFf, n, 1, 1}, 1),
                  floats({kFf, n, 1, 1}, 2)));
    add(make_case("add", Op::add, DType::none, rows(DType::f32, kEmbd), floats({kEmbd, n, 1, 1}, 1),
                  floats({kEmbd, n, 1, 1}, 2)));
    add(make_case("softmax", Op::softmax, DType::none, rows(DType::f32, kVocab), floats({kVocab, n, 1, 1}, 1)));
    for (const int neox : {0, 1}) {
        OpParams& params = add(make_case(neox == 0 ? "rope.neighbours" : "rope.halves", Op::rope, DType::none,
                                         test::TestTensor(DType::f32, {kHeadDim, kHeads, n, 1}),
                                         floats({kHeadDim, kHeads, n, 1}, 1), floats({kHeadDim, n, 1, 1}, 2)));
        params.rope.n_rot = kHeadDim;
        params.rope.neox = neox;
    }
    return all;
}

void measure_case(const Case& subject, const kernels::KernelTable& table, int n_tokens, double budget,
                  Printer& printer) {
    roof::Team team(1);
    KernelRun(*kernels::find_table(Isa::reference), subject.op, subject.type, subject.operands(), 1, subject.params)
        .seconds(team, 1);
    const test::TestTensor expected(subject.tensors[0]);
    KernelRun run(table, subject.op, subject.type, subject.operands(), 1, subject.params);
    run.seconds(team, 1);
    require_equal(expected, subject.tensors[0], cat(table.name, ", ", subject.name));

    const int n = std::max(1, static_cast<int>(budget / 100 / run.seconds(team, 1)));
    double best = 1e30, spent = 0;
    for (int runs = 0; runs < (budget > 0 ? 3 : 1) || spent < budget; ++runs) {
        const double seconds = run.seconds(team, n);
        best = std::min(best, seconds);
        spent += seconds;
    }
    Record record("op");
    record.add("op", subject.name).add("table", table.name).add("tokens", n_tokens).add("us", 1e6 * best / n, 3);
    printer.print(record.add("ns_per_value", 1e9 * best / n / subject.n_values(), 3));
}

// ---- Meeting --------------------------------------------------------------------------------------------------------

double barrier_seconds(int n_threads, int n) {
    roof::Team team(n_threads);
    Barrier barrier;
    return roof::best_seconds(team, 0,
                              [&](int) {
                                  for (int i = 0; i < n; ++i) barrier.wait(n_threads);
                              }) /
           n;
}

/// A parallel region of the library's own team, in which every thread does nothing.
double region_seconds(int n_threads, int n) {
    double best = 1e30;
    for (int i = 0; i < n; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        run_team(
            n_threads, [](void*, int, int) noexcept {}, nullptr);
        best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    return best;
}

void run(Options& options) {
    const bool smoke = options.flag("smoke");
    const auto tables = options.list("table", "auto");
    const auto tokens = options.numbers("tokens", smoke ? "1,3" : "1,64"), threads = options.numbers("threads", "1,2");
    const double budget = options.number("seconds", smoke ? 0 : 0.05);
    Printer printer(options.flag("json"));
    options.finish();
    for (const std::string& name : tables)
        for (const int n : tokens)
            for (const Case& subject : cases(n)) measure_case(subject, table_named(name), n, budget, printer);
    for (const int n : threads) {
        const int meetings = smoke ? 3 : 10000;
        Record record("meeting");
        record.add("threads", n).add("barrier_ns", 1e9 * barrier_seconds(n, meetings), 0);
        printer.print(record.add("region_ns", 1e9 * region_seconds(n, meetings), 0));
    }
}

}  // namespace

}  // namespace tinfer::bench

int main(int argc, char** argv) {
    return tinfer::bench::run_main("bench_ops", [&] {
        tinfer::bench::Options options(argc, argv, tinfer::bench::kUsage);
        tinfer::bench::run(options);
    });
}
