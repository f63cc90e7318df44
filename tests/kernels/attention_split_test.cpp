// SPDX-License-Identifier: MIT
// How attention is cut into tasks changes no bit: one token over runs of chunks, many tokens in blocks, several
// sequences in one call, every kind of cache, on every table of this machine and any number of threads, beside pages
// that may not be touched.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "support/kernel_call.hpp"
#include "support/random_blocks.hpp"
#include "support/sanitizers.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

struct SequenceShape {
    std::int32_t n_tokens;
    bool holes;
};
struct QueryShape {
    std::int32_t sequence, begin, end;
};

struct AttentionProblem {
    AttentionParams heads;
    DType k_type = DType::f16, v_type = DType::f16;
    std::vector<SequenceShape> sequences;
    std::vector<QueryShape> queries;
    bool sinks = false;
};

AttentionParams heads_of(int n_head, int n_head_kv, int dk, int dv) {
    return {.n_head = n_head,
            .n_head_kv = n_head_kv,
            .head_dim_k = dk,
            .head_dim_v = dv,
            .scale = 1.0f / std::sqrt(static_cast<float>(dk))};
}

/// The last n tokens of a sequence of `length`, each seeing a window of `window` tokens up to itself.
std::vector<QueryShape> causal(std::int32_t sequence, std::int32_t length, std::int32_t n,
                               std::int32_t window = 1 << 30) {
    std::vector<QueryShape> queries;
    for (std::int32_t end = length - n + 1; end <= length; ++end)
        queries.push_back({sequence, std::max(0, end - window), end});
    return queries;
}

TestTensor int_tensor(TestTensor::Shape ne, const std::vector<std::int32_t>& values) {
    TestTensor tensor(DType::i32, ne);
    std::copy(values.begin(), values.end(), tensor.as<std::int32_t>().begin());
    return tensor;
}

/// The operands of one call. Pages of the sequences take turns; KV slots that no sequence has keep the pattern of
/// TestTensor.
class AttentionOperands {
public:
    AttentionOperands(const AttentionProblem& problem, std::uint64_t seed) : problem_(problem), random_(seed) {
        make_tables();
        const AttentionParams& a = problem.heads;
        const auto n = static_cast<std::int64_t>(problem.queries.size());
        k_.emplace_back(filled(problem.k_type, a.head_dim_k, false));
        v_.emplace_back(filled(problem.v_type, a.head_dim_v, true));
        q_.emplace_back(DType::f32, TestTensor::Shape{a.head_dim_k, a.n_head, n, 1});
        const auto values = random_floats(a.head_dim_k * a.n_head * n, seed + 1, Extremes::none);
        std::copy(values.begin(), values.end(), q_[0].as<float>().begin());
        sinks_.emplace_back(DType::f32, TestTensor::Shape{a.n_head, 1, 1, 1});
        const auto sinks = random_floats(a.n_head, seed + 2, Extremes::none);
        std::copy(sinks.begin(), sinks.end(), sinks_[0].as<float>().begin());
        out_.emplace_back(DType::f32, TestTensor::Shape{a.head_dim_v * a.n_head, n, 1, 1});
    }

    /// Empty where every table gives the bits of the reference.
    std::string compare(int n_threads) const {
        OpParams params;
        params.attention = problem_.heads;
        return compare_tables(Op::attention, DType::none, out_[0],
                              {&q_[0], &k_[0], &v_[0], &tables_[0], &tables_[1], &tables_[2],
                               problem_.sinks ? &sinks_[0] : nullptr,
                               problem_.heads.max_bias != 0.0f ? &tables_[3] : nullptr},
                              params, n_threads);
    }

private:
    void make_tables() {
        std::vector<std::int32_t> entries, seqs, spans;
        std::int32_t page = 0;
        for (const SequenceShape& sequence : problem_.sequences) {
            seqs.push_back(static_cast<std::int32_t>(entries.size() / 4));
            for (std::int32_t ordinal = 0; ordinal < sequence.n_tokens;
                 page += 1 + static_cast<std::int32_t>(random_.below(2))) {
                std::uint64_t live = 0;
                for (int slot = 0; slot < 64 && ordinal + std::popcount(live) < sequence.n_tokens; ++slot)
                    if (!sequence.holes || random_.below(5) != 0) live |= std::uint64_t{1} << slot;
                entries.insert(entries.end(),
                               {page, ordinal, static_cast<std::int32_t>(live), static_cast<std::int32_t>(live >> 32)});
                for (int slot = 0; slot < 64; ++slot)
                    if (live >> slot & 1) kv_slots_.push_back(page * 64 + slot);
                ordinal += std::popcount(live);
            }
            seqs.push_back(static_cast<std::int32_t>(entries.size() / 4) - seqs.back());
        }
        n_kv_slots_ = std::int64_t{page + 1} * 64;
        for (const QueryShape& q : problem_.queries) spans.insert(spans.end(), {q.sequence, q.begin, q.end, q.end - 1});
        tables_.push_back(int_tensor({4, static_cast<std::int64_t>(entries.size() / 4), 1, 1}, entries));
        tables_.push_back(int_tensor({2, static_cast<std::int64_t>(seqs.size() / 2), 1, 1}, seqs));
        tables_.push_back(int_tensor({4, static_cast<std::int64_t>(spans.size() / 4), 1, 1}, spans));
        std::vector<std::int32_t> positions(static_cast<std::size_t>(n_kv_slots_));
        for (std::int32_t& position : positions) position = static_cast<std::int32_t>(random_.below(1000));
        tables_.push_back(int_tensor({n_kv_slots_, 1, 1, 1}, positions));
    }
    /// Random rows, written by the reference kernel into the KV slots of the sequences.
    TestTensor filled(DType type, std::int64_t d, bool is_v) {
        const std::int64_t n_kv = problem_.heads.n_head_kv, n = static_cast<std::int64_t>(kv_slots_.size());
        TestTensor cache(type, {d * n_kv, n_kv_slots_, 1, 1});
        TestTensor rows(DType::f32, {d, n_kv, n, 1});
        const auto values = random_floats(d * n_kv * n, random_.bits(), Extremes::none);
        std::copy(values.begin(), values.end(), rows.as<float>().begin());
        const TestTensor kv_slots = int_tensor({n, 1, 1, 1}, kv_slots_);
        OpParams params;
        params.attention = problem_.heads;
        params.is_v = is_v ? 1 : 0;
        REQUIRE(
            run_kernel(*kernels::find_table(Isa::reference), Op::kv_write, type, {&cache, &rows, &kv_slots}, params));
        return cache;
    }

    AttentionProblem problem_;
    Random random_;
    std::vector<std::int32_t> kv_slots_;
    std::int64_t n_kv_slots_ = 0;
    std::vector<TestTensor> tables_, k_, v_, q_, sinks_, out_;
};

// Sanitizers make the emulated steps of the reference some fifty times slower: they see the same shapes with fewer
// queries.
constexpr std::int32_t kManyQueries = kSanitized ? 75 : 230, kSomeQueries = kSanitized ? 17 : 40;
constexpr int kManyThreads = kSanitized ? 4 : 8;

constexpr DType kCacheTypes[] = {DType::f32, DType::f16, DType::bf16, DType::q8_0, DType::q4_0};

}  // namespace

TEST_CASE("[K9] attention: one token over 1 to 3 chunks and one more or less, any number of threads") {
    std::uint64_t seed = 500;
    for (const std::int32_t n : {1, 63, 64, 65, 255, 256, 257, 511, 512, 513, 767, 768, 769, 1100})
        for (const int group : {1, 4, 8}) {
            CAPTURE(n);
            CAPTURE(group);
            const AttentionOperands operands(
                {heads_of(2 * group, 2, 64, 64), DType::f16, DType::f16, {{n, false}}, causal(0, n, 1)}, ++seed);
            for (int threads = 1; threads <= kManyThreads; ++threads) CHECK(operands.compare(threads) == "");
        }
}

TEST_CASE("[K9] attention: caches of every pair of types, one token, a few and a block") {
    std::uint64_t seed = 600;
    for (const DType k : kCacheTypes)
        for (const DType v : kCacheTypes)
            for (const std::int32_t n_queries : {1, 5, kSomeQueries}) {
                CAPTURE(std::string(to_string(k)));
                CAPTURE(std::string(to_string(v)));
                CAPTURE(n_queries);
                for (const bool holes : {false, true}) {
                    const AttentionOperands operands(
                        {heads_of(6, 2, 64, 96), k, v, {{330, holes}}, causal(0, 330, n_queries)}, ++seed);
                    CHECK(operands.compare(1) == "");
                    CHECK(operands.compare(3) == "");
                }
            }
}

TEST_CASE("[K9] attention: blocks of queries that end in different tiles, head sizes that fill no vector, windows") {
    std::uint64_t seed = 700;
    for (const auto& [n_head, n_kv] : {std::pair{1, 1}, std::pair{7, 1}, std::pair{8, 2}})
        for (const auto& [dk, dv] : {std::pair{64, 64}, std::pair{80, 20}, std::pair{5, 33}, std::pair{128, 112}})
            for (const std::int32_t window : {1 << 30, 100, 3}) {
                CAPTURE(n_head);
                CAPTURE(dk);
                CAPTURE(window);
                AttentionProblem problem{heads_of(n_head, n_kv, dk, dv),
                                         DType::f16,
                                         DType::bf16,
                                         {{310, false}},
                                         causal(0, 310, kManyQueries, window)};
                if (dk == 80) problem.heads.softcap = 2.0f, problem.heads.max_bias = 8.0f, problem.sinks = true;
                const AttentionOperands operands(problem, ++seed);
                CHECK(operands.compare(1) == "");
                CHECK(operands.compare(4) == "");
            }
}

TEST_CASE("[K9] attention: several sequences, with holes and without, in one call, and queries that see nothing") {
    std::uint64_t seed = 800;
    const std::vector<SequenceShape> sequences{{700, false}, {1, false}, {300, true}, {64, false}, {257, true}};
    for (const std::int32_t each : {1, 3, 20}) {
        std::vector<QueryShape> queries;
        for (std::size_t s = 0; s < sequences.size(); ++s) {
            const auto own =
                causal(static_cast<std::int32_t>(s), sequences[s].n_tokens, std::min(each, sequences[s].n_tokens));
            queries.insert(queries.end(), own.begin(), own.end());
            queries.push_back({s % 2 == 0 ? -1 : static_cast<std::int32_t>(s), 0, 0});
        }
        for (const DType type : {DType::f16, DType::q8_0}) {
            CAPTURE(each);
            AttentionProblem problem{heads_of(8, 2, 32, 32), type, type, sequences, queries};
            problem.sinks = each == 3;
            const AttentionOperands operands(problem, ++seed);
            for (const int threads : {1, 2, 5, 8}) CHECK(operands.compare(threads) == "");
        }
    }
}

TEST_CASE("[K9] attention: more heads than a block holds, and one KV head for all") {
    const AttentionOperands many({heads_of(400, 1, 32, 16), DType::f16, DType::f16, {{300, false}}, causal(0, 300, 2)},
                                 900);
    const AttentionOperands each({heads_of(70, 70, 16, 16), DType::f16, DType::f16, {{600, false}}, causal(0, 600, 1)},
                                 901);
    for (const int threads : {1, 2, 8}) {
        CHECK(many.compare(threads) == "");
        CHECK(each.compare(threads) == "");
    }
}

TEST_CASE("[K9] attention: few rows take KV heads together, in runs of chunks, with windows and holes") {
    std::uint64_t seed = 950;
    for (const auto& [n_head, n_kv] : {std::pair{5, 5}, std::pair{10, 5}, std::pair{32, 4}})
        for (const std::int32_t n_queries : {1, 2, 4})
            for (const std::int32_t window : {1 << 30, 1500, 70}) {
                CAPTURE(n_head);
                CAPTURE(n_queries);
                CAPTURE(window);
                const bool holes = window == 1500;
                AttentionProblem problem{heads_of(n_head, n_kv, 32, 48),
                                         DType::f16,
                                         DType::f16,
                                         {{2100, holes}},
                                         causal(0, 2100, n_queries, window)};
                problem.sinks = n_queries == 2;
                const AttentionOperands operands(problem, ++seed);
                for (const int threads : {1, 2, 3}) CHECK(operands.compare(threads) == "");
            }
    const AttentionOperands each(
        {heads_of(200, 200, 16, 16), DType::q8_0, DType::f16, {{520, false}}, causal(0, 520, 1)}, 999);
    for (const int threads : {1, 2}) CHECK(each.compare(threads) == "");
}

TEST_CASE("[K9] attention: weights agree over the whole range of exponents, subnormal ones and NaN included") {
    // Two tokens, K = {0, 1} and V = {0, 1}: a query x ≤ 0 gives exp(x) / (1 + exp(x)).
    constexpr std::int64_t kQueries = 8192;
    TestTensor q(DType::f32, {1, 1, kQueries, 1}), k(DType::f32, {1, 64, 1, 1}), v(DType::f32, {1, 64, 1, 1});
    const TestTensor out(DType::f32, {1, kQueries, 1, 1});
    for (std::uint32_t i = 0; i < kQueries; ++i)
        q.as<std::uint32_t>()[i] = 0x80000000u + i * (i % 2 == 0 ? 262139u : 1200u) + (i % 2 == 0 ? 0 : 0x42700000u);
    for (const TestTensor* cache : {&k, &v}) cache->as<float>()[0] = 0.0f, cache->as<float>()[1] = 1.0f;
    std::vector<std::int32_t> spans;
    for (std::int64_t t = 0; t < kQueries; ++t) spans.insert(spans.end(), {0, 0, 2, 1});
    const TestTensor table = int_tensor({4, 1, 1, 1}, {0, 0, 3, 0}), seqs = int_tensor({2, 1, 1, 1}, {0, 1});
    const TestTensor span_rows = int_tensor({4, kQueries, 1, 1}, spans);
    OpParams params;
    params.attention = {.n_head = 1, .n_head_kv = 1, .head_dim_k = 1, .head_dim_v = 1, .scale = 1.0f};
    CHECK(compare_tables(Op::attention, DType::none, out, {&q, &k, &v, &table, &seqs, &span_rows}, params, 2) == "");
}
