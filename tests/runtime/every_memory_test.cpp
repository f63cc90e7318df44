// SPDX-License-Identifier: MIT
// What every architecture's memory promises a caller, on golden models of every kind: a decode is one transaction,
// sequences part without a trace of each other, ranges that cut a state are refused, and the plan is what is held.
#include <doctest/doctest.h>

#include <algorithm>

#include "support/alloc_counter.hpp"
#include "support/golden.hpp"
#include "support/tiny_model.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer::test {

namespace {

template <class Fn>
void for_each_decoder(Fn&& fn) {
    for (const GoldenModel& golden : golden_models()) {
        if (golden.encoder) continue;
        CAPTURE(golden.name);
        fn(Model::load(golden.file));
    }
}

bool is_recurrent(const Model& model) { return plan(model, {}).recurrent > 0; }

// The bits of the last logits of a sequence that was never beside another one.
std::vector<std::uint32_t> alone(const Model& model, std::span<const Token> tokens) {
    Context context(model, {.n_ctx = 256});
    REQUIRE(context.decode(tokens) == DecodeStatus::ok);
    return bits_of(context.logits());
}

std::vector<Token> joined(std::span<const Token> a, std::span<const Token> b) {
    std::vector<Token> out(a.begin(), a.end());
    out.insert(out.end(), b.begin(), b.end());
    return out;
}

}  // namespace

TEST_CASE("[N5][golden] transaction: cancelled at any step, every architecture is as before and goes on as if nothing "
          "had been") {
    if (skip_without_golden()) return;
    for_each_decoder([](const Model& model) {
        const auto tokens = random_tokens(19, model.info().n_vocab, 3);
        const auto ahead = std::span(tokens).first(10);
        const ContextOptions options{.n_ctx = 256, .n_seq_max = 2, .n_ubatch = 4, .n_threads = 1};
        Context undisturbed(model, options), context(model, options);
        for (Context* each : {&undisturbed, &context}) {
            REQUIRE(each->decode(ahead) == DecodeStatus::ok);
            each->seq_cp(SeqId{0}, SeqId{1});
        }
        Batch rest;  // three micro-batches; the sequences part in the first or the second
        for (std::size_t i = 10; i < 18; ++i) rest.add(tokens[i], {}, std::array{SeqId{0}}, i == 17);
        rest.add(tokens[18], {}, std::array{SeqId{1}}, true);
        int n_polls = 0, stop_at = 1;
        context.set_cancel([&] { return ++n_polls == stop_at; });
        DecodeStatus status = DecodeStatus::cancelled;
        for (; status == DecodeStatus::cancelled; stop_at += 1 + stop_at / 4) {
            n_polls = 0;
            status = context.decode(rest);
            if (status == DecodeStatus::ok) break;
            CHECK(context.n_outputs() == 0);
            CHECK(context.seq_pos_max(SeqId{0}) == Pos{9});
            CHECK(context.seq_pos_max(SeqId{1}) == Pos{9});
            CHECK(context.count(SeqId{0}) == 10);
            CHECK(context.used() == undisturbed.used());
        }
        CHECK(stop_at > 8);
        REQUIRE(undisturbed.decode(rest) == DecodeStatus::ok);
        for (const int row : {0, 1}) CHECK(bits_of(context.logits(row)) == bits_of(undisturbed.logits(row)));
    });
}

TEST_CASE("[B1][M7][M12][golden] sequences: shared, coupled, parted and removed, each has the bits it has alone, and "
          "the trace is complete") {
    if (skip_without_golden()) return;
    for_each_decoder([](const Model& model) {
        const auto tokens = random_tokens(40, model.info().n_vocab, 4);
        const auto prompt = std::span(tokens).first(20);
        Context context(model, {.n_ctx = 256, .n_seq_max = 3, .n_ubatch = 9, .n_outputs = 8, .n_threads = 2});
        const auto check = std::make_shared<CoverageCheck>();
        const auto attached = context.attach(check);
        REQUIRE(context.decode(prompt) == DecodeStatus::ok);
        context.seq_cp(SeqId{0}, SeqId{1});
        Batch batch;
        batch.add(tokens[20], {}, std::array{SeqId{0}, SeqId{1}}, true);  // one slot, or one state, for both
        batch.add(tokens[21], {}, std::array{SeqId{1}}, true);            // then each goes on alone
        batch.add(tokens[22], {}, std::array{SeqId{0}}, true);
        batch.add(tokens[23], {}, std::array{SeqId{2}}, true);  // a new one begins
        batch.add(tokens[24], {}, std::array{SeqId{1}}, true);
        REQUIRE(context.decode(batch) == DecodeStatus::ok);
        const auto shared = joined(prompt, std::array{tokens[20]});
        CHECK(bits_of(context.logits(0)) == alone(model, shared));
        CHECK(bits_of(context.logits(1)) == alone(model, joined(shared, std::array{tokens[21]})));
        CHECK(bits_of(context.logits(2)) == alone(model, joined(shared, std::array{tokens[22]})));
        CHECK(bits_of(context.logits(3)) == alone(model, std::array{tokens[23]}));
        CHECK(bits_of(context.logits(4)) == alone(model, joined(shared, std::array{tokens[21], tokens[24]})));

        REQUIRE(context.seq_rm(SeqId{1}) == RemoveStatus::ok);
        CHECK(!context.seq_pos_max(SeqId{1}));
        batch.clear();
        batch.add(tokens[25], {}, std::array{SeqId{1}}, true);  // empty again: begins with zeros
        batch.add(tokens[26], {}, std::array{SeqId{0}}, true);
        REQUIRE(context.decode(batch) == DecodeStatus::ok);
        CHECK(bits_of(context.logits(0)) == alone(model, std::array{tokens[25]}));
        CHECK(bits_of(context.logits(1)) == alone(model, joined(shared, std::array{tokens[22], tokens[26]})));
        for (const std::string& difference : check->differences()) FAIL_CHECK(difference);
    });
}

TEST_CASE("[M12][golden] states: what would cut one is refused and changes nothing; what touches none is done") {
    if (skip_without_golden()) return;
    for_each_decoder([&](const Model& model) {
        if (!is_recurrent(model)) return;
        const auto tokens = random_tokens(12, model.info().n_vocab, 5);
        Context context(model, {.n_ctx = 256, .n_seq_max = 2});
        REQUIRE(context.decode(std::span(tokens).first(8)) == DecodeStatus::ok);
        CHECK(context.seq_rm(SeqId{0}, {Pos{4}}) == RemoveStatus::partial_state);
        CHECK(context.seq_rm(SeqId{0}, Pos{0}, Pos{3}) == RemoveStatus::partial_state);
        CHECK(context.rm_all_seqs(Pos{2}, Pos{5}) == RemoveStatus::partial_state);
        CHECK(context.seq_rm(SeqId{0}, {Pos{8}}) == RemoveStatus::ok);
        CHECK_THROWS_AS(context.seq_cp(SeqId{0}, SeqId{1}, Pos{0}, Pos{4}), Error);
        CHECK(context.count(SeqId{0}) == 8);
        CHECK(context.seq_pos_max(SeqId{0}) == Pos{7});
        CHECK(context.seq_pos_min(SeqId{0}) == Pos{7});  // a state stands at its last token
        REQUIRE(context.decode(std::span(tokens).subspan(8)) == DecodeStatus::ok);
        CHECK(bits_of(context.logits()) == alone(model, tokens));
        Batch gap;
        gap.add(tokens[0], Pos{20}, SeqId{0}, true);
        CHECK_THROWS_AS((void)context.decode(gap), Error);
        gap.clear();
        gap.add(tokens[0], Pos{3}, SeqId{1}, true);
        CHECK_THROWS_AS((void)context.decode(gap), Error);
    });
}

TEST_CASE("[M11][N6][golden] memory: the plan is what a context of any architecture holds, and states do not grow with "
          "n_ctx; after the first decodes nothing is allocated") {
    if (skip_without_golden()) return;
    for_each_decoder([](const Model& model) {
        ContextOptions options{.n_ctx = 256, .n_seq_max = 3, .n_ubatch = 16, .n_threads = 1};
        const MemoryPlan planned = plan(model, options);
        const AllocationScope scope;
        Context context(model, options);
        CHECK(scope.live() == static_cast<std::int64_t>(planned.context_total()));
        CHECK(context.memory().cache == planned.cache);
        CHECK(context.memory().recurrent == planned.recurrent);
        CHECK(context.memory().context_total() == planned.context_total());
        options.n_ctx = 4096;
        CHECK(plan(model, options).recurrent == planned.recurrent);
        CHECK((planned.cache > 0 || planned.recurrent > 0));

        const auto tokens = random_tokens(40, model.info().n_vocab, 8);
        const auto decode = [&](std::size_t first, std::size_t n) {
            REQUIRE(context.decode(std::span(tokens).subspan(first, n)) == DecodeStatus::ok);
        };
        decode(0, 20);  // one of 16, one of 4
        decode(20, 1);
        const AllocationScope later;
        decode(21, 4);
        decode(25, 1);
        context.seq_cp(SeqId{0}, SeqId{2});
        CHECK(context.seq_rm(SeqId{0}) == RemoveStatus::ok);
        CHECK(later.count() == 0);
    });
}

}  // namespace tinfer::test
