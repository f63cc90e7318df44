// SPDX-License-Identifier: MIT
// What a caller of Context relies on: batches, positions, outputs, refusals and options.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>

#include "runtime/context_support.hpp"

namespace tinfer {

TEST_CASE_FIXTURE(Fixture, "[B1] context: a batch mixing two sequences gives each the logits it has alone") {
    const auto other = test::random_tokens(20, 128, 8);
    const auto a = alone(tokens), b = alone(other);
    Context context(model, {.n_ctx = 256, .n_seq_max = 2, .n_outputs = 128});
    Batch batch;
    for (std::size_t i = 0; i < tokens.size(); ++i) {  // interleaved, the short one ends early
        batch.add(tokens[i], Pos{static_cast<int>(i)}, SeqId{0}, true);
        if (i < other.size()) batch.add(other[i], Pos{static_cast<int>(i)}, SeqId{1}, true);
    }
    REQUIRE(context.decode(batch) == DecodeStatus::ok);
    int row = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        CHECK(row_bits(context, row++) == slice(a, i, 128));
        if (i < other.size()) CHECK(row_bits(context, row++) == slice(b, i, 128));
    }
}

TEST_CASE_FIXTURE(Fixture, "[B2] context: embedding rows of tokens give the logits of the tokens") {
    const auto* embd = model.file().find("token_embd.weight");
    REQUIRE(embd != nullptr);
    const auto* rows = static_cast<const float*>(embd->address);
    Context context(model, {.n_ctx = 128, .n_outputs = 48});
    Batch batch;
    for (std::size_t i = 0; i < tokens.size(); ++i)
        batch.add_embedding(std::span(rows + static_cast<std::size_t>(tokens[i]) * 64, 64), Pos{static_cast<int>(i)},
                            {}, true);
    REQUIRE(context.decode(batch) == DecodeStatus::ok);
    CHECK(bits_of(context.result("result_output")) == alone(tokens));
}

TEST_CASE_FIXTURE(Fixture,
                  "[B3] context: a prefill tagged with two ids is continued by both without computing it again") {
    const auto prefix = std::span(tokens).first(30);
    Context context(model, {.n_ctx = 512, .n_seq_max = 2, .n_outputs = 8});
    Batch batch;
    const std::array both{SeqId{0}, SeqId{1}};
    for (std::size_t i = 0; i < prefix.size(); ++i) batch.add(prefix[i], Pos{static_cast<int>(i)}, both, false);
    REQUIRE(context.decode(batch) == DecodeStatus::ok);
    CHECK(context.used() == 30);
    for (const int s : {0, 1}) {
        const Token next{s == 0 ? 5 : 9};
        Batch one;
        one.add(next, Pos{30}, SeqId{s}, true);
        REQUIRE(context.decode(one) == DecodeStatus::ok);
        std::vector<Token> whole(prefix.begin(), prefix.end());
        whole.push_back(next);
        CHECK(row_bits(context, 0) == slice(alone(whole), 30, 128));
    }
    CHECK(context.count(SeqId{0}) == 31);
    CHECK(context.count(SeqId{1}) == 31);
}

TEST_CASE_FIXTURE(Fixture, "[B4] context: decode(tokens) continues positions after each call") {
    Context context(model, {.n_ctx = 128});
    std::vector<std::uint32_t> last;
    for (std::size_t first = 0; first < tokens.size(); first += 7) {
        const auto part = std::span(tokens).subspan(first, std::min<std::size_t>(7, tokens.size() - first));
        REQUIRE(context.decode(part) == DecodeStatus::ok);
        CHECK(context.seq_pos_max(SeqId{0}) == Pos{static_cast<int>(first + part.size()) - 1});
        CHECK(context.n_outputs() == 1);
        last = row_bits(context, -1);
    }
    CHECK(last == slice(alone(tokens), tokens.size() - 1, 128));
}

TEST_CASE_FIXTURE(Fixture, "[B5] context: each malformed batch is refused with its own message and changes nothing") {
    Context context(model, {.n_ctx = 64, .n_seq_max = 2, .n_batch = 16, .n_outputs = 2});
    REQUIRE(context.decode(std::span(tokens).first(4)) == DecodeStatus::ok);
    const auto refused = [&](std::string_view part, const std::function<void(Batch&)>& fill) {
        Batch batch;
        fill(batch);
        CAPTURE(part);
        try {
            (void)context.decode(batch);
            FAIL("accepted");
        } catch (const Error& error) {
            CHECK(error.code() == ErrorCode::invalid_batch);
            CHECK(std::string_view(error.what()).find(part) != std::string_view::npos);
        }
        CHECK(context.used() == 4);
        CHECK(context.seq_pos_max(SeqId{0}) == Pos{3});
        CHECK(context.seq_pos_max(SeqId{1}) == std::nullopt);
    };
    const std::vector<float> row(64, 0.1f), narrow(63, 0.1f);
    const std::array<SeqId, 2> both{SeqId{0}, SeqId{1}}, twice{SeqId{0}, SeqId{0}};
    refused("batch is empty", [](Batch&) {});
    refused("limit n_batch = 16", [](Batch& b) {
        for (int i = 0; i < 17; ++i) b.add(Token{1});
    });
    refused("either tokens or embeddings", [&](Batch& b) {
        b.add(Token{1});
        b.add_embedding(row);
    });
    refused("outside vocabulary 128", [](Batch& b) { b.add(Token{128}); });
    refused("token -1 at index 0", [](Batch& b) { b.add(Token{-1}); });
    refused("embedding width 63, model needs 64", [&](Batch& b) { b.add_embedding(narrow); });
    refused("sequence id 2 at index 0", [](Batch& b) { b.add(Token{1}, Pos{4}, SeqId{2}, true); });
    refused("sequence id 0 at index 0", [&](Batch& b) { b.add(Token{1}, Pos{4}, twice, true); });
    refused("negative position at index 0", [](Batch& b) { b.add(Token{1}, Pos{-2}, SeqId{1}, true); });
    refused("not consecutive at index 1", [](Batch& b) {
        b.add(Token{1}, Pos{4}, SeqId{0}, false);
        b.add(Token{1}, Pos{6}, SeqId{0}, true);
    });
    refused("expected 4", [](Batch& b) { b.add(Token{1}, Pos{5}, SeqId{0}, true); });
    refused("different history", [&](Batch& b) { b.add(Token{1}, Pos{4}, both, true); });
    refused("limit n_outputs = 2", [](Batch& b) {
        for (int i = 4; i < 7; ++i) b.add(Token{1}, Pos{i}, SeqId{0}, true);
    });
    CHECK(context.decode(std::span(tokens).subspan(4, 1)) == DecodeStatus::ok);
    CHECK(row_bits(context, 0) == slice(alone(std::span(tokens).first(5)), 4, 128));
}

TEST_CASE_FIXTURE(Fixture, "[B6] context: logits do not depend on the micro-batch size") {
    const auto expected = alone(tokens);
    for (const int n_ubatch : {1, 2, 7, 16, 47, 48, 512})
        CHECK(bits_of(test::logits_of(model, tokens, {.n_ubatch = n_ubatch})) == expected);
}

TEST_CASE_FIXTURE(Fixture, "[B7] context: options are read back, and what is out of range is refused at construction") {
    const Context context(model, {.n_ctx = 100,
                                  .n_seq_max = 3,
                                  .n_batch = 90,
                                  .n_ubatch = 32,
                                  .n_outputs = 5,
                                  .n_threads = 1,
                                  .n_threads_batch = 1,
                                  .isa = Isa::reference,
                                  .fuse = false,
                                  .type_k = KvType::bf16,
                                  .type_v = KvType::f32});
    const ContextOptions& o = context.options();
    CHECK(o.n_ctx == 128);
    CHECK(o.n_seq_max == 3);
    CHECK(o.n_batch == 90);
    CHECK(o.n_ubatch == 32);
    CHECK(o.n_outputs == 5);
    CHECK(o.n_threads == 1);
    CHECK(o.type_k == KvType::bf16);
    CHECK(o.type_v == KvType::f32);
    CHECK_FALSE(o.fuse);
    CHECK(context.isa() == "reference");
    const Context trained(model, {.n_ctx = 0});
    CHECK(trained.options().n_ctx == 512);

    const auto refused = [&](ContextOptions options) {
        CHECK(code_of([&] { Context c(model, options); }) == ErrorCode::bad_parameter);
    };
    refused({.n_ctx = -1});
    refused({.n_seq_max = 0});
    refused({.n_seq_max = 257});
    refused({.n_batch = -1});
    refused({.n_ubatch = -5});
    refused({.n_outputs = -1});
    refused({.n_threads = -1});
    refused({.rope_freq_base = -1.0f});
    refused({.keep = {"no_such_node-0"}});
}

TEST_CASE("[A9] context: what is not given of RoPE is the model's, and what is given counts, also where it is the "
          "usual value") {
    const test::TempFolder folder;
    const auto with = [&](float beta_fast, float beta_slow, float factor = 4.0f) {
        auto writer = TinyModel{}.writer();
        writer.set("llama.rope.scaling.type", test::GgufValue{std::string("yarn")})
            .set("llama.rope.scaling.factor", factor);
        writer.set("llama.rope.scaling.original_context_length", 64u);
        writer.set("llama.rope.scaling.yarn_beta_fast", beta_fast).set("llama.rope.scaling.yarn_beta_slow", beta_slow);
        writer.save(folder / "yarn.gguf");
        return Model::load(folder / "yarn.gguf");
    };
    const auto tokens = test::random_tokens(90, 128, 3);
    const auto bits = [&](const Model& model, const ContextOptions& options) {
        return bits_of(test::logits_of(model, tokens, options));
    };
    const Model unusual = with(9.0f, 2.5f), usual = with(32.0f, 1.0f);
    const auto of_usual = bits(usual, {}), of_unusual = bits(unusual, {});
    CHECK(of_usual != of_unusual);
    CHECK(bits(unusual, {.yarn_beta_fast = 32.0f, .yarn_beta_slow = 1.0f}) == of_usual);
    CHECK(bits(usual, {.yarn_beta_fast = 9.0f, .yarn_beta_slow = 2.5f}) == of_unusual);
    CHECK(bits(with(32.0f, 1.0f, 8.0f), {.rope_freq_scale = 0.25f}) == of_usual);
    CHECK(bits(usual, {.yarn_ext_factor = 0.0f}) != of_usual);
    CHECK(bits(usual, {.yarn_ext_factor = 1.0f, .yarn_attn_factor = 1.0f, .yarn_orig_ctx = 64}) == of_usual);

    const Context context(unusual, {.n_ctx = 128, .yarn_beta_slow = 1.0f, .logits_all = true});
    const ContextOptions& o = context.options();  // nothing is left to the model
    CHECK(o.rope_scaling == RopeScaling::yarn);
    CHECK(o.rope_freq_base == 10000.0f);
    CHECK(o.rope_freq_scale == 0.25f);
    CHECK(o.yarn_ext_factor == 1.0f);
    CHECK(o.yarn_attn_factor == 1.0f);
    CHECK(o.yarn_beta_fast == 9.0f);
    CHECK(o.yarn_beta_slow == 1.0f);
    CHECK(o.yarn_orig_ctx == 64);
    CHECK(bits(unusual, o) == bits(unusual, {.n_ctx = 128, .yarn_beta_slow = 1.0f}));  // they can be given again
    const Context none(unusual, {.n_ctx = 64, .rope_scaling = RopeScaling::none});
    CHECK(none.options().rope_freq_scale == 1.0f);
    CHECK(none.options().yarn_ext_factor == 0.0f);
    for (const ContextOptions& bad : {ContextOptions{.rope_freq_base = 0.0f},
                                      {.rope_freq_scale = -1.0f},
                                      {.yarn_ext_factor = -1.0f},
                                      {.yarn_attn_factor = 0.0f},
                                      {.yarn_beta_fast = std::numeric_limits<float>::infinity()},
                                      {.yarn_orig_ctx = 0}})
        CHECK(code_of([&] { Context c(unusual, bad); }) == ErrorCode::bad_parameter);
}

TEST_CASE_FIXTURE(Fixture,
                  "[B9][S13] context: outputs by index, negative from the end; rows not asked for are errors") {
    Context context(model, {.n_ctx = 128, .n_outputs = 4});
    CHECK(code_of([&] { (void)context.logits(); }) == ErrorCode::no_output);
    Batch batch;
    for (int i = 0; i < 10; ++i)
        batch.add(tokens[static_cast<std::size_t>(i)], Pos{i}, SeqId{0}, i == 2 || i == 5 || i == 9);
    REQUIRE(context.decode(batch) == DecodeStatus::ok);
    CHECK(context.n_outputs() == 3);
    const auto expected = alone(std::span(tokens).first(10));
    CHECK(row_bits(context, 0) == slice(expected, 2, 128));
    CHECK(row_bits(context, 1) == slice(expected, 5, 128));
    CHECK(row_bits(context, -1) == slice(expected, 9, 128));
    CHECK(row_bits(context, -3) == row_bits(context, 0));
    CHECK(context.output_index(5) == 1);
    CHECK(code_of([&] { (void)context.output_index(3); }) == ErrorCode::no_output);
    CHECK(code_of([&] { (void)context.output_index(10); }) == ErrorCode::index_out_of_range);
    CHECK(code_of([&] { (void)context.logits(3); }) == ErrorCode::index_out_of_range);
    CHECK(code_of([&] { (void)context.logits(-4); }) == ErrorCode::index_out_of_range);
    CHECK(code_of([&] { (void)context.embedding(0); }) == ErrorCode::no_output);
}

TEST_CASE_FIXTURE(
    Fixture,
    "[B10][M3] context: no room and cancelled are values, bad input an error, and each leaves the state as it was") {
    bool stop = false;
    Context context(model, {.n_ctx = 64, .cancel = [&] { return stop; }});
    REQUIRE(context.decode(std::span(tokens).first(40)) == DecodeStatus::ok);
    CHECK(context.room(SeqId{0}) == 24);
    const auto many = test::random_tokens(25, 128, 3);
    CHECK(context.decode(many) == DecodeStatus::no_room);
    CHECK(context.used() == 40);
    CHECK(context.n_outputs() == 0);
    stop = true;
    CHECK(context.decode(std::span(many).first(3)) == DecodeStatus::cancelled);
    CHECK(context.used() == 40);
    CHECK(code_of([&] { (void)context.logits(); }) == ErrorCode::no_output);
    stop = false;
    CHECK(code_of([&] {
              const std::array bad{Token{999}};
              (void)context.decode(bad);
          }) == ErrorCode::invalid_batch);
    REQUIRE(context.decode(std::span(many).first(24)) == DecodeStatus::ok);
    std::vector<Token> whole(tokens.begin(), tokens.begin() + 40);
    whole.insert(whole.end(), many.begin(), many.begin() + 24);
    CHECK(row_bits(context, -1) == slice(alone(whole), 63, 128));
    CHECK(context.room(SeqId{0}) == 0);
}

TEST_CASE_FIXTURE(Fixture, "[E1] context: logits of the last token are the same with all rows and with one") {
    Context context(model, {.n_ctx = 128});
    REQUIRE(context.decode(tokens) == DecodeStatus::ok);
    CHECK(row_bits(context, -1) == slice(alone(tokens), tokens.size() - 1, 128));
}

TEST_CASE_FIXTURE(Fixture,
                  "[G8] context: logits, embeddings and hidden states are retrievable by name after a decode") {
    Context context(model, {.n_ctx = 128, .embeddings = true, .logits_all = true, .keep = {"l_out-0", "attn_norm-1"}});
    REQUIRE(context.decode(tokens) == DecodeStatus::ok);
    CHECK(context.result("result_output").size() == 48 * 128);
    CHECK(context.result("result_norm").size() == 48 * 64);
    CHECK(context.result("l_out-0").size() == 48 * 64);
    CHECK(context.result("attn_norm-1").size() == 48 * 64);
    CHECK(bits_of(context.embedding(-1)) == bits_of(context.result("result_norm").last(64)));
    CHECK(code_of([&] { (void)context.result("l_out-1"); }) == ErrorCode::no_output);
    CHECK(bits_of(context.result("result_output")) == alone(tokens));
    // the logits are the head's product with the embeddings: by hand, in double
    const auto* head = static_cast<const float*>(model.file().find("output.weight")->address);
    const auto h = context.result("result_norm").first(64);
    for (std::size_t v = 0; v < 128; v += 17) {
        double sum = 0;
        for (std::size_t i = 0; i < 64; ++i) sum += static_cast<double>(h[i]) * head[v * 64 + i];
        CHECK(context.result("result_output")[v] == doctest::Approx(sum).epsilon(1e-4));
    }
}

TEST_CASE_FIXTURE(Fixture, "context: kept values are those of all tokens, however the batch is cut") {
    const std::vector<std::string> of_tokens{"l_out-0", "attn_norm-1", "q-1", "attn_out-1"},
        of_outputs{"out_rows-1", "l_out-1", "result_norm"};
    std::vector<std::string> all = of_tokens;
    all.insert(all.end(), of_outputs.begin(), of_outputs.end());
    Batch batch;  // outputs at both ends of a long row without any
    for (int i = 0; i < 48; ++i) batch.add(tokens[static_cast<std::size_t>(i)], Pos{i}, SeqId{0}, i < 2 || i > 44);
    const auto kept = [&](int n_ubatch) {
        Context context(model, {.n_ctx = 128, .n_ubatch = n_ubatch, .n_outputs = 8, .keep = all});
        REQUIRE(context.decode(batch) == DecodeStatus::ok);
        std::vector<std::vector<std::uint32_t>> values;
        for (const std::string& name : all) values.push_back(bits_of(context.result(name)));
        REQUIRE(context.decode(std::span(tokens).first(1)) == DecodeStatus::ok);  // the next decode begins anew
        CHECK(context.result("l_out-0").size() == 64);
        return values;
    };
    const auto whole = kept(48);
    for (std::size_t k = 0; k < all.size(); ++k) CHECK(whole[k].size() == (k < of_tokens.size() ? 48 : 5) * 64);
    for (const int n_ubatch : {1, 7, 16, 47}) CHECK(kept(n_ubatch) == whole);

    Context context(model, {.n_ctx = 512, .keep = {"l_out-0"}});  // more than are computed together
    REQUIRE(context.decode(test::random_tokens(400, 128, 1)) == DecodeStatus::ok);
    CHECK(context.result("l_out-0").size() == 400 * 64);
    REQUIRE(context.decode(test::random_tokens(400, 128, 1)) == DecodeStatus::no_room);
    CHECK(code_of([&] { (void)context.result("l_out-0"); }) == ErrorCode::no_output);
}

TEST_CASE_FIXTURE(Fixture, "[O6] context: timings sum to wall time within 2 %") {
    Context context(model, {.n_ctx = 512, .n_threads = 1, .isa = Isa::reference});
    CHECK(context.timings().load_s == model.load_seconds());
    context.reset_timings();
    const auto begin = std::chrono::steady_clock::now();
    REQUIRE(context.decode(test::random_tokens(300, 128, 1)) == DecodeStatus::ok);
    for (int i = 0; i < 100; ++i) REQUIRE(context.decode(std::span(tokens).first(1)) == DecodeStatus::ok);
    const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const Timings t = context.timings();
    CHECK(t.prompt_n == 300);
    CHECK(t.generation_n == 100);
    CHECK(t.prompt_s + t.generation_s <= wall);
    CHECK(t.prompt_s + t.generation_s >= 0.98 * wall);
}

TEST_CASE_FIXTURE(Fixture, "context: a batch of one token of each sequence is generation, whatever their number") {
    Context context(model, {.n_ctx = 512, .n_seq_max = 8});
    Batch batch;
    for (int seq = 0; seq < 8; ++seq)
        for (int pos = 0; pos < 3; ++pos) batch.add(Token{seq + pos}, Pos{pos}, SeqId{seq}, false);
    REQUIRE(context.decode(batch) == DecodeStatus::ok);
    CHECK(context.timings().prompt_n == 24);
    CHECK(context.timings().generation_n == 0);
    CHECK(context.timings().generation_s == 0);
    const double prompt_s = context.timings().prompt_s;
    CHECK(prompt_s > 0);
    batch.clear();
    for (int seq = 0; seq < 8; ++seq) batch.add(Token{seq}, Pos{3}, SeqId{seq}, true);
    REQUIRE(context.decode(batch) == DecodeStatus::ok);
    CHECK(context.timings().prompt_n == 24);
    CHECK(context.timings().prompt_s == prompt_s);
    CHECK(context.timings().generation_n == 8);
    CHECK(context.timings().generation_s > 0);
    batch.clear();
    for (int i = 0; i < 9; ++i)  // one sequence with two
        batch.add(Token{i}, Pos{4 + i / 8}, SeqId{i % 8}, false);
    REQUIRE(context.decode(batch) == DecodeStatus::ok);
    CHECK(context.timings().prompt_n == 33);
    CHECK(context.timings().generation_n == 8);
}

TEST_CASE_FIXTURE(Fixture, "context: calls that end otherwise than in ok count neither tokens nor time") {
    int n_polls = 0, limit = 1 << 20;
    Context context(model, {.n_ctx = 64, .n_ubatch = 8, .n_threads = 1, .cancel = [&] { return ++n_polls > limit; }});
    REQUIRE(context.decode(test::random_tokens(60, 128, 1)) == DecodeStatus::ok);
    context.clear();
    context.reset_timings();
    const int n_all = std::exchange(n_polls, 0);
    limit = 3;
    const auto nothing = [&] {
        const Timings t = context.timings();
        return t.prompt_n == 0 && t.prompt_s == 0 && t.generation_n == 0 && t.generation_s == 0;
    };
    REQUIRE(context.decode(test::random_tokens(40, 128, 1)) == DecodeStatus::cancelled);
    CHECK(nothing());
    n_polls = 0, limit = n_all / 2;  // behind some micro-batches
    REQUIRE(context.decode(test::random_tokens(60, 128, 1)) == DecodeStatus::cancelled);
    CHECK(nothing());
    context.set_cancel({});
    context.begin(test::random_tokens(40, 128, 1));
    REQUIRE(context.step(std::chrono::nanoseconds(1)) == StepStatus::pending);
    context.abandon();
    CHECK(nothing());
    CHECK_THROWS(static_cast<void>(context.decode(std::array{Token{-1}})));
    CHECK(nothing());
    REQUIRE(context.decode(test::random_tokens(60, 128, 1)) == DecodeStatus::ok);
    const Timings all = context.timings();
    CHECK(all.prompt_n == 60);
    CHECK(all.prompt_s > 0);
    REQUIRE(context.decode(test::random_tokens(20, 128, 1)) == DecodeStatus::no_room);
    CHECK(context.timings().prompt_n == 60);
    CHECK(context.timings().prompt_s == all.prompt_s);
}

TEST_CASE_FIXTURE(Fixture, "context: positions may have gaps where the option allows it, and then must increase") {
    Context context(model, {.n_ctx = 128, .n_outputs = 4, .allow_position_gaps = true});
    Batch batch;
    for (const int pos : {0, 1, 5, 100}) batch.add(Token{pos}, Pos{pos}, SeqId{0}, true);
    REQUIRE(context.decode(batch) == DecodeStatus::ok);
    CHECK(context.seq_pos_max(SeqId{0}) == Pos{100});
    CHECK(context.count(SeqId{0}) == 4);
    Batch back;
    back.add(Token{1}, Pos{50}, SeqId{0}, true);
    CHECK(code_of([&] { (void)context.decode(back); }) == ErrorCode::invalid_batch);
}

TEST_CASE_FIXTURE(Fixture, "sampler: sampling from a context reads the row it names") {
    Context context(model, {.n_ctx = 128, .n_outputs = 2});
    Batch batch;
    for (int i = 0; i < 6; ++i) batch.add(tokens[static_cast<std::size_t>(i)], Pos{i}, SeqId{0}, i >= 4);
    REQUIRE(context.decode(batch) == DecodeStatus::ok);
    Sampler sampler(model.vocab(), {.temp = 0});
    const auto best = [&](int index) {
        const auto row = context.logits(index);
        return Token{static_cast<std::int32_t>(std::ranges::max_element(row) - row.begin())};
    };
    CHECK(sampler.sample(context, 0) == best(0));
    CHECK(sampler.sample(context) == best(1));
    CHECK(code_of([&] { (void)sampler.sample(context, 7); }) == ErrorCode::index_out_of_range);
}

TEST_CASE_FIXTURE(Fixture,
                  "[A15] context: the feed-forward block is Wdown · (silu(Wgate·h) ⊙ (Wup·h)), by hand in double") {
    Context context(model, {.n_ctx = 64, .logits_all = true, .keep = {"ffn_norm-0", "ffn_out-0"}});
    REQUIRE(context.decode(std::span(tokens).first(3)) == DecodeStatus::ok);
    const auto product = [&](const char* name, std::span<const double> x, std::size_t n_out) {
        const auto* w = static_cast<const float*>(model.file().find(name)->address);
        std::vector<double> y(n_out, 0.0);
        for (std::size_t o = 0; o < n_out; ++o)
            for (std::size_t i = 0; i < x.size(); ++i) y[o] += static_cast<double>(w[o * x.size() + i]) * x[i];
        return y;
    };
    for (std::size_t t = 0; t < 3; ++t) {
        const auto row = context.result("ffn_norm-0").subspan(t * 64, 64);
        const std::vector<double> h(row.begin(), row.end());
        auto gate = product("blk.0.ffn_gate.weight", h, 96);
        const auto up = product("blk.0.ffn_up.weight", h, 96);
        for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
        const auto out = product("blk.0.ffn_down.weight", gate, 64);
        for (std::size_t i = 0; i < out.size(); ++i)
            CHECK(static_cast<double>(context.result("ffn_out-0")[t * 64 + i]) ==
                  doctest::Approx(out[i]).epsilon(1e-4).scale(1.0));
    }
}

}  // namespace tinfer
