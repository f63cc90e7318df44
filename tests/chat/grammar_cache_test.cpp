// SPDX-License-Identifier: MIT
// Grammars that are kept by what they were compiled from.
#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "support/code_of.hpp"
#include "tinfer/chat.hpp"
#include "tokenizer/vocab_support.hpp"

namespace tinfer::test {

namespace {

std::string object_of(int n, std::string_view prefix) {
    std::string out = R"({"type": "object", "properties": {)";
    for (int i = 0; i < n; ++i) out += cat(i > 0 ? "," : "", "\"", prefix, i, R"(": {"type": "integer"})");
    return out + "}}";
}

constexpr std::string_view kLookup =
    R"([{"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}])";

}  // namespace

TEST_CASE("grammar cache: the same text is compiled once, by its content") {
    const Vocab vocab = load_vocab(small_bpe());
    GrammarCache cache(64 << 20);
    for (int i = 0; i < 3; ++i) {
        CHECK(cache.schema(R"({"type": "integer"})").matches("12"));
        CHECK(cache.grammar("root ::= \"a\"", vocab).matches("a"));
    }
    CHECK(cache.stats().compiled == 2);
    CHECK(cache.stats().found == 4);
    // A schema and a grammar of the same text, and calls with other options, are different.
    CHECK(code_of([&] { (void)cache.grammar(R"({"type": "integer"})", vocab); }) == ErrorCode::bad_grammar);
    const ChatTemplate chat = *ChatTemplate::built_in("chatml");
    (void)cache.calls(chat, kLookup);
    (void)cache.calls(chat, kLookup);
    (void)cache.calls(chat, kLookup, {.use = ToolUse::required});
    CHECK(cache.stats().compiled == 4);
    CHECK(cache.stats().kept == 4);
    // What fails is not kept.
    CHECK(code_of([&] { (void)cache.schema("{\"type\": \"nothing\"}"); }) == ErrorCode::bad_schema);
    CHECK(cache.stats().kept == 4);
}

TEST_CASE("grammar cache: grammars that no one uses make room, those in use do not") {
    const std::size_t one = [] {
        GrammarCache cache(64 << 20);
        (void)cache.schema(object_of(200, "a"));
        return cache.stats().bytes;
    }();
    CHECK(one > 10'000);
    GrammarCache cache(4 * one);
    for (int i = 0; i < 20; ++i) {
        (void)cache.schema(object_of(200, std::string(1, static_cast<char>('a' + i))));
        CHECK(cache.stats().bytes <= 4 * one);
    }
    CHECK(cache.stats().kept >= 1);
    CHECK(cache.stats().kept <= 4);
    std::vector<Grammar> used;
    ErrorCode refused{};
    for (int i = 0; i < 20 && refused != ErrorCode::busy; ++i) {
        try {
            used.push_back(cache.schema(object_of(200, std::string(1, static_cast<char>('a' + i)))));
        } catch (const Error& error) {
            refused = error.code();
        }
    }
    CHECK(refused == ErrorCode::busy);
    CHECK(used.size() >= 2);
    CHECK(cache.stats().bytes <= 4 * one);
    used.clear();
    CHECK(cache.schema(object_of(200, "z")).matches("{\"z1\": 1}"));
}

TEST_CASE("grammar cache: memory is counted while a schema is compiled, and given back where that fails") {
    GrammarCache cache(1 << 20);
    CHECK(code_of([&] { (void)cache.schema(object_of(30'000, "a")); }) == ErrorCode::limit_exceeded);
    CHECK(cache.stats().bytes == 0);
    CHECK(cache.schema("{\"type\": \"null\"}").matches("null"));
}

TEST_CASE("grammar cache: whoever gives up ends compiling, and others get the grammar all the same") {
    GrammarCache cache(256 << 20);
    const std::string large = object_of(20'000, "a");
    int n_asked = 0;
    CHECK(code_of([&] { (void)cache.schema(large, [&] { return ++n_asked == 2; }); }) == ErrorCode::cancelled);
    CHECK(n_asked == 2);
    CHECK(cache.stats().bytes == 0);
    const Vocab vocab = load_vocab(small_bpe());
    std::string rules = "root ::= r0\n";
    for (int i = 0; i < 200'000; ++i) rules += "r" + std::to_string(i) + " ::= \"a\"\n";
    CHECK(code_of([&] { (void)cache.grammar(rules, vocab, [] { return true; }); }) == ErrorCode::cancelled);

    std::atomic<int> n_got{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
        threads.emplace_back([&, i] {
            try {
                (void)cache.schema(large, [i] { return i == 0; });
                ++n_got;
            } catch (const Error& error) {
                if (error.code() != ErrorCode::cancelled || i != 0) n_got = -100;
            }
        });
    for (auto& thread : threads) thread.join();
    CHECK(n_got >= 3);
    CHECK(cache.stats().compiled == 1);
}

}  // namespace tinfer::test
