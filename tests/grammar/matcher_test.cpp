// SPDX-License-Identifier: MIT
// Masks against the slow matcher, token by token.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "grammar/gbnf.hpp"
#include "grammar/grammar_impl.hpp"
#include "grammar/slow_matcher.hpp"

using namespace tinfer;
using namespace tinfer::grammar;
using tinfer::test::RandomGrammar;
using tinfer::test::SlowMatcher;

namespace {

/// Pieces of one to four letters, half characters among them; the last token ends a generation.
std::shared_ptr<const TokenTrie> small_vocabulary() {
    std::vector<std::string> pieces;
    const auto& letters = RandomGrammar::alphabet();
    for (const auto& a : letters) {
        pieces.push_back(a);
        for (const auto& b : letters) pieces.push_back(a + b);
        for (std::size_t n = 1; n < a.size(); ++n) {
            pieces.push_back(a.substr(0, n));
            pieces.push_back(a.substr(n));
            pieces.push_back("a" + a.substr(0, n));
        }
    }
    for (const char* text : {"abc", "aabb", "ccc", "x", "\"", "\xFF", "\xC0\x80", "\xED\xA0\x80", ""})
        pieces.emplace_back(text);
    pieces.emplace_back("</s>");
    std::vector<bool> is_eog(pieces.size());
    is_eog.back() = true;
    return std::make_shared<const TokenTrie>(std::move(pieces), std::move(is_eog));
}

std::shared_ptr<const Grammar::Impl> grammar_of(std::string_view text, std::size_t cache = 64u << 20) {
    return std::make_shared<const Grammar::Impl>(parse_gbnf(text), GrammarOptions{.max_cache_bytes = cache});
}

bool has(std::span<const std::uint64_t> mask, std::size_t token) { return (mask[token / 64] >> (token % 64) & 1) != 0; }

}  // namespace

TEST_CASE("[S8] grammar: 1,000 random grammars give the masks of the slow matcher, token by token") {
    const auto trie = small_vocabulary();
    const std::uint32_t eog = trie->eog_tokens()[0];
    int n_steps = 0, n_ended = 0, n_ambiguous = 0;
    const auto run = [&](TokenConstraint& constraint, RandomGrammar& grammar) {
        std::string text;
        for (int step = 0; step < 6; ++step, ++n_steps) {
            const auto mask = constraint.mask();
            const std::vector<std::uint64_t> kept(mask.begin(), mask.end());
            std::vector<std::uint32_t> allowed;
            for (std::uint32_t t = 0; t < trie->size(); ++t) {
                const bool slow = t == eog
                                      ? SlowMatcher(grammar.rules, text).run().first
                                      : !trie->piece(t).empty() &&
                                            SlowMatcher(grammar.rules, text + std::string(trie->piece(t))).run().second;
                CAPTURE(t);
                CAPTURE(text);
                REQUIRE(has(kept, t) == slow);
                REQUIRE(constraint.allows(Token{static_cast<std::int32_t>(t)}) == slow);
                if (slow) allowed.push_back(t);
            }
            REQUIRE_FALSE(allowed.empty());  // no dead end
            const std::uint32_t next = allowed[grammar.below(allowed.size())];
            constraint.accept(Token{static_cast<std::int32_t>(next)});
            if (next == eog) {
                ++n_ended;
                break;
            }
            text += trie->piece(next);
        }
    };
    for (std::uint32_t seed = 0; seed < 1000; ++seed) {
        RandomGrammar grammar(seed);
        CAPTURE(seed);
        CAPTURE(grammar.gbnf);
        // A tiny cache for some: what is forgotten is made again.
        const auto constraint =
            make_constraint(grammar_of(grammar.gbnf, seed % 3 == 0 ? 40'000 : 64u << 20), trie, nullptr);
        try {
            run(*constraint, grammar);
        } catch (const Error& error) {  // counts of what counts itself: said, never guessed
            REQUIRE(error.code() == ErrorCode::grammar_too_ambiguous);
            ++n_ambiguous;
        }
    }
    CHECK(n_ambiguous <= 5);
    CHECK(n_steps > 2500);
    CHECK(n_ended > 300);
}

TEST_CASE("[S8] grammar: stacks that become one admit what they do one by one") {
    const std::vector<std::string>& letters = RandomGrammar::alphabet();
    constexpr std::size_t kNever = 1'000'000;
    int n_alive = 0;
    for (std::uint32_t seed = 0; seed < 400; ++seed) {
        RandomGrammar grammar(seed);
        CAPTURE(grammar.gbnf);
        const auto program = parse_gbnf(grammar.gbnf);
        Machine one_by_one(program, 8, kNever), together(program, 8, 0);
        for (int i = 0; i < 20; ++i) {
            auto slow = one_by_one.start(), quick = together.start();
            std::string text;
            for (int step = 0; step < 8 && slow != Machine::kDead; ++step) {
                text += letters[grammar.below(letters.size())];
                CAPTURE(text);
                try {
                    slow = one_by_one.start(), quick = together.start();
                    for (const char c : text) {
                        slow = one_by_one.step(slow, static_cast<std::uint8_t>(c));
                        quick = together.step(quick, static_cast<std::uint8_t>(c));
                    }
                } catch (const Error& error) {
                    REQUIRE(error.code() == ErrorCode::grammar_too_ambiguous);
                    break;
                }
                REQUIRE((slow == Machine::kDead) == (quick == Machine::kDead));
                REQUIRE(one_by_one.accepts(slow) == together.accepts(quick));
                REQUIRE(together.accepts(together.load(together.save(quick))) == together.accepts(quick));
                n_alive += slow == Machine::kDead ? 0 : 1;
            }
        }
    }
    CHECK(n_alive > 2000);
}

TEST_CASE("[S8] grammar: a constraint steps back, resets and clones; what is not allowed changes nothing") {
    const auto trie = small_vocabulary();
    const auto id = [&](std::string_view piece) {
        for (std::uint32_t t = 0; t < trie->size(); ++t)
            if (trie->piece(t) == piece) return Token{static_cast<std::int32_t>(t)};
        throw std::runtime_error("no such piece");
    };
    const auto constraint = make_constraint(grammar_of("root ::= \"ab\" \"c\"{2} \"a\"?"), trie, nullptr);
    constraint->accept(id("ab"));
    constraint->accept(id("c"));
    const auto other = constraint->clone();
    CHECK_THROWS_AS(constraint->accept(id("a")), Error);
    constraint->accept(id("c"));
    CHECK(constraint->allows(id("</s>")));
    CHECK_FALSE(other->allows(id("</s>")));
    constraint->accept(id("</s>"));
    CHECK_FALSE(constraint->allows(id("a")));
    constraint->rewind(2);
    CHECK(constraint->allows(id("c")));
    CHECK_FALSE(constraint->allows(id("</s>")));
    CHECK_THROWS_AS(constraint->rewind(3), Error);
    constraint->reset();
    CHECK(constraint->allows(id("ab")));
    other->accept(id("c"));
    CHECK(other->allows(id("a")));
}

TEST_CASE("[S8] grammar: token items are whole tokens") {
    const auto trie = small_vocabulary();
    const auto constraint = make_constraint(grammar_of("root ::= <[0]> !<[1]> \"b\""), trie, nullptr);
    const auto mask = constraint->mask();
    for (std::uint32_t t = 0; t < trie->size(); ++t) CHECK(has(mask, t) == (t == 0));
    constraint->accept(Token{0});
    const auto second = constraint->mask();
    for (std::uint32_t t = 0; t < trie->size(); ++t) CHECK(has(second, t) == (t != 1 && !trie->is_eog(t)));
    constraint->accept(Token{2});
    CHECK_FALSE(constraint->allows(Token{0}));
}

TEST_CASE("[S8] grammar: a lazy one binds from its trigger on, and is idle again before it") {
    const auto trie = small_vocabulary();
    const auto id = [&](std::string_view piece) {
        for (std::uint32_t t = 0; t < trie->size(); ++t)
            if (trie->piece(t) == piece) return Token{static_cast<std::int32_t>(t)};
        throw std::runtime_error("no such piece");
    };
    const auto check = [&](const GrammarTriggers& triggers) {
        const auto constraint = make_lazy(grammar_of("root ::= \"bcc\" \"a\""), trie, nullptr, triggers);
        for (const char* piece : {"a", "x", "a", "b"}) {
            CHECK(constraint->allows(id("\"")));
            constraint->accept(id(piece));
        }
        constraint->accept(id("c"));
        CHECK_FALSE(constraint->allows(id("a")));
        constraint->accept(id("c"));
        CHECK_FALSE(constraint->allows(id("</s>")));
        constraint->accept(id("a"));
        CHECK(constraint->allows(id("</s>")));
        constraint->rewind(5);
        CHECK(constraint->allows(id("\"")));
        constraint->accept(id("</s>"));
        CHECK_FALSE(constraint->allows(id("a")));
    };
    check({.words = {"bc"}});
    check({.patterns = {"a(bc)"}});
    check({.patterns = {"bc"}});
    check({.patterns = {"^axa(bc)$"}});
    const auto by_token = make_lazy(grammar_of("root ::= \"bcc\""), trie, nullptr, {.tokens = {id("b")}});
    by_token->accept(id("c"));
    by_token->accept(id("b"));
    CHECK(by_token->allows(id("c")));
    CHECK_FALSE(by_token->allows(id("b")));
    CHECK_THROWS_AS(make_lazy(grammar_of("root ::= \"b\""), trie, nullptr, {.patterns = {"("}}), Error);
}
