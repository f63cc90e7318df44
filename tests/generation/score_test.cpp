// SPDX-License-Identifier: MIT
// Scores of many texts in one call are those of each text alone, whatever the context's sizes.
#include <doctest/doctest.h>

#include <tinfer/generation.hpp>
#include <tinfer/tinfer.hpp>

#include <cmath>

#include "support/code_of.hpp"
#include "support/family_model.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"

namespace tinfer {

namespace {

struct OwnedText {
    std::vector<Token> prompt, text;
};

std::vector<OwnedText> some_texts() {
    std::vector<OwnedText> texts;
    std::uint64_t seed = 10;
    const std::vector<std::pair<int, int>> sizes{{5, 4}, {0, 6}, {1, 1}, {0, 1}, {30, 20}, {3, 0}, {0, 0}, {2, 40}};
    for (const auto& [n_prompt, n_text] : sizes)
        texts.push_back({test::random_tokens(n_prompt, 96, seed++), test::random_tokens(n_text, 96, seed++)});
    return texts;
}

}  // namespace

TEST_CASE("[V7] score: n log-probabilities of n tokens, of many texts in one call, are log_prob's of each text alone") {
    const test::TempFolder folder;
    std::vector<std::filesystem::path> files{test::TinyModel{}.save(folder.path())};
    for (const test::Family& family : test::small_families())
        if (files.size() < 12) {
            files.push_back(folder / (std::to_string(files.size()) + ".gguf"));
            family.writer().save(files.back());
        }
    for (const auto& file : files) {
        const auto model = Model::load(file);
        CAPTURE(model.info().architecture);
        if (!model.info().causal || model.info().has_encoder) continue;
        const auto n_vocab = static_cast<std::size_t>(model.info().n_vocab);
        const auto texts = some_texts();
        std::vector<ScoreText> views;
        for (const auto& text : texts) views.push_back({text.prompt, text.text});
        std::vector<std::vector<double>> expected;
        for (const auto& text : texts) {
            auto all = text.prompt;
            all.insert(all.end(), text.text.begin(), text.text.end());
            std::vector<double>& values = expected.emplace_back();
            if (all.empty()) continue;
            const auto rows = test::logits_of(model, all, {.n_ctx = 128});
            for (std::size_t i = 0; i < text.text.size(); ++i) {
                const std::size_t at = text.prompt.size() + i;
                values.push_back(at == 0 ? NAN
                                         : log_prob(std::span(rows).subspan((at - 1) * n_vocab, n_vocab), all[at]));
            }
        }
        const std::vector<ContextOptions> sizes{{.n_ctx = 128},
                                                {.n_ctx = 512, .n_seq_max = 8, .n_outputs = 3},
                                                {.n_ctx = 128, .n_seq_max = 3, .n_batch = 7, .n_outputs = 2},
                                                {.n_ctx = 64, .n_seq_max = 4, .n_batch = 64, .n_outputs = 64}};
        for (const auto& options : sizes) {
            Context context(model, options);
            for (int repeat = 0; repeat < 2; ++repeat) {
                const auto scores = score(context, views, {.n_top = 2});
                REQUIRE(scores.size() == texts.size());
                for (std::size_t i = 0; i < scores.size(); ++i) {
                    CAPTURE(i);
                    REQUIRE(scores[i].tokens.size() == expected[i].size());
                    double sum = 0;
                    for (std::size_t j = 0; j < expected[i].size(); ++j) {
                        const auto& token = scores[i].tokens[j];
                        if (std::isnan(expected[i][j])) {
                            CHECK(std::isnan(token.logprob));
                            CHECK(token.rank == 0);
                            continue;
                        }
                        CHECK(token.logprob == expected[i][j]);
                        sum += token.logprob;
                        REQUIRE(token.top.size() == 2);
                        CHECK((token.rank == 1) == (token.top[0].token == texts[i].text[j]));
                        CHECK(token.top[0].logprob >= token.logprob - 1e-12);
                    }
                    CHECK(scores[i].sum == sum);
                }
                CHECK(context.used() == 0);
            }
        }
    }
}

TEST_CASE("[V7] score: what cannot be scored is refused, and the sequences stay empty") {
    const test::TempFolder folder;
    const auto model = Model::load(test::TinyModel{}.save(folder.path()));
    const auto tokens = test::random_tokens(100, 128, 1);
    Context context(model, {.n_ctx = 64, .n_seq_max = 2, .n_outputs = 4});
    const auto code = [&](std::vector<ScoreText> texts, ScoreOptions options = {}) {
        return test::code_of([&] { (void)score(context, texts, options); });
    };
    const std::span<const Token> all(tokens);
    CHECK(code({{all.first(3), all.first(4)}, {all, all.first(1)}}) == ErrorCode::no_room);
    CHECK(context.used() == 0);
    CHECK(code({}, {.first_seq = SeqId{2}}) == ErrorCode::bad_parameter);
    CHECK(code({}, {.first_seq = SeqId{1}, .n_seqs = 2}) == ErrorCode::bad_parameter);
    CHECK(code({}, {.n_top = -1}) == ErrorCode::bad_parameter);
    std::vector<Token> beyond{Token{5}, Token{128}};
    CHECK(code({{beyond, all.first(2)}}) == ErrorCode::invalid_batch);
    CHECK(code({{all.first(2), beyond}}) == ErrorCode::index_out_of_range);
    CHECK(context.used() == 0);
    REQUIRE(context.decode({Token{1}}) == DecodeStatus::ok);
    CHECK(code({{all.first(3), all.first(4)}}) == ErrorCode::bad_parameter);
    const std::vector<ScoreText> texts{{all.first(3), all.first(4)}};
    CHECK(score(context, texts, {.first_seq = SeqId{1}}).size() == 1);  // beside what is in sequence 0
    CHECK(context.count(SeqId{0}) == 1);
}

}  // namespace tinfer
