// SPDX-License-Identifier: MIT
// Decode many, keep some: what follows has the bits of a context that decoded the kept tokens alone, whatever the model
// remembers its tokens in, and a transaction that is taken back leaves no trace.
#include <doctest/doctest.h>

#include <algorithm>
#include <stdexcept>
#include <tuple>

#include "base/access.hpp"
#include "runtime/context.hpp"
#include "runtime/context_support.hpp"
#include "support/alloc_counter.hpp"
#include "support/family_model.hpp"
#include "support/golden.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"

namespace tinfer::test {

namespace {

using runtime::Keep;

constexpr auto kNoDeadline = runtime::Executor::kNoDeadline;
constexpr SeqId kA{0}, kB{1};

Model saved(const GgufWriter& writer, const TempFolder& folder) {
    writer.save(folder / "model.gguf");
    return Model::load(folder / "model.gguf");
}

void add_tokens(Batch& batch, std::span<const Token> tokens, SeqId seq) {
    for (const Token token : tokens) batch.add(token, {}, std::array{seq}, true);
}

/// Opens and computes.
Context::Impl& computed(Context& context, const Batch& batch) {
    Context::Impl& impl = detail::impl_of(context);
    impl.open(batch);
    REQUIRE(impl.advance(kNoDeadline) == StepStatus::ok);
    return impl;
}

constexpr std::string_view kGolden[] = {"gemma3", "mamba", "jamba", "lfm2", "qwen3next", "rwkv7"};

/// Both contexts remember the same, and go on with the same bits.
void check_same(Context& context, Context& expected, int n_vocab) {
    Batch next;
    for (const SeqId seq : {kA, kB}) {
        CHECK(context.count(seq) == expected.count(seq));
        CHECK(context.seq_pos_max(seq) == expected.seq_pos_max(seq));
        add_tokens(next, random_tokens(3, n_vocab, 77), seq);
    }
    CHECK(context.used() == expected.used());
    REQUIRE(context.decode(next) == DecodeStatus::ok);
    REQUIRE(expected.decode(next) == DecodeStatus::ok);
    for (int row = 0; row < context.n_outputs(); ++row)
        CHECK(bits_of(context.logits(row)) == bits_of(expected.logits(row)));
}

// Nine tokens of one sequence around four of another, of which `n_a` and `n_b` stay.
void check_keep(const Model& model, int n_ubatch, int n_a, int n_b) {
    CAPTURE(n_ubatch);
    CAPTURE(n_a);
    CAPTURE(n_b);
    const int n_vocab = model.info().n_vocab;
    const auto a = random_tokens(9, n_vocab, 11), b = random_tokens(4, n_vocab, 12);
    const ContextOptions options{
        .n_ctx = 512, .n_seq_max = 2, .n_batch = 64, .n_ubatch = n_ubatch, .n_outputs = 64, .n_threads = 2};
    Context context(model, options), expected(model, options);
    for (Context* each : {&context, &expected}) {
        REQUIRE(each->decode(random_tokens(8, n_vocab, 13)) == DecodeStatus::ok);
        each->seq_cp(kA, kB);
    }
    Batch all, kept;
    add_tokens(all, std::span(a).first(5), kA);
    add_tokens(all, b, kB);
    add_tokens(all, std::span(a).subspan(5), kA);
    add_tokens(kept, std::span(a).first(static_cast<std::size_t>(n_a)), kA);
    add_tokens(kept, std::span(b).first(static_cast<std::size_t>(n_b)), kB);

    Context::Impl& impl = computed(context, all);
    const auto logits = bits_of(context.logits(2));
    const std::array keeps{Keep{kA, n_a}, Keep{kB, n_b}};
    REQUIRE(impl.commit(keeps) == DecodeStatus::ok);
    CHECK(context.n_outputs() == 13);
    CHECK(bits_of(context.logits(2)) == logits);  // of the whole batch, still
    if (kept.size() > 0) REQUIRE(expected.decode(kept) == DecodeStatus::ok);
    check_same(context, expected, n_vocab);
}

/// Attention over everything, windows with a pool of their own, states; golden models add those with all of them.
template <class Fn>
void for_each_kind(Fn&& fn) {
    const TempFolder folder;
    for (const char* arch : {"llama", "rwkv6qwen2"})
        for (const Family& family : small_families())
            if (family.arch == arch) {
                CAPTURE(family.arch);
                fn(saved(family.writer(DType::f32), folder));
                break;
            }
    fn(windowed_model(10));
    if (!golden_folder()) return;
    for (const GoldenModel& golden : golden_models()) {
        if (std::ranges::find(kGolden, golden.name) == std::end(kGolden)) continue;
        CAPTURE(golden.name);
        fn(Model::load(golden.file));
    }
}

}  // namespace

TEST_CASE("transaction: of every architecture's batch a part can be kept") {
    for (const Family& family : small_families()) {
        CAPTURE(family.arch);
        const TempFolder folder;
        check_keep(saved(family.writer(DType::f32), folder), 6, 4, 1);
    }
}

TEST_CASE("transaction: any part can be kept, in micro-batches of any size") {
    for_each_kind([](const Model& model) {
        for (const int n_ubatch : {3, 64})
            for (const auto& [n_a, n_b] : {std::pair{0, 0}, {0, 4}, {5, 0}, {7, 3}, {9, 4}})
                check_keep(model, n_ubatch, n_a, n_b);
    });
}

TEST_CASE(
    "transaction: a part can be kept behind tokens that were removed and moved, in a context that is nearly full") {
    const Fixture tiny;
    for (const int n_ctx : {64, 128}) {
        CAPTURE(n_ctx);
        const ContextOptions options{.n_ctx = n_ctx, .n_outputs = 16};
        Context context(tiny.model, options), expected(tiny.model, options);
        for (Context* each : {&context, &expected}) {
            REQUIRE(each->decode(random_tokens(n_ctx, 128, 13)) == DecodeStatus::ok);
            REQUIRE(each->seq_rm(kA, Pos{3}, Pos{33}) == RemoveStatus::ok);
            each->seq_add(kA, {Pos{33}}, -30);
        }
        for (int round = 0; round < 10; ++round) {
            CAPTURE(round);
            Batch all, kept;
            const auto tokens = random_tokens(5, 128, 40 + static_cast<std::uint64_t>(round));
            add_tokens(all, tokens, kA);
            add_tokens(kept, std::span(tokens).first(2), kA);
            Context::Impl& impl = computed(context, all);
            REQUIRE(expected.decode(kept) == DecodeStatus::ok);
            CHECK(bits_of(context.logits(0)) == bits_of(expected.logits(0)));
            CHECK(bits_of(context.logits(1)) == bits_of(expected.logits(1)));
            REQUIRE(impl.commit(std::array{Keep{kA, 2}}) == DecodeStatus::ok);
        }
    }
}

TEST_CASE("transaction: a part whose window was released within the batch is computed again") {
    const Model model = windowed_model(10);
    const int n_vocab = model.info().n_vocab;
    const auto tokens = random_tokens(300, n_vocab, 21);
    const ContextOptions options{.n_ctx = 2048, .n_seq_max = 2, .n_batch = 512, .n_ubatch = 32, .n_outputs = 512};
    for (const int n_kept : {1, 100, 290}) {
        CAPTURE(n_kept);
        Context context(model, options), expected(model, options);
        Batch all, kept;
        add_tokens(all, tokens, kA);
        add_tokens(kept, std::span(tokens).first(static_cast<std::size_t>(n_kept)), kA);
        REQUIRE(computed(context, all).commit(std::array{Keep{kA, n_kept}}) == DecodeStatus::ok);
        REQUIRE(expected.decode(kept) == DecodeStatus::ok);
        check_same(context, expected, n_vocab);
    }
}

TEST_CASE(
    "[N5] transaction: what is taken back, cancelled or stopped by an observer while it is computed again leaves no "
    "trace") {
    struct Thrower : Observer {
        bool armed = false;
        void on_run_begin(const RunInfo&) override {
            if (armed) throw std::runtime_error("stop");
        }
    };
    for_each_kind([](const Model& model) {
        const int n_vocab = model.info().n_vocab;
        const ContextOptions options{.n_ctx = 256, .n_seq_max = 2, .n_ubatch = 4, .n_outputs = 64};
        Context context(model, options), expected(model, options);
        for (Context* each : {&context, &expected}) {
            REQUIRE(each->decode(random_tokens(8, n_vocab, 13)) == DecodeStatus::ok);
            each->seq_cp(kA, kB);
        }
        bool cancels = false;
        context.set_cancel([&] { return cancels; });
        const auto thrower = std::make_shared<Thrower>();
        const auto attached = context.attach(thrower);
        Batch batch;
        for (int i = 0; i < 5; ++i) batch.add(random_tokens(1, n_vocab, 30)[0], {}, std::array{kA}, i == 4);

        computed(context, batch).rollback();
        CHECK(context.n_outputs() == 0);
        CHECK(context.count(kA) == expected.count(kA));
        CHECK(context.used() == expected.used());

        const bool repeats = plan(model, {}).recurrent > 0;
        const std::array keeps{Keep{kA, 3}};
        if (repeats) {
            Context::Impl& cancelled = computed(context, batch);
            cancels = true;
            CHECK(cancelled.commit(keeps) == DecodeStatus::cancelled);
            cancels = false;
            CHECK(context.n_outputs() == 0);
            CHECK(context.count(kA) == expected.count(kA));

            Context::Impl& stopped = computed(context, batch);
            thrower->armed = true;
            CHECK_THROWS_AS(std::ignore = stopped.commit(keeps), Error);
            thrower->armed = false;
            CHECK(context.count(kA) == expected.count(kA));
        }
        check_same(context, expected, n_vocab);
    });
}

TEST_CASE("transaction: keeps that the batch does not have are refused, and it stays open") {
    const TempFolder folder;
    const Model model = Model::load(TinyModel{}.save(folder.path()));
    Context context(model, {.n_ctx = 256, .n_seq_max = 3});
    Context::Impl& impl = detail::impl_of(context);
    const auto refused = [&](Keep keep) {
        try {
            (void)impl.commit(std::array{keep});
        } catch (const Error& error) {
            return error.code() == ErrorCode::bad_parameter;
        }
        return false;
    };
    CHECK(refused({kA, 1}));  // nothing is open
    Batch batch;
    batch.add(Token{1}, {}, std::array{kA, kB}, true);
    batch.add(Token{2}, {}, std::array{kA}, true);
    computed(context, batch);
    CHECK(refused({kA, 3}));
    CHECK(refused({kA, -1}));
    CHECK(refused({SeqId{2}, 0}));
    CHECK(refused({SeqId{1000}, 0}));
    CHECK(refused({kB, 0}));  // the other sequence keeps the token that both have
    CHECK_THROWS_AS((void)context.decode(batch), Error);
    REQUIRE(impl.commit(std::array{Keep{kA, 1}}) == DecodeStatus::ok);
    CHECK(context.count(kA) == 1);
    CHECK(context.count(kB) == 1);
}

TEST_CASE("[N6] transaction: keeping a part allocates nothing after the first time") {
    for_each_kind([](const Model& model) {
        Context context(model, {.n_ctx = 256, .n_seq_max = 2, .n_outputs = 64});
        Batch batch;
        add_tokens(batch, random_tokens(6, model.info().n_vocab, 40), kA);
        for (int i = 0; i < 4; ++i) {
            const AllocationScope scope;
            REQUIRE(computed(context, batch).commit(std::array{Keep{kA, 2}}) == DecodeStatus::ok);
            if (i > 1) CHECK(scope.count() == 0);
        }
        CHECK(context.count(kA) == 8);
    });
}

}  // namespace tinfer::test
