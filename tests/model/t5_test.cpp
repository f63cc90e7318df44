// SPDX-License-Identifier: MIT
// T5 in its variants, against a straight-line evaluation (support/t5_model.hpp); what encoder and decoder owe each
// other.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "support/alloc_counter.hpp"
#include "support/differences.hpp"
#include "support/t5_model.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"
#include "tinfer/tinfer.hpp"
#include "trace/trace_support.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

using Row = SmallT5::Row;

Model load_t5(const GgufWriter& file) {
    const TempFolder folder;
    file.save(folder.path() / "t5.gguf");
    return Model::load(folder.path() / "t5.gguf");
}

std::vector<int> some_ids(std::size_t n, int seed) {
    std::vector<int> out;
    for (const Token token : random_tokens(static_cast<int>(n), SmallT5::kVocab, static_cast<std::uint64_t>(seed)))
        out.push_back(static_cast<int>(token));
    return out;
}

std::vector<Token> tokens_of(const std::vector<int>& ids) {
    std::vector<Token> out;
    for (const int id : ids) out.push_back(Token{id});
    return out;
}

}  // namespace

TEST_CASE("[E2][E3] model: t5encoder, gated or not, agrees with a straight-line evaluation, both pooled and not") {
    for (const bool gated : {true, false})
        for (const int n_bucket : {4, 12, 32, 33})
            for (const std::size_t n : {std::size_t{9}, std::size_t{170}}) {  // and farther than the last bucket begins
                CAPTURE(gated);
                CAPTURE(n_bucket);
                CAPTURE(n);
                const SmallT5 t5({.decoder = false, .gated = gated, .n_encoder = 3, .n_bucket = n_bucket});
                const Model model = load_t5(t5.file);
                CHECK_FALSE(model.info().causal);
                CHECK_FALSE(model.info().has_output_head);
                const std::vector<int> ids = some_ids(n, 4);
                const auto exact = t5.encode(ids);
                Context rows(model,
                             {.n_ctx = 192, .type_k = KvType::f32, .type_v = KvType::f32, .pooling = Pooling::none});
                REQUIRE(rows.encode(tokens_of(ids)) == DecodeStatus::ok);
                REQUIRE(rows.n_outputs() == static_cast<int>(n));
                for (std::size_t t = 0; t < n; ++t)
                    CHECK(largest_difference(rows.embedding(static_cast<int>(t)), exact[t]) <= 1e-4);
                Row mean(SmallT5::kEmbd, 0.0);
                for (const Row& row : exact)
                    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += row[i] / static_cast<double>(n);
                Context pooled(model,
                               {.n_ctx = 192, .type_k = KvType::f32, .type_v = KvType::f32, .pooling = Pooling::mean});
                REQUIRE(pooled.encode(tokens_of(ids)) == DecodeStatus::ok);
                CHECK(largest_difference(pooled.pooled(), mean) <= 1e-4);
            }
}

namespace {

std::vector<std::uint32_t> encoded_bits(const Model& model, std::span<const Token> tokens, ContextOptions options,
                                        bool beside = false) {
    options.n_ctx = 256;
    options.n_seq_max = 2;
    options.pooling = Pooling::none;
    Context context(model, options);
    const auto others = random_tokens(50, model.info().n_vocab, 99);
    Batch batch;
    std::vector<int> own;
    for (std::size_t t = 0; t < tokens.size(); ++t) {
        if (beside && t < others.size()) batch.add(others[t], Pos{static_cast<int>(t)}, SeqId{1}, true);
        own.push_back(static_cast<int>(batch.size()));
        batch.add(tokens[t], Pos{static_cast<int>(t)}, SeqId{0}, true);
    }
    const auto check = std::make_shared<CoverageCheck>();
    const auto attached = beside ? context.attach(check) : Attachment();
    REQUIRE(context.encode(batch) == DecodeStatus::ok);
    if (beside) CHECK(differences_of(*check) == "");
    std::vector<float> all;
    for (const int row : own) all.insert(all.end(), context.embedding(row).begin(), context.embedding(row).end());
    CHECK(std::ranges::none_of(all, [](float x) { return std::isnan(x); }));
    return bits_of(all);
}

}  // namespace

TEST_CASE("determinism: t5encoder gives the same bits on every table, on any threads, fused or not, alone or beside "
          "another text, watched or not") {
    for (const DType type : {DType::f32, DType::q8_0, DType::f16}) {
        const Model model =
            load_t5(SmallT5({.decoder = false, .gated = type != DType::f16, .n_encoder = 3}, type).file);
        const auto tokens = random_tokens(90, model.info().n_vocab, 5);
        const auto expected = encoded_bits(model, tokens, {.isa = Isa::reference, .fuse = false});
        for (const Isa isa : available_isas()) {
            CAPTURE(to_string(isa));
            CHECK(encoded_bits(model, tokens, {.n_threads = 3, .isa = isa}) == expected);
            CHECK(encoded_bits(model, tokens, {.n_threads = 2, .isa = isa, .fuse = false}, true) == expected);
        }
    }
}

// ---- encoder and decoder --------------------------------------------------------------------------------------------

namespace {

const ContextOptions kExact{
    .n_ctx = 192, .n_outputs = 192, .type_k = KvType::f32, .type_v = KvType::f32, .logits_all = true};

/// SmallT5::kStart and some more.
std::vector<int> answer_ids(std::size_t n) {
    std::vector<int> out = some_ids(n, 8);
    out[0] = SmallT5::kStart;
    return out;
}

std::optional<ErrorCode> code_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const Error& error) {
        return error.code();
    }
    return {};
}

std::vector<float> all_logits(const Context& context) {
    std::vector<float> out;
    for (int i = 0; i < context.n_outputs(); ++i)
        out.insert(out.end(), context.logits(i).begin(), context.logits(i).end());
    return out;
}

}  // namespace

TEST_CASE("model: t5 in its variants agrees with a straight-line evaluation of encoder and decoder") {
    struct Variant {
        bool gated, tied;
        int n_encoder, n_decoder, n_bucket;
        std::size_t n_text, n_answer;
    };
    for (const Variant& v : {Variant{true, false, 2, 2, 32, 20, 8}, Variant{false, true, 2, 2, 32, 1, 1},
                             Variant{true, true, 3, 1, 12, 70, 5}, Variant{false, false, 1, 3, 5, 170, 150}}) {
        CAPTURE(v.n_decoder);
        const SmallT5 t5({.gated = v.gated,
                          .tied = v.tied,
                          .n_encoder = v.n_encoder,
                          .n_decoder = v.n_decoder,
                          .n_bucket = v.n_bucket});
        const Model model = load_t5(t5.file);
        CHECK(model.info().has_encoder);
        CHECK(model.info().causal);
        CHECK(model.info().n_layer == v.n_decoder);
        CHECK(model.decoder_start() == Token{SmallT5::kStart});
        const std::vector<int> text = some_ids(v.n_text, 6), answer = answer_ids(v.n_answer);
        const auto exact = t5.decode(t5.encode(text), answer);
        Context context(model, kExact);
        REQUIRE(context.encode(tokens_of(text)) == DecodeStatus::ok);
        CHECK(context.n_outputs() == 0);
        CHECK(context.used() == 0);
        REQUIRE(context.decode(tokens_of(answer)) == DecodeStatus::ok);
        REQUIRE(context.n_outputs() == static_cast<int>(v.n_answer));
        for (std::size_t t = 0; t < v.n_answer; ++t)
            CHECK(largest_difference(context.logits(static_cast<int>(t)), exact[t]) <= 2e-4);
    }
}

TEST_CASE(
    "model: the factor of tied logits and the first token of an answer come from keys, which a caller may override") {
    SmallT5 t5({.tied = true});
    const TempFolder folder;
    t5.file.save(folder.path() / "t5.gguf");
    const std::vector<Token> text = tokens_of(some_ids(9, 1)), answer = tokens_of(answer_ids(3));
    const auto logits = [&](const ModelOptions& options) {
        Context context(Model::load(folder.path() / "t5.gguf", options), kExact);
        REQUIRE(context.encode(text) == DecodeStatus::ok);
        REQUIRE(context.decode(answer) == DecodeStatus::ok);
        return all_logits(context);
    };
    const std::vector<float> plain = logits({}),
                             scaled = logits({.overrides = {{"t5.logit_scale", 0.125}}});  // 64^-0.5
    for (std::size_t i = 0; i < plain.size(); ++i) CHECK(scaled[i] == plain[i] * 0.125f);
    t5.file.erase("t5.decoder_start_token_id");
    CHECK_FALSE(load_t5(t5.file).decoder_start());  // there is no vocabulary that could name BOS or padding
    t5.file.set("t5.decoder_start_token_id", GgufValue{static_cast<std::uint32_t>(SmallT5::kVocab)});
    CHECK(code_of([&] { (void)load_t5(t5.file); }) == ErrorCode::bad_key);
    CHECK_FALSE(load_t5(SmallT5({.decoder = false}).file).decoder_start());
}

TEST_CASE("t5: what is decoded looks at what is encoded for its sequence, and at nothing else") {
    const SmallT5 t5({});
    const Model model = load_t5(t5.file);
    const std::vector<int> one = some_ids(70, 2), two = some_ids(33, 3), answer = answer_ids(5);
    const auto alone = [&](const std::vector<int>& text) {
        Context context(model, kExact);
        REQUIRE(context.encode(tokens_of(text)) == DecodeStatus::ok);
        REQUIRE(context.decode(tokens_of(answer)) == DecodeStatus::ok);
        return all_logits(context);
    };
    const auto of_one = alone(one), of_two = alone(two);
    CHECK(of_one != of_two);

    ContextOptions options = kExact;
    options.n_seq_max = 3;
    Context context(model, options);
    Batch texts;  // in sequences 2 and 0, in turns
    for (std::size_t i = 0; i < one.size(); ++i) {
        texts.add(Token{one[i]}, Pos{static_cast<int>(i)}, SeqId{2}, false);
        if (i < two.size()) texts.add(Token{two[i]}, Pos{static_cast<int>(i)}, SeqId{0}, true);
    }
    REQUIRE(context.encode(texts) == DecodeStatus::ok);
    Batch answers;
    for (std::size_t i = 0; i < answer.size(); ++i)
        for (const int seq : {0, 2}) answers.add(Token{answer[i]}, Pos{static_cast<int>(i)}, SeqId{seq}, true);
    REQUIRE(context.decode(answers) == DecodeStatus::ok);
    std::vector<float> of_0, of_2;
    for (int i = 0; i < context.n_outputs(); ++i) {
        auto& rows = i % 2 == 0 ? of_0 : of_2;
        rows.insert(rows.end(), context.logits(i).begin(), context.logits(i).end());
    }
    CHECK(of_0 == of_two);
    CHECK(of_2 == of_one);

    Batch other;  // nothing is encoded for sequence 1
    other.add(Token{1}, Pos{0}, SeqId{1}, true);
    CHECK(code_of([&] { (void)context.decode(other); }) == ErrorCode::encoder_missing);
    Batch coupled;
    coupled.add(Token{1}, Pos{5}, std::array{SeqId{0}, SeqId{2}}, true);
    CHECK(code_of([&] { (void)context.decode(coupled); }) == ErrorCode::invalid_batch);
    CHECK(context.used() == 10);

    // The next encode replaces all there was; the answers stay until they are removed.
    REQUIRE(context.encode(tokens_of(one)) == DecodeStatus::ok);
    CHECK(context.used() == 10);
    context.clear();
    REQUIRE(context.decode(tokens_of(answer)) == DecodeStatus::ok);
    CHECK(all_logits(context) == of_one);
    Batch gone;
    gone.add(Token{1}, Pos{0}, SeqId{2}, true);
    CHECK(code_of([&] { (void)context.decode(gone); }) == ErrorCode::encoder_missing);
}

TEST_CASE("t5: decode needs an encode that went well; what is refused changes nothing") {
    const Model model = load_t5(SmallT5({}).file);
    const std::vector<Token> text = tokens_of(some_ids(30, 2)), answer = tokens_of(answer_ids(4));
    ContextOptions options = kExact;
    options.n_ubatch = 40;
    bool cancel = false;
    options.cancel = [&] { return cancel; };
    Context context(model, options);
    const auto decode = [&] { (void)context.decode(answer); };
    CHECK(code_of(decode) == ErrorCode::encoder_missing);
    CHECK(code_of([&] { context.begin(answer); }) == ErrorCode::encoder_missing);
    REQUIRE(context.encode(text) == DecodeStatus::ok);
    REQUIRE(context.decode(answer) == DecodeStatus::ok);
    const auto expected = all_logits(context);
    const auto again = [&] {
        context.clear();
        REQUIRE(context.decode(answer) == DecodeStatus::ok);
        return all_logits(context) == expected;
    };
    CHECK(code_of([&] { (void)context.encode(random_tokens(41, SmallT5::kVocab, 1)); }) == ErrorCode::invalid_batch);
    CHECK(code_of([&] { (void)context.encode(std::vector{Token{SmallT5::kVocab}}); }) == ErrorCode::invalid_batch);
    CHECK(again());
    cancel = true;
    context.clear();
    CHECK(context.decode(answer) == DecodeStatus::cancelled);
    CHECK(context.used() == 0);
    cancel = false;
    CHECK(again());
    cancel = true;  // an encode that has begun to write leaves nothing
    CHECK(context.encode(text) == DecodeStatus::cancelled);
    cancel = false;
    context.clear();
    CHECK(code_of(decode) == ErrorCode::encoder_missing);
    REQUIRE(context.encode(text) == DecodeStatus::ok);
    CHECK(again());
    context.clear(true);
    CHECK(code_of(decode) == ErrorCode::encoder_missing);

    CHECK(code_of([&] { Context(model, {.attention = AttentionKind::bidirectional}); }) == ErrorCode::bad_parameter);
    CHECK(code_of([&] { Context(model, {.pooling = Pooling::mean}); }) == ErrorCode::bad_parameter);
    Context decoder(load_tiny("llama"), {.n_ctx = 64});
    CHECK(code_of([&] { (void)decoder.encode(std::vector{Token{1}}); }) == ErrorCode::unsupported_operation);
}

namespace {

// Encodes a text, then decodes an answer in pieces, beside another text and answer where asked for.
std::vector<std::uint32_t> answered_bits(const Model& model, std::span<const int> cuts, ContextOptions options,
                                         bool beside, bool watched = false) {
    options.n_ctx = 192;
    options.n_seq_max = 2;
    options.n_outputs = 192;
    Context context(model, options);
    const auto check = std::make_shared<CoverageCheck>();
    const auto attached = watched ? context.attach(check) : Attachment();
    const auto text = random_tokens(80, model.info().n_vocab, 5), other = random_tokens(25, model.info().n_vocab, 6),
               answer = random_tokens(75, model.info().n_vocab, 7);
    Batch texts;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (beside && i < other.size()) texts.add(other[i], Pos{static_cast<int>(i)}, SeqId{1}, false);
        texts.add(text[i], Pos{static_cast<int>(i)}, SeqId{0}, false);
    }
    REQUIRE(context.encode(texts) == DecodeStatus::ok);
    std::vector<float> all;
    std::size_t done = 0;
    for (std::size_t c = 0; done < answer.size(); ++c) {
        Batch batch;
        std::vector<int> own;
        for (int k = 0; k < cuts[c % cuts.size()] && done < answer.size(); ++k, ++done) {
            if (beside) batch.add(answer[answer.size() - 1 - done], Pos{static_cast<int>(done)}, SeqId{1}, true);
            own.push_back(static_cast<int>(batch.size()));
            batch.add(answer[done], Pos{static_cast<int>(done)}, SeqId{0}, true);
        }
        REQUIRE(context.decode(batch) == DecodeStatus::ok);
        for (const int row : own) all.insert(all.end(), context.logits(row).begin(), context.logits(row).end());
    }
    if (watched) CHECK(differences_of(*check) == "");
    CHECK(std::ranges::none_of(all, [](float x) { return std::isnan(x); }));
    return bits_of(all);
}

}  // namespace

TEST_CASE("determinism: t5 gives the same bits on every table, in every cut, fused or not, beside another text, "
          "watched or not") {
    constexpr int one[] = {1}, ragged[] = {5, 1, 17, 2}, whole[] = {75};
    for (const DType type : {DType::f32, DType::q8_0}) {
        const Model model = load_t5(SmallT5({.gated = type == DType::f32, .n_encoder = 2, .n_decoder = 3}, type).file);
        const auto expected = answered_bits(model, whole, {.isa = Isa::reference, .fuse = false}, false);
        for (const Isa isa : available_isas()) {
            CAPTURE(to_string(isa));
            CHECK(answered_bits(model, whole, {.n_threads = 3, .isa = isa}, false) == expected);
            CHECK(answered_bits(model, ragged, {.n_ubatch = 105, .n_threads = 2, .isa = isa, .fuse = false}, true,
                                true) == expected);
        }
        CHECK(answered_bits(model, one, {.n_ubatch = 80}, false, true) == expected);
    }
}

TEST_CASE("[N1] trace: encoder and decoder of t5 are seen whole, by phase, with the slots that one leaves and the "
          "other reads") {
    const Model model = load_t5(SmallT5({.n_encoder = 1, .n_decoder = 2}, DType::q8_0).file);
    for (const bool fuse : {true, false}) {
        Context context(model, {.n_ctx = 64, .n_ubatch = 16, .n_threads = 2, .fuse = fuse});
        const auto recorder = std::make_shared<Recorder>();
        const auto check = std::make_shared<CoverageCheck>();
        const auto recording = context.attach(recorder), checking = context.attach(check);
        REQUIRE(context.encode(random_tokens(9, SmallT5::kVocab, 1)) == DecodeStatus::ok);
        REQUIRE(context.decode(random_tokens(20, SmallT5::kVocab, 2)) ==
                DecodeStatus::ok);  // 16 without outputs, then 4
        REQUIRE(context.decode(random_tokens(1, SmallT5::kVocab, 3)) == DecodeStatus::ok);
        CHECK(differences_of(*check) == "");
        CHECK(check->steps() == recorder->events.size());
        REQUIRE(recorder->runs.size() == 4);
        CHECK(recorder->runs[0].info.phase == Phase::encode);
        for (const SeenRun& run : recorder->runs)
            CHECK(run.result.expected_weight_bytes == run.result.observed_weight_bytes);
        std::uint64_t written = 0, read = 0;
        for (const SeenEvent& event : recorder->events)
            for (const SeenAccess& access : event.accesses)
                if (access.name == "cross_cache_k-1")
                    (access.mode == AccessMode::write ? written : read) += access.bytes;
        const std::uint64_t slot = SmallT5::kHeads * SmallT5::kHeadDim * 2;
        CHECK(written == 9 * slot);
        CHECK(read >= 2 * 9 * slot);  // by the runs with outputs, the last layer of which the first run does not have
    }
}

TEST_CASE("[N6] t5: a context allocates what the plan says, the encoder's slots included, and nothing in use") {
    const Model model = load_t5(SmallT5({.n_encoder = 3}, DType::q8_0).file);
    for (const ContextOptions& options :
         {ContextOptions{.n_ctx = 64, .n_threads = 1},
          ContextOptions{.n_ctx = 256, .n_seq_max = 3, .n_ubatch = 40, .n_threads = 2, .fuse = false}}) {
        const MemoryPlan planned = plan(model, options);
        const auto text = random_tokens(30, SmallT5::kVocab, 1);
        const AllocationScope scope;
        Context context(model, options);
        const std::int64_t made = scope.live();
        bool ok = context.encode(text) == DecodeStatus::ok;
        for (const std::size_t n : {30u, 1u, 3u, 1u})
            ok = ok && context.decode(std::span(text).first(n)) == DecodeStatus::ok;
        context.clear();
        ok = ok && context.encode(std::span(text).first(7)) == DecodeStatus::ok &&
             context.decode(std::span(text).first(2)) == DecodeStatus::ok;
        const std::int64_t used = scope.live();
        CHECK(ok);
        CHECK(made == static_cast<std::int64_t>(planned.context_total()));
        CHECK(used == made);
        CHECK(context.memory().context_total() == planned.context_total());
        CHECK(planned.cache >
              plan(load_t5(SmallT5({.decoder = false, .n_encoder = 3}, DType::q8_0).file), options).cache);
    }
}
