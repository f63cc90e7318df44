// SPDX-License-Identifier: MIT
// Windows as a caller sees them: what lies outside has no influence at all, what lies inside has, and where the edges are.
#include <doctest/doctest.h>

#include <functional>
#include <utility>

#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

constexpr int kWindow = 9, kTokens = 40;

// One layer, so that a logit depends on what its own query sees and on nothing else.
Model one_layer(const std::function<void(GgufWriter&)>& add_keys) {
    const TempFolder folder;
    TinyModel tiny;
    tiny.n_layer = 1;
    GgufWriter w = tiny.writer();
    add_keys(w);
    w.save(folder.path() / "window.gguf");
    return Model::load(folder.path() / "window.gguf");
}

// Tokens whose change alters the logits of token `query`.
std::vector<int> seen_by(const Model& model, int query, ContextOptions options = {}) {
    const auto row = [&](std::span<const Token> tokens) {
        const auto all = logits_of(model, tokens, options);
        return bits_of(std::span(all).subspan(static_cast<std::size_t>(query) * 128, 128));
    };
    auto tokens = random_tokens(kTokens, 128, 21);
    const auto before = row(tokens);
    std::vector<int> seen;
    for (int i = 0; i < kTokens; ++i) {
        Token& token = tokens[static_cast<std::size_t>(i)];
        const Token own = std::exchange(token, Token{static_cast<int>(token) ^ 1});
        if (row(tokens) != before) seen.push_back(i);
        token = own;
    }
    return seen;
}

std::vector<int> range(int begin, int end) {
    std::vector<int> out;
    for (int i = begin; i < end; ++i) out.push_back(i);
    return out;
}

}  // namespace

TEST_CASE("[A12] model: tokens outside a sliding window have exactly no influence, those inside have") {
    const Model model = one_layer([](GgufWriter& w) { w.kv("llama.attention.sliding_window", std::uint32_t{kWindow}); });
    for (const int n_ubatch : {1, 7, 64}) {
        CHECK(seen_by(model, kTokens - 1, {.n_ubatch = n_ubatch}) == range(kTokens - kWindow, kTokens));
        CHECK(seen_by(model, 20, {.n_ubatch = n_ubatch}) == range(21 - kWindow, 21));   // the token itself is one of the window
        CHECK(seen_by(model, 4, {.n_ubatch = n_ubatch}) == range(0, 5));
    }
}

TEST_CASE("[A12] model: a window of 0, or a pattern without a sliding layer, is no window") {
    CHECK(seen_by(one_layer([](GgufWriter& w) { w.kv("llama.attention.sliding_window", 0u); }), 30) == range(0, 31));
    const auto with_pattern = [](bool slides) {
        return one_layer([&](GgufWriter& w) {
            w.kv("llama.attention.sliding_window", std::uint32_t{kWindow}).array("llama.attention.sliding_window_pattern", std::vector<bool>{slides});
        });
    };
    CHECK(seen_by(with_pattern(false), 30) == range(0, 31));
    CHECK(seen_by(with_pattern(true), 30) == range(31 - kWindow, 31));
    const Model period = one_layer([](GgufWriter& w) {
        w.kv("llama.attention.sliding_window", std::uint32_t{kWindow}).kv("llama.attention.sliding_window_pattern", 1u);
    });
    CHECK(seen_by(period, 30) == range(0, 31));
}

TEST_CASE("[A12][M4] model: a window counts positions, also where tokens between them were removed") {
    const Model model = one_layer([](GgufWriter& w) { w.kv("llama.attention.sliding_window", std::uint32_t{kWindow}); });
    const auto last_row = [&](Token changed) {
        Context context(model, {.n_ctx = 64});
        auto tokens = random_tokens(kTokens, 128, 22);
        tokens[32] = changed;   // sees and is seen by the window of position 40 alone if nothing was removed
        REQUIRE(context.decode(tokens) == DecodeStatus::ok);
        REQUIRE(context.seq_rm(SeqId{0}, Pos{34}, Pos{39}) == RemoveStatus::ok);   // five tokens nearer, the same positions
        std::vector<std::uint32_t> rows;
        for (const int id : {5, 6}) {
            REQUIRE(context.decode(std::vector{Token{id}}) == DecodeStatus::ok);
            const auto bits = bits_of(context.logits());
            rows.insert(rows.end(), bits.begin(), bits.end());
        }
        return rows;
    };
    const auto a = last_row(Token{7}), b = last_row(Token{8});
    CHECK(std::vector(a.begin(), a.begin() + 128) != std::vector(b.begin(), b.begin() + 128));   // position 40 sees 32
    CHECK(std::vector(a.begin() + 128, a.end()) == std::vector(b.begin() + 128, b.end()));       // position 41 does not
}
