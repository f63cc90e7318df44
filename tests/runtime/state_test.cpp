// SPDX-License-Identifier: MIT
// States: what goes on from one has the bits of what never stopped, and what cannot go on is refused and changes
// nothing.
#include "tinfer/state.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>

#include "base/byte_io.hpp"
#include "context_support.hpp"
#include "support/alloc_counter.hpp"
#include "support/file_twins.hpp"
#include "support/golden.hpp"

namespace tinfer {

namespace {

std::vector<std::uint32_t> next_bits(Context& context, Token token, SeqId seq = SeqId{0}) {
    Batch batch;
    batch.add(token, {}, seq, true);
    REQUIRE(context.decode(batch) == DecodeStatus::ok);
    return bits_of(context.logits());
}

std::string message_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const Error& error) {
        return error.what();
    }
    return {};
}

bool names(const std::string& message, std::initializer_list<std::string_view> parts) {
    return std::ranges::all_of(parts, [&](std::string_view part) { return message.find(part) != std::string::npos; });
}

/// Two sequences that share their beginning, and a third one, each with something of its own.
void talk(Context& context, std::span<const Token> tokens) {
    REQUIRE(context.decode(tokens.first(21)) == DecodeStatus::ok);
    context.seq_cp(SeqId{0}, SeqId{1});
    Batch batch;
    batch.add(tokens[21], {}, std::array{SeqId{0}, SeqId{1}}, false);
    for (int i = 22; i < 26; ++i) batch.add(tokens[static_cast<std::size_t>(i)], {}, SeqId{1}, i == 25);
    batch.add(tokens[26], {}, SeqId{0}, true);
    REQUIRE(context.decode(batch) == DecodeStatus::ok);
}

std::vector<std::size_t> section_starts(std::span<const std::byte> state) {
    std::vector<std::size_t> starts;
    for (std::size_t at = 28; at + 16 <= state.size();) {
        starts.push_back(at);
        std::uint64_t n = 0;
        std::memcpy(&n, state.data() + at + 4, 8);
        at += static_cast<std::size_t>(n) + 16;
    }
    return starts;
}

}  // namespace

TEST_CASE("[Z1][N9][golden] states: every architecture goes on with the same bits on other threads, another table and "
          "another n_ctx") {
    if (skip_without_golden()) return;
    for (const test::GoldenModel& golden : test::golden_models()) {
        if (golden.encoder) continue;
        CAPTURE(golden.name);
        const auto model = Model::load(golden.file);
        if (model.info().has_encoder) continue;
        const auto tokens = test::random_tokens(40, model.info().n_vocab, 11);
        Context first(model, {.n_ctx = 256, .n_seq_max = 2, .n_ubatch = 9, .n_threads = 2});
        talk(first, tokens);
        const auto state = save_state(first);
        CHECK(state.size() == state_size(first));
        const auto one = save_state(first, {.seq = SeqId{1}});
        const std::array outputs{row_bits(first, 0), row_bits(first, 1)};

        Context other(model, {.n_ctx = 448, .n_seq_max = 3, .n_threads = 1, .isa = Isa::reference});
        REQUIRE(other.decode(std::span(tokens).subspan(30, 3)) == DecodeStatus::ok);  // goes
        const auto info = load_state(other, state);
        CHECK(info.has_outputs);
        CHECK(row_bits(other, 0) == outputs[0]);
        CHECK(row_bits(other, 1) == outputs[1]);
        CHECK(other.output_index(5) == 1);
        CHECK(other.used() == first.used());
        CHECK(save_state(other) == state);

        Context alone(model, {.n_ctx = 320, .n_seq_max = 3, .n_threads = 1});  // one sequence, beside another one
        REQUIRE(alone.decode(std::span(tokens).subspan(30, 5)) == DecodeStatus::ok);
        load_state(alone, one, SeqId{2});
        CHECK(alone.n_outputs() == 0);
        CHECK(alone.count(SeqId{2}) == first.count(SeqId{1}));
        for (std::size_t i = 27; i < 30; ++i) {
            CHECK(next_bits(other, tokens[i]) == next_bits(first, tokens[i]));
            const auto expected = next_bits(first, tokens[i], SeqId{1});
            CHECK(next_bits(other, tokens[i], SeqId{1}) == expected);
            CHECK(next_bits(alone, tokens[i], SeqId{2}) == expected);
        }
        Context beside(model, {.n_ctx = 320, .n_threads = 1});
        REQUIRE(beside.decode(std::span(tokens).subspan(30, 5)) == DecodeStatus::ok);
        CHECK(next_bits(alone, tokens[36]) == next_bits(beside, tokens[36]));
    }
}

TEST_CASE("[Z1][M4] states: cache types, moved positions and joined ones") {
    const Fixture f;
    for (const KvType type : {KvType::f32, KvType::f16, KvType::bf16}) {
        const ContextOptions options{.n_ctx = 128, .type_k = type, .type_v = type};
        Context first(f.model, options), other(f.model, options);
        REQUIRE(first.decode(std::span(f.tokens).first(30)) == DecodeStatus::ok);
        REQUIRE(first.seq_rm(SeqId{0}, Pos{4}, Pos{9}) == RemoveStatus::ok);
        first.seq_add(SeqId{0}, {Pos{9}}, -5);
        first.seq_div(SeqId{0}, {}, 2);  // joins pairs
        load_state(other, save_state(first));
        CHECK(other.count(SeqId{0}) == 25);
        for (std::size_t i = 30; i < 34; ++i) CHECK(next_bits(other, f.tokens[i]) == next_bits(first, f.tokens[i]));
    }
    const test::TempFolder folder;
    const auto wide = Model::load(test::TinyModel::wide("llama", DType::q8_0).save(folder.path()));
    for (const KvType type : {KvType::q8_0, KvType::q4_0}) {
        const ContextOptions options{.n_ctx = 128, .type_k = type, .type_v = type};
        Context first(wide, options), other(wide, options);
        REQUIRE(first.decode(std::span(f.tokens).first(30)) == DecodeStatus::ok);
        load_state(other, save_state(first));
        CHECK(save_state(other) == save_state(first));
        for (std::size_t i = 30; i < 34; ++i) CHECK(next_bits(other, f.tokens[i]) == next_bits(first, f.tokens[i]));
    }
}

TEST_CASE("[Z1] states: what windows have dropped stays dropped, in a larger context too") {
    const auto model = windowed_model(16);
    const auto tokens = test::random_tokens(700, 128, 3);
    Context first(model, {.n_ctx = 1024, .n_batch = 64, .n_ubatch = 64});
    for (std::size_t i = 0; i < 640; i += 64)
        REQUIRE(first.decode(std::span(tokens).subspan(i, 64)) == DecodeStatus::ok);
    CHECK(*first.seq_pos_min(SeqId{0}) > Pos{0});
    const auto state = save_state(first);
    for (const int n_ctx : {704, 1024, 4096}) {
        Context other(model, {.n_ctx = n_ctx, .n_batch = 32, .n_ubatch = 32});
        load_state(other, state);
        CHECK(other.seq_rm(SeqId{0}, {Pos{100}}) == RemoveStatus::window_lost);
        for (std::size_t i = 640; i < 700; i += 20) {
            const auto piece = std::span(tokens).subspan(i, 20);
            Context beside(model, {.n_ctx = 1024, .n_batch = 64, .n_ubatch = 64});
            load_state(beside, state);
            REQUIRE(other.decode(piece) == DecodeStatus::ok);
            REQUIRE(first.decode(piece) == DecodeStatus::ok);
            CHECK(row_bits(other, 0) == row_bits(first, 0));
        }
        first.clear();
        load_state(first, state);
    }
    Context full(model, {.n_ctx = 1024, .swa_full = true});
    CHECK(code_of([&] { load_state(full, state); }) == ErrorCode::param_mismatch);
    Context small(model, {.n_ctx = 576});
    CHECK(code_of([&] { load_state(small, state); }) == ErrorCode::no_room);
}

TEST_CASE("[Z1][N20] states: what windows have dropped is not missed where they share the slots of other layers") {
    const auto model = windowed_model(16);
    const auto tokens = test::random_tokens(700, 128, 3);
    const ContextOptions pooled{.n_ctx = 1024, .n_seq_max = 2, .n_batch = 64, .n_ubatch = 64},
        shared{.n_ctx = 768, .n_seq_max = 2, .n_ubatch = 768};
    Context first(model, pooled), other(model, shared), back(model, pooled);
    for (std::size_t i = 0; i < 640; i += 64)
        REQUIRE(first.decode(std::span(tokens).subspan(i, 64)) == DecodeStatus::ok);
    const auto state = save_state(first, {.seq = SeqId{0}});
    Batch beside;
    for (int i = 0; i < 30; ++i) beside.add(tokens[static_cast<std::size_t>(i)], SeqId{1});
    REQUIRE(other.decode(beside) == DecodeStatus::ok);
    load_state(other, state);
    CHECK(*other.seq_pos_min(SeqId{0}) == Pos{625});
    CHECK(*other.seq_pos_min(SeqId{1}) == Pos{0});
    CHECK(save_state(other, {.seq = SeqId{0}}) == state);
    CHECK(other.seq_rm(SeqId{0}, {Pos{100}}) == RemoveStatus::window_lost);
    CHECK(other.seq_rm(SeqId{0}, {Pos{10}, Pos{20}}) == RemoveStatus::ok);
    load_state(other, state);
    CHECK(code_of([&] { other.seq_cp(SeqId{0}, SeqId{1}, Pos{0}, Pos{300}); }) == ErrorCode::unsupported_operation);
    CHECK(other.count(SeqId{1}) == 30);
    CHECK(other.seq_rm(SeqId{1}, {Pos{10}}) == RemoveStatus::ok);
    for (std::size_t i = 640; i < 700; i += 20) {
        const auto piece = std::span(tokens).subspan(i, 20);
        REQUIRE(first.decode(piece) == DecodeStatus::ok);
        REQUIRE(other.decode(piece) == DecodeStatus::ok);
        CHECK(row_bits(other, 0) == row_bits(first, 0));
        load_state(back, save_state(other, {.seq = SeqId{0}}));
        CHECK(back.count(SeqId{0}) == static_cast<int>(i) + 20);
        const auto from_other = next_bits(back, tokens[5]);
        load_state(back, save_state(first, {.seq = SeqId{0}}));
        CHECK(next_bits(back, tokens[5]) == from_other);
    }
    CHECK(other.seq_rm(SeqId{0}, {Pos{660}}) == RemoveStatus::ok);  // what came after the state is all there
    REQUIRE(other.seq_rm(SeqId{0}) == RemoveStatus::ok);
    REQUIRE(other.decode(std::span(tokens).first(400)) == DecodeStatus::ok);
    CHECK(*other.seq_pos_min(SeqId{0}) == Pos{0});
    CHECK(other.seq_rm(SeqId{0}, {Pos{50}}) == RemoveStatus::ok);
}

TEST_CASE("[N20] states: a restored row is another than that of the decode before or behind, for whoever counts rows") {
    struct Rows : Observer {
        TraceRequest request() const override {
            TraceRequest request{.level = TraceLevel::counts};
            request.filter.ops = {Op::none};
            return request;
        }
        void on_sample(const SampleEvent& event) override { list.emplace_back(event.outputs, event.output_index); }
        std::vector<std::pair<std::uint64_t, int>> list;
    };
    const Fixture f;
    Sampler sampler(f.model.vocab(), {.temp = 0});
    Context first(f.model, {.n_ctx = 128}), second(f.model, {.n_ctx = 128});
    REQUIRE(first.decode(std::span(f.tokens).first(20)) == DecodeStatus::ok);
    const auto state = save_state(first);
    const auto rows = std::make_shared<Rows>();
    const auto attached = second.attach(rows);
    for (int round = 0; round < 2; ++round) {
        load_state(second, state);
        for (int again = 0; again < 2; ++again) (void)sampler.sample(second);
        REQUIRE(second.decode({f.tokens[20]}) == DecodeStatus::ok);
        for (int again = 0; again < 2; ++again) (void)sampler.sample(second);
    }
    REQUIRE(rows->list.size() == 8);
    for (std::size_t i = 0; i < 8; ++i)
        for (std::size_t j = 0; j < 8; ++j) CHECK((rows->list[i] == rows->list[j]) == (i / 2 == j / 2));
}

TEST_CASE("[Z1] states: what sequences share stands once") {
    const Fixture f;
    Context context(f.model, {.n_ctx = 256, .n_seq_max = 8});
    REQUIRE(context.decode(std::span(f.tokens).first(40)) == DecodeStatus::ok);
    const auto alone = state_size(context);
    for (int seq = 1; seq < 8; ++seq) context.seq_cp(SeqId{0}, SeqId{seq});
    CHECK(state_size(context) == alone + 40 * 7 * 2);  // ids
    Context other(f.model, {.n_ctx = 64, .n_seq_max = 8});
    load_state(other, save_state(context));
    CHECK(other.used() == 40);
    CHECK(next_bits(other, f.tokens[40], SeqId{7}) == next_bits(context, f.tokens[40], SeqId{3}));
}

TEST_CASE("states: a sequence finds room wherever there is some, and is refused where there is none") {
    const Fixture f;
    const auto many = test::random_tokens(128, 128, 9);
    Context source(f.model, {.n_ctx = 128});
    REQUIRE(source.decode(std::span(many).first(100)) == DecodeStatus::ok);
    const auto large = save_state(source, {.seq = SeqId{0}});
    const auto expected = next_bits(source, f.tokens[40]);
    Context context(f.model, {.n_ctx = 128, .n_seq_max = 2}), beside(f.model, {.n_ctx = 128});
    for (Context* each : {&context, &beside}) {  // two tokens on two pages; 126 have room, on one free page
        REQUIRE(each->decode(many) == DecodeStatus::ok);
        REQUIRE(each->seq_rm(SeqId{0}, Pos{1}, Pos{64}) == RemoveStatus::ok);
        REQUIRE(each->seq_rm(SeqId{0}, Pos{65}, Pos{128}) == RemoveStatus::ok);
        each->seq_add(SeqId{0}, {Pos{64}}, -63);
    }
    load_state(context, large, SeqId{1});
    CHECK(context.room(SeqId{0}) == 26);
    CHECK(next_bits(context, f.tokens[40], SeqId{1}) == expected);
    CHECK(next_bits(context, f.tokens[41]) == next_bits(beside, f.tokens[41]));

    Context few(f.model, {.n_ctx = 64});
    REQUIRE(few.decode(std::span(f.tokens).first(40)) == DecodeStatus::ok);
    const auto state = save_state(few, {.seq = SeqId{0}});
    Context full(f.model, {.n_ctx = 64, .n_seq_max = 2});
    REQUIRE(full.decode(std::span(f.tokens).first(30)) == DecodeStatus::ok);
    const auto kept = save_state(full);
    CHECK(names(message_of([&] { load_state(full, state, SeqId{1}); }), {"40 tokens", "room for 34"}));
    CHECK(code_of([&] { load_state(full, state, SeqId{1}); }) == ErrorCode::no_room);
    CHECK(code_of([&] { load_state(full, state, SeqId{2}); }) == ErrorCode::bad_sequence);
    CHECK(code_of([&] { (void)save_state(full, {.seq = SeqId{2}}); }) == ErrorCode::bad_sequence);
    CHECK(save_state(full) == kept);
}

TEST_CASE("[N9] states: every single damaged byte and every shorter file is refused by name, the target untouched") {
    const test::TempFolder folder;
    TinyModel tiny;
    tiny.n_layer = 1;
    const auto model = Model::load(tiny.save(folder.path()));
    const auto tokens = test::random_tokens(8, 128, 5);
    Context source(model, {.n_ctx = 64, .n_seq_max = 2}), target(model, {.n_ctx = 64, .n_seq_max = 2});
    REQUIRE(source.decode(std::span(tokens).first(2)) == DecodeStatus::ok);
    REQUIRE(target.decode(std::span(tokens).first(5)) == DecodeStatus::ok);
    const std::array sampler{std::byte{1}, std::byte{2}};
    auto state = save_state(source, {.tokens = std::span(tokens).first(2), .sampler = sampler});
    const auto before = save_state(target);
    const auto logits = bits_of(target.logits());
    const auto refused = [&](std::span<const std::byte> bytes) {
        const auto code = code_of([&] { load_state(target, bytes); });
        return code == ErrorCode::not_state_file || code == ErrorCode::unsupported_version ||
               code == ErrorCode::damaged;
    };
    int n_accepted = 0;
    for (std::size_t i = 0; i < state.size(); ++i) {
        const std::byte kept = state[i];
        state[i] ^= std::byte(1u << i % 8);
        n_accepted += refused(state) ? 0 : 1;
        state[i] = kept;
        if (i % 499 == 0) CHECK(save_state(target) == before);
    }
    CHECK(n_accepted == 0);
    const auto starts = section_starts(state);
    CHECK(starts.size() >= 8);
    for (const std::size_t start : starts)
        for (const std::size_t size : {start - 1, start, start + 1, start + 12})
            CHECK(refused(std::span(state).first(size)));
    for (std::size_t size = 0; size < 28; ++size) CHECK(refused(std::span(state).first(size)));
    CHECK(names(message_of([&] { load_state(target, std::span(state).first(starts[3] + 20)); }),
                {"truncated or damaged"}));
    auto longer = state;
    longer.push_back(std::byte{0});
    CHECK(refused(longer));
    state[starts[4] + 30] ^= std::byte{4};
    CHECK(names(message_of([&] { load_state(target, state); }), {"ROWS"}));
    CHECK(save_state(target) == before);
    CHECK(bits_of(target.logits()) == logits);
}

TEST_CASE("[N9] states: another model, other positions, other types are refused with both values") {
    const Fixture f;
    const test::TempFolder folder;
    TinyModel twin;
    twin.seed = 2;
    const auto other_model = Model::load(twin.save(folder.path()));
    Context source(f.model, {.n_ctx = 64});
    REQUIRE(source.decode(std::span(f.tokens).first(9)) == DecodeStatus::ok);
    const auto state = save_state(source);
    const auto check = [&](const Model& model, ContextOptions options, ErrorCode code,
                           std::initializer_list<std::string_view> parts) {
        options.n_ctx = 64;
        Context target(model, options);
        REQUIRE(target.decode(std::span(f.tokens).first(4)) == DecodeStatus::ok);
        const auto before = save_state(target);
        CHECK(code_of([&] { load_state(target, state); }) == code);
        const std::string message = message_of([&] { load_state(target, state); });
        CAPTURE(message);
        CHECK(names(message, parts));
        CHECK(save_state(target) == before);
        CHECK(target.n_outputs() == 1);
    };
    check(other_model, {}, ErrorCode::model_mismatch,
          {to_hex(f.model.file().fingerprint()), to_hex(other_model.file().fingerprint())});
    check(f.model, {.rope_freq_base = 5000.0f}, ErrorCode::param_mismatch, {"rope_freq_base", "10000", "5000"});
    check(f.model, {.rope_freq_scale = 0.5f, .rope_scaling = RopeScaling::linear}, ErrorCode::param_mismatch,
          {"rope_freq_scale", "'1'", "'0.5'"});
    check(f.model, {.type_k = KvType::f32}, ErrorCode::type_mismatch, {"cache_k-0", "f16", "f32"});
    check(f.model, {.type_v = KvType::bf16}, ErrorCode::type_mismatch, {"cache_v-0", "f16", "bf16"});
    const auto changed =
        Model::load(f.model.file().paths()[0], {.overrides = {{"llama.attention.layer_norm_rms_epsilon", 0.25}}});
    check(changed, {}, ErrorCode::param_mismatch, {"overrides", "layer_norm_rms_epsilon=0.25"});
}

namespace {

/// The same state as version 1 had it: without the full fingerprint.
std::vector<std::byte> as_version_1(std::span<const std::byte> state) {
    const auto number = [](std::vector<std::byte>& to, auto value) {
        for (std::size_t i = 0; i < sizeof value; ++i) to.push_back(static_cast<std::byte>(value >> (8 * i)));
    };
    std::vector<std::byte> out(state.begin(), state.begin() + 8);
    number(out, std::uint32_t{1});
    out.insert(out.end(), state.begin() + 12, state.begin() + 16);
    number(out, std::uint64_t{state.size() - 16});
    number(out, crc32c(out));
    std::vector<std::byte> section(state.begin() + 28, state.begin() + 32);  // MODL is the first
    std::uint64_t n = 0;
    std::memcpy(&n, state.data() + 32, 8);
    number(section, std::uint64_t{n - 16});
    section.insert(section.end(), state.begin() + 40, state.begin() + 40 + static_cast<std::ptrdiff_t>(n - 16));
    number(section, crc32c(section));
    out.insert(out.end(), section.begin(), section.end());
    out.insert(out.end(), state.begin() + 44 + static_cast<std::ptrdiff_t>(n), state.end());
    return out;
}

}  // namespace

TEST_CASE("[N9] states: files that differ outside of the sample are different models, where that is known") {
    const Fixture f;
    const auto path = f.model.file().paths()[0];
    const auto a = Model::load(test::twin_of(path, f.folder / "a.gguf", 'a')),
               b = Model::load(test::twin_of(path, f.folder / "b.gguf", 'b'));
    REQUIRE(a.file().fingerprint() == b.file().fingerprint());
    Context source(a, {.n_ctx = 64}), same(a, {.n_ctx = 64}), target(b, {.n_ctx = 64});
    REQUIRE(source.decode(std::span(f.tokens).first(7)) == DecodeStatus::ok);
    const auto state = save_state(source);
    CHECK(read_state(state).version == 2);
    CHECK(read_state(state).full_model == a.file().full_fingerprint());
    CHECK(code_of([&] { load_state(target, state); }) == ErrorCode::model_mismatch);
    CHECK(names(message_of([&] { load_state(target, state); }),
                {to_hex(*a.file().full_fingerprint()), to_hex(*b.file().full_fingerprint()), "outside of the sample"}));
    CHECK(target.count(SeqId{0}) == 0);
    load_state(same, state);
    CHECK(same.count(SeqId{0}) == 7);
    const auto old = as_version_1(state);  // which only knows the sample, and goes on by it
    CHECK(read_state(old).version == 1);
    CHECK(!read_state(old).full_model);
    CHECK(read_state(old).model == a.file().fingerprint());
    load_state(target, old);
    CHECK(target.count(SeqId{0}) == 7);
    CHECK(next_bits(target, f.tokens[7]) == next_bits(same, f.tokens[7]));
    auto later = state;
    later[8] = std::byte{4};
    CHECK(code_of([&] { (void)read_state(later); }) == ErrorCode::unsupported_version);
    CHECK(names(message_of([&] { (void)read_state(later); }), {"version 4", "reads 1 to 3"}));
}

TEST_CASE("[N9] states: wherever memory runs out, the target is untouched") {
    const Fixture f;
    Context source(f.model, {.n_ctx = 64, .n_seq_max = 2}), target(f.model, {.n_ctx = 64, .n_seq_max = 2});
    talk(source, f.tokens);
    REQUIRE(target.decode(std::span(f.tokens).first(5)) == DecodeStatus::ok);
    const auto state = save_state(source), one = save_state(source, {.seq = SeqId{1}}), before = save_state(target);
    const auto until_it_works = [&](const std::function<void()>& action) {
        for (std::uint64_t n = 1; n < 5000; ++n) {
            test::fail_allocation_at(n);
            bool failed = false;
            try {
                action();
            } catch (const Error& error) {
                failed = true;
                CHECK(error.code() == ErrorCode::out_of_memory);
            }
            test::fail_allocation_at(0);
            if (!failed) return n;  // nothing failed, or only what sorting can do without
            if (n % 7 == 0) CHECK(save_state(target) == before);
        }
        return std::uint64_t{0};
    };
    std::vector<std::byte> again;
    CHECK(until_it_works([&] { again = save_state(source); }) > 10);
    CHECK(again == state);
    CHECK(until_it_works([&] { load_state(target, state); }) > 10);
    CHECK(save_state(target) == state);
    load_state(target, before);
    CHECK(save_state(target) == before);
    CHECK(until_it_works([&] { load_state(target, one, SeqId{1}); }) > 10);
    CHECK(target.count(SeqId{1}) == source.count(SeqId{1}));
    CHECK(target.count(SeqId{0}) == 5);
}

TEST_CASE("[Z1] states: a file is the old one or the new one, and says what it is") {
    const Fixture f;
    const auto path = f.folder / "talk.state";
    Context context(f.model, {.n_ctx = 64});
    REQUIRE(context.decode(std::span(f.tokens).first(7)) == DecodeStatus::ok);
    save_state_file(context, path, {.tokens = std::span(f.tokens).first(7)});
    CHECK(std::filesystem::file_size(path) == state_size(context, {.tokens = std::span(f.tokens).first(7)}));
    const StateInfo info = read_state_file(path);
    CHECK(info.whole_context);
    CHECK(info.n_tokens == 7);
    CHECK(info.architecture == "llama");
    CHECK(info.model == f.model.file().fingerprint());
    CHECK(info.tokens == std::vector<Token>(f.tokens.begin(), f.tokens.begin() + 7));
    REQUIRE(context.decode({f.tokens[7]}) == DecodeStatus::ok);
    save_state_file(context, path, {.seq = SeqId{0}});
    CHECK(read_state_file(path).n_tokens == 8);
    std::size_t n_files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(f.folder.path())) n_files += entry.exists() ? 1 : 0;
    CHECK(n_files == 2);  // the model and the state: nothing is left beside them
    CHECK(code_of([&] { save_state_file(context, f.folder / "nowhere" / "x", {}); }) == ErrorCode::io_error);
    CHECK(code_of([&] { load_state_file(context, f.folder / "nothing"); }) == ErrorCode::io_error);
    CHECK(names(message_of([&] { load_state_file(context, f.model.file().paths()[0]); }), {".gguf", "TNFSTATE"}));
    std::vector<std::byte> small(10);
    CHECK(code_of([&] { save_state(context, std::span(small)); }) == ErrorCode::limit_exceeded);
    Context other(f.model, {.n_ctx = 64});
    load_state_file(other, path);
    CHECK(next_bits(other, f.tokens[8]) == next_bits(context, f.tokens[8]));
}

}  // namespace tinfer
