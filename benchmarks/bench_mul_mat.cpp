// SPDX-License-Identifier: MIT
// One weight matrix times 1 … 512 tokens: where the time of a model goes. From the last-level cache and from a ring of
// matrices larger than every cache, because one token is limited by bytes and many tokens by multiply-accumulates. Each
// figure stands beside the roof measured in the same second, and every result is first compared with `reference`.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "kernel_run.hpp"
#include "support/random_blocks.hpp"

namespace tinfer::bench {

namespace {

constexpr std::string_view kUsage =
    "usage: bench_mul_mat [--type q4_k,q6_k,…] [--table auto,avx2,…] [--tokens 1,2,…] [--threads 1,2]\n"
    "                     [--where cache,dram] [--k 2048] [--rows 5632] [--seconds 0.2] [--smoke] [--json]\n"
    "One matrix of `rows` rows of `k` weights. GB/s counts its bytes; roof: the share of the stream read, or of the "
    "read of\n"
    "a buffer that lies in the last-level cache; peak: the share of the int8 (or f32) multiply-accumulates of the "
    "table's\n"
    "instructions. dram: a ring of copies of 1 GiB, for up to 64 tokens.\n";

struct Plan {
    std::vector<DType> types;
    std::vector<std::string> tables, places;
    std::vector<int> tokens, threads;
    std::int64_t k, rows;
    double seconds;
    std::size_t ring_bytes;
};

constexpr int kMaxTokensFromDram = 64;  // beyond, where the weights lie makes no difference

/// Weights, activations and output of one type.
class Matrix {
public:
    Matrix(DType type, const Plan& plan, int most_tokens)
        : type_(type), x_type_(find_dtype(type)->activation), weights_(type, {plan.k, plan.rows, 1, 1}),
          x_(x_type_, {plan.k, most_tokens, 1, 1}), out_(DType::f32, {plan.rows, most_tokens, 1, 1}) {
        const auto fill = [](const test::TestTensor& tensor, const void* from) {
            std::memcpy(tensor.bytes().data(), from, tensor.bytes().size());
        };
        fill(weights_, test::random_weights(type, plan.k, plan.rows, 1, test::Extremes::none).data());
        if (is_int8()) fill(x_, test::random_activations(x_type_, plan.k, most_tokens, 2, test::Extremes::none).data());
        else fill(x_, test::random_floats(plan.k * most_tokens, 2, test::Extremes::none).data());
    }

    [[nodiscard]] DType type() const noexcept { return type_; }
    [[nodiscard]] bool is_int8() const noexcept { return x_type_ != DType::f32; }
    [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return weights_.bytes(); }
    [[nodiscard]] double products(int tokens) const noexcept {
        return static_cast<double>(weights_.operand().ne[0]) * static_cast<double>(n_rows()) * tokens;
    }

    /// The kernel on tokens [first, first + n) and the rows from `row` on.
    [[nodiscard]] KernelRun run(const kernels::KernelTable& table, int n_threads, int first, int n,
                                std::int64_t row = 0) const {
        kernels::Operand out = out_.operand(), w = weights_.operand(), x = x_.operand();
        out.data += first * out.nb[1] + row * out.nb[0];
        w.data += row * w.nb[1];
        x.data += first * x.nb[1];
        out.ne[0] = w.ne[1] = n_rows() - row;
        out.ne[1] = x.ne[1] = n;
        return KernelRun(table, Op::mul_mat, type_, {out, w, x}, n_threads);
    }

    /// Compares the last rows of all tokens, and all rows of the last token, with the reference table.
    void check(const kernels::KernelTable& table, roof::Team& team, int n) const {
        const auto& reference = *kernels::find_table(Isa::reference);
        run(table, team.size(), 0, n).seconds(team, 1);
        const test::TestTensor actual(out_);
        roof::Team one(1);
        run(reference, 1, 0, n, std::max<std::int64_t>(n_rows() - 48, 0)).seconds(one, 1);
        run(reference, 1, n - 1, 1).seconds(one, 1);
        require_equal(out_, actual, cat(table.name, ", ", to_string(type_), ", ", n, " tokens"));
    }

private:
    [[nodiscard]] std::int64_t n_rows() const noexcept { return weights_.operand().ne[1]; }

    DType type_, x_type_;
    test::TestTensor weights_, x_, out_;
};

/// Copies of a matrix one behind the other, together larger than every cache.
class Ring {
public:
    explicit Ring(std::size_t bytes) : memory_(bytes) {}
    void fill(std::span<const std::byte> matrix) {
        stride_ = (matrix.size() + 63) / 64 * 64;
        n_ = static_cast<int>(memory_.size() / stride_);
        if (n_ < 1) throw std::runtime_error("the ring is smaller than one matrix");
        for (int i = 0; i < n_; ++i) std::memcpy(at(i), matrix.data(), matrix.size());
    }
    [[nodiscard]] int size() const noexcept { return n_; }
    [[nodiscard]] std::byte* at(int i) noexcept { return memory_.data() + stride_ * static_cast<std::size_t>(i % n_); }
    [[nodiscard]] std::span<const std::byte> memory() const noexcept { return memory_; }

private:
    std::vector<std::byte> memory_;
    std::size_t stride_ = 0;
    int n_ = 0;
};

int least_runs(double budget) { return budget > 0 ? 3 : 1; }  // nobody reads the times of a smoke test

/// Seconds of one call from cache: the best of at least three runs, which together take the budget or longer.
double cached_call(KernelRun& run, roof::Team& team, double budget) {
    const int n = std::max(1, static_cast<int>(budget / 50 / run.seconds(team, 1)));
    double best = 1e30, spent = 0;
    for (int runs = 0; runs < least_runs(budget) || spent < budget; ++runs) {
        const double seconds = run.seconds(team, n);
        best = std::min(best, seconds);
        spent += seconds;
    }
    return best / n;
}

/// Seconds of one call around the ring: the mean over its matrices of each one's best, so that a round which something
/// else interrupted is not lost, and no matrix is still in a cache from the round before.
double streamed_call(KernelRun& run, roof::Team& team, Ring& ring, double budget) {
    const auto n = static_cast<std::size_t>(ring.size());
    std::vector<double> best(n, 1e30);
    double spent = 0;
    for (int rounds = 0; rounds < least_runs(budget) || spent < budget; ++rounds) {
        const auto times =
            run.times(team, ring.size(), [&](int i, kernels::KernelCall& call) { call.operands[1].data = ring.at(i); });
        for (std::size_t i = 0; i < n; ++i) best[i] = std::min(best[i], times[i]);
        spent += std::accumulate(times.begin(), times.end(), 0.0);
    }
    return std::accumulate(best.begin(), best.end(), 0.0) / static_cast<double>(n);
}

void measure_matrix(const Plan& plan, const kernels::KernelTable& table, const Matrix& matrix, roof::Team& team,
                    Ring* ring, double read_rate, Printer& printer) {
    const roof::Level level = roof::level_of(table.name);
    double one_token = 0;
    for (const int n : plan.tokens) {
        if (ring != nullptr && n > kMaxTokensFromDram) continue;
        matrix.check(table, team, n);
        KernelRun run = matrix.run(table, team.size(), 0, n);
        const double seconds =
            ring == nullptr ? cached_call(run, team, plan.seconds) : streamed_call(run, team, *ring, 5 * plan.seconds);
        const double peak = matrix.is_int8() ? roof::int8_dot_rate(team, level, plan.seconds / 10)
                                             : roof::f32_fma_rate(team, level, plan.seconds / 10);
        if (n == 1) one_token = seconds;
        const double bytes = static_cast<double>(matrix.bytes().size()) / seconds, macs = matrix.products(n) / seconds;
        Record record("mul_mat");
        record.add("table", table.name)
            .add("type", to_string(matrix.type()))
            .add("where", ring == nullptr ? "cache" : "dram");
        record.add("threads", team.size()).add("tokens", n).add("us", 1e6 * seconds, 1);
        record.add("gbps", bytes / 1e9, 1).percent("roof", bytes, read_rate).add("read_gbps", read_rate / 1e9, 1);
        record.add("gmacs", macs / 1e9, 1).percent("peak", macs, peak).add("peak_gmacs", peak / 1e9, 0);
        record.add("vs_one", one_token > 0 ? seconds / one_token : 0);
        printer.print(record);
    }
}

void measure(const Plan& plan, Printer& printer) {
    const int most_tokens = *std::max_element(plan.tokens.begin(), plan.tokens.end());
    const auto wants = [&](std::string_view place) {
        return std::find(plan.places.begin(), plan.places.end(), place) != plan.places.end();
    };
    Ring ring(wants("dram") ? plan.ring_bytes : 0);
    for (const int n_threads : plan.threads) {
        roof::Team team(n_threads);
        for (const DType type : plan.types) {
            const Matrix matrix(type, plan, most_tokens);
            const double cached = wants("cache") ? roof::read_rate(team, matrix.bytes(), plan.seconds) : 0;
            if (wants("dram")) ring.fill(matrix.bytes());
            const double stream = wants("dram") ? roof::read_rate(team, ring.memory(), 5 * plan.seconds) : 0;
            for (const std::string& name : plan.tables) {
                const auto& table = table_named(name);
                if (wants("cache")) measure_matrix(plan, table, matrix, team, nullptr, cached, printer);
                if (wants("dram")) measure_matrix(plan, table, matrix, team, &ring, stream, printer);
            }
        }
    }
}

void run(Options& options) {
    const bool smoke = options.flag("smoke");
    Plan plan;
    for (const auto& name : options.list("type", "q4_k,q6_k,q8_0,q4_0,q4_1,q5_k,iq4_xs,f16,bf16"))
        plan.types.push_back(dtype_named(name));
    plan.tables = options.list("table", "auto");
    plan.places = options.list("where", "cache,dram");
    plan.tokens = options.numbers("tokens", smoke ? "1,3,17" : "1,2,3,4,6,8,12,16,32,64,128,256,512");
    plan.threads = options.numbers("threads", smoke ? "2" : "1,2");
    plan.k = static_cast<std::int64_t>(options.number("k", smoke ? 512 : 2048));
    plan.rows = static_cast<std::int64_t>(options.number("rows", smoke ? 71 : 5632));
    plan.seconds = options.number("seconds", smoke ? 0 : 0.1);
    plan.ring_bytes = std::size_t{1} << (smoke ? 18 : 30);
    Printer printer(options.flag("json"));
    options.finish();
    if (plan.tokens.empty()) throw std::runtime_error("--tokens names none");
    measure(plan, printer);
}

}  // namespace

}  // namespace tinfer::bench

int main(int argc, char** argv) {
    return tinfer::bench::run_main("bench_mul_mat", [&] {
        tinfer::bench::Options options(argc, argv, tinfer::bench::kUsage);
        tinfer::bench::run(options);
    });
}
