// SPDX-License-Identifier: MIT
// Sparse attention against its formulas in double: which KV slots an indexer chooses, one by one and by blocks, and
// attention over a list; and pairs of RoPE that do not turn with a text's positions.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/attention/kv_layout.hpp"
#include "op_support.hpp"

namespace kernels = tinfer::kernels;
using kernels::reference_table;
using tinfer::DType;
using tinfer::Op;
using tinfer::OpParams;
using namespace tinfer::test;

namespace {

constexpr std::int32_t kTokens = 90, kQueries = 5, kHeads = 3, kSize = 8, kPages = 3;

/// One sequence of 90 tokens on pages 2 and 0, its first on slot 3 of page 2; queries see all tokens up to their own.
struct Indexed {
    OpRandom random{21};
    std::vector<float> q = random.floats(kSize * kHeads * kQueries), weights = random.floats(kHeads * kQueries);
    std::vector<float> keys = random.floats(kSize * kTokens), cache = std::vector<float>(kSize * 64 * kPages);
    std::vector<std::int32_t> slots, table, seqs{0, 2}, spans, positions = std::vector<std::int32_t>(64 * kPages, -7);

    Indexed() {
        for (std::int32_t i = 0; i < kTokens; ++i) slots.push_back(i < 61 ? 2 * 64 + 3 + i : i - 61);
        table = {2, 0, -8, -1, 0, 61, (1 << 29) - 1, 0};
        for (std::int32_t t = 0; t < kQueries; ++t) spans.insert(spans.end(), {0, 0, kTokens - kQueries + 1 + t, 0});
        for (std::int32_t t = 0; t < kQueries; ++t) spans[static_cast<std::size_t>(4 * t + 3)] = seen(t) - 1;
        for (std::int32_t i = 0; i < kTokens; ++i) {
            positions[static_cast<std::size_t>(slots[static_cast<std::size_t>(i)])] = i;
            const std::int64_t slot = slots[static_cast<std::size_t>(i)];
            for (std::int32_t c = 0; c < kSize; ++c)
                cache[static_cast<std::size_t>(slot / kernels::kGroup * kernels::kGroup * kSize + c * kernels::kGroup +
                                               slot % kernels::kGroup)] = keys[static_cast<std::size_t>(i * kSize + c)];
        }
    }
    [[nodiscard]] static std::int32_t seen(std::int32_t query) { return kTokens - kQueries + 1 + query; }
    [[nodiscard]] double dot(std::int32_t query, std::int32_t head, std::int32_t token) const {
        double sum = 0;
        for (std::int32_t c = 0; c < kSize; ++c)
            sum += static_cast<double>(q[static_cast<std::size_t>((query * kHeads + head) * kSize + c)]) *
                   static_cast<double>(keys[static_cast<std::size_t>(token * kSize + c)]);
        return sum;
    }
    [[nodiscard]] std::vector<std::int32_t> choose(std::int32_t k, std::int32_t block, std::int32_t local,
                                                   bool weighted, int n_threads) const {
        OpParams params;
        params.attention = {.n_head = kHeads, .n_head_kv = 1, .head_dim_k = kSize};
        params.k = k;
        params.block = block;
        params.local = local;
        const std::int64_t n_group = weighted ? 1 : kHeads;
        std::vector<std::int32_t> out(static_cast<std::size_t>(k * block * n_group * kQueries), 99);
        kernels::KernelCall call;
        call.params = params;
        call.operands[0] = f32(out, {std::int64_t{k} * block, n_group, kQueries, 1});
        call.operands[1] = f32(q, {kSize, kHeads, kQueries, 1});
        call.operands[2] = f32(cache, {kSize, 64 * kPages, 1, 1});
        if (weighted) call.operands[3] = f32(weights, {kHeads, kQueries, 1, 1});
        call.operands[4] = f32(table, {4, 2, 1, 1});
        call.operands[5] = f32(seqs, {2, 1, 1, 1});
        call.operands[6] = f32(spans, {4, kQueries, 1, 1});
        call.operands[7] = f32(positions, {64 * kPages, 1, 1, 1});
        run(reference_table, Op::select_keys, DType::none, call, n_threads);
        return out;
    }
};

}  // namespace

TEST_CASE("sparse attention: an indexer chooses the tokens of highest weighted score, in the order of the sequence") {
    const Indexed x;
    for (const std::int32_t k : {1, 12, 88, 200}) {
        CAPTURE(k);
        const auto lists = x.choose(k, 1, 0, true, 2);
        for (std::int32_t t = 0; t < kQueries; ++t) {
            std::vector<double> scores;
            for (std::int32_t i = 0; i < Indexed::seen(t); ++i) {
                double s = 0;
                for (std::int32_t h = 0; h < kHeads; ++h)
                    s += static_cast<double>(x.weights[static_cast<std::size_t>(t * kHeads + h)]) *
                         std::max(x.dot(t, h, i), 0.0);
                scores.push_back(s);
            }
            std::vector<std::int32_t> order(scores.size());
            std::iota(order.begin(), order.end(), 0);
            std::ranges::stable_sort(order, [&](std::int32_t i, std::int32_t j) {
                return scores[static_cast<std::size_t>(i)] > scores[static_cast<std::size_t>(j)];
            });
            order.resize(std::min<std::size_t>(order.size(), static_cast<std::size_t>(k)));
            std::ranges::sort(order);
            for (std::int32_t i = 0; i < k; ++i) {
                const auto at = static_cast<std::size_t>(i);
                CHECK(lists[static_cast<std::size_t>(t * k + i)] ==
                      (at < order.size() ? x.slots[static_cast<std::size_t>(order[at])] : -1));
            }
        }
    }
}

TEST_CASE(
    "sparse attention: blocks are chosen by their best token, the newest before all others, a list for each head") {
    const Indexed x;
    constexpr std::int32_t kBlock = 8, kChosen = 3;
    for (const std::int32_t local : {0, 1, 2, 5}) {
        CAPTURE(local);
        const auto lists = x.choose(kChosen, kBlock, local, false, 3);
        for (std::int32_t t = 0; t < kQueries; ++t)
            for (std::int32_t h = 0; h < kHeads; ++h) {
                const std::int32_t n = Indexed::seen(t), newest = (n - 1) / kBlock;
                std::vector<std::pair<double, std::int32_t>> blocks;
                for (std::int32_t b = 0; b <= newest; ++b) {
                    double best = -1e9;
                    for (std::int32_t i = b * kBlock; i < std::min((b + 1) * kBlock, n); ++i)
                        best = std::max(best, x.dot(t, h, i));
                    blocks.emplace_back(b > newest - local ? 1e9 + b : best, b);
                }
                std::ranges::sort(blocks, std::greater<>());
                std::vector<std::int32_t> expected;
                for (std::int32_t i = 0; i < n; ++i)
                    for (std::int32_t c = 0; c < kChosen; ++c)
                        if (blocks[static_cast<std::size_t>(c)].second == i / kBlock)
                            expected.push_back(x.slots[static_cast<std::size_t>(i)]);
                expected.resize(kChosen * kBlock, -1);
                const auto first = lists.begin() + (t * kHeads + h) * kChosen * kBlock;
                CHECK(std::vector<std::int32_t>(first, first + kChosen * kBlock) == expected);
            }
    }
}

TEST_CASE("sparse attention: attends to the KV slots of a list alone, with sinks, and the rest may hold anything") {
    const Indexed x;
    OpRandom random(5);
    constexpr std::int32_t kListed = 80;
    std::vector<float> cache = x.cache, values = random.floats(kSize * 64 * kPages), out(kSize * kHeads * kQueries);
    const std::vector<float> sinks = random.floats(kHeads);
    std::vector<std::int32_t> lists;
    for (std::int32_t t = 0; t < kQueries; ++t)
        for (std::int32_t i = 0; i < kListed; ++i)
            lists.push_back(i < 70 + t ? x.slots[static_cast<std::size_t>(i)] : -1);
    for (std::int32_t i = 75; i < kTokens; ++i)
        for (std::int32_t c = 0; c < kSize; ++c)
            values[static_cast<std::size_t>(x.slots[static_cast<std::size_t>(i)] * kSize + c)] = std::nanf("");
    kernels::KernelCall call;
    call.params.attention = {.n_head = kHeads, .n_head_kv = 1, .head_dim_k = kSize, .head_dim_v = kSize, .scale = 0.4f};
    call.operands[0] = f32(out, {kSize * kHeads, kQueries, 1, 1});
    call.operands[1] = f32(x.q, {kSize, kHeads, kQueries, 1});
    call.operands[2] = f32(cache, {kSize, 64 * kPages, 1, 1});
    call.operands[3] = f32(values, {kSize, 64 * kPages, 1, 1});
    call.operands[4] = f32(lists, {kListed, 1, kQueries, 1});
    call.operands[5] = f32(sinks, {kHeads, 1, 1, 1});
    run(reference_table, Op::sparse_attention, DType::none, call, 2);
    for (std::int32_t t = 0; t < kQueries; ++t)
        for (std::int32_t h = 0; h < kHeads; ++h) {
            double sum = std::exp(static_cast<double>(sinks[static_cast<std::size_t>(h)]));
            std::vector<double> y(kSize, 0.0);
            for (std::int32_t i = 0; i < 70 + t; ++i) {
                const double p = std::exp(static_cast<double>(0.4f) * x.dot(t, h, i));
                sum += p;
                for (std::int32_t c = 0; c < kSize; ++c)
                    y[static_cast<std::size_t>(c)] +=
                        p * static_cast<double>(
                                values[static_cast<std::size_t>(x.slots[static_cast<std::size_t>(i)] * kSize + c)]);
            }
            for (std::int32_t c = 0; c < kSize; ++c)
                CHECK(std::abs(static_cast<double>(out[static_cast<std::size_t>((t * kHeads + h) * kSize + c)]) -
                               y[static_cast<std::size_t>(c)] / sum) <= 2e-6);
        }
}

TEST_CASE("rope: pairs of the fourth section stand still, in turns or one section behind another") {
    const std::vector<std::int32_t> positions{11};
    std::vector<float> plain(24), out(24);
    const auto table = [&](std::vector<float>& to, std::initializer_list<std::int32_t> sections, int interleaved) {
        kernels::KernelCall call;
        call.params.rope.n_rot = 24;
        std::ranges::copy(sections, call.params.rope.sections);
        call.params.rope.interleaved = interleaved;
        call.operands[0] = f32(to, {24, 1, 1, 1});
        call.operands[1] = f32(positions, {1, 1, 1, 1});
        run(reference_table, Op::rope_table, DType::none, call);
    };
    table(plain, {}, 0);
    const auto still = [&](std::initializer_list<std::int32_t> sections, int interleaved) {
        table(out, sections, interleaved);
        std::vector<int> pairs;
        for (int i = 0; i < 12; ++i) {
            const auto at = static_cast<std::size_t>(2 * i);
            if (out[at] == 1.0f && out[at + 1] == 0.0f) pairs.push_back(i);
            else CHECK((out[at] == plain[at] && out[at + 1] == plain[at + 1]));
        }
        return pairs;
    };
    CHECK(still({4, 3, 3, 2}, 0) == std::vector<int>{10, 11});
    CHECK(still({2, 1, 1, 2}, 0) == std::vector<int>{4, 5, 10, 11});
    CHECK(still({5, 4, 3, 0}, 1) == std::vector<int>{11});  // i mod 3 = 2 belongs to width below 9
    CHECK(still({4, 4, 4, 0}, 1).empty());
}
