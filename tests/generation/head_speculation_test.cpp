// SPDX-License-Identifier: MIT
// Generations with a draft head beside those without: the same tokens, text, rows of logits and state afterwards,
// whatever the head proposes.
#include <doctest/doctest.h>

#include "base/access.hpp"
#include "generation/speculation_support.hpp"
#include "runtime/context.hpp"

namespace tinfer {

namespace {

using namespace test;

struct HeadCase {
    std::string name;
    Model model;
    std::shared_ptr<const DraftHead> head;
};

// One of each kind, or all.
void for_each_head(bool all, const std::function<void(const HeadCase&)>& fn) {
    constexpr std::string_view kFew[] = {"mtp-qwen35", "mtp-step35", "mtp-deepseek4", "eagle3",
                                         "dflash",     "dspark",     "dflash2"};
    std::size_t n = 0;
    for (const auto& folder : golden_entries("drafts")) {
        const std::string name = folder.filename().string();
        if (!std::filesystem::exists(folder / "model.gguf")) continue;
        if (name == "gemma4-assistant" || name == "dspark-dsv4") continue;  // not supported yet
        if (golden_is_whole() && !all && std::ranges::find(kFew, name) == std::end(kFew)) continue;
        CAPTURE(name);
        auto model = Model::load(folder / "model.gguf");
        const auto file = folder / "draft.gguf";
        auto head = std::filesystem::exists(file) ? DraftHead::load(model, file) : DraftHead::of(model);
        fn({name, std::move(model), std::move(head)});
        ++n;
    }
    expect_cases(n, all ? 22 : std::size(kFew), "draft heads");
}

std::vector<Token> prompt_of(const Model& model, std::size_t n, std::uint32_t seed) {
    std::vector<Token> out;
    for (std::size_t i = 0; i < n; ++i) {
        seed = seed * 1664525u + 1013904223u;
        out.push_back(Token{static_cast<std::int32_t>((seed >> 8) % static_cast<std::uint32_t>(model.info().n_vocab))});
    }
    return out;
}

// Every way of choosing tokens, over sizes of micro-batches, caches and drafts; returns how many tokens were accepted.
std::uint64_t check_head(const HeadCase& with, std::span<const Chooser> ways, std::size_t n_variants) {
    const auto vocab = letters_vocab(with.model.info().n_vocab);
    std::uint64_t accepted = 0;
    std::size_t i = 0;
    for (const Chooser& chooser : ways)
        for (std::size_t variant = 0; variant < n_variants; ++variant) {
            CAPTURE(chooser.name);
            CAPTURE(variant);
            ContextOptions options{.n_ctx = 128, .n_outputs = 8};
            if (variant % 2 == 1) options.n_ubatch = 4;
            if (variant % 3 == 1) options.type_k = options.type_v = KvType::f32;
            GenerationOptions generation{.n_predict = variant % 4 == 3 ? 7 : 24};
            if (variant % 4 == 2) generation.stop = {"ab", "q"};
            const auto prompt = prompt_of(with.model, 3 + 5 * variant, static_cast<std::uint32_t>(++i));
            const Outcome plain = generate(with.model, vocab, prompt, chooser, {.head = false}, options, generation);
            options.draft_head = with.head;
            SpeculationOptions speculation{.n_max = 1 + static_cast<int>(variant % 5), .adapt = false};
            const Outcome guided = generate(with.model, vocab, prompt, chooser, speculation, options, generation);
            check_same_outcome(guided, plain);
            if (plain.tokens.size() > 3) CHECK(guided.timings.drafted_n > 0);
            accepted += guided.timings.accepted_n;
        }
    return accepted;
}

}  // namespace

TEST_CASE("[J4][N20] a draft head changes no token and no row of logits [golden]") {
    const auto all = choosers();
    const std::vector<Chooser> few{all[0], all[1], all[5]};
    for_each_head(false, [&](const HeadCase& with) { (void)check_head(with, few, 2); });
}

TEST_CASE("[J4][N20] no draft head changes a token in 63 configurations each [golden][slow]") {
    std::uint64_t accepted = 0;
    for_each_head(true, [&](const HeadCase& with) { accepted += check_head(with, choosers(), 9); });
    MESSAGE(accepted, " drafted tokens were right");
}

TEST_CASE("[J4] a context's head follows what is removed, copied and moved [golden]") {
    for_each_head(false, [&](const HeadCase& with) {
        const auto text = prompt_of(with.model, 40, 5);
        ContextOptions options{.n_ctx = 256, .n_seq_max = 2, .n_ubatch = 16, .n_outputs = 8, .draft_head = with.head};
        const auto drafted = [](Context& context, SeqId seq, Token drawn) {
            std::vector<Token> out(3);
            auto& state = detail::impl_of(context);
            out.resize(state.head->draft(seq, drawn, state.end_of(seq), out).n);
            return out;
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

TEST_CASE("[J4] a model without blocks that draft says so") {
    const TempFolder folder;
    const auto model = Model::load(TinyModel::of("llama").save(folder.path()));
    CHECK(!DraftHead::is_in(model));
    CHECK_THROWS_WITH_AS((void)DraftHead::of(model), doctest::Contains("model has no draft blocks"), Error);
}

}  // namespace tinfer
