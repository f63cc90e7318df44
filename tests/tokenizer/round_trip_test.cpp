// SPDX-License-Identifier: MIT
// Text that becomes tokens and comes back as it was, in every vocabulary that can do that, and proof that the others
// cannot. Cleaning of spaces is a choice of the reader, so it is off here, and control tokens show.
#include <doctest/doctest.h>

#include <array>
#include <optional>

#include "base/utf8.hpp"
#include "support/golden.hpp"
#include "tokenizer/golden_vocabs.hpp"
#include "tokenizer/pieces.hpp"
#include "tokenizer/utf8.hpp"
#include "tokenizer/vocab_support.hpp"

namespace tinfer::test {

namespace {

/// What a vocabulary cannot give back, by its algorithm. Everything else comes back byte by byte: byte tokens (SPM,
/// PLaMo-2), the 256 mapped characters (BPE) or the 256 single bytes (RWKV) spell what has no token of its own.
enum class Loss {
    nothing,
    space_mark,  ///< SPM writes a space as U+2581, so that character comes back as a space
    letters,     ///< WordPiece and Unigram fold case, accents, widths or spaces, and have an unknown token for the rest
};
Loss loss(const Vocab& vocab) {
    if (vocab.algorithm() == "llama") return Loss::space_mark;
    return vocab.algorithm() == "bert" || vocab.algorithm() == "t5" ? Loss::letters : Loss::nothing;
}

constexpr std::string_view kSpaceMark = "▁";  // U+2581

/// Bytes that have no token, because the vocabulary was trained on text without them: falcon lacks some control
/// characters and F2, starcoder F1. No valid text holds C0, C1 and F5 … FF, so what lacks only those loses nothing.
std::array<bool, 256> bytes_without_token(const Vocab& vocab) {
    std::array<bool, 256> lacking{};
    if (vocab.algorithm() != "gpt2") return lacking;
    for (std::size_t byte = 0; byte < lacking.size(); ++byte) {
        std::string mapped;
        append_code_point(mapped, tokenizer::mapped_character(static_cast<unsigned char>(byte)));
        lacking[byte] = !vocab.find(mapped);
    }
    return lacking;
}

bool can_come_back(const Vocab& vocab, const std::array<bool, 256>& lacking, std::string_view text) {
    if (loss(vocab) == Loss::space_mark && text.find(kSpaceMark) != text.npos) return false;
    for (const char c : text)
        if (lacking[static_cast<unsigned char>(c)]) return false;
    return true;
}

std::string there_and_back(const Vocab& vocab, std::string_view text) {
    return vocab.decode(vocab.encode(text, {.add_special = false}),
                        {.render_special = true, .clean = DecodeOptions::Clean::off});
}

void check_round_trips(const std::string& name, const Vocab& vocab, int n_texts, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto lacking = bytes_without_token(vocab);
    Differences differences;
    for (int n = 0; n < n_texts;) {
        const std::string text = random_text(random, 20);
        if (!can_come_back(vocab, lacking, text)) continue;
        differences.compare(there_and_back(vocab, text), text, name + " " + nlohmann::json(text).dump());
        ++n;
    }
    differences.expect_none(name);
}

void check_golden_round_trips(int n_texts, std::uint64_t seed) {
    for (const GoldenVocab& golden : golden_vocabs())
        if (loss(golden.vocab) != Loss::letters) check_round_trips(golden.name, golden.vocab, n_texts, seed);
}

void check_small_round_trips(int n_texts, std::uint64_t seed) {
    for (const GgufWriter& writer :
         {small_spm(), small_bpe(), small_bpe("llama-bpe"), small_bpe("gpt-4o"), small_rwkv(), small_plamo2()}) {
        const Vocab vocab = load_vocab(writer);
        check_round_trips(std::string(vocab.algorithm()), vocab, n_texts, seed);
    }
}

}  // namespace

TEST_CASE("[T11][golden] round trip: decode(encode(x)) is x for random valid strings in every reversible vocabulary") {
    if (skip_without_golden()) return;
    check_golden_round_trips(2000, 20260);
}

TEST_CASE("[T11][golden][slow] round trip: decode(encode(x)) is x for 100000 random valid strings in every reversible "
          "vocabulary") {
    if (skip_without_golden()) return;
    check_golden_round_trips(100'000, 20261);
}

TEST_CASE("[T11] round trip: small vocabularies of every reversible algorithm give random valid strings back") {
    check_small_round_trips(2000, 20262);
}

TEST_CASE(
    "[T11][slow] round trip: small vocabularies of every reversible algorithm give 100000 random valid strings back") {
    check_small_round_trips(100'000, 20263);
}

TEST_CASE("[golden] round trip: what is left out of it really is lost") {
    if (skip_without_golden()) return;
    for (const GoldenVocab& golden : golden_vocabs()) {
        const Vocab& vocab = golden.vocab;
        CAPTURE(golden.name);
        if (loss(vocab) == Loss::letters) {
            // which of them depends on what the vocabulary folds: case, accents, spaces, characters it does not have
            CHECK(std::ranges::any_of(std::array{"Hello", "a  b", "café", "👩‍👦"},
                                      [&](const char* text) { return there_and_back(vocab, text) != text; }));
            continue;
        }
        if (loss(vocab) == Loss::space_mark) CHECK(there_and_back(vocab, "a▁b") == "a b");
        const auto lacking = bytes_without_token(vocab);
        for (char32_t c = 0; c < 0x110000; c += c < 0x80 ? 1 : 0x4000) {  // ASCII, then every kind
            std::string text;
            append_code_point(text, c);
            if (c >= 0xD800 && c <= 0xDFFF) continue;
            CAPTURE(static_cast<unsigned>(c));
            CHECK((there_and_back(vocab, text) == text) == can_come_back(vocab, lacking, text));
        }
    }
}

TEST_CASE("round trip: WordPiece and Unigram fold letters and know an unknown token") {
    for (const GgufWriter& writer : {small_wordpiece(), small_unigram()}) {
        const Vocab vocab = load_vocab(writer);
        CHECK(loss(vocab) == Loss::letters);
        CHECK(there_and_back(vocab, "Å") != "Å");
        CHECK(there_and_back(vocab, "漢") != "漢");
    }
}

}  // namespace tinfer::test
