// SPDX-License-Identifier: MIT
// Unigram: normalization, the character map and what it refuses, and the best spelling against trying all of them.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tokenizer/character_map.hpp"
#include "tokenizer/vocab_support.hpp"

namespace tinfer::test {

namespace {

constexpr EncodeOptions kPlain{.add_special = false};

std::string spelt(const Vocab& vocab, std::string_view text) {
    std::string out;
    for (const Token token : vocab.encode(text, kPlain)) out += std::string(vocab.text(token)) + "|";
    return out;
}

std::string map_bytes() {
    const auto bytes = small_character_map();
    return {bytes.begin(), bytes.end()};
}

ErrorCode refused_map(const std::string& bytes) {
    try {
        const tokenizer::CharacterMap map("test.gguf", bytes);
        return {};
    } catch (const Error& error) {
        return error.code();
    }
}

/// The largest sum of scores over all ways to spell text[at…).
double best_sum(const Vocab& vocab, const std::string& text, double unknown) {
    std::vector<double> best(text.size() + 1, -1e300);
    best.back() = 0;
    for (std::size_t i = text.size(); i-- > 0;) {
        for (std::size_t n = 1; i + n <= text.size(); ++n)
            if (const auto token = vocab.find(text.substr(i, n)))
                best[i] = std::max(best[i], static_cast<double>(vocab.score(*token)) + best[i + n]);
        if (!vocab.find(text.substr(i, 1))) best[i] = std::max(best[i], unknown + best[i + 1]);
    }
    return best[0];
}

}  // namespace

TEST_CASE("unigram: one space in front, the map applied, the best spelling, unknown characters in a row as one") {
    GgufWriter writer = small_unigram();
    writer.kv("tokenizer.ggml.add_space_prefix", true);
    const Vocab vocab = load_vocab(writer);
    CHECK(spelt(vocab, "ab") == "▁ab|");             // -6, against ▁|ab -6 and ▁a|b -7.75: the longer came first
    CHECK(spelt(vocab, "aba") == "▁ab|a|");          // -9, against ▁|aba -10
    CHECK(spelt(vocab, "\xEF\xAC\x81") == "▁|fi|");  // ﬁ, -9 against f|i -10
    CHECK(spelt(vocab, "a\xE3\x80\x80"
                       "a") == "▁a|▁a|");  // U+3000 is a space
    CHECK(spelt(vocab, "\xC3\x85") == "▁a|");
    CHECK(spelt(vocab, "xyz b") == "▁|<unk>|▁|b|");
    CHECK(spelt(vocab, "x\xFF\xE6") == "▁|<unk>|");
    CHECK(spelt(vocab, "a  b ") == "▁a|▁|▁|b|▁|");
    CHECK(spelt(vocab, "").empty());
    CHECK(spelt(vocab, "a<x>b") == "▁a|<x>|▁|b|");       // USER_DEFINED is cut out, the space comes to each part
    CHECK(ids(vocab.encode("a")) == std::vector{7, 1});  // add_eos
    CHECK(vocab.special(Special::newline) == Token{3});
    CHECK(vocab.decode(vocab.encode("ab a", kPlain)) == "ab a");
}

TEST_CASE("unigram: with remove_extra_whitespaces runs of spaces count as one and those at the end as none") {
    GgufWriter writer = small_unigram();
    writer.kv("tokenizer.ggml.remove_extra_whitespaces", true);  // add_space_prefix is off unless a file says so
    const Vocab vocab = load_vocab(writer);
    CHECK(spelt(vocab, "  a   b  ") == "▁a|▁|b|");
    CHECK(spelt(vocab, "   ").empty());
    CHECK(spelt(vocab, "aa") == "▁a|a|");
}

TEST_CASE("unigram: no spelling has a larger sum of scores") {
    std::mt19937_64 random(9);
    for (int round = 0; round < 50; ++round) {
        std::vector<std::string> tokens{"<unk>"};
        std::vector<std::int32_t> types{2};
        std::vector<float> scores{0};
        float lowest = 0;
        for (auto n = 1 + random() % 30; n > 0; --n) {
            std::string text;
            for (auto length = 1 + random() % 5; length > 0; --length) text += static_cast<char>('a' + random() % 3);
            if (std::ranges::find(tokens, text) != tokens.end()) continue;
            tokens.push_back(text);
            types.push_back(1);
            scores.push_back(-static_cast<float>(random() % 2000) * 0.01f);
            lowest = std::min(lowest, scores.back());
        }
        if (tokens.size() == 1) continue;
        lowest = *std::min_element(scores.begin() + 1, scores.end());
        GgufWriter writer = write_vocab("t5", tokens, types, scores);
        writer.kv("tokenizer.ggml.unknown_token_id", 0u).kv("tokenizer.ggml.add_space_prefix", false);
        writer.kv("tokenizer.ggml.eos_token_id", 0u);
        const Vocab vocab = load_vocab(writer);
        for (int i = 0; i < 30; ++i) {
            std::string text;
            for (auto n = random() % 14; n > 0; --n) text += static_cast<char>('a' + random() % 3);
            // Runs of unknown characters are one token: add up character by character instead.
            double sum = 0;
            std::size_t at = 0;
            const auto encoded = vocab.encode(text, kPlain);
            for (std::size_t t = 0; t < encoded.size(); ++t) {
                if (encoded[t] != *vocab.special(Special::unk)) {
                    sum += vocab.score(encoded[t]);
                    at += vocab.text(encoded[t]).size();
                    continue;
                }
                std::size_t rest = 0;  // what the tokens after the run spell, where no run follows
                bool runs_later = false;
                for (std::size_t u = t + 1; u < encoded.size(); ++u) {
                    runs_later |= encoded[u] == *vocab.special(Special::unk);
                    rest += vocab.text(encoded[u]).size();
                }
                if (runs_later) break;
                sum += static_cast<double>(text.size() - at - rest) * (lowest - 10.0);
                at = text.size() - rest;
            }
            if (std::ranges::count(encoded, *vocab.special(Special::unk)) > 1) continue;
            CHECK(sum == doctest::Approx(best_sum(vocab, text, lowest - 10.0)).epsilon(1e-9));
        }
    }
}

TEST_CASE("unigram: a character map that leads outside itself is bad_vocabulary") {
    const std::string good = map_bytes();
    const tokenizer::CharacterMap map("test.gguf", good);
    CHECK(map.longest("\xEF\xAC\x81x").length == 3);
    CHECK(map.longest("\xEF\xAC\x81x").replacement == "fi");
    CHECK(map.longest("\xEF\xAC").length == 0);
    CHECK(map.longest("x").length == 0);

    CHECK(refused_map("") == ErrorCode::bad_vocabulary);
    CHECK(refused_map("abc") == ErrorCode::bad_vocabulary);
    CHECK(refused_map(std::string(8, '\xFF')) == ErrorCode::bad_vocabulary);
    CHECK(refused_map(std::string(8, '\0')) == ErrorCode::bad_vocabulary);             // an array of no units
    CHECK(refused_map(good.substr(0, good.size() - 1)) == ErrorCode::bad_vocabulary);  // the last NUL is gone
    std::string far = good;
    far[4 + 3] = '\x7F';  // the root's children
    CHECK(refused_map(far) == ErrorCode::bad_vocabulary);
    const std::string head = good.substr(0, good.size() - 7);  // "fi", " " and "a" less: their places are outside
    CHECK(refused_map(head + std::string(1, '\0')) == ErrorCode::bad_vocabulary);

    std::mt19937_64 random(17);
    for (int i = 0; i < 3000; ++i) {  // whatever passes the check can be walked
        std::string damaged = good;
        for (auto n = 1 + random() % 6; n > 0; --n) damaged[random() % damaged.size()] = static_cast<char>(random());
        try {
            const tokenizer::CharacterMap any("test.gguf", damaged);
            for (int j = 0; j < 20; ++j) {
                const std::string text = random() % 2 == 0 ? random_bytes(random, 12) : "\xEF\xAC\x81\xE3\x80\x80";
                CHECK(any.longest(text).length <= text.size());
                CHECK(any.longest(text).replacement.size() < damaged.size());
            }
        } catch (const Error& error) {
            CHECK(error.code() == ErrorCode::bad_vocabulary);
        }
    }
}

TEST_CASE("unigram: scores that are infinite, or none at all, leave every text with a spelling") {
    const float infinity = std::numeric_limits<float>::infinity();
    for (const auto& scores :
         {std::vector<float>{}, {0, -infinity, -infinity}, {0, infinity, -1}, {-infinity, -1, infinity}}) {
        GgufWriter writer = write_vocab("t5", {"<unk>", "a", "ab"}, {2, 1, 1}, scores);
        writer.kv("tokenizer.ggml.unknown_token_id", 0u);
        const Vocab vocab = load_vocab(writer);
        for (const char* text : {"a", "ab", "abab b a", "\xFF"}) CHECK_FALSE(vocab.encode(text, kPlain).empty());
    }
}

}  // namespace tinfer::test
