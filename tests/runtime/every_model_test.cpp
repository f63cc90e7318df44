// SPDX-License-Identifier: MIT
// The promise on bits, for every architecture: golden models and small ones of our own. Tables, threads, fusion,
// observers, cuts of the prompt and neighbours in the batch change nothing.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "support/family_model.hpp"
#include "support/golden.hpp"
#include "support/random_blocks.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer::test {

namespace {

constexpr int kPrompt = 70;  // more than a page, more than two tiles of columns

// One sequence in cuts of the given sizes, over and over, beside a second sequence where asked for.
std::vector<std::uint32_t> in_cuts(const Model& model, std::span<const Token> tokens, std::span<const int> cuts,
                                   bool beside, ContextOptions options) {
    options.n_ctx = 256;
    options.n_seq_max = 2;
    options.n_outputs = 256;
    Context context(model, options);
    const auto others = random_tokens(kPrompt, model.info().n_vocab, 99);
    std::vector<float> all;
    std::size_t done = 0;
    for (std::size_t i = 0; done < tokens.size(); ++i) {
        Batch batch;
        std::vector<int> own;
        const std::size_t n =
            std::min<std::size_t>(static_cast<std::size_t>(cuts[i % cuts.size()]), tokens.size() - done);
        for (std::size_t k = 0; k < n; ++k, ++done) {
            if (beside) batch.add(others[done], Pos{static_cast<int>(done)}, SeqId{1}, true);
            own.push_back(static_cast<int>(batch.size()));
            batch.add(tokens[done], Pos{static_cast<int>(done)}, SeqId{0}, true);
        }
        REQUIRE(context.decode(batch) == DecodeStatus::ok);
        for (const int row : own) all.insert(all.end(), context.logits(row).begin(), context.logits(row).end());
    }
    return bits_of(all);
}

void check_bits(const Model& model) {
    const auto tokens = random_tokens(std::min(kPrompt, model.info().n_ctx_train), model.info().n_vocab, 5);
    const auto logits = logits_of(model, tokens, {.isa = Isa::reference, .fuse = false});
    CHECK(std::ranges::none_of(logits, [](float x) { return std::isnan(x); }));
    const auto expected = bits_of(logits);
    for (const Isa isa : available_isas()) {
        CAPTURE(to_string(isa));
        CHECK(bits_of(logits_of(model, tokens, {.n_threads = 3, .isa = isa})) == expected);
    }
    constexpr int one[] = {1}, ragged[] = {5, 1, 17, 2}, whole[] = {kPrompt};
    CHECK(in_cuts(model, tokens, one, false, {}) == expected);
    CHECK(in_cuts(model, tokens, ragged, true, {.n_ubatch = 7, .n_threads = 2, .fuse = false}) == expected);
    CHECK(in_cuts(model, tokens, whole, true, {.n_ubatch = 33}) == expected);
}

}  // namespace

TEST_CASE("[A17][golden] determinism: every golden architecture gives the same bits on every table and in every cut") {
    if (skip_without_golden()) return;
    for (const GoldenModel& golden : golden_models()) {
        if (golden.encoder) continue;
        CAPTURE(golden.name);
        check_bits(Model::load(golden.file));
    }
}

TEST_CASE("determinism: every small architecture gives the same bits on every table and in every cut") {
    for (const Family& family : small_families()) {
        CAPTURE(family.arch);
        const TempFolder folder;
        for (const DType type : {DType::f32, DType::q8_0}) {
            family.writer(type).save(folder.path() / "family.gguf");
            check_bits(Model::load(folder.path() / "family.gguf"));
        }
    }
}

TEST_CASE("determinism: latent attention of quantized weights gives the same bits on every table and in every cut") {
    for (const DType type : {DType::q8_0, DType::q4_0, DType::f16})
        for (const bool absorbed : {true, false}) {
            CAPTURE(to_string(type));
            CAPTURE(absorbed);
            const TempFolder folder;
            latent_model(type, absorbed).save(folder.path() / "latent.gguf");
            check_bits(Model::load(folder.path() / "latent.gguf"));
        }
}

}  // namespace tinfer::test
