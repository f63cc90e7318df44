// SPDX-License-Identifier: MIT
// Batches: what is filled in where the caller says nothing, and each way to be wrong with its own message.
#include "runtime/batch_plan.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <vector>

using namespace tinfer;
using namespace tinfer::memory;
using tinfer::runtime::BatchLimits;
using tinfer::runtime::BatchPlan;

namespace {

constexpr BatchLimits kLimits{
    .n_batch = 16, .n_ubatch = 4, .n_outputs = 8, .n_seq_max = 3, .n_together = 4, .n_vocab = 100, .n_embd = 2};

Memory make_cache() { return Memory({.kv = {.n_ctx = 128, .n_seq_max = 3, .n_run = 16}}); }

/// `n` tokens more in each of the sequences, one slot for all of them.
void fill(Memory& cache, int n, std::initializer_list<SeqId> seqs) {
    const std::vector<SeqId> ids(seqs);
    std::vector<KvToken> tokens;
    for (int i = 0; i < n; ++i) tokens.push_back({cache.pos_max(ids[0]) + 1 + i, ids});
    cache.begin();
    REQUIRE(cache.place(tokens).tokens == tokens.size());
    cache.commit();
}

struct Row {
    int token;
    int pos;  // -1: automatic
    std::vector<int> seqs{0};
    bool output = false;
};

Batch batch_of(const std::vector<Row>& rows) {
    Batch batch;
    for (const auto& row : rows) {
        std::vector<SeqId> seqs;
        for (const int seq : row.seqs) seqs.push_back(SeqId{seq});
        batch.add(Token{row.token}, row.pos == -1 ? std::nullopt : std::optional(Pos{row.pos}), seqs, row.output);
    }
    return batch;
}

void refused(const BatchLimits& limits, const Memory& cache, const Batch& batch, const std::string& message) {
    BatchPlan plan(limits);
    try {
        plan.build(batch, cache);
        FAIL("not refused: " << message);
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::invalid_batch);
        CHECK(std::string(error.what()) == message);
    }
    CHECK(plan.size() == 0);
}

void refused(const Memory& cache, const std::vector<Row>& rows, const std::string& message) {
    refused(kLimits, cache, batch_of(rows), message);
}

std::vector<int> positions(const BatchPlan& plan) {
    std::vector<int> out;
    for (const auto& token : plan.tokens()) out.push_back(token.pos);
    return out;
}

std::vector<int> output_rows(const BatchPlan& plan) { return {plan.output_rows().begin(), plan.output_rows().end()}; }

}  // namespace

TEST_CASE("[B4] batch_plan: tokens alone continue sequence 0, and the last one is the output") {
    auto cache = make_cache();
    BatchPlan plan(kLimits);
    const std::array tokens{Token{5}, Token{6}, Token{7}};
    plan.build(tokens, cache);
    CHECK(positions(plan) == std::vector{0, 1, 2});
    CHECK(std::ranges::equal(plan.ids(), std::array{5, 6, 7}));
    CHECK(output_rows(plan) == std::vector{2});
    fill(cache, 3, {SeqId{0}});
    plan.build(tokens, cache);
    CHECK(positions(plan) == std::vector{3, 4, 5});
    CHECK(plan.tokens()[0].seqs.size() == 1);
    CHECK(plan.tokens()[0].seqs[0] == SeqId{0});
}

TEST_CASE("batch_plan: automatic positions count tokens of the batch, also given ones, sequence by sequence") {
    auto cache = make_cache();
    fill(cache, 4, {SeqId{1}});
    BatchPlan plan(kLimits);
    const auto batch = batch_of(
        {{1, -1, {0}}, {2, -1, {1}}, {3, 1, {0}}, {4, -1, {0}}, {5, 5, {1}}, {6, -1, {1}}, {7, 9, {2}}, {8, -1, {2}}});
    plan.build(batch, cache);
    CHECK(positions(plan) == std::vector{0, 4, 1, 2, 5, 6, 9, 10});
}

TEST_CASE("batch_plan: a token of several sequences advances all of them") {
    auto cache = make_cache();
    BatchPlan plan(kLimits);
    const auto batch = batch_of({{1, -1, {0, 1}}, {2, -1, {0, 1}}, {3, -1, {0}}, {4, -1, {1}}});
    plan.build(batch, cache);
    CHECK(positions(plan) == std::vector{0, 1, 2, 2});
    CHECK(plan.tokens()[0].seqs.size() == 2);
}

TEST_CASE("batch_plan: flagged rows are the outputs, in batch order; no flag means the last, or all with logits_all") {
    auto cache = make_cache();
    BatchPlan plan(kLimits);
    const auto flagged = batch_of({{1, -1, {0}, true}, {2, -1}, {3, -1, {0}, true}, {4, -1}});
    plan.build(flagged, cache);
    CHECK(output_rows(plan) == std::vector{0, 2});
    CHECK(plan.output_index(2) == 1);
    CHECK_FALSE(plan.is_output(1));
    const auto message = [&](int i) {
        try {
            (void)plan.output_index(i);
            return std::string("no error");
        } catch (const Error& error) {
            return std::string(to_string(error.code())) + ": " + error.what();
        }
    };
    CHECK(message(1) == "no_output: token 1 has no output (flag not set)");
    CHECK(message(4) == "index_out_of_range: token index 4 outside [0,4)");
    CHECK(message(-1) == "index_out_of_range: token index -1 outside [0,4)");

    const auto plain = batch_of({{1, -1}, {2, -1}, {3, -1}});
    plan.build(plain, cache);
    CHECK(output_rows(plan) == std::vector{2});
    auto limits = kLimits;
    limits.logits_all = true;
    BatchPlan all(limits);
    all.build(plain, cache);
    CHECK(output_rows(all) == std::vector{0, 1, 2});
    all.build(flagged, cache);
    CHECK(output_rows(all) == std::vector{0, 2});
}

TEST_CASE("batch_plan: micro-batches cover the batch once, in shares as even as can be, with the outputs of each") {
    auto cache = make_cache();
    const auto planned = [&](int n_tokens, int n_together) {
        BatchLimits limits = kLimits;
        limits.n_together = n_together;
        BatchPlan plan(limits);
        std::vector<Row> rows;
        for (int i = 0; i < n_tokens; ++i) rows.push_back({i, -1, {0}, i % 3 == 0});
        plan.build(batch_of(rows), cache);
        return plan;
    };
    const auto micro_batches = [&](int n_tokens, int n_together) {
        const BatchPlan plan = planned(n_tokens, n_together);
        std::vector<std::array<std::size_t, 4>> seen;
        for (std::size_t first = 0; first < plan.size();) {
            const auto part = plan.micro_batch(first);
            seen.push_back({part.first, part.n, part.first_output, part.n_outputs});
            first += part.n;
        }
        return seen;
    };
    using List = std::vector<std::array<std::size_t, 4>>;
    CHECK(micro_batches(11, 4) == List{{0, 4, 0, 2}, {4, 4, 2, 1}, {8, 3, 3, 1}});
    CHECK(micro_batches(9, 4) == List{{0, 3, 0, 1}, {3, 3, 1, 1}, {6, 3, 2, 1}});
    CHECK(micro_batches(4, 4) == List{{0, 4, 0, 2}});
    CHECK(micro_batches(5, 2) == List{{0, 2, 0, 1}, {2, 2, 1, 1}, {4, 1, 2, 0}});
    const BatchPlan plan = planned(11, 4);
    const auto part = plan.shortened(plan.micro_batch(0), 3);
    CHECK(part.n == 3);
    CHECK(part.n_outputs == 1);
}

TEST_CASE("[B5] batch_plan: size, kind and token ids") {
    const auto cache = make_cache();
    refused(cache, {}, "batch is empty");
    refused(cache, std::vector<Row>(17, Row{1, -1}), "batch has 17 tokens, limit n_batch = 16");
    refused(cache, {{1, -1}, {100, -1}}, "token 100 at index 1 outside vocabulary 100");
    refused(cache, {{-1, -1}}, "token -1 at index 0 outside vocabulary 100");
    BatchPlan plan(kLimits);
    CHECK_THROWS_WITH_AS(plan.build(std::span<const Token>(), cache), "batch is empty", Error);
    CHECK_THROWS_WITH_AS(plan.build(std::vector<Token>(17), cache), "batch has 17 tokens, limit n_batch = 16", Error);
    CHECK_THROWS_WITH_AS(plan.build(std::vector{Token{-7}}, cache), "token -7 at index 0 outside vocabulary 100",
                         Error);
}

TEST_CASE("[B5] batch_plan: embeddings of the right width, and of nothing else beside") {
    const auto cache = make_cache();
    const std::vector row{1.0f, 2.0f}, wide{1.0f, 2.0f, 3.0f}, bad{1.0f, std::numeric_limits<float>::infinity()};
    Batch mixed = batch_of({{1, -1}});
    mixed.add_embedding(row);
    refused(kLimits, cache, mixed, "batch must have either tokens or embeddings");
    Batch batch;
    batch.add_embedding(wide);
    refused(kLimits, cache, batch, "embedding width 3, model needs 2");
    batch.clear();
    batch.add_embedding(row);
    batch.add_embedding(bad);
    BatchPlan plan(kLimits);
    plan.build(batch, cache);
    CHECK(plan.has_embeddings());
    CHECK(std::ranges::equal(plan.embedding(1), bad));
    auto limits = kLimits;
    limits.check_finite = true;
    refused(limits, cache, batch, "embedding at index 1 is not finite");
    limits = kLimits;
    limits.accepts_embeddings = false;
    refused(limits, cache, batch, "architecture does not accept embedding input");
}

TEST_CASE("[B5] batch_plan: sequence ids") {
    const auto cache = make_cache();
    refused(cache, {{1, -1, {3}}}, "sequence id 3 at index 0 outside 0..2");
    refused(cache, {{1, -1}, {1, -1, {0, -1}}}, "sequence id -1 at index 1 outside 0..2");
    refused(cache, {{1, -1}, {1, -1, {1, 1}}}, "sequence id 1 at index 1 is repeated");
}

TEST_CASE("[B5] batch_plan: positions") {
    auto cache = make_cache();
    refused(cache, {{1, -2}}, "negative position at index 0");
    refused(cache, {{1, 2147483647}}, "position 2147483647 at index 0 exceeds the largest, 2147483646");
    refused(cache, {{1, 0}, {1, 2}}, "positions of sequence 0 are not consecutive at index 1");
    refused(cache, {{1, 0}, {1, 0}}, "positions of sequence 0 are not consecutive at index 1");
    refused(cache, {{1, 0}, {1, 4, {1}}, {1, 1}, {1, 6, {1}}},
            "positions of sequence 1 are not consecutive at index 3");
    fill(cache, 5, {SeqId{0}});
    refused(cache, {{1, 6}}, "sequence 0: batch starts at 6, cache ends at 4; expected 5");
    refused(cache, {{1, 4}}, "sequence 0: batch starts at 4, cache ends at 4; expected 5");
    BatchPlan plan(kLimits);
    const auto elsewhere = batch_of({{1, 40, {1}}, {1, 41, {1}}});  // an empty sequence starts anywhere
    plan.build(elsewhere, cache);
    auto limits = kLimits;
    limits.allow_position_gaps = true;
    BatchPlan gaps(limits);
    const auto increasing = batch_of({{1, 7}, {1, 9}, {1, 30}});
    gaps.build(increasing, cache);
    CHECK(positions(gaps) == std::vector{7, 9, 30});
    refused(limits, cache, batch_of({{1, 7}, {1, 7}}), "positions of sequence 0 are not consecutive at index 1");
    refused(limits, cache, batch_of({{1, 4}}), "sequence 0: batch starts at 4, cache ends at 4; expected 5");
}

TEST_CASE("batch_plan: coupled sequences need one history") {
    auto cache = make_cache();
    fill(cache, 3, {SeqId{0}});
    fill(cache, 3, {SeqId{1}});
    refused(cache, {{1, 3, {0, 1}}}, "sequences 0 and 1 are coupled at index 0 but have different history");
    refused(cache, {{1, 3, {0}}, {1, 3, {2}}, {1, 4, {0, 2}}},
            "sequences 0 and 2 are coupled at index 2 but have different history");
    cache.seq_cp(SeqId{0}, SeqId{1}, Pos{-1}, Pos{-1});
    BatchPlan plan(kLimits);
    const auto coupled = batch_of({{1, 3, {0, 1}}, {1, 4, {1, 0}}});
    plan.build(coupled, cache);
    refused(cache, {{1, 3, {0}}, {1, 3, {1}}, {1, 4, {0, 1}}},
            "sequences 0 and 1 are coupled at index 2 but have different history");
    refused(cache, {{1, 3, {0, 2}}}, "sequences 0 and 2 are coupled at index 0 but have different history");
}

TEST_CASE("batch_plan: what model and context allow") {
    const auto cache = make_cache();
    const std::vector<Row> five(5, Row{1, -1});
    auto limits = kLimits;
    limits.n_positions = 4;
    refused(limits, cache, batch_of({{1, 4}}), "position 4 exceeds the learned position table (4)");
    limits.allow_position_gaps = true;
    refused(limits, cache, batch_of({{1, 0}, {1, 5}}), "position 5 exceeds the learned position table (4)");
    limits = kLimits;
    limits.causal = false;
    refused(limits, cache, batch_of(five), "non-causal attention needs n_ubatch >= 5");
    limits = kLimits;
    limits.has_output_head = false;
    refused(limits, cache, batch_of(five), "model has no output head; enable embeddings");
    limits.embeddings = true;
    BatchPlan plan(limits);
    const auto batch = batch_of(five);
    plan.build(batch, cache);
    limits = kLimits;
    limits.logits_all = true;
    refused(limits, cache, batch_of(std::vector<Row>(9, Row{1, -1})), "batch asks for 9 outputs, limit n_outputs = 8");
}

TEST_CASE("batch_plan: more tokens than there are slots or positions are no mistake: they do not fit") {
    auto cache = make_cache();
    BatchLimits limits = kLimits;
    const auto fits = [&](const std::vector<Row>& rows) {
        BatchPlan plan(limits);
        plan.build(batch_of(rows), cache);
        return plan.fits();
    };
    CHECK(fits(std::vector<Row>(16, Row{1, -1})));
    limits.n_batch_is_n_ctx = true;
    CHECK_FALSE(fits(std::vector<Row>(17, Row{1, -1})));
    const Memory states(
        {.kv = {.n_ctx = 128, .n_seq_max = 3, .n_run = 16}, .has_attention = false, .has_states = true});
    refused(limits, states, batch_of(std::vector<Row>(17, Row{1, -1})),
            "batch has 17 tokens, more than n_ctx = 16, which limits a call as long as n_batch is not set");

    limits.n_positions = 4;
    CHECK(fits(std::vector<Row>(4, Row{1, -1})));
    CHECK_FALSE(fits(std::vector<Row>(5, Row{1, -1})));
    CHECK_FALSE(fits({{1, 2, {1}}, {1, 3, {1}}, {1, 4, {1}}}));
    fill(cache, 4, {SeqId{0}});
    CHECK_FALSE(fits({{1, -1}}));
    CHECK_FALSE(fits({{1, 4}}));
    CHECK(fits({{1, -1, {1}}}));
    refused(limits, cache, batch_of({{100, -1}}),
            "token 100 at index 0 outside vocabulary 100");  // mistakes come first

    limits = kLimits;
    cache.seq_add(SeqId{0}, Pos{0}, Pos{-1}, 2147483640 - 3);
    CHECK(cache.room(SeqId{0}) == 6);
    CHECK(fits(std::vector<Row>(6, Row{1, -1})));
    CHECK_FALSE(fits(std::vector<Row>(7, Row{1, -1})));
}

TEST_CASE("batch_plan: of several broken rules the first one is named") {
    auto cache = make_cache();
    fill(cache, 5, {SeqId{0}});
    refused(cache, {{1, 9, {5}}, {500, 9}}, "token 500 at index 1 outside vocabulary 100");
    refused(cache, {{1, -5}, {1, 9, {5}}}, "sequence id 5 at index 1 outside 0..2");
    refused(cache, {{1, 9}, {1, 11}, {1, -5}}, "negative position at index 2");
    refused(cache, {{1, 9}, {1, 11}}, "positions of sequence 0 are not consecutive at index 1");
}

TEST_CASE("batch: with recurrent states a sequence begins at 0 and leaves no gaps, whatever the options say") {
    const Memory memory({.kv = {.n_ctx = 128, .n_seq_max = 3, .n_run = 16}, .has_states = true});
    BatchLimits gaps = kLimits;
    gaps.allow_position_gaps = true;
    for (const BatchLimits& limits : {kLimits, gaps}) {
        refused(limits, memory, batch_of({{1, 5}}), "sequence 0: batch starts at 5, cache ends at -1; expected 0");
        refused(limits, memory, batch_of({{1, 0}, {2, 3}}), "positions of sequence 0 are not consecutive at index 1");
    }
    BatchPlan plan(kLimits);
    plan.build(batch_of({{1, 0}, {2, 1}}), memory);
    CHECK(plan.size() == 2);
}

TEST_CASE("batch_plan: bookkeeping takes the bytes that were told before") {
    CHECK(BatchPlan(kLimits).allocated_bytes() == BatchPlan::bytes(kLimits));
}
