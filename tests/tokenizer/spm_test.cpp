// SPDX-License-Identifier: MIT
// SPM merges word by word; the definition merges over the whole text. Here the definition, spelt out, judges.
#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "tokenizer/utf8.hpp"
#include "tokenizer/vocab_support.hpp"

namespace tinfer::test {

namespace {

/// Of all neighbours whose joined text is a token merges those with the highest score, the leftmost of equals; again
/// and again.
std::vector<int> merge_everything(const Vocab& vocab, const std::string& text) {
    std::vector<std::string> symbols;
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t n = std::min(tokenizer::length_by_lead(static_cast<unsigned char>(text[i])), text.size() - i);
        symbols.push_back(text.substr(i, n));
        i += n;
    }
    for (;;) {
        std::size_t best = symbols.size();
        float best_score = 0;
        for (std::size_t i = 0; i + 1 < symbols.size(); ++i)
            if (const auto joined = vocab.find(symbols[i] + symbols[i + 1]))
                if (best == symbols.size() || vocab.score(*joined) > best_score) {
                    best = i;
                    best_score = vocab.score(*joined);
                }
        if (best == symbols.size()) break;
        symbols[best] += symbols[best + 1];
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best + 1));
    }
    std::vector<int> out;
    for (const std::string& symbol : symbols)
        out.push_back(
            static_cast<int>(vocab.find(symbol).value_or(*vocab.special(Special::unk))));  // one byte in these texts
    return out;
}

}  // namespace

TEST_CASE("spm: merging word by word gives what merging over the whole text gives, for any vocabulary") {
    std::mt19937_64 random(5);
    constexpr const char* letters[] = {"a", "b", "c", "▁", "é", "日", "😀", "\xC3", "\xE6\x97"};
    const auto letter = [&] { return std::string(letters[random() % std::size(letters)]); };
    for (int round = 0; round < 60; ++round) {
        // Tokens that can be reached by merging: a token of two parts that exist, or a single character.
        std::vector<std::string> tokens{"<unk>"};
        std::vector<std::int32_t> types{2};
        std::vector<float> scores{0};
        const auto add = [&](const std::string& text) {
            tokens.push_back(text);
            types.push_back(1);
            scores.push_back(-static_cast<float>(random() % (round % 2 == 0 ? 4 : 1000)));  // many equal ones, or few
        };
        for (const char* text : {"a", "b", "c", "▁", "é", "日"}) add(text);
        for (auto n = random() % 40; n > 0; --n) {
            const std::string left = random() % 2 == 0 ? letter() : tokens[1 + random() % (tokens.size() - 1)];
            const std::string right = random() % 2 == 0 ? letter() : tokens[1 + random() % (tokens.size() - 1)];
            if (left.size() + right.size() < 30) add(left + right);
        }
        GgufWriter writer = write_vocab("llama", tokens, types, scores);
        writer.kv("tokenizer.ggml.add_space_prefix", false);
        const Vocab vocab = load_vocab(writer);
        for (int i = 0; i < 40; ++i) {
            std::string text;
            for (auto n = random() % (i % 8 == 0 ? 200 : 20); n > 0; --n)
                text += random() % 50 == 0 ? "x" : std::string(letters[random() % 6]);
            const auto tokens_of = ids(vocab.encode(text, {.add_special = false}));
            CAPTURE(text);
            CHECK(tokens_of == merge_everything(vocab, text));
            CHECK(ids(vocab.encode(text, {.add_special = false})) == tokens_of);  // now from the cache
        }
    }
}

}  // namespace tinfer::test
