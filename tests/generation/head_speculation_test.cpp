// SPDX-License-Identifier: MIT
// Generations with a draft head beside those without: the same tokens, text, rows of logits and state afterwards,
// whatever the head proposes.
#include <doctest/doctest.h>

#include "base/error.hpp"
#include "generation/head_support.hpp"
#include "support/gguf_copy.hpp"

namespace tinfer {

namespace {

using namespace test;

std::vector<Token> prompt_of(const Model& model, std::size_t n, std::uint32_t seed) {
    std::vector<Token> out;
    for (std::size_t i = 0; i < n; ++i) {
        seed = seed * 1664525u + 1013904223u;
        out.push_back(Token{static_cast<std::int32_t>((seed >> 8) % static_cast<std::uint32_t>(model.info().n_vocab))});
    }
    return out;
}

// Beside those of all speculation: a call, most of which is forced.
std::vector<Chooser> all_choosers() {
    auto all = choosers();
    all.push_back({"calls",
                   {.temp = 0.9f, .seed = 21},
                   R"(root ::= "{\"name\":\"" ("add" | "get") "\",\"arguments\":{\"" [a-z]+ "\":" [0-9]+ "}}")"});
    return all;
}

// How a text is made, and what is different where a head drafts.
struct Variant {
    std::string name;
    ContextOptions context{.n_ctx = 160, .n_outputs = 8};
    GenerationOptions generation{.n_predict = 20};
    int n_draft = 3;
    bool adapts = false, with_ngrams = false, with_wrong = false;
    int n_beside = 0;    // tokens of another sequence
    int restart_at = 0;  // tokens, behind which a state goes to a new context
};

std::vector<Variant> variants() {
    std::vector<Variant> all(8);
    all[0] = {.name = "one token", .n_draft = 1};
    all[1] = {.name = "small batches", .n_draft = 2};
    all[1].context.n_ubatch = 4;
    all[1].context.n_threads = all[1].context.n_threads_batch = 2;
    all[2] = {.name = "stop strings, another table"};
    all[2].generation.stop = {"ab", "q"};
    all[2].context.type_k = all[2].context.type_v = KvType::f32;
    all[2].context.isa = available_isas().back();
    all[3] = {.name = "a restart, in pieces", .n_draft = 4, .restart_at = 4};
    all[3].generation.prompt_piece = 5;
    all[3].generation.n_predict = 9;
    all[4] = {.name = "beside another text", .n_draft = 5, .n_beside = 13};
    all[4].context.n_seq_max = 2;
    all[4].context.n_threads = all[4].context.n_threads_batch = 3;
    all[4].generation.seq = SeqId{1};
    all[5] = {.name = "n-grams and the head, learned", .adapts = true, .with_ngrams = true};
    all[5].generation.n_predict = 40;
    all[6] = {.name = "bf16, a restart later", .n_draft = 7, .restart_at = 10};
    all[6].context.type_k = all[6].context.type_v = KvType::bf16;
    all[7] = {.name = "a drafter that is wrong", .with_wrong = true};
    all[7].context.n_batch = all[7].context.n_ubatch = 8;
    all[7].context.swa_full = true;
    return all;
}

// Every row that the sampler sees, token, and the row behind the end, with their hash.
Outcome generate_as(const HeadCase& with, const Vocab& vocab, std::span<const Token> prompt, const Chooser& chooser,
                    const Variant& variant, bool drafts) {
    ContextOptions options = variant.context;
    if (drafts) options.draft_head = with.head;
    else options.n_threads = options.n_threads_batch = 1, options.isa = Isa::automatic;
    GenerationOptions generation_options = variant.generation;
    SpeculationOptions& speculation = generation_options.speculation;
    speculation = {.head = drafts, .forced = drafts, .n_max = variant.n_draft, .adapt = variant.adapts};
    if (drafts && variant.with_ngrams) speculation.drafter = ngram_drafter();
    if (drafts && variant.with_wrong)
        speculation.drafter = std::make_shared<Scripted>(
            prompt.size(), [](std::size_t place) { return Token{static_cast<std::int32_t>(3 + place % 5)}; });
    auto context = std::make_unique<Context>(with.model, options);
    if (variant.n_beside > 0) REQUIRE(context->decode(random_tokens(variant.n_beside, 40, 3)) == DecodeStatus::ok);
    Sampler sampler(vocab, chooser.options);
    const auto hash = std::make_shared<Sha256>();
    sampler.insert(0, std::make_unique<RowHash>(hash));
    if (!chooser.grammar.empty()) sampler.constrain(Grammar::parse(chooser.grammar).constraint(vocab));
    Generation generation(vocab, {prompt.begin(), prompt.end()}, generation_options);
    bool restarted = variant.restart_at == 0;
    while (generation.next(*context, sampler)) {
        if (restarted || static_cast<int>(generation.tokens().size()) < variant.restart_at) continue;
        restarted = true;
        const auto state = save_state(*context);
        context = std::make_unique<Context>(with.model, options);
        load_state(*context, state);
    }
    Outcome outcome;
    outcome.stop = generation.stop();
    outcome.tokens.assign(generation.tokens().begin(), generation.tokens().end());
    outcome.pending.assign(generation.pending().begin(), generation.pending().end());
    outcome.text = generation.text();
    outcome.rows = to_hex(hash->finish());
    outcome.timings = generation.timings();
    outcome.n_cached = context->count(generation_options.seq);
    if (outcome.pending.empty()) return outcome;
    Batch batch;
    batch.add_sequence(outcome.pending, generation_options.seq);
    REQUIRE(context->decode(batch) == DecodeStatus::ok);
    outcome.next = bits_of(context->logits());
    return outcome;
}

struct Accepted {
    std::uint64_t drafted = 0, accepted = 0;
};
Accepted check_head(const HeadCase& with, std::span<const Chooser> ways, std::span<const Variant> list) {
    const auto vocab = letters_vocab(with.model.info().n_vocab);
    Accepted sum;
    std::uint32_t i = 0;
    for (const Chooser& chooser : ways)
        for (const Variant& variant : list) {
            CAPTURE(chooser.name);
            CAPTURE(variant.name);
            const auto prompt = prompt_of(with.model, 3 + 5 * (i % 8), i + 1);
            ++i;
            const Outcome plain = generate_as(with, vocab, prompt, chooser, variant, false);
            const Outcome guided = generate_as(with, vocab, prompt, chooser, variant, true);
            check_same_outcome(guided, plain);
            if (plain.tokens.size() > 3 && !variant.adapts) CHECK(guided.timings.drafted_n > 0);
            sum.drafted += guided.timings.drafted_n;
            sum.accepted += guided.timings.accepted_n;
        }
    return sum;
}

}  // namespace

TEST_CASE("[J4][N20] a draft head changes no token and no row of logits [golden]") {
    const auto ways = all_choosers();
    const auto list = variants();
    std::size_t k = 0;
    for_each_head(false, [&](const HeadCase& with) {  // of 64 configurations a few each
        for (const std::size_t step : {0u, 1u, 2u}) {
            const std::size_t at = (3 * k + step) % 8;
            (void)check_head(with, std::span(ways).subspan((at + k) % 8, 1), std::span(list).subspan(at, 1));
        }
        ++k;
    });
}

TEST_CASE("[J4][N20] no draft head changes a token in 64 configurations each [golden][slow]") {
    for_each_head(true, [&](const HeadCase& with) {
        const Accepted sum = check_head(with, all_choosers(), variants());
        MESSAGE(with.name, ": ", sum.accepted, " of ", sum.drafted, " drafted tokens were right");
    });
}

TEST_CASE("[J4] a context's head follows what is removed, copied and moved [golden]") {
    for_each_head(false, [&](const HeadCase& with) {
        const auto text = prompt_of(with.model, 40, 5);
        ContextOptions options{.n_ctx = 256, .n_seq_max = 2, .n_ubatch = 16, .n_outputs = 8, .draft_head = with.head};
        const auto drafted = [](Context& context, SeqId seq, Token drawn) {
            return drafted_by_head(context, seq, drawn);
        };
        Context cold(with.model, options), warm(with.model, options);
        REQUIRE(cold.decode(text) == DecodeStatus::ok);
        const auto expected = drafted(cold, SeqId{0}, Token{7});
        REQUIRE(!expected.empty());
        CHECK(drafted(cold, SeqId{0}, Token{7}) == expected);  // nothing of a draft stays

        // A decode that is given up leaves the head as it was; what was decoded in parts is one text.
        REQUIRE(warm.decode(std::span(text).first(13)) == DecodeStatus::ok);
        warm.begin(std::span(text).subspan(20, 20));
        warm.abandon();
        REQUIRE(warm.decode(std::span(text).subspan(13)) == DecodeStatus::ok);
        CHECK(drafted(warm, SeqId{0}, Token{7}) == expected);

        warm.seq_cp(SeqId{0}, SeqId{1});
        CHECK(drafted(warm, SeqId{1}, Token{7}) == expected);
        REQUIRE(warm.seq_rm(SeqId{0}) == RemoveStatus::ok);
        CHECK(drafted(warm, SeqId{1}, Token{7}) == expected);
        CHECK(drafted(warm, SeqId{0}, Token{7}).size() <= 3);  // behind nothing
        REQUIRE(warm.decode(text) == DecodeStatus::ok);
        CHECK(drafted(warm, SeqId{0}, Token{7}) == expected);
        warm.clear();
        REQUIRE(warm.decode(text) == DecodeStatus::ok);
        CHECK(drafted(warm, SeqId{0}, Token{7}) == expected);
    });
}

TEST_CASE("[J4] a draft head is for the model that it was made for [golden]") {
    const auto one = golden_file("drafts/mtp-glm4moe/model.gguf"), other = golden_file("drafts/mtp-file/draft.gguf"),
               third = golden_file("drafts/mtp-qwen35/model.gguf");
    if (!one || !other || !third) return;
    const auto model = Model::load(*one), wrong = Model::load(*third);
    CHECK(DraftHead::is_in(model));
    CHECK_THROWS_WITH_AS((void)DraftHead::load(wrong, *other),
                         doctest::Contains("draft is for architecture 'glm4moe', model is 'qwen35'"), Error);
    CHECK_THROWS_WITH_AS((void)Model::load(*other),
                         doctest::Contains("is a draft head and cannot be loaded as a model"), Error);
    CHECK_THROWS_WITH_AS(Context(wrong, {.draft_head = DraftHead::of(model)}),
                         doctest::Contains("it was made for another model"), Error);
    CHECK_THROWS_WITH_AS((void)DraftHead::of(model, {.p_min = 2}), doctest::Contains("p_min = 2"), Error);
}

TEST_CASE("[J4] a head with a tokenizer must have the model's, token by token [golden]") {
    const auto model_file = golden_file("drafts/eagle3/model.gguf"),
               head_file = golden_file("drafts/eagle3/draft.gguf");
    if (!model_file || !head_file) return;
    const TempFolder folder;
    const auto unnamed = Model::load(*model_file);
    const auto n_vocab = static_cast<std::size_t>(unnamed.info().n_vocab);
    const auto with_texts = [&](const std::filesystem::path& from, const char* name, std::size_t other) {
        GgufWriter writer = gguf_copy(from);
        std::vector<std::string> texts{"<unk>", "<s>", "</s>"};
        while (texts.size() < n_vocab) texts.push_back(cat("t", texts.size(), texts.size() == other ? "!" : ""));
        std::vector<std::int32_t> types(n_vocab, 1);
        types[0] = 2, types[1] = types[2] = 3;
        writer.set("tokenizer.ggml.model", GgufValue{std::string("llama")}).array("tokenizer.ggml.tokens", texts);
        writer.array("tokenizer.ggml.scores", std::vector<float>(n_vocab)).array("tokenizer.ggml.token_type", types);
        writer.kv("tokenizer.ggml.bos_token_id", 1u).kv("tokenizer.ggml.eos_token_id", 2u);
        writer.save(folder / name);
        return folder / name;
    };
    const auto model = Model::load(with_texts(*model_file, "model.gguf", 0));
    CHECK(DraftHead::load(model, with_texts(*head_file, "same.gguf", 0))->kind() == DraftKind::eagle3);
    CHECK_THROWS_WITH_AS((void)DraftHead::load(model, with_texts(*head_file, "other.gguf", 40)),
                         doctest::Contains("draft vocabulary differs at token 40: 't40!', the target's is 't40'"),
                         Error);
    CHECK_NOTHROW((void)DraftHead::load(model, *head_file));  // it has no texts to compare
}

TEST_CASE("[J4] an assistant must fit the cache of its model [golden]") {
    const auto model_file = golden_file("drafts/gemma4-assistant/model.gguf"),
               head_file = golden_file("drafts/gemma4-assistant/draft.gguf");
    if (!model_file || !head_file) return;
    const TempFolder folder;
    const auto changed = [&](auto&& change) {
        GgufWriter writer = gguf_copy(*head_file);
        change(writer);
        writer.save(folder / "head.gguf");
        return folder / "head.gguf";
    };
    const auto model = Model::load(*model_file);
    const auto refused = [&](auto&& change, const char* what) {
        CHECK_THROWS_WITH_AS((void)DraftHead::load(model, changed(change)), doctest::Contains(what), Error);
    };
    refused([](GgufWriter& w) { w.set("gemma4-assistant.embedding_length_out", 64u); },
            "draft expects model width 64, model has 32");
    refused([](GgufWriter& w) { w.set("gemma4-assistant.attention.sliding_window", 7u); },
            "draft block 0 does not fit the model's cache");
    refused([](GgufWriter& w) { w.set("gemma4-assistant.attention.head_count_kv", 2u); },
            "draft block 2 does not fit the model's cache");
    refused([](GgufWriter& w) { w.set("gemma4-assistant.nextn_predict_layers", 2u); }, "must be block_count = 3");
    refused([](GgufWriter& w) { w.set("gemma4-assistant.embedding_length_per_layer_input", 8u); }, "must be 0");
}

TEST_CASE("[J4] a model without blocks that draft says so") {
    const TempFolder folder;
    const auto model = Model::load(TinyModel::of("llama").save(folder.path()));
    CHECK(!DraftHead::is_in(model));
    CHECK_THROWS_WITH_AS((void)DraftHead::of(model), doctest::Contains("model has no draft blocks"), Error);
}

}  // namespace tinfer
