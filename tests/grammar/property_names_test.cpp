// SPDX-License-Identifier: MIT
// No name comes twice in an object of a generated text, whatever the tokens.
#include <doctest/doctest.h>

#include <random>
#include <string>

#include "base/error.hpp"
#include "base/json.hpp"
#include "grammar/constraint.hpp"
#include "grammar/emit.hpp"
#include "tinfer/grammar.hpp"

using namespace tinfer;

namespace {

/// Bytes, and longer pieces with quotes in them.
std::shared_ptr<const grammar::TokenTrie> names_trie() {
    std::vector<std::string> pieces;
    for (int b = 1; b < 256; ++b) pieces.emplace_back(1, static_cast<char>(b));
    for (const char* piece : {"\":", "a\":", "\"a\":", "\"a\":1,\"b\":", "\",\"", "{\"a\":1,\"a\":", "1,\"a", "<end>"})
        pieces.emplace_back(piece);
    std::vector<bool> is_eog(pieces.size());
    is_eog.back() = true;
    return std::make_shared<const grammar::TokenTrie>(std::move(pieces), std::move(is_eog));
}

Token named(const grammar::TokenTrie& trie, std::string_view piece) {
    for (std::uint32_t t = 0; t < trie.size(); ++t)
        if (trie.piece(t) == piece) return Token{static_cast<std::int32_t>(t)};
    FAIL("no such piece");
    return {};
}

std::shared_ptr<const Grammar::Impl> impl_of(std::string_view schema) {
    auto checker = std::make_shared<grammar::Checker>(schema, SchemaOptions{.max_space = 2});
    auto program = grammar::Emitter(checker->normalizer(), checker->options()).run({checker->normalizer().root()});
    return std::make_shared<const Grammar::Impl>(std::move(program), GrammarOptions{}, std::move(checker));
}

}  // namespace

TEST_CASE("[S9] names: a member is not given twice, however its name is spelled or cut into tokens") {
    const auto trie = names_trie();
    grammar::GrammarConstraint constraint(impl_of(R"({"type": "object"})"), trie, nullptr);
    const auto accept = [&](std::string_view text) {
        for (const char c : text) constraint.accept(named(*trie, std::string(1, c)));
    };
    const auto allows = [&](std::string_view piece) {
        const Token token = named(*trie, piece);
        const auto id = static_cast<std::size_t>(token);
        const bool by_mask = (constraint.mask()[id / 64] >> (id % 64) & 1) != 0;
        CHECK(constraint.allows(token) == by_mask);
        if (!by_mask) CHECK_THROWS_AS(constraint.accept(token), Error);
        return by_mask;
    };
    CHECK_FALSE(allows("{\"a\":1,\"a\":"));
    accept("{\"a\":1,\"");
    CHECK(allows("\":"));  // the empty name
    CHECK_FALSE(allows("a\":"));
    accept("\\u0061");
    CHECK_FALSE(allows("\""));
    CHECK(allows("b"));
    constraint.rewind(7);
    CHECK_FALSE(allows("\"a\":"));
    CHECK_FALSE(allows("\"a\":1,\"b\":"));
    CHECK(allows("\""));
    accept("\"b\":{\"a\":[{\"b\":\"a\"},{");
    CHECK(allows("\"a\":"));
    accept("\"b\":1}]},");
    CHECK_FALSE(allows("\"a\":"));
    const auto copy = constraint.clone();
    constraint.reset();
    CHECK(allows("{"));
    accept("{");
    CHECK(allows("\"a\":1,\"b\":"));
    CHECK_FALSE(copy->allows(named(*trie, "\"a\":")));
}

TEST_CASE("[S9] names: texts at random through tokens have none twice, and a mask is what accept allows") {
    const auto trie = names_trie();
    const std::string schema =
        R"({"type": "object", "properties": {"a": true}, "minProperties": 3, "maxProperties": 4,
            "additionalProperties": {"type": ["object", "integer"], "maxProperties": 2,
            "additionalProperties": {"type": "null"}}})";
    const auto impl = impl_of(schema);
    std::mt19937 random(11);
    int n_ended = 0;
    for (int i = 0; i < 300; ++i) {
        grammar::GrammarConstraint constraint(impl, trie, nullptr);
        std::string text;
        for (int k = 0; k < 400; ++k) {
            std::vector<std::uint32_t> allowed, closing;
            const auto mask = constraint.mask();
            for (std::uint32_t t = 0; t < trie->size(); ++t) {
                if ((mask[t / 64] >> (t % 64) & 1) == 0) continue;
                allowed.push_back(t);
                const auto piece = trie->piece(t);
                if (piece.find_first_of("\"}],:") != piece.npos || trie->is_eog(t)) closing.push_back(t);
            }
            REQUIRE(!allowed.empty());
            const auto& from = !closing.empty() && random() % 4 != 0 ? closing : allowed;
            const std::uint32_t t = from[random() % from.size()];
            constraint.accept(Token{static_cast<std::int32_t>(t)});
            if (trie->is_eog(t)) {
                ++n_ended;
                CAPTURE(text);
                CHECK(impl->checker->matches(text));
                CHECK_NOTHROW((void)JsonDocument::parse(text, "text", {.refuse_duplicates = true}));
                break;
            }
            text += trie->piece(t);
        }
    }
    CHECK(n_ended > 100);
}

TEST_CASE("[S9] names: what no place needs is dropped, and a long text with steps back is masked as one read at once") {
    const auto trie = names_trie();
    const auto impl = impl_of(R"({"type": "array", "minItems": 99999, "items": {"type": "object", "maxProperties": 6,
        "additionalProperties": {"type": ["object", "null"], "maxProperties": 3, "additionalProperties":
        {"type": "null"}}}})");
    grammar::GrammarConstraint constraint(impl, trie, nullptr);
    std::vector<Token> text;
    std::mt19937 random(5);
    int n_compared = 0, n_names = 0;
    std::size_t n_remembered = 0;
    for (int step = 0; step < 12000; ++step) {
        if (step % 97 == 96) {
            const std::size_t n = random() % std::min<std::size_t>(n_remembered, step % 5 == 0 ? 1000 : 60);
            constraint.rewind(n);
            n_remembered -= n;
            text.resize(text.size() - n);
        }
        const auto mask = constraint.mask();
        const std::vector<std::uint64_t> bits(mask.begin(), mask.end());
        if (step % 61 == 0) {
            grammar::GrammarConstraint fresh(impl, trie, nullptr);
            for (const Token token : text) fresh.accept(token);
            const auto copy = constraint.clone();
            const auto of_fresh = fresh.mask(), of_copy = copy->mask();
            REQUIRE(std::ranges::equal(bits, of_fresh));
            REQUIRE(std::ranges::equal(bits, of_copy));
            ++n_compared;
        }
        std::vector<std::uint32_t> allowed, closing;
        for (std::uint32_t t = 0; t < trie->size(); ++t) {
            if ((bits[t / 64] >> (t % 64) & 1) == 0) continue;
            allowed.push_back(t);
            if (trie->piece(t).find_first_of("\"}],:{nul") != std::string_view::npos) closing.push_back(t);
        }
        const auto& from = !closing.empty() && random() % 8 != 0 ? closing : allowed;
        text.push_back(Token{static_cast<std::int32_t>(from[random() % from.size()])});
        n_names += trie->piece(static_cast<std::uint32_t>(text.back())).find("\":") != std::string_view::npos ? 1 : 0;
        constraint.accept(text.back());
        n_remembered = std::min<std::size_t>(n_remembered + 1, 1024);
    }
    CHECK(n_compared > 150);
    CHECK(n_names > 300);
}
