// SPDX-License-Identifier: MIT
// A text of more tokens than are asked for is refused soon, with memory that the number bounds and not the text.
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "support/alloc_counter.hpp"
#include "support/code_of.hpp"
#include "tokenizer/vocab_support.hpp"

namespace tinfer::test {

namespace {

std::string repeated(std::string_view unit, std::size_t n_bytes) {
    std::string text;
    while (text.size() < n_bytes) text += unit;
    return text;
}

}  // namespace

TEST_CASE("encode: max_tokens refuses what has more tokens and changes nothing else") {
    for (const auto& [name, vocab] : small_vocabs()) {
        CAPTURE(name);
        for (const char* text : {"hello world", "a b , a b", "aaaaaaaaaaaaaaa", "\xFF\xFE x", "", "  ", "中 héllo"})
            for (const bool add_special : {false, true}) {
                CAPTURE(text);
                EncodeOptions options{.add_special = add_special, .parse_special = true};
                const auto tokens = vocab.encode(text, options);
                options.max_tokens = tokens.size();
                CHECK(vocab.encode(text, options) == tokens);
                if (tokens.empty()) continue;
                options.max_tokens = tokens.size() - 1;
                CHECK(code_of([&] { (void)vocab.encode(text, options); }) == ErrorCode::limit_exceeded);
                CHECK(vocab.encode(text, {.add_special = add_special, .parse_special = true}) == tokens);
            }
    }
    const Vocab vocab = load_vocab(small_bpe());
    try {
        (void)vocab.encode("hello world", {.add_special = false, .max_tokens = 2});
        FAIL("nothing was thrown");
    } catch (const Error& error) {
        CHECK(std::string(error.what()) == "text of 11 bytes: more than 2 tokens");
    }
}

TEST_CASE("encode: a text far beyond max_tokens takes no memory for all of it") {
    constexpr std::size_t kBytes = 4'000'000, kMax = 1000;
    for (const auto& [name, vocab] : small_vocabs()) {
        CAPTURE(name);
        // WordPiece makes one token of a word of any length, and Unigram of unknown characters.
        for (const std::string_view unit : {"a", "a b ", "hello ", "<|endoftext|>"}) {
            CAPTURE(unit);
            if (unit == "a" && name == "WordPiece") continue;
            const std::string text = repeated(unit, kBytes);
            const AllocationScope memory;
            CHECK(code_of([&] {
                      (void)vocab.encode(text, {.add_special = false, .parse_special = true, .max_tokens = kMax});
                  }) == ErrorCode::limit_exceeded);
            // Unigram normalizes the text first, which may make three bytes of one and doubles what it holds.
            CHECK(memory.peak() < (name == "Unigram" ? std::int64_t{6 * kBytes} : std::int64_t{kBytes / 2}));
        }
    }
}

TEST_CASE("encode: merging a run of one letter takes under 64 bytes for each of it") {
    const std::string text(1'000'000, 'a');
    for (const char* name : {"bpe", "spm"}) {
        CAPTURE(name);
        const Vocab vocab = load_vocab(std::string_view(name) == "bpe" ? small_bpe() : small_spm());
        const AllocationScope memory;
        const auto tokens = vocab.encode(text, {.add_special = false});
        CHECK(tokens.size() > text.size() / 8);
        CHECK(memory.peak() < std::int64_t{64'000'000});
    }
}

TEST_CASE("encode: Unigram keeps ways only where pieces overlap") {
    const Vocab vocab = load_vocab(small_unigram());
    const std::string text = repeated("hello a ", 1'000'000);
    const AllocationScope memory;
    CHECK(vocab.encode(text, {.add_special = false}).size() > 1000);
    CHECK(memory.peak() < std::int64_t{14'000'000});  // the normalized text and the tokens
}

}  // namespace tinfer::test
