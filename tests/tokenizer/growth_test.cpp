// SPDX-License-Identifier: MIT
// Time grows as the text does, whatever the text is: twice the text takes under three times the time. What takes the
// square of a run's length takes four times. Processor time is compared, not the clock on the wall.
#include <doctest/doctest.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <string>
#include <vector>

#include "support/sanitizers.hpp"
#include "tokenizer/pretokenizer.hpp"
#include "tokenizer/pretokenizer_table.hpp"
#include "tokenizer/vocab_support.hpp"

namespace tinfer::test {

namespace {

constexpr std::size_t kBytes = kSanitized ? 12'000 : 40'000;
constexpr double kMaxGrowth = 3.0;

/// What a text repeats, and what stands before and behind all of it.
struct RunKind {
    std::string name;
    std::string_view unit, front = "", back = "";
};
const RunKind kRuns[] = {
    {"digits", "7"},
    {"digits, then a letter", "7", "x", "x"},
    {"digits, then an underscore", "7", "", "_"},
    {"digits of another script", "\u0663"},
    {"digits of two kinds", "77\u00B2"},
    {"digits in groups", "123,456 "},
    {"numbers that are no digits", "\u00BD"},
    {"small letters", "a"},
    {"capitals", "A", "", "1"},
    {"capitals behind a mark of their own", "A", "-", "-"},
    {"letters of two cases", "Aa"},
    {"letters without case, then capitals", "\u4E2DA"},
    {"letters with spaces", "a b "},
    {"words", "some words, and more. "},
    {"contractions", "it's "},
    {"spaces", " "},
    {"spaces, then a letter", " ", "x", "x"},
    {"tabs, then punctuation", "\t", "!", "!"},
    {"wide spaces", "\u3000", "", "x"},
    {"spaces and line breaks", " \n"},
    {"line breaks", "\n", "x", "x"},
    {"line breaks of two characters", "\r\n"},
    {"a line break, then spaces", " ", "\n", "x"},
    {"punctuation", "!"},
    {"apostrophes", "'"},
    {"slashes", "/"},
    {"symbols", "$"},
    {"marks", "\u0301"},
    {"letters with marks", "e\u0301"},
    {"ideographs", "\u4E2D"},
    {"ideographs and kana", "\u4E2D\u306E"},
    {"syllables", "\uD55C"},
    {"vowel signs", "\u0915\u093F"},
    {"emoji", "\U0001F468\u200D\U0001F469\u200D\U0001F467"},
    {"flags", "\U0001F1E9\U0001F1EA"},
    {"control characters", "\x01"},
    {"beginnings of an image token", "IMGIMGA"},
    {"one image token that never ends", "A", "IMGIMG"},
    {"beginnings of a sentinel", "<sentinel:7"},
    {"one sentinel that never ends", "7", "<sentinel:"},
    {"everything", "Ab 12,\n\u4E2D\u0301 \U0001F600's\t777  x"},
};

std::string text_of(const RunKind& kind, std::size_t n_bytes) {
    std::string text(kind.front);
    while (text.size() < n_bytes) text += kind.unit;
    return text += kind.back;
}

/// Of the least times that `work` takes over a text and over one of twice the length. Measured again while it looks
/// bad.
template <class Work>
double growth(const std::string& once, const std::string& twice, const Work& work) {
    const auto seconds = [&](const std::string& text) {
        const std::clock_t begin = std::clock();
        work(text);
        return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    };
    constexpr double kTick = 20e-6;  // what the clock may tell wrongly
    double least_once = std::numeric_limits<double>::max(), least_twice = least_once;
    for (int i = 0; i < 12; ++i) {
        least_once = std::min(least_once, seconds(once));
        least_twice = std::min(least_twice, seconds(twice));
        if (i >= 1 && least_twice < kMaxGrowth * least_once) break;
    }
    return least_twice / (least_once + kTick);
}
template <class Work>
double growth(const RunKind& kind, const Work& work) {
    return growth(text_of(kind, kBytes), text_of(kind, 2 * kBytes), work);
}

}  // namespace

TEST_CASE("pretokenizer: every family takes time that grows as the text does, for every kind of run") {
    tokenizer::RegexScratch scratch({.n_steps = 10'000'000, .heap_kib = 64});  // nor does it need memory that grows
    std::vector<std::size_t> ends;
    for (const auto& family : tokenizer::pretokenizer_families()) {
        CAPTURE(family.name);
        const tokenizer::Pretokenizer pretokenizer(family);
        for (const RunKind& kind : kRuns) {
            CAPTURE(kind.name);
            CHECK(growth(kind, [&](const std::string& text) { pretokenizer.split(text, scratch, ends); }) < kMaxGrowth);
            CHECK(ends.back() == text_of(kind, 2 * kBytes).size());
        }
    }
}

TEST_CASE("encode: every algorithm takes time that grows as the text does, for every kind of run") {
    for (const auto& [name, vocab] : small_vocabs()) {
        CAPTURE(name);
        for (const RunKind& kind : kRuns) {
            CAPTURE(kind.name);
            const auto encode = [&](const std::string& text) {
                (void)vocab.encode(text, {.add_special = false, .parse_special = true});
            };
            CHECK(growth(kind, encode) < kMaxGrowth);
        }
    }
}

TEST_CASE("encode: time grows as the text does, too, where every special token of a large vocabulary stands in it") {
    constexpr int kTokens = kSanitized ? 2000 : 8000;
    std::vector<std::string> tokens{"<unk>", "x"};
    std::string once, twice;
    for (int i = 0; i < 2 * kTokens; ++i) {
        tokens.push_back("<|reserved_" + std::to_string(1'000'000 + i) + "|>");
        twice += tokens.back() + "x";
        if (i < kTokens) once += tokens.back() + "x";
    }
    std::vector<std::int32_t> types(tokens.size(), 3);
    types[0] = 2, types[1] = 1;
    GgufWriter writer = write_vocab("llama", tokens, types);
    writer.kv("tokenizer.ggml.add_space_prefix", false);
    const Vocab vocab = load_vocab(writer);
    std::size_t n = 0;
    CHECK(growth(once, twice, [&](const std::string& text) {
              n = vocab.encode(text, {.add_special = false, .parse_special = true}).size();
          }) < kMaxGrowth);
    CHECK(n == 4 * kTokens);
}

}  // namespace tinfer::test
