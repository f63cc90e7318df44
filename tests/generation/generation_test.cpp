// SPDX-License-Identifier: MIT
// The loop of generation: a scripted sampler says which tokens come, so every end and every border can be met on
// purpose.
#include <doctest/doctest.h>

#include <tinfer/tinfer.hpp>

#include <algorithm>

#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"

namespace tinfer {

namespace {

using test::TinyModel;

constexpr std::int32_t kEos = 2, kTurn = 3, kHello = 4, kWorld = 5, kNew = 6, kSmile = 7;  // four bytes from kSmile on

Vocab make_vocab(const std::filesystem::path& folder) {
    std::vector<std::string> texts{"<unk>", "<s>",    "</s>",   "<|turn|>", "Hello", "▁world",
                                   "▁new",  "<0xF0>", "<0x9F>", "<0x99>",   "<0x82>"};
    std::vector<std::int32_t> types{2, 3, 3, 3, 1, 1, 1, 6, 6, 6, 6};
    while (texts.size() < 128) {
        texts.push_back("t" + std::to_string(texts.size()) + ".");
        types.push_back(1);
    }
    test::GgufWriter writer;
    writer.kv("general.architecture", "llama")
        .kv("tokenizer.ggml.model", "llama")
        .array("tokenizer.ggml.tokens", texts);
    writer.array("tokenizer.ggml.scores", std::vector<float>(128)).array("tokenizer.ggml.token_type", types);
    writer.kv("tokenizer.ggml.bos_token_id", 1u).kv("tokenizer.ggml.eos_token_id", 2u);
    writer.save(folder / "vocab.gguf");
    return Vocab::load(folder / "vocab.gguf");
}

/// Draws the tokens of a list, then 20, 21, … for ever; notes what it is told. -1 in the list: throws once.
struct Script : SamplerLink {
    struct Notes {
        std::vector<std::int32_t> list;
        std::size_t at = 0;
        std::vector<Token> accepted;
    };
    std::shared_ptr<Notes> notes;
    explicit Script(std::shared_ptr<Notes> given) : notes(std::move(given)) {}
    [[nodiscard]] std::string_view name() const noexcept override { return "script"; }
    void apply(CandidateArray& candidates) override {
        const auto at = notes->at++;
        const std::int32_t id =
            at < notes->list.size() ? notes->list[at] : static_cast<std::int32_t>(20 + (at - notes->list.size()) % 100);
        if (id < 0) throw std::runtime_error("the script throws");
        candidates.selected = std::ranges::find(candidates.data, id, &Candidate::id) - candidates.data.begin();
    }
    void accept(Token token) override { notes->accepted.push_back(token); }
    [[nodiscard]] std::unique_ptr<SamplerLink> clone() const override { return std::make_unique<Script>(notes); }
};

struct GenerationFixture {
    test::TempFolder folder;
    Vocab vocab = make_vocab(folder.path());
    Model model = Model::load(TinyModel{}.save(folder.path()));
    std::shared_ptr<Script::Notes> notes = std::make_shared<Script::Notes>();

    Sampler script(std::vector<std::int32_t> list) {
        notes->list = std::move(list);
        notes->at = 0;
        notes->accepted.clear();
        Sampler sampler(vocab, {.order = "t"});
        while (!sampler.names().empty()) sampler.remove(0);
        sampler.insert(0, std::make_unique<Script>(notes));
        return sampler;
    }
};

std::vector<int> ids(std::span<const Token> tokens) {
    std::vector<int> out;
    for (const Token token : tokens) out.push_back(static_cast<int>(token));
    return out;
}

const std::vector<Token> kPrompt{Token{1}, Token{kHello}, Token{kWorld}};

}  // namespace

TEST_CASE_FIXTURE(GenerationFixture,
                  "[C11][C12] generation: each end has its reason, its tokens, its text and what is pending") {
    struct Case {
        std::vector<std::int32_t> drawn;
        GenerationOptions options;
        StopReason reason;
        std::vector<int> tokens;
        std::string text;
        std::vector<int> pending;
        std::optional<std::size_t> stop_string{};
    };
    const std::vector<Case> cases{
        {{kHello, kWorld, kEos}, {}, StopReason::eog, {kHello, kWorld}, "Hello world", {kEos}},
        {{kHello, kWorld, kNew}, {.n_predict = 2}, StopReason::limit, {kHello, kWorld}, "Hello world", {kWorld}},
        {{kHello}, {.n_predict = 0}, StopReason::limit, {}, "", {}},
        {{kHello, kWorld, kNew}, {.stop = {"lo wor"}}, StopReason::string, {kHello, kWorld}, "Hel", {kWorld}, 0},
        {{kHello, kWorld}, {.stop = {"", "x", "lo w"}}, StopReason::string, {kHello, kWorld}, "Hel", {kWorld}, 2},
        {{kHello, kWorld, kEos}, {.stop = {"world!"}}, StopReason::eog, {kHello, kWorld}, "Hello world", {kEos}},
        {{kHello, kTurn}, {.stop = {"x", "<|turn|>"}}, StopReason::string, {kHello}, "Hello", {kTurn}, 1},
        {{kHello, kTurn, kEos}, {}, StopReason::eog, {kHello, kTurn}, "Hello", {kEos}},
        {{kSmile, kSmile + 1, kEos}, {}, StopReason::eog, {kSmile, kSmile + 1}, "\uFFFD", {kEos}},
    };
    for (const Case& c : cases) {
        CAPTURE(c.text);
        auto sampler = script(c.drawn);
        Context context(model, {.n_ctx = 64});
        Generation generation(vocab, kPrompt, c.options);
        CHECK_FALSE(generation.stop());
        CHECK(generation.run(context, sampler) == c.reason);
        CHECK(generation.stop() == c.reason);
        CHECK(generation.stop_string() == c.stop_string);
        CHECK(ids(generation.tokens()) == c.tokens);
        CHECK(generation.text() == c.text);
        CHECK(ids(generation.pending()) == c.pending);
        CHECK_FALSE(generation.next(context, sampler));
        CHECK(generation.timings().prompt_n == 3);
        CHECK(generation.timings().generation_n == static_cast<std::uint64_t>(context.count(SeqId{0}) - 3));
    }
}

TEST_CASE_FIXTURE(GenerationFixture, "generation: text comes in whole characters, and its pieces are the text") {
    auto sampler = script({kHello, kSmile, kSmile + 1, kSmile + 2, kSmile + 3, kWorld, kEos});
    Context context(model, {.n_ctx = 64});
    Generation generation(vocab, kPrompt);
    std::vector<std::string> pieces;
    while (const auto text = generation.next(context, sampler)) pieces.emplace_back(*text);
    CHECK(pieces == std::vector<std::string>{"Hello", "", "", "", "\U0001F642", " world", ""});
    CHECK(generation.text() == "Hello\U0001F642 world");
}

TEST_CASE_FIXTURE(
    GenerationFixture,
    "generation: a prompt in pieces, any piece, any sequence: the same text; the sampler sees the prompt once") {
    std::vector<Token> prompt;
    for (int i = 0; i < 50; ++i) prompt.push_back(Token{(i * 37 + 11) % 128});
    const auto text_of = [&](GenerationOptions options, ContextOptions context_options, std::size_t& n_calls) {
        Context context(model, context_options);
        Sampler sampler(vocab, {.temp = 0});
        sampler.insert(0, std::make_unique<Script>(notes));
        sampler.remove(0);
        options.n_predict = 12;
        Generation generation(vocab, prompt, options);
        n_calls = 0;
        while (generation.next(context, sampler)) ++n_calls;
        return ids(generation.tokens());
    };
    std::size_t n_calls = 0;
    const auto expected = text_of({}, {.n_ctx = 128}, n_calls);
    CHECK(n_calls == 12);
    CHECK(text_of({.prompt_piece = 7}, {.n_ctx = 128}, n_calls) == expected);
    CHECK(n_calls == 12 + 7);
    CHECK(text_of({.prompt_piece = 100}, {.n_ctx = 128, .n_batch = 20}, n_calls) == expected);
    CHECK(n_calls == 12 + 2);
    CHECK(text_of({.seq = SeqId{2}, .prompt_piece = 16}, {.n_ctx = 128, .n_seq_max = 4}, n_calls) == expected);

    auto sampler = script({kHello, kWorld, kEos});
    Context context(model, {.n_ctx = 128});
    Generation generation(vocab, prompt, {.prompt_piece = 9});
    REQUIRE(generation.next(context, sampler));
    CHECK(generation.pending().size() == 41);
    generation.run(context, sampler);
    auto seen = ids(prompt);
    seen.insert(seen.end(), {kHello, kWorld, kEos});
    CHECK(ids(notes->accepted) == seen);
}

TEST_CASE_FIXTURE(
    GenerationFixture,
    "generation: a full context is a value, at the last token that fits; a prompt too long is not begun") {
    Context context(model, {.n_ctx = 64});
    auto sampler = script({});
    Generation generation(vocab, kPrompt);
    CHECK(generation.run(context, sampler) == StopReason::context);
    CHECK(generation.tokens().size() == 64 - 3 + 1);  // the last one needs no room
    CHECK(generation.pending().size() == 1);
    CHECK(context.room(SeqId{0}) == 0);

    for (const int piece : {0, 16}) {
        context.clear();
        Generation longer(vocab, std::vector<Token>(65, Token{9}), {.prompt_piece = piece});
        CHECK(longer.run(context, sampler) == StopReason::context);
        CHECK(longer.pending().size() == 65);
        CHECK(longer.tokens().empty());
        CHECK(context.used() == 0);
        CHECK(longer.timings().prompt_n == 0);
    }
}

TEST_CASE_FIXTURE(GenerationFixture,
                  "generation: cancelled and failed decodes lose nothing, and it goes on where it was") {
    const auto whole = [&] {
        Context context(model, {.n_ctx = 64});
        auto sampler = script({kHello, kWorld, kNew, 30, 31, kEos});
        Generation generation(vocab, kPrompt);
        generation.run(context, sampler);
        return generation.text();
    }();

    // An exception: next() again takes the same step.
    Context context(model, {.n_ctx = 64});
    auto sampler = script({kHello, kWorld, -1, kNew, 30, -1, 31, kEos});
    Generation generation(vocab, kPrompt, {.stop = {" world domination"}});
    int thrown = 0;
    for (bool more = true; more;) {
        try {
            more = generation.next(context, sampler).has_value();
        } catch (const std::runtime_error&) {
            CHECK_FALSE(generation.stop());
            CHECK(ids(generation.tokens()).size() == (thrown == 0 ? 2 : 4));
            ++thrown;
        }
    }
    CHECK(thrown == 2);
    CHECK(generation.text() == whole);
    CHECK(generation.stop() == StopReason::eog);

    // A cancelled decode ends it; a new prompt behind what is pending goes on.
    bool cancel = false;
    context.clear();
    context.set_cancel([&] { return cancel; });
    sampler = script({kHello, kWorld, kNew, 30, 31, kEos});
    Generation other(vocab, kPrompt, {.stop = {" world domination"}});
    std::string text;
    for (int i = 0; i < 2; ++i) text += *other.next(context, sampler);
    CHECK(text == "Hello");
    cancel = true;
    CHECK(*other.next(context, sampler) == " world");  // what was held back
    CHECK(other.stop() == StopReason::interrupt);
    CHECK(ids(other.pending()) == std::vector{kWorld});
    CHECK_FALSE(other.next(context, sampler));
    cancel = false;
    other.prompt({});
    CHECK(other.run(context, sampler) == StopReason::eog);
    CHECK("Hello world" + other.text() == whole);
    CHECK(other.tokens().size() == 3);
}

TEST_CASE_FIXTURE(GenerationFixture,
                  "generation: a callback gets every text, may end it, may throw; end() gives what was held back") {
    Context context(model, {.n_ctx = 64});
    auto sampler = script({kHello, kWorld, kNew});
    Generation generation(vocab, kPrompt);
    std::string shown;
    const auto two_words = [&](std::string_view text) {
        shown += text;
        return shown != "Hello world";
    };
    CHECK(generation.run(context, sampler, two_words) == StopReason::interrupt);
    CHECK(shown == "Hello world");

    context.clear();
    sampler = script({kHello, kWorld, kEos});
    Generation thrower(vocab, kPrompt);
    CHECK_THROWS(
        thrower.run(context, sampler, [](std::string_view) -> bool { throw std::runtime_error("full disk"); }));
    CHECK(thrower.text() == "Hello");
    CHECK_FALSE(thrower.stop());

    Generation held(vocab, {}, {.stop = {"Hello world!"}});
    CHECK(held.accept(Token{kHello}) == "");
    CHECK(held.end() == "Hello");
    CHECK(held.end(StopReason::context) == "");
    CHECK(held.accept(Token{kWorld}) == "");
    CHECK(held.stop() == StopReason::interrupt);
    CHECK(held.text() == "Hello");
}

TEST_CASE_FIXTURE(
    GenerationFixture,
    "generation: several in one batch, driven by accept(), equal each alone; a conversation goes on turn by turn") {
    std::vector<std::vector<Token>> prompts;
    for (int i = 0; i < 3; ++i) prompts.push_back({Token{1}, Token{10 + i}, Token{40 + 3 * i}, Token{7}});
    const auto greedy = [&] { return Sampler(vocab, {.temp = 0}); };
    std::vector<std::vector<int>> alone;
    for (const auto& prompt : prompts) {
        Context context(model, {.n_ctx = 64});
        auto sampler = greedy();
        Generation generation(vocab, prompt, {.n_predict = 6});
        generation.run(context, sampler);
        alone.push_back(ids(generation.tokens()));
    }

    Context context(model, {.n_ctx = 128, .n_seq_max = 3, .n_outputs = 3});
    std::vector<Generation> together;
    std::vector<Sampler> samplers;
    for (const auto& prompt : prompts) {
        together.emplace_back(vocab, prompt, GenerationOptions{.n_predict = 6});
        samplers.push_back(greedy());
    }
    while (!together[0].stop()) {
        Batch batch;
        for (int s = 0; s < 3; ++s) {
            const SeqId seq{s};
            const auto pending = together[static_cast<std::size_t>(s)].pending();
            for (const Token& token : pending)
                batch.add(token, std::nullopt, std::span(&seq, 1), &token == &pending.back());
        }
        REQUIRE(context.decode(batch) == DecodeStatus::ok);
        for (std::size_t s = 0; s < 3; ++s)
            (void)together[s].accept(samplers[s].sample(context.logits(static_cast<int>(s))));
    }
    for (std::size_t s = 0; s < 3; ++s) CHECK(ids(together[s].tokens()) == alone[s]);

    // Two turns equal one prompt of everything that was said.
    Context talk(model, {.n_ctx = 64}), once(model, {.n_ctx = 64});
    auto sampler = greedy();
    Generation conversation(vocab, prompts[0], {.n_predict = 5});
    conversation.run(talk, sampler);
    auto said = prompts[0];
    said.insert(said.end(), conversation.tokens().begin(), conversation.tokens().end());
    said.insert(said.end(), prompts[1].begin(), prompts[1].end());
    conversation.prompt(prompts[1]);
    CHECK(conversation.text().empty());
    conversation.run(talk, sampler);
    auto fresh = greedy();
    Generation at_once(vocab, said, {.n_predict = 5});
    at_once.run(once, fresh);
    CHECK(ids(conversation.tokens()) == ids(at_once.tokens()));
    CHECK(conversation.text() == at_once.text());
    CHECK(conversation.timings().prompt_n == prompts[1].size() + 1);

    // A copy goes on by itself.
    Generation copy(conversation);
    copy.prompt({});
    CHECK(copy.text().empty());
    CHECK_FALSE(conversation.text().empty());
}

TEST_CASE_FIXTURE(GenerationFixture,
                  "generation: an empty prompt goes on from the last output; options out of range are refused") {
    Context context(model, {.n_ctx = 64});
    auto sampler = script({kHello, kEos});
    Generation generation(vocab, {});
    CHECK_THROWS_AS((void)generation.next(context, sampler), Error);  // there is no output yet
    REQUIRE(context.decode(kPrompt) == DecodeStatus::ok);
    sampler = script({kHello, kEos});
    CHECK(generation.run(context, sampler) == StopReason::eog);
    CHECK(generation.text() == "Hello");
    CHECK_THROWS_WITH_AS(Generation(vocab, kPrompt, {.n_predict = -2}), "n_predict = -2: must be -1 or more", Error);
    CHECK_THROWS_WITH_AS(Generation(vocab, kPrompt, {.prompt_piece = -1}), "prompt_piece = -1: must be 0 or more",
                         Error);
    CHECK(to_string(StopReason::context) == "context");
    CHECK(to_string(StopReason::eog) == "eog");
}

TEST_CASE_FIXTURE(GenerationFixture, "generation: numbers are of what was computed") {
    bool cancel = false;
    Context context(model, {.n_ctx = 128, .cancel = [&] { return cancel; }});
    auto sampler = script({});
    Generation generation(vocab, std::vector<Token>(40, Token{9}), {.n_predict = 1, .prompt_piece = 16});
    (void)generation.next(context, sampler);
    CHECK(generation.timings().prompt_n == 16);
    CHECK(generation.timings().prompt_s > 0);
    cancel = true;
    (void)generation.next(context, sampler);
    CHECK(generation.stop() == StopReason::interrupt);
    CHECK(generation.timings().prompt_n == 16);
    CHECK(generation.pending().size() == 24);
    cancel = false;
    generation.prompt({});
    generation.run(context, sampler);
    CHECK(generation.timings().prompt_n == 24);
    CHECK(generation.tokens().size() == 1);
    CHECK(generation.timings().generation_n == 0);  // the one token came from the prompt's logits
    CHECK(generation.timings().generation_s == 0);
    CHECK(generation.timings().load_s == 0);
}

}  // namespace tinfer
