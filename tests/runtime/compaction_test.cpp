// SPDX-License-Identifier: MIT
// A cache that is full of holes takes as many tokens as an empty one would: it is compacted in a run of its own, which
// observers see, nothing can stop halfway, and no bit of a result shows.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <random>
#include <stdexcept>

#include "runtime/context_support.hpp"
#include "runtime/maintenance_thrower.hpp"
#include "support/alloc_counter.hpp"
#include "support/family_model.hpp"
#include "support/golden.hpp"
#include "support/sanitizers.hpp"
#include "support/temp_folder.hpp"
#include "trace/trace_support.hpp"

namespace tinfer::test {

namespace {

constexpr Pos kTheEnd = kPosEnd;
constexpr SeqId kFirst{0};

TinyModel smallest() {
    return {.n_layer = 2, .n_embd = 32, .n_head = 2, .n_head_kv = 1, .head_dim = 16, .n_ff = 32, .n_vocab = 64};
}

struct MoveCount : Observer {
    int n = 0;
    [[nodiscard]] TraceRequest request() const override { return {.filter = {.ops = {Op::kv_move}}}; }
    void on_events(std::span<const KernelEvent> events) override { n += static_cast<int>(events.size()); }
};

// Two contexts that are told the same: one is always full, the other so large that its holes do not matter.
class FullAndLarge {
public:
    FullAndLarge(const Model& model, ContextOptions options, int n_large, unsigned seed)
        : full(model, options), large(model, larger(options, n_large)), n_vocab_(model.info().n_vocab), bits_(seed) {
        moves_ = full.attach(of_full);
        no_moves_ = large.attach(of_large);
    }

    int below(int n) { return static_cast<int>(bits_() % static_cast<unsigned>(n)); }

    // As many tokens as there are said to be room for, in pieces; not one more.
    void fill() {
        while (full.room(kFirst) > 0) {
            const int room = full.room(kFirst), n = below(3) == 0 ? 1 + below(room) : room;
            REQUIRE(full.used() + room == full.options().n_ctx);
            std::vector<Token> tokens;
            for (int i = 0; i < n; ++i) tokens.push_back(Token{below(n_vocab_)});
            REQUIRE(full.decode(tokens) == DecodeStatus::ok);
            REQUIRE(large.decode(tokens) == DecodeStatus::ok);
            REQUIRE(std::ranges::equal(bits_of(full.logits()), bits_of(large.logits())));
        }
        REQUIRE(full.decode(std::array{Token{1}}) == DecodeStatus::no_room);
    }
    // The first tokens stay, some behind them go, and the gap closes.
    bool shift(int keep, int n) {
        if (full.seq_rm(kFirst, Pos{keep}, Pos{keep + n}) != RemoveStatus::ok) return false;
        REQUIRE(large.seq_rm(kFirst, Pos{keep}, Pos{keep + n}) == RemoveStatus::ok);
        for (Context* each : {&full, &large}) each->seq_add(kFirst, Pos{keep + n}, kTheEnd, -n);
        return true;
    }

    Context full, large;
    std::shared_ptr<MoveCount> of_full = std::make_shared<MoveCount>(), of_large = std::make_shared<MoveCount>();

private:
    static ContextOptions larger(ContextOptions options, int n_large) {
        options.n_ctx = n_large;
        options.n_batch = 0;
        options.swa_full = true;
        return options;
    }
    Attachment moves_, no_moves_;
    int n_vocab_;
    std::mt19937 bits_;
};

Batch batch_in(int seq, std::span<const Token> tokens) {
    Batch batch;
    const SeqId id{seq};
    for (std::size_t i = 0; i < tokens.size(); ++i)
        batch.add(tokens[i], std::nullopt, std::span(&id, 1), i + 1 == tokens.size());
    return batch;
}

// Full, with a hole of ten tokens in its first page: the next token moves 54 slots there and all that follow.
struct Holed {
    Model model = load_tiny(TinyModel::of("llama"));
    std::vector<Token> tokens = random_tokens(256, 128, 12);

    [[nodiscard]] Context holed(ContextOptions options = {.n_ctx = 192, .n_threads = 2}) const {
        Context context(model, std::move(options));
        REQUIRE(context.decode(std::span(tokens).first(192)) == DecodeStatus::ok);
        REQUIRE(context.seq_rm(kFirst, Pos{5}, Pos{15}) == RemoveStatus::ok);
        return context;
    }
    // The bits that the next three tokens have where there was never a need to move.
    [[nodiscard]] std::vector<std::uint32_t> expected() const {
        Context context = holed({.n_ctx = 512});
        REQUIRE(context.decode(next()) == DecodeStatus::ok);
        return bits_of(context.logits());
    }
    [[nodiscard]] std::span<const Token> next() const { return std::span(tokens).subspan(192, 3); }
};

}  // namespace

TEST_CASE("[M4] holes: ten thousand shifts leave as much room as at first, and the bits of a cache without holes") {
    const Model model = load_tiny(smallest());
    for (const auto& [n_ctx, n_all] :
         {std::pair{64, 7000}, std::pair{128, 2000}, std::pair{256, 700}, std::pair{512, 300}}) {
        CAPTURE(n_ctx);
        const int n_shifts = kSanitized ? n_all / 10 : n_all;
        FullAndLarge both(model, {.n_ctx = n_ctx, .n_threads = 1, .type_k = KvType::f32}, 16 * n_ctx + 1024, 3);
        for (int i = 0; i < n_shifts; ++i) {
            CAPTURE(i);
            both.fill();
            if (i % 2 == 0) REQUIRE(both.shift(4, (n_ctx - 4) / 2));  // what a chat does
            else REQUIRE(both.shift(both.below(20), 1 + both.below(n_ctx / 2)));
        }
        CHECK(both.of_full->n > n_shifts);
        CHECK(both.of_large->n == 0);
    }
}

TEST_CASE("holes: slots of every type, and those of windows, move as they are") {
    for (const KvType type : {KvType::f32, KvType::f16, KvType::bf16, KvType::q8_0, KvType::q4_0}) {
        CAPTURE(to_string(type));
        TinyModel tiny = TinyModel::of("llama");
        tiny.head_dim = 32;
        FullAndLarge both(load_tiny(tiny), {.n_ctx = 128, .n_threads = 2, .type_k = type, .type_v = type}, 4096, 5);
        for (int i = 0; i < 40; ++i) {
            both.fill();
            REQUIRE(both.shift(both.below(20), 1 + both.below(50)));
        }
        CHECK(both.of_full->n > 40);
        CHECK(both.of_large->n == 0);
    }
    for (const int window : {10, 64, 70}) {
        CAPTURE(window);
        FullAndLarge both(windowed_model(window), {.n_ctx = 1024, .n_batch = 64, .n_ubatch = 32, .n_threads = 1}, 8192,
                          6);
        CHECK(both.full.memory().cache < Context(both.full.model(), {.n_ctx = 1024, .swa_full = true}).memory().cache);
        int n_lost = 0;
        for (int i = 0; i < 60; ++i) {
            CAPTURE(i);
            while (both.full.room(kFirst) > 0) {
                const auto some =
                    random_tokens(std::min(64, both.full.room(kFirst)), 128, static_cast<std::uint64_t>(i));
                REQUIRE(both.full.decode(some) == DecodeStatus::ok);
                REQUIRE(both.large.decode(some) == DecodeStatus::ok);
                REQUIRE(bits_of(both.full.logits()) == bits_of(both.large.logits()));
            }
            n_lost += !both.shift(both.below(20), 1 + both.below(500));
        }
        CHECK(n_lost == 0);
        CHECK(both.of_full->n > 40);
        CHECK(both.of_large->n == 0);
    }
}

TEST_CASE("holes: several sequences, shared and parted, take n_ctx tokens in all, whatever was there before") {
    const Model model = load_tiny(smallest());
    std::mt19937 random(9);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    Context context(model, {.n_ctx = 192, .n_seq_max = 4, .n_threads = 1});
    const auto check = std::make_shared<CoverageCheck>();
    const auto attached = context.attach(check);
    int n_full = 0;
    for (int i = 0; i < 600; ++i) {
        CAPTURE(i);
        const int seq = below(4), p0 = below(60), p1 = p0 + below(80);
        switch (below(5)) {
            case 0: REQUIRE(context.seq_rm(SeqId{seq}, Pos{p0}, Pos{p1}) == RemoveStatus::ok); break;
            case 1: context.seq_cp(SeqId{seq}, SeqId{below(4)}, Pos{0}, Pos{p1}); break;
            default: {
                REQUIRE(context.room(SeqId{seq}) == 192 - context.used());
                const int more = below(4) == 0 ? 1 : 0, n = more > 0
                                                                ? context.room(SeqId{seq}) + 1
                                                                : std::min(context.room(SeqId{seq}), 1 + below(40));
                if (n == 0) break;
                REQUIRE(context.decode(batch_in(seq, random_tokens(n, 64, static_cast<std::uint64_t>(i)))) ==
                        (more > 0 ? DecodeStatus::no_room : DecodeStatus::ok));
                n_full += more;
            }
        }
    }
    CHECK(n_full > 50);
    CHECK(differences_of(*check) == "");
}

TEST_CASE(
    "[golden] holes: every architecture moves what it has of a token, and each sequence has the bits it has alone") {
    if (skip_without_golden()) return;
    for (const GoldenModel& golden : golden_models()) {
        if (golden.encoder) continue;
        CAPTURE(golden.name);
        const Model model = Model::load(golden.file);
        const auto tokens = random_tokens(128, model.info().n_vocab, 14);
        const auto alone = [&](std::span<const Token> some) {
            Context context(model, {.n_ctx = 128, .n_threads = 1});  // n_ctx as below: LongRoPE asks for it
            REQUIRE(context.decode(some) == DecodeStatus::ok);
            return bits_of(context.logits());
        };
        // Three sequences with the same beginning fill the cache; what they share lies in the middle of pages.
        Context context(model, {.n_ctx = 128, .n_seq_max = 3, .n_threads = 1});
        const auto check = std::make_shared<CoverageCheck>();
        const auto attached = context.attach(check);
        const auto prompt = std::span(tokens).first(26);
        REQUIRE(context.decode(prompt) == DecodeStatus::ok);
        for (const int seq : {1, 2}) context.seq_cp(kFirst, SeqId{seq});
        std::array<std::vector<Token>, 3> texts;
        texts.fill({prompt.begin(), prompt.end()});
        for (std::size_t first = 26, seq = 0; first < 128; first += 17, seq = (seq + 1) % 3) {
            const auto more = std::span(tokens).subspan(first, 17);
            texts[seq].insert(texts[seq].end(), more.begin(), more.end());
            REQUIRE(context.decode(batch_in(static_cast<int>(seq), more)) == DecodeStatus::ok);
            CHECK(bits_of(context.logits()) == alone(texts[seq]));
        }
        CHECK(differences_of(*check) == "");
        Context holed(model, {.n_ctx = 128, .n_threads = 1}),
            large(model, {.n_ctx = 512, .n_seq_max = 4, .n_threads = 1, .swa_full = true});
        if (golden.has_state || holed.room(kFirst) < 128)
            continue;  // states cannot be cut; a short table of positions is full then
        const auto moves = std::make_shared<MoveCount>();
        const auto holed_check = std::make_shared<CoverageCheck>();
        const auto counting = holed.attach(moves), checking = holed.attach(holed_check);
        for (Context* each : {&holed, &large}) {
            REQUIRE(each->decode(tokens) == DecodeStatus::ok);
            REQUIRE(each->seq_rm(kFirst, Pos{3}, Pos{13}) == RemoveStatus::ok);
            REQUIRE(each->decode(prompt.first(10)) == DecodeStatus::ok);
        }
        CHECK(bits_of(holed.logits()) == bits_of(large.logits()));
        CHECK(moves->n > 0);
        CHECK(differences_of(*holed_check) == "");
    }
}

TEST_CASE_FIXTURE(Holed,
                  "holes: a maintenance run of its own, when it is needed, names the rows that move and no others") {
    Context context = holed();
    const auto check = std::make_shared<CoverageCheck>();
    const auto recorder = std::make_shared<Recorder>();
    const auto checking = context.attach(check);
    const auto recording = context.attach(recorder);
    CHECK(context.room(kFirst) == 10);
    REQUIRE(context.decode(next()) == DecodeStatus::ok);
    CHECK(bits_of(context.logits()) == expected());
    CHECK(differences_of(*check) == "");
    REQUIRE(recorder->runs.size() == 2);
    CHECK(recorder->runs[0].info.phase == Phase::maintenance);
    int n_moves = 0;
    for (const SeenEvent& event : recorder->of_run(recorder->runs[0].info.run)) {
        CHECK(event.op == Op::kv_move);
        CHECK(event.part == Part::state);
        ++n_moves;
        const std::uint64_t row = event.slot(0)->tensor.row_bytes;
        CHECK(event.slot(0)->mode == AccessMode::write);
        CHECK(event.slot(1)->mode == AccessMode::read);
        CHECK(event.slot(0)->ranges == std::vector<AccessRange>{{5 * row, 177 * row, 0, 1, 0, 1}});
        CHECK(event.slot(1)->ranges == std::vector<AccessRange>{{15 * row, 177 * row, 0, 1, 0, 1}});
    }
    CHECK(n_moves == 2 * model.info().n_layer);
    recorder->forget();
    REQUIRE(context.decode(next()) == DecodeStatus::ok);
    CHECK(recorder->runs.size() == 1);
}

TEST_CASE_FIXTURE(
    Holed, "holes: an observer that throws at any moment of it fails the decode, which is as if it had not been") {
    const auto bits = expected();
    int n_thrown = 0;
    for (int when = 1; n_thrown == when - 1; ++when) {
        CAPTURE(when);
        Context context = holed();
        const auto interrupter = std::make_shared<MaintenanceThrower>();
        interrupter->countdown = when;
        {
            const auto attached = context.attach(interrupter);
            try {
                (void)context.decode(next());
            } catch (const Error& error) {
                CHECK(error.code() == ErrorCode::compute_failed);
                CHECK(context.used() == 182);
                CHECK(context.room(kFirst) == 10);
                CHECK(context.seq_pos_max(kFirst) == Pos{191});
                ++n_thrown;
            }
        }
        if (n_thrown < when) break;
        REQUIRE(context.decode(next()) == DecodeStatus::ok);
        CHECK(bits_of(context.logits()) == bits);
    }
    CHECK(n_thrown >= 2 * 2 * model.info().n_layer + 2);
}

TEST_CASE_FIXTURE(Holed, "holes: cancelled, in slices or abandoned, the bits are the same") {
    const auto bits = expected();
    bool stop = true;
    Context cancelled = holed({.n_ctx = 192});
    cancelled.set_cancel([&] { return stop; });
    REQUIRE(cancelled.decode(next()) == DecodeStatus::cancelled);
    CHECK(cancelled.used() == 182);
    CHECK(cancelled.count(kFirst) == 182);
    stop = false;
    REQUIRE(cancelled.decode(next()) == DecodeStatus::ok);
    CHECK(bits_of(cancelled.logits()) == bits);

    for (int n_slices = 0; n_slices < 12; ++n_slices) {
        Context context = holed();
        context.begin(next());
        StepStatus status = StepStatus::pending;
        for (int i = 0; i < n_slices && status == StepStatus::pending; ++i)
            status = context.step(std::chrono::nanoseconds(1));
        if (status == StepStatus::pending) context.abandon();
        if (status != StepStatus::ok) {
            CHECK(context.used() == 182);
            context.begin(next());
            while (context.step(std::chrono::nanoseconds(1)) == StepStatus::pending) {
            }
        }
        CHECK(bits_of(context.logits()) == bits);
    }
}

TEST_CASE_FIXTURE(Holed, "[N6] holes: the plan counts what moving takes, and the first time allocates nothing") {
    const ContextOptions options{.n_ctx = 192, .n_threads = 1};
    const MemoryPlan planned = plan(model, options);
    const AllocationScope scope;
    Context context(model, options);
    CHECK(scope.live() == static_cast<std::int64_t>(planned.context_total()));
    REQUIRE(context.decode(std::span(tokens).first(191)) == DecodeStatus::ok);
    REQUIRE(context.decode(std::span(tokens).first(1)) == DecodeStatus::ok);
    const AllocationScope later;
    REQUIRE(context.seq_rm(kFirst, Pos{5}, Pos{15}) == RemoveStatus::ok);
    REQUIRE(context.decode(std::span(tokens).first(1)) == DecodeStatus::ok);
    CHECK(context.room(kFirst) == 9);
    CHECK(later.count() == 0);
}

TEST_CASE("room: at the end of a learned position table the context is full, which is a value") {
    int n_models = 0;
    for (const Family& family : small_families()) {
        if (!family.learned_positions) continue;
        ++n_models;
        CAPTURE(family.arch);
        const TempFolder folder;
        family.writer().save(folder.path() / "learned.gguf");
        const Model model = Model::load(folder.path() / "learned.gguf");
        Context context(model, {.n_ctx = 512, .n_seq_max = 2});
        CHECK(context.room(kFirst) == Family::kContext);
        CHECK(context.decode(std::vector<Token>(Family::kContext + 1, Token{1})) == DecodeStatus::no_room);
        CHECK(context.used() == 0);
        REQUIRE(context.decode(std::vector<Token>(Family::kContext - 3, Token{1})) == DecodeStatus::ok);
        int n_more = 0;
        while (context.decode(std::array{Token{2}}) == DecodeStatus::ok) {
            ++n_more;
            REQUIRE(context.room(kFirst) == 3 - n_more);
        }
        CHECK(n_more == 3);
        Batch batch;
        batch.add(Token{2}, Pos{Family::kContext}, kFirst, true);  // said or counted, it is the same
        CHECK(context.decode(batch) == DecodeStatus::no_room);
        CHECK(context.room(SeqId{1}) == 512 - Family::kContext);
        context.clear();
        CHECK(context.room(kFirst) == Family::kContext);
    }
    CHECK(n_models > 0);
}

TEST_CASE_FIXTURE(Holed,
                  "room: a text longer than the context does not fit; only a limit that somebody has set is named") {
    Context context(model, {.n_ctx = 64}), limited(model, {.n_ctx = 128, .n_batch = 32});
    CHECK(context.decode(std::span(tokens).first(65)) == DecodeStatus::no_room);
    CHECK(context.decode(batch_in(0, tokens)) == DecodeStatus::no_room);
    context.begin(std::span(tokens).first(200));
    CHECK(context.step(std::chrono::seconds(1)) == StepStatus::no_room);
    CHECK(context.used() == 0);
    REQUIRE(context.decode(std::span(tokens).first(64)) == DecodeStatus::ok);
    CHECK_THROWS_WITH_AS((void)limited.decode(std::span(tokens).first(33)), "batch has 33 tokens, limit n_batch = 32",
                         Error);
    Context wide(model, {.n_ctx = 64, .n_batch = 4096});  // no smaller limit than the context
    CHECK(wide.decode(std::span(tokens).first(65)) == DecodeStatus::no_room);
}

TEST_CASE("[golden] room: an empty recurrent sequence has room, and a longer batch than n_ctx names that") {
    if (skip_without_golden()) return;
    for (const GoldenModel& golden : golden_models()) {
        if (golden.encoder || !golden.has_state) continue;
        CAPTURE(golden.name);
        const Model model = Model::load(golden.file);
        Context context(model, {.n_ctx = 64});
        const int room = context.room(kFirst);
        CHECK(room >= 64);
        const auto tokens = random_tokens(65, model.info().n_vocab, 2);
        if (plan(model, {.n_ctx = 64}).cache > 0) {
            CHECK(room == 64);
            CHECK(context.decode(tokens) == DecodeStatus::no_room);
        } else {
            CHECK(room == 2147483647);
            CHECK_THROWS_WITH_AS(
                (void)context.decode(tokens),
                "batch has 65 tokens, more than n_ctx = 64, which limits a call as long as n_batch is not set", Error);
        }
        REQUIRE(context.decode(std::span(tokens).first(64)) == DecodeStatus::ok);
        CHECK(context.room(kFirst) == room - 64);
    }
}

}  // namespace tinfer::test
