// SPDX-License-Identifier: MIT
// Constraints allocate nothing per token once the states of a text are known: masks that are made anew, names of open
// objects, steps back, triggers that wait, forced tokens, and draws of a sampler under all of that.
#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "grammar/mask_support.hpp"
#include "support/alloc_counter.hpp"
#include "tinfer/grammar.hpp"
#include "tinfer/sampling.hpp"
#include "tokenizer/vocab_support.hpp"

namespace tinfer::test {

namespace {

const Vocab& gpt2() {
    static const Vocab vocab = load_vocab(small_bpe("gpt-2"));
    return vocab;
}

Grammar grammar_of_schema(std::string_view schema, SchemaOptions::Space space = SchemaOptions::Space::flexible) {
    return Schema::parse(schema, {.space = space}).grammar();
}

/// A text of objects in objects, of names that are long, escaped and not of ASCII.
std::string nested_text(int n) {
    std::string text = "[";
    for (int i = 0; i < n; ++i) {
        const std::string number = std::to_string(i);
        if (i > 0) text += ", ";
        text += R"({"a name of more than sixteen bytes )" + number +
                R"(": {"a": {"b\u0041": [1, {"x": 2}], "b": "{\"a"}}, ")" + number +
                "\": [true, null], \"n\xC3\xA4h\": -1.5e3}";
    }
    return text + "]";
}

/// Reads the tokens; asks for masks, allows and forced tokens, and steps back now and then. No doctest macro in a run
/// that is counted: they allocate.
bool read_tokens(TokenConstraint& constraint, std::span<const Token> tokens) {
    bool is_right = true;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        const auto id = static_cast<std::size_t>(tokens[i]);
        is_right = is_right && has_bit(constraint.mask(), id) && constraint.allows(tokens[i]);
        (void)constraint.forced();
        constraint.accept(tokens[i]);
        if (i % 16 != 15) continue;
        constraint.rewind(9);
        for (std::size_t k = i - 8; k <= i; ++k) constraint.accept(tokens[k]);
    }
    return is_right;
}

std::uint64_t allocations_of(const Grammar& grammar, std::string_view text) {
    const auto constraint = grammar.constraint(gpt2());
    const auto tokens = gpt2().encode(text, {.add_special = false});
    CHECK(read_tokens(*constraint, tokens));
    constraint->reset();
    bool is_right = false;
    const AllocationScope scope;
    is_right = read_tokens(*constraint, tokens);
    const std::uint64_t n = scope.count();
    CHECK(is_right);
    return n;
}

}  // namespace

TEST_CASE("[N6] constraint: names of open objects, arrays, strings and steps back allocate nothing") {
    CHECK(allocations_of(grammar_of_schema("{}"), nested_text(3)) == 0);
    CHECK(allocations_of(grammar_of_schema("{}"), nested_text(60)) == 0);  // beyond the room for names, several times
    CHECK(allocations_of(grammar_of_schema(R"({"type": "object", "properties": {"id": {"type": "integer"}},
                             "additionalProperties": {"type": "array",
                                                      "items": {"type": "string", "maxLength": 40}}})"),
                         R"({"id": 12, "words": ["one", "two \u00e9", "three"], "W\u00f6rter": ["eins", "zwei"]})") ==
          0);
    CHECK(allocations_of(grammar_of_schema(R"({"type": "object", "properties": {"name": {"type": "string"}, "list":
                             {"type": "array", "items": {"type": "integer"}}}, "additionalProperties": false})",
                                           SchemaOptions::Space::spaced),
                         R"({"name": "a b \u00e9 c", "list": [1, -20, 300]})") == 0);
}

TEST_CASE("[N6] constraint: masks that are made anew allocate nothing") {
    // More states than masks are kept, in strings and names with automata that are large and small.
    const auto grammar = grammar_of_schema(R"({"type": "array", "items": {"type": "object", "patternProperties":
        {"^[a-z]+_[0-9]{1,3}$": {"type": "string", "pattern": "^([a-z]+ ){3,9}[A-Z0-9.-]+@[a-z]+$"}},
        "additionalProperties": false}})");
    std::string text = "[";
    for (int i = 0; i < 6; ++i)
        text += R"({"key_)" + std::to_string(i) + R"(": "a few words of A.1@place", "other_)" + std::to_string(7 * i) +
                R"(": "one two three four five six B-2@home"}, )";
    text += R"({"end_1": "a b c D@e"}])";
    CHECK(allocations_of(grammar, text) == 0);
}

TEST_CASE("[N6] constraint: a copy goes on without allocating") {
    const auto grammar = grammar_of_schema("{}");
    const auto constraint = grammar.constraint(gpt2());
    const auto tokens = gpt2().encode(nested_text(8), {.add_special = false});
    const auto half = std::span(tokens).first(tokens.size() / 2), rest = std::span(tokens).subspan(half.size());
    CHECK(read_tokens(*constraint, tokens));
    constraint->reset();
    CHECK(read_tokens(*constraint, half));
    const auto copy = constraint->clone();
    bool is_right = false;
    const AllocationScope scope;
    is_right = read_tokens(*copy, rest);
    const std::uint64_t n = scope.count();
    CHECK(is_right);
    CHECK(n == 0);
}

TEST_CASE("[N6] constraint: one that waits for a trigger allocates nothing per token and keeps what it needs") {
    const auto grammar = Grammar::parse("root ::= \"<call>\" [a-z]+ \"</call>\"");
    const auto words = gpt2().encode("some words and no call < call, ", {.add_special = false});
    const auto run = [&](TokenConstraint& constraint, int n) {
        for (int i = 0; i < n; ++i)
            for (const Token token : words) {
                (void)constraint.mask();
                constraint.accept(token);
            }
    };
    for (const bool is_pattern : {false, true}) {
        CAPTURE(is_pattern);
        GrammarTriggers triggers;
        if (is_pattern) triggers.patterns = {"no call <(call>)"};
        triggers.words = {"<call>"};
        const auto constraint = grammar.constraint(gpt2(), triggers);
        run(*constraint, 600);
        const AllocationScope scope;
        run(*constraint, is_pattern ? 20 : 600);
        const std::uint64_t n = scope.count();
        CHECK(n <= (is_pattern ? 1 : 0));  // an expression may look at the whole text, which is kept
        for (const Token token : gpt2().encode("<call>abc", {.add_special = false})) constraint->accept(token);
        CHECK_FALSE(constraint->allows(gpt2().encode("7", {.add_special = false})[0]));
        constraint->rewind(256);
        CHECK(constraint->allows(gpt2().encode("7", {.add_special = false})[0]));
    }
}

TEST_CASE("[N6] sampler: draws under a schema allocate nothing once its states are known") {
    const auto grammar = grammar_of_schema(
        R"({"type": "object", "properties": {"ok": {"type": "boolean"}, "list": {"type": "array", "items":
            {"enum": ["red", "green", "blue"]}, "maxItems": 9}}, "required": ["ok", "list"]})",
        SchemaOptions::Space::spaced);
    Sampler sampler(gpt2(), {.temp = 1.5f, .seed = 5});
    sampler.constrain(grammar.constraint(gpt2()));
    std::vector<std::vector<float>> rows(300);
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0.0f, 2.0f);
    for (auto& row : rows)
        for (std::size_t t = 0; t < gpt2().size(); ++t) row.push_back(normal(random));
    const auto run = [&] {
        sampler.reset();
        std::size_t n = 0;
        for (const auto& row : rows) {
            ++n;
            if (gpt2().is_eog(sampler.sample(row))) break;
        }
        return n;
    };
    const std::size_t n_first = run();
    std::size_t n_second = 0;
    const AllocationScope scope;
    n_second = run();
    const std::uint64_t n = scope.count();
    CHECK(n == 0);
    CHECK(n_first == n_second);
    CHECK(n_first > 20);
}

}  // namespace tinfer::test
