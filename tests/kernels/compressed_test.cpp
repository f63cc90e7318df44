// SPDX-License-Identifier: MIT
// Compressed pasts against their formulas in double: entries of groups, the choice among them, attention over entries
// and newest tokens; rows by hashes of n-grams, marks, matrices between streams.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
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

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

/// 90 tokens of one sequence on pages 2 and 0, the first of them on slot 3 of page 2.
struct TwoPages {
    static constexpr std::int32_t kN = 90, kPages = 3;
    std::vector<std::int32_t> slots, table{2, 0, -8, -1, 0, 61, (1 << 29) - 1, 0}, seqs{0, 2};
    TwoPages() {
        for (std::int32_t i = 0; i < kN; ++i) slots.push_back(i < 61 ? 2 * 64 + 3 + i : i - 61);
    }
    /// Rows of d floats as a K cache of one head holds them.
    [[nodiscard]] std::vector<float> key_cache(const std::vector<float>& rows, std::int64_t d) const {
        std::vector<float> cache(at(d * 64 * kPages), std::nanf(""));
        for (std::int64_t i = 0; i < kN; ++i)
            for (std::int64_t c = 0; c < d; ++c)
                cache[at(slots[at(i)] / kernels::kGroup * kernels::kGroup * d + c * kernels::kGroup +
                         slots[at(i)] % kernels::kGroup)] = rows[at(i * d + c)];
        return cache;
    }
    void describe(kernels::KernelCall& call, const std::vector<std::int32_t>& spans) const {
        call.operands[4] = f32(table, {4, 2, 1, 1});
        call.operands[5] = f32(seqs, {2, 1, 1, 1});
        call.operands[6] = f32(spans, {4, static_cast<std::int64_t>(spans.size()) / 4, 1, 1});
    }
};

/// Σ softmax(g + a)·t over a group's tokens, and with overlap over the first halves of the group in front.
std::vector<double> entry_of(const std::vector<float>& t, const std::vector<float>& g, const std::vector<float>& a,
                             std::int64_t end, std::int64_t size, std::int64_t n_part, std::int64_t d) {
    const std::int64_t width = d * n_part;
    std::vector<double> out;
    for (std::int64_t c = 0; c < d; ++c) {
        double sum = 0, total = 0;
        for (std::int64_t i = std::max<std::int64_t>(0, end - size * n_part); i < end; ++i) {
            const std::int64_t part = n_part == 2 && i >= end - size ? 1 : 0, element = part * d + c;
            const double weight = g.empty() ? 1.0
                                            : std::exp(static_cast<double>(g[at(i * width + element)]) +
                                                       static_cast<double>(a[at(i % size * width + element)]));
            sum += weight * static_cast<double>(t[at(i * width + element)]);
            total += weight;
        }
        out.push_back(sum / total);
    }
    return out;
}

}  // namespace

TEST_CASE("compressed: groups leave one entry each, for any cut into calls, any rows of the state and any threads") {
    struct Variant {
        std::int64_t size, n_part;
        bool weighted;
    };
    constexpr std::int64_t kTokens = 23, kSize = 6;
    OpRandom random(8);
    for (const Variant v : {Variant{4, 2, true}, Variant{5, 1, true}, Variant{3, 1, false}, Variant{1, 1, false}}) {
        CAPTURE(v.size);
        const std::int64_t width = kSize * v.n_part, n_state = v.size * v.n_part * width * (v.weighted ? 2 : 1);
        const std::vector<float> t = random.floats(at(width * kTokens)),
                                 g = v.weighted ? random.floats(at(width * kTokens), 3.0f) : std::vector<float>{},
                                 a = v.weighted ? random.floats(at(width * v.size)) : std::vector<float>{};
        std::vector<float> first;
        for (const int n_threads : {1, 3})
            for (const std::int64_t cut : {1, 2, 7, 23}) {
                CAPTURE(cut);
                std::vector<float> states(at(n_state * 3), std::nanf("")), out(at(kSize * kTokens));
                std::int32_t from = -1;
                for (std::int64_t begin = 0; begin < kTokens; begin += cut) {
                    const std::int64_t n = std::min(cut, kTokens - begin);
                    const std::int32_t to = from == 1 ? 2 : 1;
                    std::vector<std::int32_t> rows, positions;
                    for (std::int64_t i = 0; i < n; ++i) {
                        rows.insert(rows.end(), {i == 0 ? from : to, to});
                        positions.push_back(static_cast<std::int32_t>(begin + i));
                    }
                    from = to;
                    kernels::KernelCall call;
                    call.params.block = static_cast<std::int32_t>(v.size);
                    call.params.overlap = v.n_part == 2 ? 1 : 0;
                    call.operands[0] = operand(DType::f32, out.data() + begin * kSize, {kSize, n, 1, 1});
                    call.operands[1] = operand(DType::f32, t.data() + begin * width, {width, n, 1, 1});
                    if (v.weighted) {
                        call.operands[2] = operand(DType::f32, g.data() + begin * width, {width, n, 1, 1});
                        call.operands[3] = operand(DType::f32, a.data(), {width, v.size, 1, 1});
                    }
                    call.operands[4] = f32(positions, {n, 1, 1, 1});
                    call.operands[5] = f32(states, {n_state, 3, 1, 1});
                    call.operands[6] = f32(rows, {2, n, 1, 1});
                    run(reference_table, Op::compress_keys, DType::none, call, n_threads);
                }
                if (first.empty()) first = out;
                CHECK(std::memcmp(first.data(), out.data(), out.size() * sizeof(float)) == 0);
            }
        for (std::int64_t i = 0; i < kTokens; ++i) {
            const bool ends = (i + 1) % v.size == 0;
            const auto expected =
                ends ? entry_of(t, g, a, i + 1, v.size, v.n_part, kSize) : std::vector<double>(6, 0.0);
            for (std::int64_t c = 0; c < kSize; ++c)
                CHECK(std::abs(static_cast<double>(first[at(i * kSize + c)]) - expected[at(c)]) <= 2e-6);
        }
    }
}

TEST_CASE("compressed: whole blocks are chosen by the key of their last token, which alone is read") {
    const TwoPages pages;
    constexpr std::int64_t kHeads = 3, kSize = 8, kBlock = 4, kChosen = 5, kQueries = 6;
    OpRandom random(31);
    const std::vector<float> q = random.floats(at(kSize * kHeads * kQueries)),
                             keys = random.floats(at(kSize * TwoPages::kN)), weights = random.floats(kHeads * kQueries);
    std::vector<float> rows = keys;
    for (std::int64_t i = 0; i < TwoPages::kN; ++i)  // the others may hold anything
        if ((i + 1) % kBlock != 0) std::fill_n(rows.begin() + i * kSize, kSize, std::nanf(""));
    const std::vector<float> cache = pages.key_cache(rows, kSize);
    const auto seen = [](std::int64_t query) { return query == 0 ? 3 : 80 + 2 * query; };
    std::vector<std::int32_t> spans;
    for (std::int64_t t = 0; t < kQueries; ++t)
        spans.insert(spans.end(), {0, 0, static_cast<std::int32_t>(seen(t)), static_cast<std::int32_t>(seen(t) - 1)});
    for (const bool weighted : {false, true})
        for (const bool last_only : {false, true}) {
            kernels::KernelCall call;
            call.params.attention = {.n_head = kHeads, .n_head_kv = 1, .head_dim_k = kSize};
            call.params.k = kChosen;
            call.params.block = kBlock;
            call.params.whole_blocks = 1;
            call.params.last_only = last_only ? 1 : 0;
            const std::int64_t n_listed = last_only ? kChosen : (kChosen + 1) * kBlock;
            std::vector<std::int32_t> out(at(n_listed * kQueries), 99);
            call.operands[0] = f32(out, {n_listed, 1, kQueries, 1});
            call.operands[1] = f32(q, {kSize, kHeads, kQueries, 1});
            call.operands[2] = f32(cache, {kSize, 64 * TwoPages::kPages, 1, 1});
            if (weighted) call.operands[3] = f32(weights, {kHeads, kQueries, 1, 1});
            pages.describe(call, spans);
            run(reference_table, Op::select_keys, DType::none, call, 2);
            for (std::int64_t t = 0; t < kQueries; ++t) {
                std::vector<std::pair<double, std::int64_t>> blocks;
                for (std::int64_t b = 0; b < seen(t) / kBlock; ++b) {
                    double score = 0;
                    for (std::int64_t h = 0; h < kHeads; ++h) {
                        double dot = 0;
                        for (std::int64_t c = 0; c < kSize; ++c)
                            dot += static_cast<double>(q[at((t * kHeads + h) * kSize + c)]) *
                                   static_cast<double>(keys[at((b * kBlock + kBlock - 1) * kSize + c)]);
                        score +=
                            (weighted ? static_cast<double>(weights[at(t * kHeads + h)]) : 1.0) * std::max(dot, 0.0);
                    }
                    blocks.emplace_back(-score, b);
                }
                std::sort(blocks.begin(), blocks.end());
                blocks.resize(std::min<std::size_t>(blocks.size(), kChosen));
                std::vector<std::int32_t> expected;
                for (std::int64_t i = 0; i < seen(t); ++i) {
                    const bool in = std::ranges::any_of(blocks, [&](const auto& b) { return b.second == i / kBlock; });
                    const bool open = i >= seen(t) / kBlock * kBlock;
                    if (last_only ? in && (i + 1) % kBlock == 0 : in || open) expected.push_back(pages.slots[at(i)]);
                }
                expected.resize(at(n_listed), -1);
                CHECK(std::vector<std::int32_t>(out.begin() + t * n_listed, out.begin() + (t + 1) * n_listed) ==
                      expected);
            }
        }
}

TEST_CASE("compressed: one softmax over chosen entries and visible tokens, keys being values") {
    const TwoPages pages;
    constexpr std::int64_t kHeads = 2, kSize = 8, kQueries = 3, kListed = 70;
    OpRandom random(44);
    const std::vector<float> q = random.floats(at(kSize * kHeads * kQueries)),
                             keys = random.floats(at(kSize * TwoPages::kN)), sinks = random.floats(kHeads),
                             entries = random.floats(at(kSize * 64 * TwoPages::kPages));
    const std::vector<float> cache = pages.key_cache(keys, kSize);
    const std::vector<std::int32_t> spans{0, 20, 85, 84, 0, 0, 90, 89, 0, 86, 87, 86};
    std::vector<std::int32_t> lists;
    for (std::int64_t t = 0; t < kQueries; ++t)
        for (std::int64_t i = 0; i < kListed; ++i) lists.push_back(i < 23 * t ? pages.slots[at(i)] : -1);
    for (const bool has_entries : {true, false}) {
        std::vector<float> out(at(kSize * kHeads * kQueries));
        kernels::KernelCall call;
        call.params.attention = {
            .n_head = kHeads, .n_head_kv = 1, .head_dim_k = kSize, .head_dim_v = kSize, .scale = 0.5f};
        call.operands[0] = f32(out, {kSize * kHeads, kQueries, 1, 1});
        call.operands[1] = f32(q, {kSize, kHeads, kQueries, 1});
        call.operands[2] = f32(cache, {kSize, 64 * TwoPages::kPages, 1, 1});
        if (has_entries) {
            call.operands[3] = f32(entries, {kSize, 64 * TwoPages::kPages, 1, 1});
            call.operands[7] = f32(lists, {kListed, 1, kQueries, 1});
        }
        pages.describe(call, spans);
        call.operands[8] = f32(sinks, {kHeads, 1, 1, 1});
        run(reference_table, Op::compressed_attention, DType::none, call, 2);
        for (std::int64_t t = 0; t < kQueries; ++t)
            for (std::int64_t h = 0; h < kHeads; ++h) {
                double sum = std::exp(static_cast<double>(sinks[at(h)]));
                std::vector<double> y(kSize, 0.0);
                const auto add = [&](const float* row) {
                    double dot = 0;
                    for (std::int64_t c = 0; c < kSize; ++c)
                        dot += static_cast<double>(q[at((t * kHeads + h) * kSize + c)]) * static_cast<double>(row[c]);
                    const double p = std::exp(0.5 * dot);
                    sum += p;
                    for (std::int64_t c = 0; c < kSize; ++c) y[at(c)] += p * static_cast<double>(row[c]);
                };
                for (std::int64_t i = 0; i < 23 * t && has_entries; ++i)
                    add(entries.data() + pages.slots[at(i)] * kSize);
                for (std::int64_t i = spans[at(4 * t + 1)]; i < spans[at(4 * t + 2)]; ++i) add(keys.data() + i * kSize);
                for (std::int64_t c = 0; c < kSize; ++c)
                    CHECK(std::abs(static_cast<double>(out[at((t * kHeads + h) * kSize + c)]) - y[at(c)] / sum) <=
                          3e-6);
            }
    }
}

TEST_CASE("compressed: the newest mark among the visible tokens counts") {
    const TwoPages pages;
    std::vector<float> marks(TwoPages::kN, 0.0f);
    marks[3] = 2.0f;
    marks[70] = 5.0f;
    const std::vector<float> cache = pages.key_cache(marks, 1);
    const std::vector<std::int32_t> spans{0, 0, 3, 2, 0, 0, 4, 3, 0, 0, 70, 69, 0, 0, 90, 89, 0, 71, 90, 89};
    std::vector<std::int32_t> out(5, -1);
    kernels::KernelCall call;
    call.operands[0] = f32(out, {1, 5, 1, 1});
    call.operands[2] = f32(cache, {1, 64 * TwoPages::kPages, 1, 1});
    pages.describe(call, spans);
    run(reference_table, Op::latest_mark, DType::none, call, 2);
    CHECK(out == std::vector<std::int32_t>{0, 2, 2, 5, 0});
}

TEST_CASE("compressed: n-grams are hashed in 64 bits that wrap, and end where a text ends") {
    constexpr std::int64_t kN = 3, kHeads = 2, kRows = (kN - 1) * kHeads;
    constexpr std::int32_t kEnd = 7;
    const std::vector<std::uint64_t> constants{
        0xFFFFFFFFFFFFFFF1u, 24680135791357u, 35184372088831u, 37, 41, 43, 47, 0, 37, 78, 121};
    std::vector<std::int32_t> words;
    for (const std::uint64_t c : constants)
        words.insert(words.end(), {static_cast<std::int32_t>(c), static_cast<std::int32_t>(c >> 32)});
    const std::vector<std::int32_t> ids{5, 9, 7, 11, 12, 13, 7, 7, 2};
    const auto n = static_cast<std::int64_t>(ids.size());
    for (const std::int64_t cut : {1, 2, 9}) {
        std::vector<std::int32_t> out(at(kRows * n), -1);
        std::vector<float> states(at((kN - 1) * 2), std::nanf(""));
        for (std::int64_t begin = 0; begin < n; begin += cut) {
            const std::int64_t count = std::min(cut, n - begin);
            std::vector<std::int32_t> rows;
            for (std::int64_t i = 0; i < count; ++i) rows.insert(rows.end(), {begin + i == 0 ? -1 : 1, 1});
            kernels::KernelCall call;
            call.params.k = kN;
            call.params.first = kEnd;
            call.operands[0] = operand(DType::i32, out.data() + begin * kRows, {kRows, count, 1, 1});
            call.operands[1] = operand(DType::i32, ids.data() + begin, {count, 1, 1, 1});
            call.operands[2] = f32(words, {2, static_cast<std::int64_t>(constants.size()), 1, 1});
            call.operands[3] = f32(states, {kN - 1, 2, 1, 1});
            call.operands[4] = f32(rows, {2, count, 1, 1});
            run(reference_table, Op::ngram_rows, DType::none, call, 3);
        }
        for (std::int64_t t = 0; t < n; ++t) {
            std::vector<std::uint64_t> context{static_cast<std::uint64_t>(ids[at(t)])};
            for (std::int64_t s = 1; s < kN; ++s) {
                const bool cuts = t < s || ids[at(t - s)] == kEnd || (s > 1 && context.back() == kEnd);
                context.push_back(static_cast<std::uint64_t>(cuts ? kEnd : ids[at(t - s)]));
            }
            for (std::int64_t gram = 2; gram <= kN; ++gram) {
                std::uint64_t mix = 0;
                for (std::int64_t s = 0; s < gram; ++s) mix ^= context[at(s)] * constants[at(s)];
                for (std::int64_t h = 0; h < kHeads; ++h) {
                    const std::int64_t row = (gram - 2) * kHeads + h;
                    CHECK(static_cast<std::uint64_t>(out[at(t * kRows + row)]) ==
                          mix % constants[at(kN + row)] + constants[at(kN + kRows + row)]);
                }
            }
        }
    }
}

TEST_CASE("compressed: matrices between streams have rows and columns that add up to one; signed roots") {
    constexpr std::int64_t kN = 4, kTokens = 5;
    OpRandom random(3);
    const std::vector<float> x = random.floats(kN * kN * kTokens, 4.0f);
    for (const int rounds : {1, 3, 20}) {
        std::vector<float> out(x.size());
        kernels::KernelCall call;
        call.params.k = rounds;
        call.params.eps = 0.02f;
        call.operands[0] = f32(out, {kN * kN, kTokens, 1, 1});
        call.operands[1] = f32(x, {kN * kN, kTokens, 1, 1});
        run(reference_table, Op::sinkhorn, DType::none, call, 2);
        for (std::int64_t t = 0; t < kTokens; ++t) {
            double m[kN][kN];
            for (std::int64_t i = 0; i < kN; ++i) {
                double sum = 0;
                for (std::int64_t j = 0; j < kN; ++j)
                    sum += m[i][j] = std::exp(static_cast<double>(x[at(t * kN * kN + i * kN + j)]));
                for (std::int64_t j = 0; j < kN; ++j) m[i][j] = m[i][j] / sum + static_cast<double>(0.02f);
            }
            const auto columns = [&] {
                for (std::int64_t j = 0; j < kN; ++j) {
                    double sum = static_cast<double>(0.02f);
                    for (std::int64_t i = 0; i < kN; ++i) sum += m[i][j];
                    for (std::int64_t i = 0; i < kN; ++i) m[i][j] /= sum;
                }
            };
            columns();
            for (int round = 1; round < rounds; ++round) {
                for (std::int64_t i = 0; i < kN; ++i) {
                    double sum = static_cast<double>(0.02f);
                    for (std::int64_t j = 0; j < kN; ++j) sum += m[i][j];
                    for (std::int64_t j = 0; j < kN; ++j) m[i][j] /= sum;
                }
                columns();
            }
            for (std::int64_t i = 0; i < kN; ++i)
                for (std::int64_t j = 0; j < kN; ++j)
                    CHECK(std::abs(static_cast<double>(out[at(t * kN * kN + j * kN + i)]) - m[i][j]) <= 1e-6);
        }
    }
    const std::vector<float> values{0.0f, -0.0f, 4.0f, -9.0f, 1e-9f, -1e-9f};
    std::vector<float> roots(6);
    kernels::KernelCall call;
    call.params.low = 1e-4f;
    call.operands[0] = f32(roots, {6, 1, 1, 1});
    call.operands[1] = f32(values, {6, 1, 1, 1});
    run(reference_table, Op::signed_sqrt, DType::none, call);
    CHECK(roots == std::vector<float>{0.0f, 0.0f, 2.0f, -3.0f, 0.01f, -0.01f});
}

TEST_CASE("compressed: tables turn by shifted positions and backward, and a convolution sees every second token") {
    const std::vector<std::int32_t> positions{5, 11}, shifted{2, 8};
    const auto table = [](const std::vector<std::int32_t>& at_positions, int offset, int backward) {
        std::vector<float> out(16);
        kernels::KernelCall call;
        call.params.rope.n_rot = 8;
        call.params.rope.offset = offset;
        call.params.rope.backward = backward;
        call.operands[0] = f32(out, {8, 2, 1, 1});
        call.operands[1] = f32(at_positions, {2, 1, 1, 1});
        run(reference_table, Op::rope_table, DType::none, call);
        return out;
    };
    CHECK(table(positions, -3, 0) == table(shifted, 0, 0));
    auto back = table(positions, 0, 1);
    for (std::size_t i = 1; i < back.size(); i += 2) back[i] = -back[i];
    CHECK(back == table(positions, 0, 0));

    const std::vector<float> x{1, 2, 3, 4, 5, 6, 7}, taps{100, 10, 1};
    std::vector<float> y(7), state(4 * 2, std::nanf(""));
    const std::vector<std::int32_t> rows{-1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    kernels::KernelCall call;
    call.params.dilation = 2;
    call.operands[0] = f32(y, {1, 7, 1, 1});
    call.operands[1] = f32(x, {1, 7, 1, 1});
    call.operands[2] = f32(taps, {3, 1, 1, 1});
    call.operands[4] = f32(state, {4, 2, 1, 1});
    call.operands[5] = f32(rows, {2, 7, 1, 1});
    run(reference_table, Op::causal_conv, DType::none, call);
    CHECK(y == std::vector<float>{1, 2, 13, 24, 135, 246, 357});
}
