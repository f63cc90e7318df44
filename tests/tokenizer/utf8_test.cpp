// SPDX-License-Identifier: MIT
#include "tokenizer/utf8.hpp"

#include <doctest/doctest.h>

#include "tokenizer/vocab_support.hpp"

namespace tinfer::test {

namespace {

using Policy = Utf8Stream::Policy;

/// Each maximal invalid or incomplete subpart as one U+FFFD, the whole text at once: the oracle for streams.
std::string replaced(std::string_view text) {
    std::string out;
    while (!text.empty()) {
        const auto front = tokenizer::utf8_front(text);
        out += front.kind == tokenizer::Utf8Front::Kind::character ? text.substr(0, front.length)
                                                                   : tokenizer::kReplacement;
        text.remove_prefix(front.length);
    }
    return out;
}

/// Pushes `text` in random cuts and returns the chunks, the flushed one last.
std::vector<std::string> stream(const std::string& text, Policy policy, std::mt19937_64& random) {
    Utf8Stream utf8(policy);
    std::vector<std::string> chunks;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t n = std::min<std::size_t>(random() % 4, text.size() - at);
        chunks.push_back(utf8.push(text.substr(at, n)));
        CHECK(utf8.held().size() <= 3);
        at += n;
    }
    chunks.push_back(utf8.flush());
    CHECK(utf8.held().empty());
    return chunks;
}

std::string joined(const std::vector<std::string>& chunks) {
    std::string out;
    for (const auto& chunk : chunks) out += chunk;
    return out;
}

}  // namespace

TEST_CASE("[T14] stream: random cuts of random bytes give valid chunks that concatenate to the whole text") {
    std::mt19937_64 random(14);
    for (int i = 0; i < 3000; ++i) {
        const std::string bytes = random_bytes(random, 40);
        const auto chunks = stream(bytes, Policy::replace, random);
        for (const auto& chunk : chunks) CHECK(tokenizer::is_valid_utf8(chunk));
        CHECK(joined(chunks) == replaced(bytes));
        CHECK(joined(stream(bytes, Policy::raw, random)) == bytes);
    }
}

TEST_CASE("[T14] stream: random cuts of valid text give valid chunks under both policies, and the text itself") {
    std::mt19937_64 random(15);
    for (int i = 0; i < 1000; ++i) {
        const std::string text = random_text(random, 30);
        for (const Policy policy : {Policy::replace, Policy::raw}) {
            const auto chunks = stream(text, policy, random);
            for (const auto& chunk : chunks) CHECK(tokenizer::is_valid_utf8(chunk));
            CHECK(joined(chunks) == text);
        }
    }
}

TEST_CASE("stream: what can still become a character is held, what cannot is replaced at once") {
    Utf8Stream utf8;
    CHECK(utf8.push("a\xE2\x82") == "a");
    CHECK(utf8.held() == "\xE2\x82");
    CHECK(utf8.push("\xAC!") == "\xE2\x82\xAC!");
    CHECK(utf8.push("\xF0\x9F\x98") == "");
    CHECK(utf8.push("x") == "\xEF\xBF\xBDx");
    CHECK(utf8.push("\xED\xA0") == "\xEF\xBF\xBD\xEF\xBF\xBD");  // a surrogate's lead: neither byte can become valid
    CHECK(utf8.push("\xC3") == "");
    CHECK(utf8.flush() == "\xEF\xBF\xBD");
    CHECK(utf8.flush() == "");
}

TEST_CASE("stream: the space in front of the first piece is stripped once") {
    Utf8Stream utf8(Policy::replace, true);
    CHECK(utf8.push("") == "");
    CHECK(utf8.push(" Hello") == "Hello");
    CHECK(utf8.push(" world") == " world");
}

TEST_CASE("utf8: structural decoding takes overlong forms and surrogates, and replaces everything else byte by byte") {
    const auto normalized = [](std::string_view text) {
        std::string out;
        tokenizer::normalize_structural(text, out);
        return out;
    };
    CHECK(normalized("\xC1\x81") == "A");
    CHECK(normalized("\xED\xA0\x80") == "\xED\xA0\x80");
    CHECK(normalized("\xF4\x90\x80\x80") == "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
    CHECK(normalized("\xE2\x82") == "\xEF\xBF\xBD\xEF\xBF\xBD");
    std::string masked = "a\xED\xBF\xBF"
                         "b\xED\x9F\xBF";
    tokenizer::mask_surrogates(masked);
    CHECK(masked == "a\xEF\xBF\xBD"
                    "b\xED\x9F\xBF");
}

}  // namespace tinfer::test
