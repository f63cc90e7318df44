// SPDX-License-Identifier: MIT
// Encoding and decoding with small vocabularies of our own: flags, edges, limits, time, threads.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <thread>

#include "support/code_of.hpp"
#include "support/sanitizers.hpp"
#include "tokenizer/pretokenizer.hpp"
#include "tokenizer/pretokenizer_table.hpp"
#include "tokenizer/vocab_support.hpp"

namespace tinfer::test {

namespace {

// Time limits hold for optimized builds; checks, sanitizers and emulators slow everything down by about this factor.
#if defined(TINFER_CHECKED) || !defined(__OPTIMIZE__)
constexpr double kSlowBuild = 10;
#else
constexpr double kSlowBuild = kEmulated ? 10 : 1;
#endif

constexpr EncodeOptions kPlain{.add_special = false, .parse_special = false};

/// Processor time, which a busy machine does not stretch.
double seconds(const auto& action) {
    const std::clock_t begin = std::clock();
    action();
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

std::vector<std::string> pieces_of(const Vocab& vocab, const std::vector<Token>& tokens) {
    std::vector<std::string> out;
    for (const Token token : tokens) out.emplace_back(vocab.piece(token, true));
    return out;
}

}  // namespace

TEST_CASE("spm: the highest score merges first and what is no token is spelt in bytes") {
    const Vocab vocab = load_vocab(small_spm());
    CHECK(pieces_of(vocab, vocab.encode("hello world", kPlain)) == std::vector<std::string>{" hello", " world"});
    CHECK(pieces_of(vocab, vocab.encode("aaaaaaa", kPlain)) == std::vector<std::string>{" ", "aaaa", "aa", "a"});
    CHECK(ids(vocab.encode("\xFFq", kPlain)) ==
          std::vector<int>{static_cast<int>(*vocab.find("▁")), 3 + 0xFF, 3 + 'q'});
}

TEST_CASE("spm: without byte tokens the unknown token stands for each byte") {
    const Vocab vocab = load_vocab(small_spm(false));
    CHECK(ids(vocab.encode("hé", kPlain)) == std::vector<int>{static_cast<int>(*vocab.find("▁h")), 0, 0});
}

TEST_CASE("bpe: the lowest rank merges first, leftmost of equals") {
    const Vocab vocab = load_vocab(small_bpe());
    CHECK(pieces_of(vocab, vocab.encode("hello world", kPlain)) == std::vector<std::string>{"hello", " wor", "l", "d"});
    CHECK(pieces_of(vocab, vocab.encode("aaaaaaa", kPlain)) == std::vector<std::string>{"aaaa", "aa", "a"});
}

TEST_CASE("bpe: short pieces by rescanning and long ones by a heap merge alike") {
    const Vocab vocab = load_vocab(small_bpe());
    std::mt19937_64 random(3);
    for (int i = 0; i < 300; ++i) {
        std::string word;
        for (auto n = random() % 20 + 20; n > 0; --n) word += "helowra"[random() % 7];
        // The digit ends the piece; a word of 20 to 39 letters is on either side of the limit. A merge never depends on
        // letters outside its own piece, so the same letters after 32 that never merge must give the same tokens.
        auto padded = vocab.encode(std::string(32, 'z') + word, kPlain);
        padded.erase(padded.begin(), padded.begin() + 32);
        CHECK(ids(padded) == ids(vocab.encode(word, kPlain)));
    }
}

TEST_CASE("[T6] encode: with add_special the tokens differ by exactly the specials of the vocabulary") {
    GgufWriter writer = small_spm();
    writer.kv("tokenizer.ggml.add_eos_token", true);
    const Vocab vocab = load_vocab(writer);
    std::mt19937_64 random(6);
    for (int i = 0; i < 100; ++i) {
        const std::string text = random_text(random, 20);
        auto expected = vocab.encode(text, kPlain);
        expected.insert(expected.begin(), Token{1});
        expected.push_back(Token{2});
        CHECK(ids(vocab.encode(text)) == ids(expected));
    }
}

TEST_CASE("[T7] encode: text of a control token is ordinary text unless specials are parsed") {
    const Vocab vocab = load_vocab(small_bpe());
    const Token end = *vocab.find("<|endoftext|>");
    const auto off = vocab.encode("a<|endoftext|>a", kPlain);
    CHECK(std::ranges::find(off, end) == off.end());
    CHECK(vocab.decode(off) == "a<|endoftext|>a");
    const auto on = vocab.encode("a<|endoftext|>a", {.add_special = false, .parse_special = true});
    CHECK(on == std::vector<Token>{*vocab.find("a"), end, *vocab.find("a")});
}

TEST_CASE("[T8] encode_into: says how many tokens it needs and writes only when they fit") {
    const Vocab vocab = load_vocab(small_bpe());
    const auto tokens = vocab.encode("hello world");
    std::vector<Token> out(tokens.size() + 2, Token{-7});
    CHECK(vocab.encode_into("hello world", {}, {}) == tokens.size());
    CHECK(vocab.encode_into("hello world", {}, std::span(out).first(tokens.size() - 1)) == tokens.size());
    CHECK(std::ranges::all_of(out, [](Token token) { return token == Token{-7}; }));
    CHECK(vocab.encode_into("hello world", {}, out) == tokens.size());
    CHECK(std::equal(tokens.begin(), tokens.end(), out.begin()));
    CHECK(out[tokens.size()] == Token{-7});
}

TEST_CASE("[T9] encode: empty text gives exactly one BOS where the vocabulary adds it, else nothing") {
    CHECK(ids(load_vocab(small_spm()).encode("")) == std::vector<int>{1});
    CHECK(load_vocab(small_spm()).encode("", kPlain).empty());
    CHECK(load_vocab(small_bpe()).encode("").empty());
    CHECK(load_vocab(small_bpe("llama-bpe")).encode("").size() == 1);
    CHECK(load_vocab(small_spm()).add_bos());
    CHECK_FALSE(load_vocab(small_bpe()).add_bos());
}

TEST_CASE("encode: a BOS that is to be added but does not exist is missing_special, and only then") {
    GgufWriter writer = small_spm();
    writer.kv("tokenizer.ggml.bos_token_id", -1);
    const Vocab vocab = load_vocab(writer);
    CHECK(code_of([&] { (void)vocab.encode("hello"); }) == ErrorCode::missing_special);
    CHECK(vocab.encode("hello", kPlain).size() == 1);
}

TEST_CASE("encode: two BOS are kept, and warned about by the call that makes them") {
    std::vector<std::string> log, of_load;
    const LogSink sink = [&](LogLevel level, std::string_view text) {
        CHECK(level == LogLevel::warning);
        log.emplace_back(text);
    };
    const Vocab vocab =
        load_vocab(small_spm(), {.log = [&](LogLevel, std::string_view text) { of_load.emplace_back(text); }});
    of_load.clear();
    for (const LogSink* each : {&sink, static_cast<const LogSink*>(nullptr)})
        CHECK(ids(vocab.encode("<s>", {.add_special = true, .parse_special = true, .log = each})) ==
              std::vector<int>{1, 1});
    CHECK(log == std::vector<std::string>{"the text begins with BOS and BOS was added: the prompt has two"});
    CHECK(vocab.encode("hello", {.log = &sink}).size() == 2);
    CHECK(log.size() == 1);
    CHECK(of_load.empty());  // the sink of the load is called by the load alone
}

TEST_CASE("[T11] decode: pieces concatenate to the text, and specials show only with the switch") {
    const Vocab vocab = load_vocab(small_bpe());
    const std::vector<Token> tokens{*vocab.find("h"), *vocab.find("<|endoftext|>"), *vocab.find("a")};
    CHECK(vocab.decode(tokens) == "ha");
    CHECK(vocab.decode(tokens, {.render_special = true}) == "h<|endoftext|>a");
    CHECK(vocab.piece(tokens[1]).empty());
    CHECK(vocab.piece(tokens[1], true) == "<|endoftext|>");
    CHECK(code_of([&] { (void)vocab.piece(Token{-1}); }) == ErrorCode::index_out_of_range);
    CHECK(code_of([&] { (void)vocab.decode(std::vector{Token{1 << 20}}); }) == ErrorCode::index_out_of_range);
}

TEST_CASE("decode: cleaning takes spaces before punctuation and around apostrophes, as the vocabulary or caller says") {
    const Vocab vocab = load_vocab(small_bpe());
    const auto cleaned = [&](std::string_view text, DecodeOptions::Clean clean) {
        return vocab.decode(vocab.encode(text, kPlain), {.clean = clean});
    };
    CHECK(cleaned("x . y ?", DecodeOptions::Clean::vocabulary_default) == "x. y?");
    CHECK(cleaned("x . y ?", DecodeOptions::Clean::off) == "x . y ?");
    CHECK(cleaned("a ' b ' ' c", DecodeOptions::Clean::on) ==
          "a'b'' c");  // a removed space serves no second apostrophe
    CHECK(cleaned("it 's he 'd we 're", DecodeOptions::Clean::on) == "it's he 'd we're");
}

TEST_CASE("[T11] decode: every byte string survives SPM, every valid string survives byte-level BPE") {
    std::mt19937_64 random(11);
    const Vocab spm = load_vocab(small_spm()), bpe = load_vocab(small_bpe());
    const DecodeOptions as_is{.clean = DecodeOptions::Clean::off};
    for (int i = 0; i < 2000; ++i) {
        std::string bytes = random_bytes(random, 30);
        const std::string text = random_text(random, 30);
        std::ranges::replace(bytes, ' ', '_');  // a cut-off character in front of a space swallows it
        if (bytes.find("\xE2\x96\x81") == bytes.npos) CHECK(spm.decode(spm.encode(bytes, kPlain), as_is) == bytes);
        CHECK(bpe.decode(bpe.encode(text, kPlain), as_is) == text);
    }
}

TEST_CASE("partition: the longest token goes first, wherever it stands; stripping follows the token") {
    BpeParts parts = small_bpe_parts();
    const auto add = [&](const char* text, int type) {
        parts.tokens.emplace_back(text);
        parts.types.push_back(type);
        return static_cast<int>(parts.tokens.size() - 1);
    };
    const int short_id = add("<ab>", 4), long_id = add("b>cdefgh", 4), control = add("[x]", 3);
    const Vocab vocab = load_vocab(write_bpe(parts));
    const auto tokens = ids(vocab.encode("<ab>cdefgh<ab>[x]", kPlain));
    CHECK(std::ranges::count(tokens, long_id) == 1);   // begins later, but is longer
    CHECK(std::ranges::count(tokens, short_id) == 1);  // the second one
    CHECK(std::ranges::count(tokens, control) == 0);
    CHECK(ids(vocab.encode("[x]", {.add_special = false, .parse_special = true})) == std::vector<int>{control});
}

TEST_CASE("partition: thousands of reserved tokens cost a short text less than 5 ms") {
    BpeParts parts = small_bpe_parts();
    for (int i = 0; i < 20000; ++i) {
        parts.tokens.push_back("<|reserved_special_token_" + std::to_string(i) + "|>");
        parts.types.push_back(3);
    }
    const Vocab vocab = load_vocab(write_bpe(parts));
    std::string text;
    for (int i = 0; text.size() < 10000; ++i)
        text += "hello <|reserved_special_token_" + std::to_string(i * 7) + "|> a < b ";
    std::vector<Token> tokens;
    double best = 1;
    for (int i = 0; i < 5; ++i)
        best = std::min(best,
                        seconds([&] { tokens = vocab.encode(text, {.add_special = false, .parse_special = true}); }));
    CHECK(vocab.decode(tokens, {.render_special = true, .clean = DecodeOptions::Clean::off}) == text);
    CHECK(best < 0.005 * kSlowBuild);
}

TEST_CASE("encode: a megabyte of one letter, of spaces or of emoji joiners takes less than a second") {
    for (const char* unit : {"a", " ", "z", "\n", ".", "7", "\xE2\x80\x8D", "\xE4\xBA\xBA", "'s", "\xFF"}) {
        std::string text;
        while (text.size() < 1'000'000) text += unit;
        for (const auto& writer :
             {small_spm(), small_bpe(), small_bpe("llama-bpe"), small_bpe("deepseek-llm"), small_bpe("smollm"),
              small_bpe("gpt-4o"), small_wordpiece(), small_unigram(), small_rwkv(), small_plamo2()}) {
            const Vocab vocab = load_vocab(writer);
            const bool is_reversible = vocab.algorithm() != "bert" && vocab.algorithm() != "t5" &&
                                       (vocab.algorithm() != "gpt2" || unit[0] != '\xFF');
            std::vector<Token> tokens;
            CAPTURE(unit);
            CAPTURE(vocab.algorithm());
            CAPTURE(vocab.pretokenizer());
            CHECK(seconds([&] { tokens = vocab.encode(text, kPlain); }) < 1.0 * kSlowBuild);
            if (is_reversible) CHECK(vocab.decode(tokens, {.clean = DecodeOptions::Clean::off}) == text);
        }
    }
}

TEST_CASE("encode: NUL and invalid bytes are text; more than 2^31 bytes are limit_exceeded") {
    using namespace std::string_view_literals;
    const Vocab spm = load_vocab(small_spm()), bpe = load_vocab(small_bpe());
    CHECK(spm.decode(spm.encode("a\0b\xC3"sv, kPlain)) == "a\0b\xC3"sv);
    CHECK(bpe.decode(bpe.encode("a\0b\xC3"sv)) == "a\0b\xEF\xBF\xBD"sv);
    CHECK(bpe.decode(bpe.encode("\xED\xA0\x80"sv)) == "\xED\xA0\x80"sv);
    const std::string_view huge("x", (std::size_t{1} << 31) + 1);  // must be refused before it is looked at
    CHECK(code_of([&] { (void)bpe.encode(huge); }) == ErrorCode::limit_exceeded);
}

TEST_CASE("bpe: plain-text vocabularies escape spaces, keep runs of newlines whole and spell unknown characters") {
    std::vector<std::string> tokens;
    std::vector<std::int32_t> types;
    for (const char* text : {"<bos>", "▁", "a", "b", "ab", "▁ab", "\n", "\n\n\n"}) {
        tokens.emplace_back(text);
        types.push_back(text[0] == '<' ? 3 : 1);
    }
    for (const char* text : {"<0xC3>", "<0xA9>"}) {
        tokens.emplace_back(text);
        types.push_back(6);
    }
    GgufWriter writer;
    writer.kv("general.architecture", "gemma4")
        .kv("tokenizer.ggml.model", "gemma4")
        .kv("tokenizer.ggml.bos_token_id", 0u);
    writer.array("tokenizer.ggml.tokens", tokens).array("tokenizer.ggml.token_type", types);
    writer.array("tokenizer.ggml.merges", {"a b", "▁ ab"}).kv("tokenizer.ggml.add_bos_token", false);
    const Vocab vocab = load_vocab(writer);
    CHECK(ids(vocab.encode("ab ab\n\n\né")) == std::vector<int>{0, 4, 5, 7, 8, 9});
    CHECK(vocab.decode(vocab.encode("ab ab\n\n\né")) == "ab ab\n\n\né");
}

TEST_CASE("pretokenizer: all 82 names lead to a family that compiles") {
    CHECK(tokenizer::pretokenizer_names().size() == 82);
    CHECK(tokenizer::pretokenizer_families().size() == 25);
    for (const auto& name : tokenizer::pretokenizer_names()) {
        CAPTURE(name.name);
        CHECK(tokenizer::find_pretokenizer(name.name) == &name);  // no name twice
        CHECK(tokenizer::find_pretokenizer_family(name.family) != nullptr);
    }
    for (const auto& family : tokenizer::pretokenizer_families()) CHECK_NOTHROW(tokenizer::Pretokenizer{family});
}

TEST_CASE("pretokenizer: \\s is White_Space and \\p{Han} the script, and abbreviations expand before that") {
    CHECK(tokenizer::expand_pattern(R"([^\s]\\s\S\p{Han})") == R"([^\p{White_Space}]\\s\P{White_Space}\p{sc:Han})");
    CHECK(tokenizer::expand_pattern("%G%").find(R"(\s)") == std::string::npos);
}

TEST_CASE("encode: sixteen threads share one vocabulary") {
    const Vocab vocab = load_vocab(small_bpe("llama-bpe"));
    std::mt19937_64 random(16);
    std::vector<std::string> texts;
    std::vector<std::vector<Token>> expected;
    for (int i = 0; i < 50; ++i) {
        texts.push_back(random_text(random, 60));
        expected.push_back(vocab.encode(texts.back()));
    }
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 16; ++t)
        threads.emplace_back([&, handle = vocab] {
            for (std::size_t i = 0; i < texts.size(); ++i)
                if (handle.encode(texts[i]) != expected[i]) ++wrong;
        });
    for (auto& thread : threads) thread.join();
    CHECK(wrong == 0);
}

}  // namespace tinfer::test
