// SPDX-License-Identifier: MIT
// What a caller of Context relies on: sequences that are cut and gone on with, and the memory of caches.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>

#include "runtime/context_support.hpp"

namespace tinfer {

TEST_CASE_FIXTURE(Fixture, "[M4] context: removing the end and going on equals a fresh run, bit for bit") {
    Context context(model, {.n_ctx = 128});
    REQUIRE(context.decode(tokens) == DecodeStatus::ok);
    CHECK(context.seq_rm(SeqId{0}, {Pos{20}}) == RemoveStatus::ok);
    CHECK(context.count(SeqId{0}) == 20);
    const auto tail = test::random_tokens(9, 128, 5);
    REQUIRE(context.decode(tail) == DecodeStatus::ok);
    std::vector<Token> whole(tokens.begin(), tokens.begin() + 20);
    whole.insert(whole.end(), tail.begin(), tail.end());
    CHECK(row_bits(context, -1) == slice(alone(whole), 28, 128));
}

TEST_CASE_FIXTURE(Fixture,
                  "[M7] context: a copied sequence continues like the original; shared pages are copied on write") {
    Context context(model, {.n_ctx = 512, .n_seq_max = 3, .n_outputs = 4});
    REQUIRE(context.decode(tokens) == DecodeStatus::ok);
    context.seq_cp(SeqId{0}, SeqId{1});
    context.seq_cp(SeqId{0}, SeqId{2}, Pos{0}, Pos{10});
    CHECK(context.used() == 48);
    CHECK(context.count(SeqId{2}) == 10);
    const Token next{3};
    const auto go_on = [&](int seq, int pos) {
        Batch batch;
        batch.add(next, Pos{pos}, SeqId{seq}, true);
        REQUIRE(context.decode(batch) == DecodeStatus::ok);
        return row_bits(context, 0);
    };
    const auto original = go_on(0, 48), copy = go_on(1, 48), part = go_on(2, 10);
    CHECK(original == copy);
    std::vector<Token> whole(tokens);
    whole.push_back(next);
    CHECK(original == slice(alone(whole), 48, 128));
    std::vector<Token> first(tokens.begin(), tokens.begin() + 10);
    first.push_back(next);
    CHECK(part == slice(alone(first), 10, 128));
    context.seq_keep(SeqId{1});
    CHECK(context.count(SeqId{0}) == 0);
    CHECK(context.used() == 49);
}

TEST_CASE_FIXTURE(Fixture, "[M13] context: after clear, results equal a new context's") {
    Context context(model, {.n_ctx = 128, .logits_all = true});
    REQUIRE(context.decode(test::random_tokens(33, 128, 99)) == DecodeStatus::ok);
    for (const bool zero : {false, true}) {
        context.clear(zero);
        CHECK(context.used() == 0);
        CHECK(context.seq_pos_max(SeqId{0}) == std::nullopt);
        REQUIRE(context.decode(tokens) == DecodeStatus::ok);
        CHECK(bits_of(context.result("result_output")) == alone(tokens));
    }
}

TEST_CASE_FIXTURE(Fixture, "[M2] context: K and V types are chosen apart, and memory is as computed") {
    const auto bytes = [](KvType type) { return type == KvType::f32 ? 4u : 2u; };
    const auto exact = test::logits_of(model, tokens, {.type_k = KvType::f32, .type_v = KvType::f32});
    for (const KvType k : {KvType::f32, KvType::f16, KvType::bf16}) {
        for (const KvType v : {KvType::f32, KvType::f16, KvType::bf16}) {
            const Context context(model, {.n_ctx = 128, .type_k = k, .type_v = v});
            CHECK(context.memory().cache == 2u * 128u * 32u * (bytes(k) + bytes(v)));  // layers · slots · row
            const auto logits = test::logits_of(model, tokens, {.type_k = k, .type_v = v});
            const double worst = test::largest_difference(logits, exact);
            CHECK(worst < (k == KvType::bf16 || v == KvType::bf16 ? 0.1 : 0.02));
            CHECK((worst == 0) == (k == KvType::f32 && v == KvType::f32));
        }
    }
}

TEST_CASE("[M2] context: caches of codes take the memory that is computed, keep results close and need heads of 32") {
    const test::TempFolder folder;
    TinyModel wide;
    wide.head_dim = 32;
    const Model model = Model::load(wide.save(folder.path()));
    const auto tokens = test::random_tokens(48, 128, 7);
    const auto row = [](KvType type) {
        return type == KvType::q8_0 ? 68u : type == KvType::q4_0 ? 36u : 128u;
    };  // two heads of 32
    const auto exact = test::logits_of(model, tokens, {.type_k = KvType::f32, .type_v = KvType::f32});
    // Root mean square of the change, as a share of that of the logits. A code of 8 bits is within 1/254 of its block's
    // largest value, one of 4 bits within 1/14: eighteen times as far.
    const auto share_of_change = [&](std::span<const float> logits) {
        double change = 0, all = 0;
        for (std::size_t i = 0; i < logits.size(); ++i) {
            change += std::pow(static_cast<double>(logits[i]) - exact[i], 2);
            all += std::pow(static_cast<double>(exact[i]), 2);
        }
        return std::sqrt(change / all);
    };
    std::map<std::pair<KvType, KvType>, double> share;
    for (const auto& [k, v] : {std::pair{KvType::q8_0, KvType::f16}, std::pair{KvType::f16, KvType::q8_0},
                               std::pair{KvType::q8_0, KvType::q8_0}, std::pair{KvType::q8_0, KvType::q4_0},
                               std::pair{KvType::q4_0, KvType::q4_0}}) {
        const ContextOptions options{.n_ctx = 128, .type_k = k, .type_v = v};
        CHECK(Context(model, options).memory().cache == 2u * 128u * (row(k) + row(v)));
        const auto logits = test::logits_of(model, tokens, options);
        share[{k, v}] = share_of_change(logits);
        CAPTURE(share[std::pair(k, v)]);
        CHECK(share[std::pair(k, v)] > 0);
        for (const Isa isa : available_isas()) {
            ContextOptions other = options;
            other.isa = isa;
            other.fuse = isa == Isa::automatic;
            CHECK(bits_of(test::logits_of(model, tokens, other)) == bits_of(logits));
        }
    }
    const double by_8 = share[std::pair(KvType::q8_0, KvType::q8_0)],
                 by_4 = share[std::pair(KvType::q4_0, KvType::q4_0)];
    CAPTURE(by_8);
    CAPTURE(by_4);
    CHECK(by_8 < 4.0 / 127);                       // K and V of each layer add their rounding
    CHECK((by_4 > 9 * by_8 && by_4 < 36 * by_8));  // the steps differ by 18
    const Model narrow = Model::load(TinyModel{}.save(folder.path()));
    CHECK(code_of([&] { Context(narrow, {.type_v = KvType::q4_0}); }) == ErrorCode::bad_cache_type);
}

}  // namespace tinfer
