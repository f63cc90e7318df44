// SPDX-License-Identifier: MIT
// Positions that move: the numbers at once, the keys before the next decode, as a run of its own that observers see and
// that nothing can stop halfway.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <stdexcept>

#include "runtime/maintenance_thrower.hpp"
#include "support/differences.hpp"
#include "support/golden.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"
#include "trace/trace_support.hpp"

namespace tinfer::test {

namespace {

constexpr KvType kCacheTypes[] = {KvType::f32, KvType::f16, KvType::bf16, KvType::q8_0, KvType::q4_0};

ContextOptions shift_options(KvType type = KvType::f32) {
    return {.n_ctx = 256,
            .n_seq_max = 3,
            .n_ubatch = 16,
            .n_outputs = 64,
            .n_threads = 2,
            .type_k = type,
            .type_v = type,
            .allow_position_gaps = true};
}

Batch at_positions(std::span<const Token> tokens, int first, int step = 1) {
    Batch batch;
    for (std::size_t i = 0; i < tokens.size(); ++i)
        batch.add(tokens[i], Pos{first + static_cast<int>(i) * step}, SeqId{0}, i + 1 == tokens.size());
    return batch;
}

// The logits of the last token, placed at `pos`, behind `tokens` where they stand in the context.
std::vector<float> next_logits(Context& context, Token token, int pos) {
    REQUIRE(context.decode(at_positions(std::span(&token, 1), pos)) == DecodeStatus::ok);
    return {context.logits().begin(), context.logits().end()};
}

ErrorCode refusal(const std::function<void()>& fn, const std::string& part) {
    try {
        fn();
    } catch (const Error& error) {
        CHECK_MESSAGE(std::string(error.what()).find(part) != std::string::npos, error.what());
        return error.code();
    }
    FAIL("not refused: " << part);
    return ErrorCode::io_error;
}

struct Shifted {
    Model model = load_tiny(TinyModel::of("llama"));
    std::vector<Token> tokens = random_tokens(41, 128, 6);
    std::span<const Token> ahead = std::span(tokens).first(40);

    Context filled(KvType type = KvType::f32, int first = 0) const {
        Context context(model, shift_options(type));
        REQUIRE(context.decode(at_positions(ahead, first)) == DecodeStatus::ok);
        return context;
    }
};

}  // namespace

namespace {

// Where a token stands changes what it gives, apart from angles: a moved sequence keeps what its tokens saw.
bool knows_positions(const Model& model) {
    const auto has = [&](const char* key) {
        return model.file().metadata_value(model.info().architecture + "." + key).has_value();
    };
    return has("attention.temperature_scale") || has("attention.indexer.block_size");
}

}  // namespace

TEST_CASE("[M5][golden] shift: a whole sequence moved goes on as one computed there, in every architecture that can") {
    if (skip_without_golden()) return;
    std::size_t n_moved = 0;
    for (const GoldenModel& golden : golden_models()) {
        if (golden.encoder) continue;
        CAPTURE(golden.name);
        const auto model = Model::load(golden.file);
        const auto tokens = random_tokens(25, model.info().n_vocab, 9);
        const auto ahead = std::span(tokens).first(24);
        Context moved(model, shift_options());
        REQUIRE(moved.decode(at_positions(ahead, 0)) == DecodeStatus::ok);
        if (!moved.can_shift()) {
            CHECK_THROWS_AS(moved.seq_add(SeqId{0}, Pos{3}, kPosEnd, 2), Error);
            CHECK(moved.seq_pos_max(SeqId{0}) == Pos{23});
            continue;
        }
        moved.seq_add(SeqId{0}, Pos{0}, kPosEnd, 11);
        Context computed(model, shift_options());
        REQUIRE(computed.decode(at_positions(ahead, 11)) == DecodeStatus::ok);
        CHECK(moved.seq_pos_min(SeqId{0}) == Pos{11});
        const double difference =
            largest_difference(next_logits(moved, tokens[24], 35), next_logits(computed, tokens[24], 35));
        CHECK(std::isfinite(difference));
        if (!knows_positions(model)) CHECK(difference <= 1e-3);  // as the golden shift cases
        ++n_moved;
    }
    expect_cases(n_moved, 103, "models whose sequences move");
}

// Groups of tokens, which are counted by their positions, leave entries (architectures §5.36, §5.37).
bool keeps_entries_of_groups(std::string_view name) { return name == "deepseek4" || name.starts_with("qwen4exp-"); }

TEST_CASE("[golden] shift: a recurrent state moves as a whole and does not notice; it is neither cut nor divided") {
    if (skip_without_golden()) return;
    for (const GoldenModel& golden : golden_models()) {
        if (golden.encoder) continue;
        CAPTURE(golden.name);
        const auto model = Model::load(golden.file);
        CHECK((plan(model, shift_options()).recurrent > 0) == golden.has_state);
        if (!golden.has_state) continue;
        const auto tokens = random_tokens(25, model.info().n_vocab, 9);
        Context moved(model, shift_options()), stayed(model, shift_options());
        for (Context* each : {&moved, &stayed}) REQUIRE(each->decode(std::span(tokens).first(24)) == DecodeStatus::ok);
        CHECK(!moved.can_shift());
        if (keeps_entries_of_groups(golden.name)) {
            CHECK(refusal([&] { moved.seq_add(SeqId{0}, Pos{0}, kPosEnd, 11); }, "keeps entries of groups") ==
                  ErrorCode::unsupported_operation);
            continue;
        }
        CHECK(refusal([&] { moved.seq_add(SeqId{0}, Pos{3}, kPosEnd, 2); }, "cuts the recurrent state") ==
              ErrorCode::unsupported_operation);
        CHECK(refusal([&] { moved.seq_div(SeqId{0}, Pos{0}, kPosEnd, 2); }, "recurrent state") ==
              ErrorCode::unsupported_operation);
        CHECK(refusal([&] { moved.seq_add(SeqId{0}, Pos{0}, kPosEnd, -1); }, "would become") ==
              ErrorCode::bad_sequence);
        moved.seq_add(SeqId{0}, Pos{0}, kPosEnd, 11);
        CHECK(moved.seq_pos_max(SeqId{0}) == Pos{34});
        const auto there = next_logits(moved, tokens[24], 35), here = next_logits(stayed, tokens[24], 24);
        if (plan(model, shift_options()).cache == 0) CHECK(bits_of(there) == bits_of(here));
        else CHECK(largest_difference(there, here) <= 1e-3);  // keys of a hybrid's attention are rotated
    }
}

TEST_CASE_FIXTURE(Shifted, "[M5] shift: caches of every type take it, with an error like that of their own rounding") {
    model = load_tiny(TinyModel{.head_dim = 32});  // whole blocks of codes
    Context exact = filled(KvType::f32, 100);
    const auto expected = next_logits(exact, tokens[40], 140);
    for (const KvType type : kCacheTypes) {
        CAPTURE(std::string(to_string(type)));
        Context plain = filled(type, 100), moved = filled(type, 0);
        const auto check = std::make_shared<CoverageCheck>();
        const auto checking = moved.attach(check);
        moved.seq_add(SeqId{0}, Pos{0}, kPosEnd, 100);
        const double rounding = largest_difference(next_logits(plain, tokens[40], 140), expected);
        REQUIRE(std::isfinite(rounding));
        CHECK(largest_difference(next_logits(moved, tokens[40], 140), expected) <=
              3 * rounding + 1e-4);  // keys are rounded twice
        CHECK((rounding > 0) == (type != KvType::f32));
        CHECK(differences_of(*check) == "");
    }
}

TEST_CASE_FIXTURE(Shifted,
                  "[M6] shift: caches of every type can be divided, with an error like that of their own rounding") {
    model = load_tiny(
        TinyModel{.n_layer = 1, .head_dim = 32});  // keys of later layers would hold what was seen at the old distances
    Context exact = filled();
    const auto expected = next_logits(exact, tokens[40], 40);
    for (const KvType type : kCacheTypes) {
        CAPTURE(std::string(to_string(type)));
        Context plain = filled(type), divided(model, shift_options(type));
        REQUIRE(divided.decode(at_positions(ahead, 0, 3)) == DecodeStatus::ok);
        divided.seq_div(SeqId{0}, Pos{0}, kPosEnd, 3);
        const double rounding = largest_difference(next_logits(plain, tokens[40], 40), expected);
        REQUIRE(std::isfinite(rounding));
        CHECK(largest_difference(next_logits(divided, tokens[40], 40), expected) <= 3 * rounding + 1e-4);
    }
}

TEST_CASE_FIXTURE(Shifted, "shift: moves add up before keys turn, and back again is nothing at all") {
    Context never = filled(), there = filled(), once = filled(), twice = filled();
    const auto expected = bits_of(next_logits(never, tokens[40], 40));
    there.seq_add(SeqId{0}, Pos{0}, kPosEnd, 9);
    there.seq_add(SeqId{0}, Pos{9}, kPosEnd, -9);
    CHECK(bits_of(next_logits(there, tokens[40], 40)) == expected);
    once.seq_add(SeqId{0}, Pos{0}, kPosEnd, 12);
    twice.seq_add(SeqId{0}, Pos{0}, kPosEnd, 5);
    twice.seq_add(SeqId{0}, Pos{0}, kPosEnd, 7);
    CHECK(bits_of(next_logits(once, tokens[40], 52)) == bits_of(next_logits(twice, tokens[40], 52)));
}

TEST_CASE_FIXTURE(Shifted,
                  "[M6] shift: positions divided are those of a sequence computed there; tokens may share one") {
    // One layer: keys of later ones hold what their token saw at the old distances.
    const Model one_layer = load_tiny(TinyModel{.n_layer = 1});
    Context divided(one_layer, shift_options()), computed(one_layer, shift_options());
    REQUIRE(divided.decode(at_positions(ahead, 0, 3)) == DecodeStatus::ok);
    REQUIRE(computed.decode(at_positions(ahead, 0)) == DecodeStatus::ok);
    divided.seq_div(SeqId{0}, Pos{0}, kPosEnd, 3);
    CHECK(divided.seq_pos_max(SeqId{0}) == Pos{39});
    CHECK(largest_difference(next_logits(divided, tokens[40], 40), next_logits(computed, tokens[40], 40)) <= 1e-4);

    // Self-extend, groups of 4 of width 8: group by group, positions fall behind the end by what was saved.
    Context grouped = filled();
    int i = 0, n_past = 40;
    for (constexpr int g = 4, w = 8; n_past >= i + w; i += w / g) {
        const int b = g * i / w, d = w / g * (g - 1), e = w / g - b * d - w;
        grouped.seq_add(SeqId{0}, Pos{i}, Pos{n_past}, b * d);
        grouped.seq_div(SeqId{0}, Pos{i + b * d}, Pos{i + b * d + w}, g);
        grouped.seq_add(SeqId{0}, Pos{i + b * d + w}, Pos{n_past + b * d}, e);
        n_past -= d;
    }
    CHECK(grouped.count(SeqId{0}) == 40);
    CHECK(grouped.seq_pos_max(SeqId{0}) == Pos{n_past - 1});
    const auto logits = next_logits(grouped, tokens[40], n_past);
    CHECK(std::ranges::none_of(logits, [](float x) { return std::isnan(x); }));
}

TEST_CASE_FIXTURE(Shifted, "shift: context shift drops a middle and closes the gap; what would stand before 0 goes") {
    Context context = filled();
    REQUIRE(context.seq_rm(SeqId{0}, Pos{4}, Pos{20}) == RemoveStatus::ok);
    context.seq_add(SeqId{0}, Pos{20}, kPosEnd, -16);
    CHECK(context.count(SeqId{0}) == 24);
    CHECK(context.seq_pos_max(SeqId{0}) == Pos{23});
    context.seq_add(SeqId{0}, Pos{0}, kPosEnd, -10);
    CHECK(context.count(SeqId{0}) == 14);
    CHECK(context.seq_pos_min(SeqId{0}) == Pos{0});
    CHECK(context.seq_pos_max(SeqId{0}) == Pos{13});
    (void)next_logits(context, tokens[40], 14);
}

TEST_CASE("[M8] shift: three windows of tokens, with a context shift whenever it is full, end well and still see the "
          "kept prefix") {
    constexpr int kWindow = 64, kKept = 4;
    // One layer: what it keeps of a token is the token's own, so a difference in the end is one that attention sees.
    const Model model = load_tiny(TinyModel{.n_layer = 1});
    const auto prompt = random_tokens(10, 128, 31), later = random_tokens(3 * kWindow, 128, 32);
    const auto last_bits = [&](int changed) {
        auto tokens = prompt;
        if (changed >= 0)
            tokens[static_cast<std::size_t>(changed)] =
                Token{static_cast<int>(tokens[static_cast<std::size_t>(changed)]) ^ 1};
        Context context(model, {.n_ctx = kWindow, .type_k = KvType::f32, .type_v = KvType::f32});
        REQUIRE(context.decode(tokens) == DecodeStatus::ok);
        int n_shifts = 0;
        for (const Token token : later) {
            DecodeStatus status = context.decode(std::span(&token, 1));
            if (status == DecodeStatus::no_room) {
                const int n_half = (context.count(SeqId{0}) - kKept) / 2;
                REQUIRE(context.seq_rm(SeqId{0}, Pos{kKept}, Pos{kKept + n_half}) == RemoveStatus::ok);
                context.seq_add(SeqId{0}, Pos{kKept + n_half}, kPosEnd, -n_half);
                status = context.decode(std::span(&token, 1));
                ++n_shifts;
            }
            REQUIRE(status == DecodeStatus::ok);
        }
        CHECK(n_shifts >= 4);
        CHECK(context.seq_pos_min(SeqId{0}) == Pos{0});
        return bits_of(context.logits());
    };
    const auto expected = last_bits(-1);
    for (int i = 0; i < static_cast<int>(prompt.size()); ++i) {
        CAPTURE(i);
        CHECK((last_bits(i) != expected) == (i < kKept));
    }
}

TEST_CASE_FIXTURE(Shifted, "[M8] shift: tokens go and what follows takes their place, or nothing happens") {
    Context context = filled(), by_hand = filled(), undisturbed = filled();
    const int n = context.count(SeqId{0});
    context.seq_cp(SeqId{0}, SeqId{2}, Pos{20}, Pos{24});
    CHECK(refusal([&] { (void)context.seq_shift(SeqId{0}, Pos{4}, 8); }, "shared by sequences [0, 2]") ==
          ErrorCode::shared_cell);
    CHECK(refusal([&] { (void)context.seq_shift(SeqId{0}, Pos{-1}, 8); }, "seq_shift") == ErrorCode::bad_parameter);
    CHECK(refusal([&] { (void)context.seq_shift(SeqId{0}, Pos{4}, -8); }, "seq_shift") == ErrorCode::bad_parameter);
    CHECK(refusal([&] { (void)context.seq_shift(SeqId{3}, Pos{4}, 8); }, "0..2") == ErrorCode::bad_sequence);
    CHECK(context.count(SeqId{0}) == n);
    CHECK(context.seq_pos_max(SeqId{0}) == Pos{n - 1});
    CHECK(context.seq_rm(SeqId{2}) == RemoveStatus::ok);
    CHECK(bits_of(next_logits(context, tokens[40], n)) == bits_of(next_logits(undisturbed, tokens[40], n)));

    (void)next_logits(by_hand, tokens[40], n);
    CHECK(by_hand.seq_rm(SeqId{0}, Pos{4}, Pos{12}) == RemoveStatus::ok);
    by_hand.seq_add(SeqId{0}, Pos{12}, kPosEnd, -8);
    CHECK(context.seq_shift(SeqId{0}, Pos{4}, 8) == RemoveStatus::ok);
    CHECK(context.count(SeqId{0}) == n - 7);
    CHECK(bits_of(next_logits(context, tokens[39], n - 7)) == bits_of(next_logits(by_hand, tokens[39], n - 7)));
    CHECK(context.seq_shift(SeqId{0}, Pos{10}, 2147483647) == RemoveStatus::ok);  // nothing follows
    CHECK(context.seq_pos_max(SeqId{0}) == Pos{9});
}

TEST_CASE_FIXTURE(Shifted, "shift: what cannot move is refused and stays where it is") {
    Context context = filled();
    constexpr int kToEnd = static_cast<int>(kPosEnd);
    const auto add = [&](int p0, int p1, int delta, int seq = 0) {
        return [=, &context] { context.seq_add(SeqId{seq}, Pos{p0}, Pos{p1}, delta); };
    };
    CHECK(refusal(add(10, 20, 5), "would become") == ErrorCode::bad_sequence);  // onto its neighbours
    CHECK(refusal(add(10, 20, -1), "would become") == ErrorCode::bad_sequence);
    CHECK(refusal(add(10, kToEnd, -20), "would become") == ErrorCode::bad_sequence);  // past those before it
    CHECK(refusal(add(0, kToEnd, 2147483647), "would become") == ErrorCode::bad_sequence);
    CHECK(refusal(add(0, kToEnd, 1, 3), "sequence id 3 outside 0..2") == ErrorCode::bad_sequence);
    CHECK(refusal([&] { context.seq_div(SeqId{0}, Pos{0}, kPosEnd, 0); }, "divisor 0") == ErrorCode::bad_sequence);
    CHECK(refusal([&] { context.seq_div(SeqId{0}, Pos{20}, kPosEnd, 2); }, "would become") == ErrorCode::bad_sequence);
    context.seq_cp(SeqId{0}, SeqId{2}, Pos{0}, Pos{30});
    CHECK(refusal(add(25, kToEnd, 4), "cell shared by sequences [0, 2] cannot be shifted") == ErrorCode::shared_cell);
    add(30, kToEnd, 4)();  // nobody shares these
    CHECK(context.seq_pos_max(SeqId{0}) == Pos{43});
    CHECK(context.seq_pos_max(SeqId{2}) == Pos{29});
    context.seq_add(SeqId{0}, Pos{30}, kPosEnd, -4);

    Context undisturbed = filled();
    CHECK(largest_difference(next_logits(context, tokens[40], 40), next_logits(undisturbed, tokens[40], 40)) == 0.0);
}

TEST_CASE_FIXTURE(Shifted, "shift: a maintenance run of its own, once, that names the slots it turns and no others") {
    Context context = filled();
    const auto check = std::make_shared<CoverageCheck>();
    const auto recorder = std::make_shared<Recorder>();
    const auto checking = context.attach(check);
    const auto recording = context.attach(recorder);
    context.seq_add(SeqId{0}, Pos{30}, kPosEnd, 7);
    CHECK(recorder->runs.empty());  // later, with the decode that needs it
    (void)next_logits(context, tokens[40], 47);
    CHECK(differences_of(*check) == "");
    REQUIRE(recorder->runs.size() == 2);
    CHECK(recorder->runs[0].info.phase == Phase::maintenance);
    int n_shifts = 0;
    for (const SeenEvent& event : recorder->of_run(recorder->runs[0].info.run)) {
        if (event.op != Op::key_shift) continue;
        ++n_shifts;
        for (const std::uint16_t slot : {std::uint16_t{0}, std::uint16_t{1}}) {
            REQUIRE(event.slot(slot) != nullptr);
            CHECK(event.slot(slot)->tensor.tensor_class == TensorClass::cache_k);
            CHECK(event.slot(slot)->bytes == 10 * event.slot(slot)->tensor.row_bytes);  // tokens 30 to 39
        }
    }
    CHECK(n_shifts == model.info().n_layer);
    recorder->forget();
    (void)next_logits(context, tokens[0], 48);
    CHECK(recorder->runs.size() == 1);
}

TEST_CASE_FIXTURE(
    Shifted,
    "shift: an observer that throws at any moment of it fails the decode, and the keys are rotated once all the same") {
    Context undisturbed = filled();
    undisturbed.seq_add(SeqId{0}, Pos{0}, kPosEnd, 3);
    const auto expected = bits_of(next_logits(undisturbed, tokens[40], 43));
    int n_thrown = 0;
    for (int when = 1; n_thrown == when - 1; ++when) {
        CAPTURE(when);
        Context context = filled();
        context.seq_add(SeqId{0}, Pos{0}, kPosEnd, 3);
        const auto thrower = std::make_shared<MaintenanceThrower>();
        thrower->countdown = when;
        {
            const auto attached = context.attach(thrower);
            try {
                (void)context.decode(at_positions(std::span(tokens).subspan(40), 43));
            } catch (const Error& error) {
                CHECK(error.code() == ErrorCode::compute_failed);
                CHECK(context.seq_pos_max(SeqId{0}) == Pos{42});
                ++n_thrown;
            }
        }
        if (n_thrown < when) break;
        CHECK(bits_of(next_logits(context, tokens[40], 43)) == expected);
    }
    CHECK(n_thrown >= 3 * (2 * model.info().n_layer + 2));  // three runs of 16 slots, each with its steps
}

TEST_CASE_FIXTURE(Shifted, "shift: in slices of time the bits are the same, and an abandoned one is finished") {
    Context whole = filled(), sliced = filled(), abandoned = filled();
    for (Context* context : {&whole, &sliced, &abandoned}) context->seq_add(SeqId{0}, Pos{0}, kPosEnd, 21);
    const auto expected = bits_of(next_logits(whole, tokens[40], 61));
    const Batch batch = at_positions(std::span(tokens).subspan(40), 61);
    for (int n_slices = 0; n_slices < 4; ++n_slices) {
        abandoned.begin(batch);
        StepStatus status = StepStatus::pending;
        for (int i = 0; i <= n_slices && status == StepStatus::pending; ++i)
            status = abandoned.step(std::chrono::nanoseconds(1));
        abandoned.abandon();
    }
    CHECK(abandoned.seq_pos_max(SeqId{0}) == Pos{60});
    CHECK(bits_of(next_logits(abandoned, tokens[40], 61)) == expected);
    sliced.begin(batch);
    while (sliced.step(std::chrono::nanoseconds(1)) == StepStatus::pending) {
    }
    CHECK(bits_of(sliced.logits()) == expected);
}

}  // namespace tinfer::test
