// SPDX-License-Identifier: MIT
// WordPiece, RWKV and PLaMo-2: small vocabularies whose right answers can be seen.
#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "tokenizer/vocab_support.hpp"

namespace tinfer::test {

namespace {

constexpr EncodeOptions kPlain{.add_special = false};

std::string spelt(const Vocab& vocab, std::string_view text, EncodeOptions options = kPlain) {
    std::string out;
    for (const Token token : vocab.encode(text, options)) out += std::string(vocab.text(token)) + "|";
    return out;
}

template <class Function>
ErrorCode refusal_of(Function&& function) {
    try {
        function();
        return {};
    } catch (const Error& error) {
        return error.code();
    }
}

}  // namespace

TEST_CASE("wordpiece: the longest pieces from the left, a word that cannot be spelt is one unknown token") {
    const Vocab vocab = load_vocab(small_wordpiece());
    CHECK(spelt(vocab, "unwanted running") == "▁un|want|ed|▁runn|ing|");
    CHECK(spelt(vocab, "unwantedx a") == "[UNK]|▁a|");
    CHECK(spelt(vocab, "UNWANTED") == "▁un|want|ed|");              // case goes
    CHECK(spelt(vocab, "\xC3\x80 na\xC3\xAFve") == "▁a|▁naive|");   // À, ï: accents go
    CHECK(spelt(vocab, "a,a!") == "▁a|▁,|▁a|▁!|");                  // punctuation stands alone
    CHECK(spelt(vocab, "a$a") == "▁a|▁$|▁a|");                      // so do ASCII symbols
    CHECK(spelt(vocab, "a\xC2\xA9") == "[UNK]|");                   // but no others: "a©" is one word
    CHECK(spelt(vocab, "\xE4\xB8\xAD\xE6\x96\x87") == "▁中|▁文|");  // ideographs stand alone
    CHECK(spelt(vocab, "a\xE2\x80\x8B"
                       "b") == "▁a|b|");                              // a format character vanishes
    CHECK(spelt(vocab, std::string_view("a\0b\xFF", 4)) == "▁a|b|");  // so do NUL and what is no UTF-8
    CHECK(spelt(vocab, "a\xC2\xA0\xE3\x80\x80\t\r\na") == "▁a|▁a|");
    CHECK(spelt(vocab, " \t").empty());
    CHECK(spelt(vocab, "\xC4\xB0") == "▁i|");  // İ
    CHECK(spelt(vocab, "a\vb a\x85"
                       "b a\u0085b") == "▁a|b|▁a|b|▁a|b|");  // other control characters do not part words
}

TEST_CASE("wordpiece: the canonical decomposition without nonspacing marks, whatever the spelling") {
    const auto with = [](std::vector<std::string> pieces) {
        std::vector<std::string> tokens{"[UNK]"};
        tokens.insert(tokens.end(), pieces.begin(), pieces.end());
        GgufWriter writer = write_vocab("bert", tokens);
        writer.kv("tokenizer.ggml.unknown_token_id", 0u);
        return load_vocab(writer);
    };
    const Vocab latin = with({"▁cafe", "▁a", "a", "c", "x"});
    CHECK(spelt(latin, "caf\u00E9") == "▁cafe|");
    CHECK(spelt(latin, "cafe\u0301") == "▁cafe|");
    CHECK(spelt(latin, "\u1EA5 a\u0302\u0301 a\u0301\u0302") == "▁a|▁a|▁a|");
    CHECK(spelt(latin, "\u0301").empty());
    CHECK(spelt(latin, "a\uFE0F") == "▁a|");
    CHECK(spelt(latin, "a\u20DD") == "[UNK]|");  // an enclosing mark stays
    // Every letter of a Hangul syllable, the vowel and the final consonant too.
    const Vocab hangul = with({"▁\u1112", "\u1161", "\u11AB"});
    CHECK(spelt(hangul, "\uD55C") == "▁\u1112|\u1161|\u11AB|");
    CHECK(spelt(hangul, "\u1112\u1161\u11AB") == "▁\u1112|\u1161|\u11AB|");
    CHECK(spelt(hangul, "\uD558") == "▁\u1112|\u1161|");
    const Vocab scripts = with({"▁\u05E9\u05DC\u05D5\u05DD", "▁\u0643\u062A\u0628", "▁\u0915", "\u093F", "\u0930"});
    CHECK(spelt(scripts, "\u05E9\u05C1\u05B8\u05DC\u05D5\u05B9\u05DD") == "▁\u05E9\u05DC\u05D5\u05DD|");
    CHECK(spelt(scripts, "\u0643\u064E\u062A\u064E\u0628\u064E") == "▁\u0643\u062A\u0628|");
    CHECK(spelt(scripts, "\u0915\u093F\u0930\u094D") == "▁\u0915|\u093F|\u0930|");  // spacing vowel signs stay
    // Marks that stay are in canonical order: U+1D16D (class 226) goes behind U+1D165 (class 216).
    const Vocab music = with({"▁a", "\U0001D165", "\U0001D16D"});
    CHECK(spelt(music, "a\U0001D16D\u0301\U0001D165") == "▁a|\U0001D165|\U0001D16D|");
    CHECK(spelt(music, "a\U0001D165\U0001D16D") == "▁a|\U0001D165|\U0001D16D|");
}

TEST_CASE("wordpiece: a word of more than a hundred characters is unknown") {
    const Vocab vocab = load_vocab(small_wordpiece());
    std::string hundred = "\u2581a";
    for (int i = 1; i < 100; ++i) hundred += "|a";
    CHECK(spelt(vocab, std::string(100, 'a')) == hundred + "|");
    CHECK(spelt(vocab, std::string(101, 'a')) == "[UNK]|");
    CHECK(spelt(vocab, std::string(100'000, 'a') + " b a") == "[UNK]|[UNK]|▁a|");
    std::string marked;
    for (int i = 0; i < 100; ++i) marked += "a\u0301";  // marks that go are not counted
    CHECK(spelt(vocab, marked) == hundred + "|");
}

TEST_CASE("[T6] wordpiece: CLS and SEP frame every text, whatever the flags of the file say") {
    GgufWriter writer = small_wordpiece();
    writer.kv("tokenizer.ggml.add_bos_token", false).kv("tokenizer.ggml.add_eos_token", true);
    const Vocab vocab = load_vocab(writer);
    CHECK(spelt(vocab, "a", {}) == "[CLS]|▁a|[SEP]|");
    CHECK(spelt(vocab, "", {}) == "[CLS]|[SEP]|");
    CHECK(spelt(vocab, "a[SEP]a", {.add_special = false, .parse_special = true}) == "▁a|[SEP]|▁a|");
    CHECK(spelt(vocab, "[SEP]") == "[UNK]|[UNK]|[UNK]|");
    GgufWriter without = write_vocab("bert", {"a", "b"});
    const Vocab bare = load_vocab(without);
    CHECK(bare.encode("xyz", kPlain).empty());  // no way to spell it, no token for that
    CHECK(refusal_of([&] { (void)bare.encode("a"); }) == ErrorCode::missing_special);
}

TEST_CASE("rwkv: the longest token at each place, escapes undone; every byte string survives") {
    const Vocab vocab = load_vocab(small_rwkv());
    CHECK(spelt(vocab, "there the") == "there| the|");
    CHECK(spelt(vocab, "\n\n\n") == "\\n\\n|\\x0a|");
    CHECK(spelt(vocab, "it's\\") == "it\\'s|\\\\|");
    CHECK(spelt(vocab, "aaaaaaa") == "aaaa|aa|\\x61|");
    CHECK(vocab.special(Special::newline) == vocab.encode("\n", kPlain).front());
    std::mt19937_64 random(3);
    for (int i = 0; i < 500; ++i) {
        const std::string text = i % 2 == 0 ? random_bytes(random, 40) : random_text(random, 30);
        CHECK(vocab.decode(vocab.encode(text, kPlain)) == text);
    }
    const Vocab two = load_vocab(write_vocab("rwkv", {"a", "b"}));
    CHECK(refusal_of([&] { (void)two.encode("abc"); }) == ErrorCode::missing_special);
    GgufWriter with_unk = write_vocab("rwkv", {"a", "b"});
    with_unk.kv("tokenizer.ggml.unknown_token_id", 1u);
    CHECK(ids(load_vocab(with_unk).encode("axa")) == std::vector{0, 1, 0});
}

TEST_CASE("plamo2: the cheapest spelling, the longer piece of equals, bytes for what is no piece") {
    const Vocab vocab = load_vocab(small_plamo2());
    CHECK(spelt(vocab, "ab") == "ab|");     // 6 either way
    CHECK(spelt(vocab, "abc") == "ab|c|");  // 9; abc costs 9.5
    CHECK(spelt(vocab, "\xE6\x97\xA5\xE6\x9C\xAC") == "日本|");
    CHECK(spelt(vocab, "\xE6\x97\xA5") == "<0xE6>|<0x97>|<0xA5>|");
    CHECK(spelt(vocab, "zz") == "<0x7A>|<0x7A>|");  // a piece too unlikely to be used
    CHECK(spelt(vocab, "\xEF\xBB\xBF"
                       "a") == "a|");
    CHECK(spelt(vocab, "a\xFF") == "a|<0xFF>|");
    std::mt19937_64 random(3);
    for (int i = 0; i < 500; ++i) {
        const std::string text = i % 2 == 0 ? random_bytes(random, 40) : random_text(random, 30);
        if (!text.starts_with("\xEF\xBB\xBF")) CHECK(vocab.decode(vocab.encode(text, kPlain)) == text);
    }
}

}  // namespace tinfer::test
