// SPDX-License-Identifier: MIT
// Indexers, attention over what they choose, compressed pasts and their entries: every table of this machine against
// the reference table, bit for bit, over types of caches, sizes, holes, and any number of threads; with one thread the
// hardware says whether what is touched was named.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "support/kernel_call.hpp"
#include "support/random_blocks.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

TestTensor filled(TestTensor::Shape ne, std::uint64_t seed, Extremes extremes = Extremes::none) {
    TestTensor tensor(DType::f32, ne);
    const auto values = random_floats(ne[0] * ne[1] * ne[2] * ne[3], seed, extremes);
    std::copy(values.begin(), values.end(), tensor.as<float>().begin());
    return tensor;
}

TestTensor of_integers(TestTensor::Shape ne, const std::vector<std::int32_t>& values) {
    TestTensor tensor(DType::i32, ne);
    std::copy(values.begin(), values.end(), tensor.as<std::int32_t>().begin());
    return tensor;
}

/// One sequence with or without holes on every second page, and queries at its end, which see a window; the first sees
/// nothing where it is blind. Its row of Q is not read, though kernels say so; so that the hardware does not see it,
/// rows of such calls lie in one page.
struct Sequence {
    std::vector<std::int32_t> kv_slots, entries, spans, positions;
    std::int64_t n_kv_slots = 0, n_queries = 0;

    Sequence(std::int32_t n_tokens, bool holes, std::int32_t window, std::int32_t queries, bool blind = true) {
        Random random(static_cast<std::uint64_t>(n_tokens) + (holes ? 7 : 0));
        std::int32_t page = 0;
        for (std::int32_t ordinal = 0; ordinal < n_tokens; page += 2) {
            std::uint64_t live = 0;
            for (int slot = 0; slot < 64 && ordinal + std::popcount(live) < n_tokens; ++slot)
                if (!holes || random.below(4) != 0) live |= std::uint64_t{1} << slot;
            entries.insert(entries.end(),
                           {page, ordinal, static_cast<std::int32_t>(live), static_cast<std::int32_t>(live >> 32)});
            for (int slot = 0; slot < 64; ++slot)
                if ((live >> slot & 1) != 0) kv_slots.push_back(page * 64 + slot);
            ordinal += std::popcount(live);
        }
        n_kv_slots = std::int64_t{page} * 64;
        positions.assign(static_cast<std::size_t>(n_kv_slots), -1);
        for (std::size_t i = 0; i < kv_slots.size(); ++i)  // a hole of positions in the middle
            positions[static_cast<std::size_t>(kv_slots[i])] = static_cast<std::int32_t>(i < 20 ? i : i + 5);
        for (std::int32_t i = 0; i < queries; ++i) {
            const std::int32_t end = n_tokens - queries + 1 + i, last = kv_slots[static_cast<std::size_t>(end - 1)];
            spans.insert(spans.end(), {i == 0 && blind ? -1 : 0, std::max(0, end - window), end,
                                       positions[static_cast<std::size_t>(last)]});
        }
        n_queries = queries;
    }
    [[nodiscard]] TestTensor table() const {
        return of_integers({4, static_cast<std::int64_t>(entries.size()) / 4, 1, 1}, entries);
    }
    [[nodiscard]] TestTensor seqs() const {
        return of_integers({2, 1, 1, 1}, {0, static_cast<std::int32_t>(entries.size() / 4)});
    }
    [[nodiscard]] TestTensor span_rows() const { return of_integers({4, n_queries, 1, 1}, spans); }
    /// Random rows in the KV slots of the sequence, as the reference kernel writes them.
    [[nodiscard]] TestTensor cache(DType type, std::int64_t d, std::int32_t n_head, bool is_v,
                                   std::uint64_t seed) const {
        const auto n = static_cast<std::int64_t>(kv_slots.size());
        TestTensor made(type, {d * n_head, n_kv_slots, 1, 1});
        const TestTensor rows = filled({d, n_head, n, 1}, seed);
        OpParams params;
        params.attention = {.n_head = n_head,
                            .n_head_kv = n_head,
                            .head_dim_k = static_cast<std::int32_t>(d),
                            .head_dim_v = static_cast<std::int32_t>(d)};
        params.is_v = is_v ? 1 : 0;
        const TestTensor slots = of_integers({n, 1, 1, 1}, kv_slots);
        REQUIRE(run_kernel(*kernels::find_table(Isa::reference), Op::kv_write, type, {&made, &rows, &slots}, params));
        return made;
    }
    /// For each query some of the KV slots in ascending order, then −1: none (or few as well), few, almost all.
    [[nodiscard]] TestTensor lists(std::int64_t n, std::int64_t n_list, std::uint64_t seed, bool none = true) const {
        Random random(seed);
        std::vector<std::int32_t> all;
        for (std::int64_t list = 0; list < n_list * n_queries; ++list) {
            const auto first = static_cast<std::ptrdiff_t>(all.size());
            const std::uint64_t keep =
                std::max<std::uint64_t>(static_cast<std::uint64_t>(list) % 4, none ? 0 : 1);  // in four
            for (const std::int32_t kv_slot : kv_slots)
                if (static_cast<std::ptrdiff_t>(all.size()) - first < n && (keep == 3 || random.below(4) < keep))
                    all.push_back(kv_slot);
            all.resize(static_cast<std::size_t>(first + n), -1);
        }
        return of_integers({n, n_list, n_queries, 1}, all);
    }
};

constexpr DType kCaches[] = {DType::f32, DType::f16, DType::bf16, DType::q8_0, DType::q4_0};

struct Heads {
    std::int32_t n_head, n_head_kv, dk, dv;
};

}  // namespace

TEST_CASE("[G11][K9] sparse attention: lists of any length, cache and number of heads give equal bits on every table") {
    for (const DType type : kCaches)
        for (const Heads h : {Heads{6, 2, 32, 32}, {40, 1, 96, 64}, {3, 3, 64, 32}, {9, 1, 64, 96}})
            for (const bool holes : {false, true}) {
                CAPTURE(std::string(to_string(type)));
                CAPTURE(h.n_head);
                const Sequence sequence(holes ? 210 : 330, holes, 1 << 20, 4);
                const bool in_page = h.n_head * h.dk <= 256;
                const TestTensor q = filled({h.dk, h.n_head, 4, 1}, 3), sinks = filled({h.n_head, 1, 1, 1}, 4),
                                 k = sequence.cache(type, h.dk, h.n_head_kv, false, 5),
                                 v = sequence.cache(type == DType::bf16 ? DType::f16 : type, h.dv, h.n_head_kv, true,
                                                    6),
                                 out(DType::f32, {std::int64_t{h.dv} * h.n_head, 4, 1, 1}),
                                 shared = sequence.lists(310, 1, 7, in_page),
                                 own = sequence.lists(70, h.n_head_kv, 8, in_page);
                OpParams params;
                params.attention = {.n_head = h.n_head,
                                    .n_head_kv = h.n_head_kv,
                                    .head_dim_k = h.dk,
                                    .head_dim_v = h.dv,
                                    .scale = 0.2f};
                for (const int n_threads : {1, 3})
                    CHECK(compare_tables(Op::sparse_attention, DType::none, out, {&q, &k, &v, &shared, &sinks}, params,
                                         n_threads) == "");
                CHECK(compare_tables(Op::sparse_attention, DType::none, out, {&q, &k, &v, &own}, params, 2) == "");
                params.attention.softcap = 1.5f;
                CHECK(compare_tables(Op::sparse_attention, DType::none, out, {&q, &k, &v, &own}, params) == "");
            }
    // Channels that are no whole pieces, in caches of floats
    const Sequence sequence(90, true, 1 << 20, 3);
    const TestTensor q = filled({10, 5, 3, 1}, 3), k = sequence.cache(DType::f16, 10, 1, false, 5),
                     v = sequence.cache(DType::f32, 7, 1, true, 6), out(DType::f32, {35, 3, 1, 1}),
                     lists = sequence.lists(66, 1, 7);
    OpParams params;
    params.attention = {.n_head = 5, .n_head_kv = 1, .head_dim_k = 10, .head_dim_v = 7, .scale = 0.3f};
    for (const int n_threads : {1, 7})
        CHECK(compare_tables(Op::sparse_attention, DType::none, out, {&q, &k, &v, &lists}, params, n_threads) == "");
}

TEST_CASE("[G11][K9] indexers: tokens, blocks of positions and whole blocks are chosen alike on every table") {
    struct Choice {
        std::int32_t k, block, local, whole_blocks, last_only;
        bool weighted;
    };
    for (const DType type : kCaches)
        for (const bool holes : {false, true})
            for (const Choice c : {Choice{40, 1, 0, 0, 0, true},
                                   {500, 1, 0, 0, 0, true},
                                   {1, 1, 0, 0, 0, false},
                                   {5, 16, 2, 0, 0, false},
                                   {3, 8, 0, 0, 0, true},
                                   {9, 4, 0, 1, 1, true},
                                   {9, 4, 0, 1, 0, false},
                                   {30, 1, 0, 1, 0, false}}) {
                CAPTURE(std::string(to_string(type)));
                CAPTURE(c.block);
                const std::int32_t n_head = c.weighted ? 7 : 2, d = type == DType::f32 ? 20 : 64;
                const Sequence sequence(holes ? 150 : 230, holes, 200, 4);
                const std::int64_t n_group = c.weighted || c.whole_blocks != 0 ? 1 : n_head,
                                   n_listed = c.whole_blocks == 0 ? std::int64_t{c.k} * c.block
                                              : c.last_only != 0  ? c.k
                                                                  : (c.k + std::int64_t{1}) * c.block;
                const TestTensor q = filled({d, n_head, 4, 1}, 3), weights = filled({n_head, 4, 1, 1}, 4),
                                 keys = sequence.cache(type, d, 1, false, 5), table = sequence.table(),
                                 seqs = sequence.seqs(), spans = sequence.span_rows(),
                                 positions = of_integers({sequence.n_kv_slots, 1, 1, 1}, sequence.positions),
                                 out(DType::i32, {n_listed, n_group, 4, 1});
                OpParams params;
                params.attention = {.n_head = n_head, .n_head_kv = 1, .head_dim_k = d};
                params.k = c.k;
                params.block = c.block;
                params.local = c.local;
                params.whole_blocks = c.whole_blocks;
                params.last_only = c.last_only;
                const bool by_position = c.block > 1 && c.whole_blocks == 0;
                for (const int n_threads : {1, 2, 5})
                    CHECK(compare_tables(Op::select_keys, DType::none, out,
                                         {&q, &keys, c.weighted ? &weights : nullptr, &table, &seqs, &spans,
                                          by_position ? &positions : nullptr},
                                         params, n_threads) == "");
            }
}

TEST_CASE("[G11][K9] compressed attention: entries and tokens under one softmax give equal bits on every table") {
    for (const DType type : kCaches)
        for (const bool holes : {false, true})
            for (const std::int32_t window : {50, 1000})
                for (const bool has_entries : {true, false})
                    for (const int n_threads : {1, 4}) {
                        CAPTURE(std::string(to_string(type)));
                        constexpr std::int32_t kHeads = 11;
                        const std::int32_t d = type == DType::f32 ? 20 : 96;
                        const Sequence sequence(holes ? 160 : 340, holes, window, 4, type == DType::f32);
                        const TestTensor q = filled({d, kHeads, 4, 1}, 3), sinks = filled({kHeads, 1, 1, 1}, 4),
                                         keys = sequence.cache(type, d, 1, false, 5),
                                         entries = sequence.cache(type, d, 1, true, 6), table = sequence.table(),
                                         seqs = sequence.seqs(), spans = sequence.span_rows(),
                                         lists = sequence.lists(140, 1, 9, type == DType::f32),
                                         out(DType::f32, {std::int64_t{d} * kHeads, 4, 1, 1});
                        OpParams params;
                        params.attention = {
                            .n_head = kHeads, .n_head_kv = 1, .head_dim_k = d, .head_dim_v = d, .scale = 0.15f};
                        CHECK(compare_tables(Op::compressed_attention, DType::none, out,
                                             {&q, &keys, has_entries ? &entries : nullptr, &table, &seqs, &spans,
                                              has_entries ? &lists : nullptr, n_threads == 1 ? &sinks : nullptr},
                                             params, n_threads) == "");
                    }
}

TEST_CASE("[G11][K9] compressed keys: entries of groups and what is kept of them agree on every table") {
    struct Variant {
        std::int32_t size;
        bool overlap, weighted;
    };
    constexpr std::int64_t kTokens = 21;
    for (const Variant v : {Variant{4, true, true}, {5, false, true}, {3, false, false}, {1, false, false}})
        for (const std::int64_t d : {6, 16, 40})
            for (const Extremes extremes : {Extremes::none, Extremes::non_finite}) {
                CAPTURE(v.size);
                CAPTURE(d);
                const std::int64_t n_part = v.overlap ? 2 : 1, width = d * n_part,
                                   n_state = v.size * n_part * width * (v.weighted ? 2 : 1);
                std::vector<std::int32_t> positions, rows;
                for (std::int32_t t = 0; t < kTokens; ++t) {  // two sequences by turns; the first moves at its fifth
                    const bool second = t % 3 == 1;
                    const std::int32_t own = second ? t / 3 : t - (t + 1) / 3, from = second ? 3 : own < 5 ? 1 : 2;
                    positions.push_back(second ? own + 7 : own);
                    rows.insert(rows.end(), {own == 0 ? second ? 0 : -1 : !second && own == 5 ? 1 : from, from});
                }
                const TestTensor t = filled({width, kTokens, 1, 1}, 3, extremes),
                                 g = filled({width, kTokens, 1, 1}, 4, extremes), a = filled({width, v.size, 1, 1}, 5),
                                 at = of_integers({kTokens, 1, 1, 1}, positions),
                                 states = filled({n_state, 4, 1, 1}, 6),
                                 state_rows = of_integers({2, kTokens, 1, 1}, rows),
                                 out(DType::f32, {d, kTokens, 1, 1});
                OpParams params;
                params.block = v.size;
                params.overlap = v.overlap ? 1 : 0;
                for (const int n_threads : {1, 3})
                    CHECK(compare_tables(
                              Op::compress_keys, DType::none, out,
                              {&t, v.weighted ? &g : nullptr, v.weighted ? &a : nullptr, &at, &states, &state_rows},
                              params, n_threads, 5) == "");
            }
}
